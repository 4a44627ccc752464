//! How a clock of this machine is asked for: `raw`, `monotonic`, `tai`, `/dev/ptpN`, `/dev/ppsN`,
//! with `KEY=VALUE` behind commas. Pure: whether it is there is found out when it is opened.

use std::path::PathBuf;
use std::str::FromStr;

use horolog_record::ComparedKind;
use horolog_sys::clock_pair::KernelClockId;
use thiserror::Error;

/// What stands for a clock that cannot be.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ClockNameError {
    /// No such kind of clock.
    #[error(
        "there is no clock '{0}'; write raw, monotonic, tai, /dev/ptpN[,scale=utc][,tai-offset=37] \
         or /dev/ppsN[,edge=clear]"
    )]
    Unknown(String),
    /// A key or a value that this clock does not have.
    #[error(
        "'{0}' says nothing of this clock; /dev/ptpN takes scale=tai, scale=utc and \
         tai-offset=SECONDS, /dev/ppsN edge=assert and edge=clear"
    )]
    Setting(String),
}

/// A clock that is to be compared with the system clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockName {
    /// The text that it was read from.
    pub text: String,
    pub(super) device: Device,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Device {
    Kernel(KernelClockId),
    Phc { path: PathBuf, scale: Scale },
    Pps { path: PathBuf, clear: bool },
}

/// The timescale of a hardware clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Utc,
    /// So many seconds ahead of UTC; as the kernel has it where none is given.
    Tai(Option<i32>),
}

const KERNEL: [(&str, KernelClockId); 3] = [
    ("raw", KernelClockId::MonotonicRaw),
    ("monotonic", KernelClockId::Monotonic),
    ("tai", KernelClockId::Tai),
];

impl ClockName {
    /// The clocks that every Linux has and that tell something of the system clock: the oscillator
    /// as it runs, and TAI.
    #[must_use]
    pub fn usual() -> Vec<Self> {
        let of = |(name, clock): &(&str, KernelClockId)| Self {
            text: (*name).to_owned(),
            device: Device::Kernel(*clock),
        };
        [&KERNEL[0], &KERNEL[2]].map(of).into()
    }

    pub(super) const fn kind(&self) -> ComparedKind {
        match self.device {
            Device::Kernel(_) => ComparedKind::Kernel,
            Device::Phc { .. } => ComparedKind::Phc,
            Device::Pps { .. } => ComparedKind::Pps,
        }
    }
}

impl FromStr for ClockName {
    type Err = ClockNameError;

    fn from_str(text: &str) -> Result<Self, ClockNameError> {
        let mut words = text.split(',');
        let name = words.next().unwrap_or_default();
        let path = PathBuf::from(name);
        let kernel = KERNEL.iter().find(|(known, _)| *known == name);
        let mut device = if let Some((_, clock)) = kernel {
            Device::Kernel(*clock)
        } else if name.starts_with("/dev/ptp") {
            Device::Phc { path, scale: Scale::Tai(None) }
        } else if name.starts_with("/dev/pps") {
            Device::Pps { path, clear: false }
        } else {
            return Err(ClockNameError::Unknown(name.to_owned()));
        };
        for word in words {
            device.set(word).ok_or_else(|| ClockNameError::Setting(word.to_owned()))?;
        }
        Ok(Self { text: text.to_owned(), device })
    }
}

impl Device {
    fn set(&mut self, setting: &str) -> Option<()> {
        match (self, setting.split_once('=')?) {
            (Self::Phc { scale, .. }, ("scale", "utc")) => *scale = Scale::Utc,
            (Self::Phc { scale, .. }, ("scale", "tai")) => *scale = Scale::Tai(None),
            (Self::Phc { scale, .. }, ("tai-offset", seconds)) => {
                *scale = Scale::Tai(Some(seconds.parse().ok()?));
            }
            (Self::Pps { clear, .. }, ("edge", "assert")) => *clear = false,
            (Self::Pps { clear, .. }, ("edge", "clear")) => *clear = true,
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn device(text: &str) -> Device {
        text.parse::<ClockName>().unwrap().device
    }

    #[test]
    fn clocks_have_names_and_settings() {
        assert_eq!(device("raw"), Device::Kernel(KernelClockId::MonotonicRaw));
        let phc = |scale| Device::Phc { path: "/dev/ptp0".into(), scale };
        assert_eq!(device("/dev/ptp0"), phc(Scale::Tai(None)));
        assert_eq!(device("/dev/ptp0,scale=utc"), phc(Scale::Utc));
        assert_eq!(device("/dev/ptp0,tai-offset=37"), phc(Scale::Tai(Some(37))));
        assert_eq!(
            device("/dev/pps1,edge=clear"),
            Device::Pps { path: "/dev/pps1".into(), clear: true }
        );
    }

    #[test]
    fn what_is_no_clock_is_named() {
        for wrong in ["", "quartz", "ptp0", "/dev/rtc0", ",", "RAW"] {
            let error = wrong.parse::<ClockName>().unwrap_err();
            assert!(matches!(error, ClockNameError::Unknown(_)), "{wrong}: {error}");
        }
        for wrong in ["raw,edge=clear", "/dev/ptp0,edge=clear", "/dev/pps0,scale=utc", "tai,"] {
            let error = wrong.parse::<ClockName>().unwrap_err();
            assert!(matches!(error, ClockNameError::Setting(_)), "{wrong}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_clock_or_is_refused(text in "(/dev/p(tp|ps)0)?[a-z0-9,=-]{0,20}") {
            if let Ok(name) = text.parse::<ClockName>() {
                prop_assert_eq!(name.text, text);
            }
        }
    }
}
