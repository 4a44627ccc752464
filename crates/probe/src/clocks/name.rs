//! Parser of clock names: `raw`, `monotonic`, `tai`, and `/dev/ptpN` and `/dev/ppsN`, which may be
//! followed by options, `,KEY=VALUE`. Whether the clock exists is checked when it is opened.

use std::path::PathBuf;
use std::str::FromStr;

use horolog_record::ComparedClockKind;
use horolog_sys::clock_pair::KernelClockId;
use thiserror::Error;

/// Reason why a clock name is invalid.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ClockNameError {
    /// Unknown kind of clock.
    #[error(
        "unknown clock '{0}'; write raw, monotonic, tai, /dev/ptpN[,scale=utc][,tai-offset=37] or \
         /dev/ppsN[,edge=clear]"
    )]
    UnknownClock(String),
    /// Option that this kind of clock does not have, or an invalid value.
    #[error(
        "unknown option '{0}' of this clock; /dev/ptpN takes scale=tai, scale=utc and \
         tai-offset=SECONDS, /dev/ppsN edge=assert and edge=clear"
    )]
    UnknownOption(String),
}

/// Parsed name of a clock that is compared with the system clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockName {
    /// Text that it was parsed from.
    pub text: String,
    pub(super) device: ClockDevice,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClockDevice {
    Kernel(KernelClockId),
    Phc { path: PathBuf, scale: PhcTimescale },
    Pps { path: PathBuf, clear: bool },
}

/// Timescale of a hardware clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PhcTimescale {
    Utc,
    /// TAI, with TAI minus UTC in seconds; `None` takes the kernel's value.
    Tai(Option<i32>),
}

const KERNEL_CLOCKS: [(&str, KernelClockId); 3] = [
    ("raw", KernelClockId::MonotonicRaw),
    ("monotonic", KernelClockId::Monotonic),
    ("tai", KernelClockId::Tai),
];

impl ClockName {
    /// Returns the default clocks: `CLOCK_MONOTONIC_RAW`, which no daemon steers, and `CLOCK_TAI`.
    #[must_use]
    pub fn defaults() -> Vec<Self> {
        let of = |(name, clock): &(&str, KernelClockId)| Self {
            text: (*name).to_owned(),
            device: ClockDevice::Kernel(*clock),
        };
        [&KERNEL_CLOCKS[0], &KERNEL_CLOCKS[2]].map(of).into()
    }

    pub(super) const fn kind(&self) -> ComparedClockKind {
        match self.device {
            ClockDevice::Kernel(_) => ComparedClockKind::Kernel,
            ClockDevice::Phc { .. } => ComparedClockKind::Phc,
            ClockDevice::Pps { .. } => ComparedClockKind::Pps,
        }
    }
}

impl FromStr for ClockName {
    type Err = ClockNameError;

    fn from_str(text: &str) -> Result<Self, ClockNameError> {
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default();
        let path = PathBuf::from(name);
        let kernel = KERNEL_CLOCKS.iter().find(|(known, _)| *known == name);
        let mut device = if let Some((_, clock)) = kernel {
            ClockDevice::Kernel(*clock)
        } else if name.starts_with("/dev/ptp") {
            ClockDevice::Phc { path, scale: PhcTimescale::Tai(None) }
        } else if name.starts_with("/dev/pps") {
            ClockDevice::Pps { path, clear: false }
        } else {
            return Err(ClockNameError::UnknownClock(name.to_owned()));
        };
        for word in parts {
            device
                .set_option(word)
                .ok_or_else(|| ClockNameError::UnknownOption(word.to_owned()))?;
        }
        Ok(Self { text: text.to_owned(), device })
    }
}

impl ClockDevice {
    fn set_option(&mut self, setting: &str) -> Option<()> {
        match (self, setting.split_once('=')?) {
            (Self::Phc { scale, .. }, ("scale", "utc")) => *scale = PhcTimescale::Utc,
            (Self::Phc { scale, .. }, ("scale", "tai")) => *scale = PhcTimescale::Tai(None),
            (Self::Phc { scale, .. }, ("tai-offset", seconds)) => {
                *scale = PhcTimescale::Tai(Some(seconds.parse().ok()?));
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

    fn device(text: &str) -> ClockDevice {
        text.parse::<ClockName>().unwrap().device
    }

    #[test]
    fn clocks_have_names_and_settings() {
        assert_eq!(device("raw"), ClockDevice::Kernel(KernelClockId::MonotonicRaw));
        let phc = |scale| ClockDevice::Phc { path: "/dev/ptp0".into(), scale };
        assert_eq!(device("/dev/ptp0"), phc(PhcTimescale::Tai(None)));
        assert_eq!(device("/dev/ptp0,scale=utc"), phc(PhcTimescale::Utc));
        assert_eq!(device("/dev/ptp0,tai-offset=37"), phc(PhcTimescale::Tai(Some(37))));
        assert_eq!(
            device("/dev/pps1,edge=clear"),
            ClockDevice::Pps { path: "/dev/pps1".into(), clear: true }
        );
    }

    #[test]
    fn what_is_no_clock_is_named() {
        for wrong in ["", "quartz", "ptp0", "/dev/rtc0", ",", "RAW"] {
            let error = wrong.parse::<ClockName>().unwrap_err();
            assert!(matches!(error, ClockNameError::UnknownClock(_)), "{wrong}: {error}");
        }
        for wrong in ["raw,edge=clear", "/dev/ptp0,edge=clear", "/dev/pps0,scale=utc", "tai,"] {
            let error = wrong.parse::<ClockName>().unwrap_err();
            assert!(matches!(error, ClockNameError::UnknownOption(_)), "{wrong}: {error}");
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
