//! PHC of an interface as the source of packet timestamps: enables hardware timestamps, compares
//! the PHC with the system clock on request, and provides the conversion to the monotonic clock
//! ([`crate::phc_conversion`]).

use std::io;
use std::path::Path;

use horolog_sys::clock::{ClockOffset, realtime_minus_monotonic};
use horolog_sys::explain::explain;
use horolog_sys::hardware_timestamps::{
    EnabledHardwareTimestamps, HardwareTimestampError, TimestampPurpose,
};
use horolog_sys::packet::interface_index;
use horolog_sys::phc::{PhcDevice, PhcReading};
use horolog_time::{Span, Timestamp};

use crate::phc_conversion::{CrossTimestamp, PhcConversion};

/// Reason for which the PHC of an interface is unusable.
#[derive(Debug, thiserror::Error)]
pub enum InterfacePhcError {
    /// Interface without hardware timestamps, or on which they could not be enabled.
    #[error(transparent)]
    Interface(#[from] HardwareTimestampError),
    /// PHC that cannot be opened or compared with the system clock.
    #[error("cannot read the PHC of '{interface}', /dev/ptp{clock}: {why}", why = explain(.source))]
    Clock {
        /// Interface name.
        interface: String,
        /// Number N of the PHC `/dev/ptpN`.
        clock: u32,
        /// Error of the system.
        source: io::Error,
    },
}

/// PHC of an interface. The interface's hardware timestamps are enabled while this value lives.
#[derive(Debug)]
pub struct InterfacePhc {
    index: u32,
    device: PhcDevice,
    conversion: PhcConversion,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, best estimate.
    offset: ClockOffset,
    error_bound: Span,
    // Restores the earlier timestamp configuration when dropped.
    timestamps: EnabledHardwareTimestamps,
}

impl InterfacePhc {
    /// Enables the hardware timestamps of the interface and compares its PHC for the first time.
    pub fn open(name: &str, purpose: TimestampPurpose) -> Result<Self, InterfacePhcError> {
        let timestamps = EnabledHardwareTimestamps::enable(name, purpose)?;
        let clock = timestamps.clock();
        let unreadable =
            |source| InterfacePhcError::Clock { interface: name.to_owned(), clock, source };
        let index = interface_index(name).map_err(unreadable)?;
        let path = format!("/dev/ptp{clock}");
        let mut device = PhcDevice::open(Path::new(&path)).map_err(unreadable)?;
        let earlier_offset = realtime_minus_monotonic();
        let first = compare_clocks(earlier_offset, realtime_minus_monotonic, || device.read())
            .map_err(unreadable)?;
        Ok(Self {
            index,
            device,
            conversion: PhcConversion::new(first.cross_timestamp),
            offset: first.offset,
            error_bound: first.error_bound,
            timestamps,
        })
    }

    /// Compares the clocks again. If reading fails or the system clock is stepped meanwhile, the
    /// last conversion remains; it expires after 4 s.
    pub fn compare(&mut self) {
        let read = || self.device.read();
        if let Ok(compared) = compare_clocks(self.offset, realtime_minus_monotonic, read) {
            self.conversion = self.conversion.updated_with(compared.cross_timestamp);
            (self.offset, self.error_bound) = (compared.offset, compared.error_bound);
        }
    }

    /// Returns the interface's index.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Returns the interface name, and the number N of its PHC `/dev/ptpN`.
    #[must_use]
    pub fn name_and_clock(&self) -> (&str, u32) {
        (self.timestamps.interface(), self.timestamps.clock())
    }

    /// Returns true if received packets get hardware timestamps too.
    #[must_use]
    pub const fn has_receive_timestamps(&self) -> bool {
        self.timestamps.received()
    }

    /// Returns the conversion of hardware timestamps to the monotonic clock.
    #[must_use]
    #[inline]
    pub const fn conversion(&self) -> PhcConversion {
        self.conversion
    }

    /// Returns the best estimate of `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` at the last successful
    /// comparison.
    #[must_use]
    pub const fn realtime_minus_monotonic(&self) -> Span {
        self.offset.offset
    }

    /// Returns the error bound of the last comparison, in either direction: half the duration of
    /// the reading plus the error bound of the clock offset.
    #[must_use]
    #[inline]
    pub const fn error_bound(&self) -> Span {
        self.error_bound
    }
}

/// Result of one comparison of the clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PhcComparison {
    cross_timestamp: CrossTimestamp,
    offset: ClockOffset,
    error_bound: Span,
}

/// Reads the PHC between two readings of `CLOCK_REALTIME`, and converts the midpoint of the two to
/// the monotonic clock, which is never stepped, by the tightest of `earlier_offset` and the offsets
/// measured before and after; an `earlier_offset` that contradicts these is dropped. Fails if
/// reading the PHC fails or the system clock was stepped meanwhile.
fn compare_clocks(
    earlier_offset: ClockOffset,
    measure: impl Fn() -> ClockOffset,
    read: impl FnOnce() -> io::Result<PhcReading>,
) -> io::Result<PhcComparison> {
    let before = measure();
    let reading = read()?;
    let after = measure();
    if !before.agrees(after) {
        return Err(io::Error::other("the system clock was stepped during the reading"));
    }
    let offset = earlier_offset.latest_or_tighter(before).latest_or_tighter(after);
    let half = Span::from_ns((reading.after - reading.before).as_ns() / 2);
    let middle = reading.before + half;
    let monotonic = Timestamp::from_ns(middle.as_ns() - offset.offset.as_ns());
    let cross_timestamp = CrossTimestamp { hardware_ns: reading.phc_ns, monotonic };
    Ok(PhcComparison { cross_timestamp, offset, error_bound: half + offset.uncertainty })
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
        let at = |ns| CrossTimestamp { hardware_ns: ns + 7, monotonic: Timestamp::from_ns(ns) };
        let mut known = offset(0);
        for (ns, now) in [(1_000, offset(0)), (2_000, offset(-1)), (3_000, offset(400))] {
            let compared = compare_clocks(known, || now, || Ok(reading(ns, now))).unwrap();
            assert_eq!(compared.cross_timestamp, at(ns));
            assert_eq!(compared.error_bound, Span::from_ns(350), "half of 600 ns, and 50 ns");
            known = compared.offset;
        }
        let measured = std::cell::Cell::new(0);
        let stepping = || offset(measured.replace(1));
        assert!(compare_clocks(offset(0), stepping, || Ok(reading(4_000, offset(0)))).is_err());
    }

    #[test]
    fn an_interface_without_is_named() {
        let error = InterfacePhc::open("lo", TimestampPurpose::Ntp).unwrap_err().to_string();
        assert!(error.starts_with("'lo' has no hardware timestamps"), "{error}");
    }
}
