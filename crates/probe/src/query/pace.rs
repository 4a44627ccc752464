//! Clocks and sleep of a query; a trait, so that tests can simulate time.

use std::thread;
use std::time::Duration;

use horolog_sys::clock::{MonotonicClock, Realtime};
use horolog_time::{Clock, Monotonic, Timestamp, Utc};

/// Source of time and of sleep.
pub(crate) trait QueryClock: Sync {
    /// Returns the system time, with which the servers' clocks are compared.
    fn utc(&self) -> Timestamp<Utc>;
    /// Returns the monotonic time, for intervals and timeouts.
    fn monotonic(&self) -> Timestamp<Monotonic>;
    /// Sleeps for this time.
    fn sleep(&self, time: Duration);
}

/// System clocks and sleep.
pub(crate) struct SystemQueryClock;

impl QueryClock for SystemQueryClock {
    fn utc(&self) -> Timestamp<Utc> {
        Realtime.now()
    }

    fn monotonic(&self) -> Timestamp<Monotonic> {
        MonotonicClock.now()
    }

    fn sleep(&self, time: Duration) {
        thread::sleep(time);
    }
}

/// Returns the time from now until an instant; zero if it is past.
pub(crate) fn time_until(until: Timestamp<Monotonic>, now: Timestamp<Monotonic>) -> Duration {
    Duration::from_nanos(u64::try_from((until - now).as_ns()).unwrap_or(0))
}
