//! Readers of the compared clocks: kernel clocks, PHCs and PPS devices.

use std::io;
use std::time::Duration;

use horolog_sys::adjtimex::kernel_clock;
use horolog_sys::clock_pair::KernelClockId;
use horolog_sys::explain::explain;
use horolog_sys::phc::PhcDevice;
use horolog_sys::pps::{PpsCaptureMode, PpsDevice, PpsEdge, PpsEdges};
use horolog_time::{NS_PER_S, Timestamp, Utc};
use thiserror::Error;

use super::name::{ClockDevice, ClockName, PhcTimescale};

/// Reason why a clock cannot be opened for a comparison.
#[derive(Debug, Error)]
pub enum ClockOpenError {
    /// Device missing or unusable.
    #[error("{name}: {hint}: {why}", why = explain(.error))]
    Device {
        /// Clock name.
        name: String,
        /// Cause in words, by the kind of `error`.
        hint: &'static str,
        /// Error of the system.
        error: io::Error,
    },
    /// PHC on TAI without `tai-offset`, while the kernel's TAI offset is unset.
    #[error("{0}: the kernel's TAI offset is unset; add tai-offset=37, or scale=utc")]
    TaiUnknown(String),
}

/// Reading of a clock against the system clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_field_names, reason = "the unit is part of a name")]
pub(super) struct OffsetReading {
    /// System clock at the reading, in ns since 1970.
    pub(super) at_ns: i64,
    /// System clock minus this clock, in ns.
    pub(super) offset_ns: i64,
    /// Error bound of the offset in ns; `None` if unknown.
    pub(super) uncertainty_ns: Option<u64>,
}

/// Clock that is compared with the system clock.
pub(super) trait ReadableClock {
    /// Reads the clock; `None` if there is no new reading, such as no pulse since the last call.
    fn read(&mut self) -> io::Result<Option<OffsetReading>>;

    /// Returns true if the clock does not count from 1970, so that only changes of its offset are
    /// meaningful.
    fn has_own_epoch(&self) -> bool {
        false
    }
}

/// Opens the clock with this name.
pub(super) fn open_clock(name: &ClockName) -> Result<Box<dyn ReadableClock>, ClockOpenError> {
    let failed = |error: io::Error| ClockOpenError::Device {
        hint: match error.kind() {
            io::ErrorKind::NotFound => "no such clock",
            io::ErrorKind::PermissionDenied => "permission denied for this user",
            _ => "not a clock of this kind",
        },
        name: name.text.clone(),
        error,
    };
    Ok(match &name.device {
        ClockDevice::Kernel(clock) => Box::new(*clock),
        ClockDevice::Phc { path, scale } => {
            let phc = PhcDevice::open(path).map_err(failed)?;
            if *scale == PhcTimescale::Tai(None) && scale.minus_utc_ns().map_err(failed)? == 0 {
                return Err(ClockOpenError::TaiUnknown(name.text.clone()));
            }
            Box::new(PhcWithTimescale { device: phc, scale: *scale })
        }
        ClockDevice::Pps { path, clear } => {
            let capture = PpsCaptureMode { assert: !clear, clear: *clear };
            let device = PpsDevice::open(path, capture).map_err(failed)?;
            Box::new(PulseClock { device, clear: *clear, last_sequence: None })
        }
    })
}

/// Returns the reading of a clock that was read between two readings of the system clock; their
/// midpoint is the reading's time. `utc_ns` is what the clock showed, converted to UTC.
fn reading_between(before: Timestamp<Utc>, utc_ns: i64, after: Timestamp<Utc>) -> OffsetReading {
    let half_ns = (after - before).as_ns() / 2;
    let at_ns = before.as_ns() + half_ns;
    OffsetReading {
        at_ns,
        offset_ns: at_ns.saturating_sub(utc_ns),
        // Plus 1 ns for the resolution of the readings.
        uncertainty_ns: Some(half_ns.unsigned_abs() + 1),
    }
}

