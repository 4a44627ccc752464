//! The clocks that a query goes by, handed in so that a simulated one does as well.

use std::thread;
use std::time::Duration;

use horolog_sys::clock::{MonotonicClock, Realtime};
use horolog_time::{Clock, Monotonic, Timestamp, Utc};

/// What tells the time and lets it pass.
pub(crate) trait Pace: Sync {
    /// The clock that servers' clocks are compared with.
    fn utc(&self) -> Timestamp<Utc>;
    /// The clock that intervals are counted on.
    fn monotonic(&self) -> Timestamp<Monotonic>;
    /// Lets so much time pass.
    fn sleep(&self, time: Duration);
}

/// The system's clocks.
pub(crate) struct SystemPace;

impl Pace for SystemPace {
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

/// The time from one instant to another; zero when that is past.
pub(crate) fn left(until: Timestamp<Monotonic>, now: Timestamp<Monotonic>) -> Duration {
    Duration::from_nanos(u64::try_from((until - now).as_ns()).unwrap_or(0))
}
