//! An interface whose own clock timestamps packets: switched on, compared with the system's clock
//! whenever somebody asks for that, and converted to the monotonic clock. How two readings make a
//! conversion stands in [`crate::hardware_clock`].

use std::io;
use std::path::Path;

use horolog_sys::clock::{ClockOffset, realtime_minus_monotonic};
use horolog_sys::hardware_timestamps::{HardwareError, HardwareTimestamps, Purpose};
use horolog_sys::packet::interface_index;
use horolog_sys::phc::{PhcDevice, PhcReading};
use horolog_time::{Span, Timestamp};

use crate::hardware_clock::{Conversion, Crossing};

/// Why an interface's clock is of no use.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceClockError {
    /// The interface takes no timestamps.
    #[error(transparent)]
    Interface(#[from] HardwareError),
    /// Its clock cannot be read.
    #[error("the clock of '{interface}', /dev/ptp{clock}, cannot be read: {source}")]
    Clock {
        /// The interface.
        interface: String,
        /// The number of its clock.
        clock: u32,
        /// Why.
        source: io::Error,
    },
}

/// An interface's clock. Its hardware timestamps are on while this lives.
#[derive(Debug)]
pub struct InterfaceClock {
    index: u32,
    device: PhcDevice,
    conversion: Conversion,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, as well as it is known.
    offset: ClockOffset,
    uncertainty: Span,
    // Put back when this is dropped.
    switched: HardwareTimestamps,
}

impl InterfaceClock {
    /// Switches an interface's timestamps on and compares its clock for the first time.
    pub fn open(name: &str, purpose: Purpose) -> Result<Self, InterfaceClockError> {
        let switched = HardwareTimestamps::switch_on(name, purpose)?;
        let clock = switched.clock();
        let unreadable =
            |source| InterfaceClockError::Clock { interface: name.to_owned(), clock, source };
        let index = interface_index(name).map_err(unreadable)?;
        let path = format!("/dev/ptp{clock}");
        let mut device = PhcDevice::open(Path::new(&path)).map_err(unreadable)?;
        let known = realtime_minus_monotonic();
        let first = cross(known, realtime_minus_monotonic, || device.read()).map_err(unreadable)?;
        Ok(Self {
            index,
            device,
            conversion: Conversion::new(first.crossing),
            offset: first.offset,
            uncertainty: first.uncertainty,
            switched,
        })
    }

    /// Compares the clocks once more. A clock that cannot be read is not followed, and soon not
    /// believed.
    pub fn compare(&mut self) {
        let read = || self.device.read();
        if let Ok(compared) = cross(self.offset, realtime_minus_monotonic, read) {
            self.conversion = self.conversion.follow(compared.crossing);
            (self.offset, self.uncertainty) = (compared.offset, compared.uncertainty);
        }
    }

    /// The interface's index.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// The interface, and the number N of its clock `/dev/ptpN`.
    #[must_use]
    pub fn name(&self) -> (&str, u32) {
        (self.switched.interface(), self.switched.clock())
    }

    /// Whether received packets are timestamped too.
    #[must_use]
    pub const fn receives(&self) -> bool {
        self.switched.received()
    }

    /// What converts its timestamps.
    #[must_use]
    pub const fn conversion(&self) -> Conversion {
        self.conversion
    }

    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, as it was at the last comparison.
    #[must_use]
    pub const fn realtime_minus_monotonic(&self) -> Span {
        self.offset.offset
    }

    /// How far the last comparison may have been off, either way: half the time that it took.
    #[must_use]
    pub const fn uncertainty(&self) -> Span {
        self.uncertainty
    }
}

/// A comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Compared {
    crossing: Crossing,
    offset: ClockOffset,
    uncertainty: Span,
}

/// Reads an interface's clock, which the kernel compares with `CLOCK_REALTIME`, and takes the
/// middle of its two readings to the scale that nobody steps. With the better one of the offsets by
/// which it does so; an error where the system clock was stepped meanwhile.
fn cross(
    known: ClockOffset,
    measure: impl Fn() -> ClockOffset,
    read: impl FnOnce() -> io::Result<PhcReading>,
) -> io::Result<Compared> {
    let before = measure();
    let reading = read()?;
    let after = measure();
    if !before.agrees(after) {
        return Err(io::Error::other("the system clock was set meanwhile"));
    }
    let offset = known.follow(before).follow(after);
    let half = Span::from_ns((reading.after - reading.before).as_ns() / 2);
    let middle = reading.before + half;
    let monotonic = Timestamp::from_ns(middle.as_ns() - offset.offset.as_ns());
    let crossing = Crossing { hardware_ns: reading.phc_ns, monotonic };
    Ok(Compared { crossing, offset, uncertainty: half + offset.uncertainty })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_system_clock_does_not_move_an_instant() {
        let offset = |s: i64| ClockOffset {
            offset: Span::from_ns(1_700_000_000_000_000_000 + s * 1_000_000_000),
            uncertainty: Span::from_ns(50),
        };
        let reading = |monotonic_ns: i64, by: ClockOffset| {
            let middle = Timestamp::from_ns(monotonic_ns + by.offset.as_ns());
            let half = Span::from_ns(300);
            PhcReading { before: middle - half, phc_ns: monotonic_ns + 7, after: middle + half }
        };
        let at = |ns| Crossing { hardware_ns: ns + 7, monotonic: Timestamp::from_ns(ns) };
        let mut known = offset(0);
        for (ns, now) in [(1_000, offset(0)), (2_000, offset(-1)), (3_000, offset(400))] {
            let compared = cross(known, || now, || Ok(reading(ns, now))).unwrap();
            assert_eq!(compared.crossing, at(ns));
            assert_eq!(compared.uncertainty, Span::from_ns(350), "half of 600 ns, and 50 ns");
            known = compared.offset;
        }
        let measured = std::cell::Cell::new(0);
        let stepping = || offset(measured.replace(1));
        assert!(cross(offset(0), stepping, || Ok(reading(4_000, offset(0)))).is_err());
    }

    #[test]
    fn an_interface_without_is_named() {
        let error = InterfaceClock::open("lo", Purpose::Ntp).unwrap_err().to_string();
        assert!(error.starts_with("'lo' has no hardware timestamps"), "{error}");
    }
}
