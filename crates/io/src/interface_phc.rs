//! PHC of an interface as the source of packet timestamps: enabled, compared with the system clock
//! on request, and converted to the monotonic clock. The conversion from two readings is in
//! [`crate::phc_conversion`].

use std::io;
use std::path::Path;

use horolog_sys::clock::{ClockOffset, realtime_minus_monotonic};
use horolog_sys::explain::explain;
use horolog_sys::hardware_timestamps::{
    HardwareTimestampError, HardwareTimestamps, TimestampPurpose,
};
use horolog_sys::packet::interface_index;
use horolog_sys::phc::{PhcDevice, PhcReading};
use horolog_time::{Span, Timestamp};

use crate::phc_conversion::{ClockPair, PhcConversion};

/// Reason for which an interface's clock is not usable.
#[derive(Debug, thiserror::Error)]
pub enum InterfacePhcError {
    /// Interface without timestamps.
    #[error(transparent)]
    Interface(#[from] HardwareTimestampError),
    /// Clock that cannot be read.
    #[error("cannot read the PHC of '{interface}', /dev/ptp{clock}: {why}", why = explain(.source))]
    Clock {
        /// Interface name.
        interface: String,
        /// Number of its clock.
        clock: u32,
        /// Error of the system.
        source: io::Error,
    },
}

/// Clock of an interface. Its hardware timestamps are enabled while this lives.
#[derive(Debug)]
pub struct InterfacePhc {
    index: u32,
    device: PhcDevice,
    conversion: PhcConversion,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, best estimate.
    offset: ClockOffset,
    uncertainty: Span,
    // Restored when this is dropped.
    switched: HardwareTimestamps,
}

impl InterfacePhc {
    /// Enables an interface's timestamps and compares its clock for the first time.
    pub fn open(name: &str, purpose: TimestampPurpose) -> Result<Self, InterfacePhcError> {
        let switched = HardwareTimestamps::enable(name, purpose)?;
        let clock = switched.clock();
        let unreadable =
            |source| InterfacePhcError::Clock { interface: name.to_owned(), clock, source };
        let index = interface_index(name).map_err(unreadable)?;
        let path = format!("/dev/ptp{clock}");
        let mut device = PhcDevice::open(Path::new(&path)).map_err(unreadable)?;
        let known = realtime_minus_monotonic();
        let first = cross(known, realtime_minus_monotonic, || device.read()).map_err(unreadable)?;
        Ok(Self {
            index,
            device,
            conversion: PhcConversion::new(first.crossing),
            offset: first.offset,
            uncertainty: first.uncertainty,
            switched,
        })
    }

    /// Compares the clocks again. After a failed reading the conversion stays as it is, and expires
    /// soon.
    pub fn compare(&mut self) {
        let read = || self.device.read();
        if let Ok(compared) = cross(self.offset, realtime_minus_monotonic, read) {
            self.conversion = self.conversion.follow(compared.crossing);
            (self.offset, self.uncertainty) = (compared.offset, compared.uncertainty);
        }
    }

    /// Returns the interface's index.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Returns the interface, and the number N of its clock `/dev/ptpN`.
    #[must_use]
    pub fn name(&self) -> (&str, u32) {
        (self.switched.interface(), self.switched.clock())
    }

    /// Returns true if received packets are timestamped too.
    #[must_use]
    pub const fn receives(&self) -> bool {
        self.switched.received()
    }

    /// Returns the conversion of its timestamps.
    #[must_use]
    pub const fn conversion(&self) -> PhcConversion {
        self.conversion
    }

    /// Returns `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` at the last comparison.
    #[must_use]
    pub const fn realtime_minus_monotonic(&self) -> Span {
        self.offset.offset
    }

    /// Returns the error bound of the last comparison, in either direction: half its duration.
    #[must_use]
    pub const fn uncertainty(&self) -> Span {
        self.uncertainty
    }
}

/// Comparison of the clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PhcComparison {
    crossing: ClockPair,
    offset: ClockOffset,
    uncertainty: Span,
}

/// Reads an interface's clock, which the kernel compares with `CLOCK_REALTIME`, and converts the
/// middle of its two readings to the monotonic clock, which is never stepped. Also returns the
/// better one of the offsets used for that; an error if the system clock was stepped meanwhile.
fn cross(
    known: ClockOffset,
    measure: impl Fn() -> ClockOffset,
    read: impl FnOnce() -> io::Result<PhcReading>,
) -> io::Result<PhcComparison> {
    let before = measure();
    let reading = read()?;
    let after = measure();
    if !before.agrees(after) {
        return Err(io::Error::other("the system clock was stepped during the reading"));
    }
    let offset = known.latest_or_tighter(before).latest_or_tighter(after);
    let half = Span::from_ns((reading.after - reading.before).as_ns() / 2);
    let middle = reading.before + half;
    let monotonic = Timestamp::from_ns(middle.as_ns() - offset.offset.as_ns());
    let crossing = ClockPair { hardware_ns: reading.phc_ns, monotonic };
    Ok(PhcComparison { crossing, offset, uncertainty: half + offset.uncertainty })
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
        let at = |ns| ClockPair { hardware_ns: ns + 7, monotonic: Timestamp::from_ns(ns) };
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
        let error = InterfacePhc::open("lo", TimestampPurpose::Ntp).unwrap_err().to_string();
        assert!(error.starts_with("'lo' has no hardware timestamps"), "{error}");
    }
}
