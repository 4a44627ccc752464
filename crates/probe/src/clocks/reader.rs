//! Clocks that can be read beside the system clock: one trait, and behind it the kernel's clocks,
//! PTP hardware clocks and pulses.

use std::io;
use std::time::Duration;

use horolog_sys::adjtimex::kernel_clock;
use horolog_sys::clock_pair::KernelClockId;
use horolog_sys::phc::PhcDevice;
use horolog_sys::pps::{PpsCapture, PpsDevice, PpsEdge, PpsEdges};
use horolog_time::{NS_PER_S, Timestamp, Utc};
use thiserror::Error;

use super::name::{ClockName, Device, Scale};

/// Why a comparison cannot begin.
#[derive(Debug, Error)]
pub enum ClockError {
    /// The device is not there or of no use.
    #[error("{name}: {hint}: {error}")]
    Device {
        /// The clock.
        name: String,
        /// What to look at.
        hint: &'static str,
        /// What the system says.
        error: io::Error,
    },
    /// The kernel does not know how far a clock on TAI is ahead of UTC.
    #[error(
        "{0}: the kernel does not know TAI minus UTC; give it with tai-offset=37, or say scale=utc"
    )]
    TaiUnknown(String),
}

/// One reading of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_field_names, reason = "the unit is part of a name")]
pub(super) struct Reading {
    /// The system clock at about that time, in ns since 1970.
    pub(super) at_ns: i64,
    /// How far the system clock is ahead, in ns.
    pub(super) offset_ns: i64,
    /// How far that may be wrong; `None` where it cannot be told.
    pub(super) doubt_ns: Option<u64>,
}

/// A clock beside the system clock.
pub(super) trait Readable {
    /// Reads it; `None` where there was nothing new.
    fn read(&mut self) -> io::Result<Option<Reading>>;

    /// Whether its epoch is its own, so that only differences of its offsets mean something.
    fn has_own_epoch(&self) -> bool {
        false
    }
}

/// Opens the clock of this name.
pub(super) fn open(name: &ClockName) -> Result<Box<dyn Readable>, ClockError> {
    let failed = |error: io::Error| ClockError::Device {
        hint: match error.kind() {
            io::ErrorKind::NotFound => "there is no such clock",
            io::ErrorKind::PermissionDenied => "it may not be read by this user",
            _ => "it is no such clock",
        },
        name: name.text.clone(),
        error,
    };
    Ok(match &name.device {
        Device::Kernel(clock) => Box::new(*clock),
        Device::Phc { path, scale } => {
            let phc = PhcDevice::open(path).map_err(failed)?;
            if *scale == Scale::Tai(None) && scale.ahead_ns().map_err(failed)? == 0 {
                return Err(ClockError::TaiUnknown(name.text.clone()));
            }
            Box::new(Phc { device: phc, scale: *scale })
        }
        Device::Pps { path, clear } => {
            let capture = PpsCapture { assert: !clear, clear: *clear };
            let device = PpsDevice::open(path, capture).map_err(failed)?;
            Box::new(Pulses { device, clear: *clear, last: None })
        }
    })
}

/// From the clock and the readings of the system clock around it.
fn between(before: Timestamp<Utc>, utc_ns: i64, after: Timestamp<Utc>) -> Reading {
    let half_ns = (after - before).as_ns() / 2;
    let at_ns = before.as_ns() + half_ns;
    Reading {
        at_ns,
        offset_ns: at_ns.saturating_sub(utc_ns),
        // The readings themselves are whole nanoseconds.
        doubt_ns: Some(half_ns.unsigned_abs() + 1),
    }
}

impl Scale {
    /// How far the scale is ahead of UTC.
    fn ahead_ns(self) -> io::Result<i64> {
        let seconds = match self {
            Self::Utc => 0,
            Self::Tai(Some(seconds)) => seconds,
            Self::Tai(None) => kernel_clock()?.tai_offset_s,
        };
        Ok(i64::from(seconds) * NS_PER_S)
    }
}

impl Readable for KernelClockId {
    fn read(&mut self) -> io::Result<Option<Reading>> {
        let reading = Self::read(*self);
        let scale = if *self == Self::Tai { Scale::Tai(None) } else { Scale::Utc };
        let utc_ns = reading.clock_ns - scale.ahead_ns()?;
        Ok(Some(between(reading.before, utc_ns, reading.after)))
    }

