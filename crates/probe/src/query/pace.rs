//! Clocks of a query, as a trait so that a simulated clock can replace them.

use std::thread;
use std::time::Duration;

use horolog_sys::clock::{MonotonicClock, Realtime};
use horolog_time::{Clock, Monotonic, Timestamp, Utc};

/// Source of time and of sleep.
pub(crate) trait QueryClock: Sync {
    /// Reads the clock that servers' clocks are compared with.
    fn utc(&self) -> Timestamp<Utc>;
    /// Reads the clock for intervals.
    fn monotonic(&self) -> Timestamp<Monotonic>;
    /// Sleeps for this time.
    fn sleep(&self, time: Duration);
}

/// Clocks of the system.
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
pub(crate) fn left(until: Timestamp<Monotonic>, now: Timestamp<Monotonic>) -> Duration {
    Duration::from_nanos(u64::try_from((until - now).as_ns()).unwrap_or(0))
}