impl PhcTimescale {
    /// Returns the timescale minus UTC, in ns.
    fn minus_utc_ns(self) -> io::Result<i64> {
        let seconds = match self {
            Self::Utc => 0,
            Self::Tai(Some(seconds)) => seconds,
            Self::Tai(None) => kernel_clock()?.tai_offset_s,
        };
        Ok(i64::from(seconds) * NS_PER_S)
    }
}

impl ReadableClock for KernelClockId {
    fn read(&mut self) -> io::Result<Option<OffsetReading>> {
        let reading = Self::read(*self);
        let scale = if *self == Self::Tai { PhcTimescale::Tai(None) } else { PhcTimescale::Utc };
        let utc_ns = reading.clock_ns - scale.minus_utc_ns()?;
        Ok(Some(reading_between(reading.before, utc_ns, reading.after)))
    }

    fn has_own_epoch(&self) -> bool {
        *self != Self::Tai
    }
}

struct PhcWithTimescale {
    device: PhcDevice,
    scale: PhcTimescale,
}

impl ReadableClock for PhcWithTimescale {
    fn read(&mut self) -> io::Result<Option<OffsetReading>> {
        let reading = self.device.read()?;
        let utc_ns = reading.phc_ns.saturating_sub(self.scale.minus_utc_ns()?);
        Ok(Some(reading_between(reading.before, utc_ns, reading.after)))
    }
}

struct PulseClock {
    device: PpsDevice,
    clear: bool,
    /// Sequence number of the last edge read.
    last_sequence: Option<u32>,
}

impl ReadableClock for PulseClock {
    fn read(&mut self) -> io::Result<Option<OffsetReading>> {
        let edges = self.device.wait(Duration::ZERO)?;
        Ok(edges
            .and_then(|edges| new_edge(edges, self.clear, &mut self.last_sequence))
            .map(reading_from_edge))
    }
}

/// Returns the latest edge if it is new since the previous call; `None` at the first call.
fn new_edge(edges: PpsEdges, clear: bool, last: &mut Option<u32>) -> Option<PpsEdge> {
    let edge = if clear { edges.clear } else { edges.assert };
    let before = last.replace(edge.sequence);
    before.filter(|before| *before != edge.sequence).map(|_| edge)
}

/// Returns the reading of a pulse, which marks the nearest full second of UTC.
fn reading_from_edge(edge: PpsEdge) -> OffsetReading {
    let at_ns = edge.at.as_ns();
    let fraction = at_ns.rem_euclid(NS_PER_S);
    let offset_ns = if fraction < NS_PER_S / 2 { fraction } else { fraction - NS_PER_S };
    OffsetReading { at_ns, offset_ns, uncertainty_ns: None }
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
        let reading = reading_between(at(100), 1_000_000_000, at(140));
        assert_eq!((reading.offset_ns, reading.uncertainty_ns), (120, Some(21)));
        assert_eq!(reading.at_ns, 1_000_000_120);
    }

    #[test]
    fn a_pulse_marks_the_nearest_second_and_only_once() {
        let late = reading_from_edge(edge(1, 5_000_000_250));
        let early = reading_from_edge(edge(1, 5_999_999_000));
        assert_eq!((late.offset_ns, early.offset_ns, late.uncertainty_ns), (250, -1_000, None));
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
            ("/dev/ptp77", "no such clock"),
            ("/dev/pps77", "no such clock"),
            ("/dev/ptp0/../null", "no such clock"),
        ] {
            let error = open_clock(&name.parse().unwrap()).err().unwrap().to_string();
            assert!(error.contains(name) && error.contains(hint), "{error}");
        }
    }

    #[test]
    fn the_kernels_clocks_are_read() {
        let mut raw = KernelClockId::MonotonicRaw;
        let reading = ReadableClock::read(&mut raw).unwrap().unwrap();
        assert!(raw.has_own_epoch() && reading.uncertainty_ns.is_some());
        let mut tai = KernelClockId::Tai;
        let reading = ReadableClock::read(&mut tai).unwrap().unwrap();
        // The two are one clock, some whole seconds apart.
        assert!(reading.offset_ns.unsigned_abs() <= reading.uncertainty_ns.unwrap(), "{reading:?}");
    }
}