    fn has_own_epoch(&self) -> bool {
        *self != Self::Tai
    }
}

struct Phc {
    device: PhcDevice,
    scale: Scale,
}

impl Readable for Phc {
    fn read(&mut self) -> io::Result<Option<Reading>> {
        let reading = self.device.read()?;
        let utc_ns = reading.phc_ns.saturating_sub(self.scale.ahead_ns()?);
        Ok(Some(between(reading.before, utc_ns, reading.after)))
    }
}

struct Pulses {
    device: PpsDevice,
    clear: bool,
    /// The last edge that was seen.
    last: Option<u32>,
}

impl Readable for Pulses {
    fn read(&mut self) -> io::Result<Option<Reading>> {
        let edges = self.device.wait(Duration::ZERO)?;
        Ok(edges.and_then(|edges| new_edge(edges, self.clear, &mut self.last)).map(pulse))
    }
}

/// The edge that came since the last look; what was there at the first one is old.
fn new_edge(edges: PpsEdges, clear: bool, last: &mut Option<u32>) -> Option<PpsEdge> {
    let edge = if clear { edges.clear } else { edges.assert };
    let before = last.replace(edge.sequence);
    before.filter(|before| *before != edge.sequence).map(|_| edge)
}

/// A pulse marks the second that is nearest to it.
fn pulse(edge: PpsEdge) -> Reading {
    let at_ns = edge.at.as_ns();
    let fraction = at_ns.rem_euclid(NS_PER_S);
    let offset_ns = if fraction < NS_PER_S / 2 { fraction } else { fraction - NS_PER_S };
    Reading { at_ns, offset_ns, doubt_ns: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(sequence: u32, at_ns: i64) -> PpsEdge {
        PpsEdge { sequence, at: Timestamp::from_ns(at_ns) }
    }

    #[test]
    fn an_offset_is_how_far_the_system_clock_is_ahead_in_the_middle() {
        let at = |ns: i64| Timestamp::from_ns(1_000_000_000 + ns);
        let reading = between(at(100), 1_000_000_000, at(140));
        assert_eq!((reading.offset_ns, reading.doubt_ns), (120, Some(21)));
        assert_eq!(reading.at_ns, 1_000_000_120);
    }

    #[test]
    fn a_pulse_tells_the_nearest_second_and_only_once() {
        let late = pulse(edge(1, 5_000_000_250));
        let early = pulse(edge(1, 5_999_999_000));
        assert_eq!((late.offset_ns, early.offset_ns, late.doubt_ns), (250, -1_000, None));
        let mut last = None;
        let edges = |sequence| PpsEdges { assert: edge(sequence, 1), clear: edge(9, 2) };
        assert_eq!(new_edge(edges(7), false, &mut last), None, "it may be old");
        assert_eq!(new_edge(edges(7), false, &mut last), None);
        assert_eq!(new_edge(edges(8), false, &mut last), Some(edge(8, 1)));
        let mut last = Some(8);
        assert_eq!(new_edge(edges(8), true, &mut last), Some(edge(9, 2)));
    }

    #[test]
    fn what_is_not_there_is_named() {
        for (name, hint) in [
            ("/dev/ptp77", "there is no such clock"),
            ("/dev/pps77", "there is no such clock"),
            ("/dev/ptp0/../null", "no such clock"),
        ] {
            let error = open(&name.parse().unwrap()).err().unwrap().to_string();
            assert!(error.contains(name) && error.contains(hint), "{error}");
        }
    }

    #[test]
    fn the_kernels_clocks_are_read() {
        let mut raw = KernelClockId::MonotonicRaw;
        let reading = Readable::read(&mut raw).unwrap().unwrap();
        assert!(raw.has_own_epoch() && reading.doubt_ns.is_some());
        let mut tai = KernelClockId::Tai;
        let reading = Readable::read(&mut tai).unwrap().unwrap();
        // The two are one clock, some whole seconds apart.
        assert!(reading.offset_ns.unsigned_abs() <= reading.doubt_ns.unwrap(), "{reading:?}");
    }
}
