//! Sleep until an instant of a clock that may be stepped (`clock_nanosleep(2)`, `TIMER_ABSTIME`):
//! after a step the kernel re-evaluates the sleep, so it still ends at that instant of the clock.

use std::io;

use horolog_time::NS_PER_S;
use rustix::io::Errno;
use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute};

use crate::clock::read;

/// Clock for absolute sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SleepClock {
    /// `CLOCK_REALTIME`: UTC.
    Realtime,
    /// `CLOCK_TAI`: UTC plus the kernel's TAI minus UTC.
    Tai,
}

/// Reason for the end of a sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SleepEndReason {
    /// The clock has reached the instant.
    Reached,
    /// A signal handler ran.
    Interrupted,
}

impl SleepClock {
    pub(crate) const fn id(self) -> ClockId {
        match self {
            Self::Realtime => ClockId::Realtime,
            Self::Tai => ClockId::Tai,
        }
    }

    /// Returns the reading of the clock, in ns since 1970.
    #[must_use]
    pub fn now_ns(self) -> i64 {
        let time = read(self.id() as libc::clockid_t);
        time.tv_sec.saturating_mul(NS_PER_S).saturating_add(time.tv_nsec)
    }

    /// Sleeps until the clock shows `ns` since 1970; returns at once if that has passed.
    ///
    /// # Errors
    ///
    /// None is known for an instant from 1970 on; `InvalidInput` for one before.
    pub fn sleep_until_ns(self, ns: i64) -> io::Result<SleepEndReason> {
        match clock_nanosleep_absolute(self.id(), &timespec(ns)) {
            Ok(()) => Ok(SleepEndReason::Reached),
            Err(Errno::INTR) => Ok(SleepEndReason::Interrupted),
            Err(error) => Err(error.into()),
        }
    }
}

/// Converts ns since 1970 to a `timespec`; the kernel rejects negative ones.
pub(crate) const fn timespec(ns: i64) -> Timespec {
    Timespec { tv_sec: ns.div_euclid(NS_PER_S), tv_nsec: ns % NS_PER_S }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's number is 0, or one that a daemon has set.
    #[test]
    fn tai_is_ahead_by_the_offset_of_the_kernel() {
        let ahead_s = i64::from(crate::adjtimex::kernel_clock().unwrap().tai_offset_s);
        let utc_ns = SleepClock::Realtime.now_ns();
        let tai_ns = SleepClock::Tai.now_ns();
        let apart_ns = tai_ns - utc_ns - ahead_s * NS_PER_S;
        assert!((0..NS_PER_S).contains(&apart_ns), "{apart_ns} ns beside {ahead_s} s");
    }

    #[test]
    fn a_sleep_ends_when_the_clock_shows_the_instant() {
        for clock in [SleepClock::Realtime, SleepClock::Tai] {
            let until_ns = clock.now_ns() + 2_000_000;
            assert_eq!(clock.sleep_until_ns(until_ns).unwrap(), SleepEndReason::Reached);
            assert!(clock.now_ns() >= until_ns);
            assert_eq!(clock.sleep_until_ns(0).unwrap(), SleepEndReason::Reached);
        }
        let before = SleepClock::Realtime.sleep_until_ns(-1).unwrap_err();
        assert_eq!(before.kind(), io::ErrorKind::InvalidInput);
    }
}
