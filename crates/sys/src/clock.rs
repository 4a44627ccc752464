//! Clocks of the running system and their differences. They are read here, never set.

use horolog_time::{Clock, Monotonic, Span, Timestamp, Utc};

use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute};

use crate::descriptor::check;

/// Longest sleep of [`sleep_until_unless`] between two checks.
const CHECK_INTERVAL: Span = Span::from_ms(50);

/// Bracketed readings of which the tightest is used: enough that one is not interrupted, few enough
/// to take about a microsecond.
pub(crate) const BRACKETS: usize = 8;

/// `CLOCK_REALTIME`: UTC as the kernel shows it.
#[derive(Clone, Copy, Default, Debug)]
pub struct ClockRealtime;

/// `CLOCK_MONOTONIC`: slewed like UTC, never stepped.
#[derive(Clone, Copy, Default, Debug)]
pub struct ClockMonotonic;

impl Clock<Utc> for ClockRealtime {
    fn now(&self) -> Timestamp<Utc> {
        let time = read(libc::CLOCK_REALTIME);
        Timestamp::from_timespec(time.tv_sec, time.tv_nsec)
    }
}

impl Clock<Monotonic> for ClockMonotonic {
    fn now(&self) -> Timestamp<Monotonic> {
        let time = read(libc::CLOCK_MONOTONIC);
        Timestamp::from_timespec(time.tv_sec, time.tv_nsec)
    }
}

/// Offset between two clocks, as measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockOffset {
    /// One clock minus the other, at about the instant of the call.
    pub offset: Span,
    /// Error bound of `offset`, either way.
    pub uncertainty: Span,
}

impl ClockOffset {
    /// Returns true if two measurements are consistent within their error bounds.
    #[must_use]
    pub fn agrees(self, other: Self) -> bool {
        let apart = (other.offset - self.offset).as_ns().unsigned_abs();
        apart <= (other.uncertainty + self.uncertainty).as_ns().unsigned_abs()
    }

    /// Returns the offset to use after a further measurement. The offset changes only when a clock
    /// is stepped, so of two consistent measurements the tighter one is retained; values derived
    /// from it then do not jitter. Inconsistent measurements mean a step, and the new one is used.
    #[must_use]
    pub fn latest_or_tighter(self, new: Self) -> Self {
        if self.agrees(new) && self.uncertainty <= new.uncertainty { self } else { new }
    }
}

/// Returns `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, which changes only by steps of the former,
/// because both are slewed alike.
///
/// One clock is read between two readings of the other, several times; the tightest bracket gives
/// the offset, and half its width the error bound.
#[must_use]
pub fn realtime_minus_monotonic() -> ClockOffset {
    let mut best = read_bracketed();
    for _ in 1..BRACKETS {
        let next = read_bracketed();
        if next.uncertainty < best.uncertainty {
            best = next;
        }
    }
    best
}

fn read_bracketed() -> ClockOffset {
    let before = ClockMonotonic.now();
    let between = ClockRealtime.now();
    let width = (ClockMonotonic.now() - before).as_ns();
    let middle = before.as_ns() + width / 2;
    ClockOffset {
        offset: Span::from_ns(between.as_ns() - middle),
        uncertainty: Span::from_ns(width / 2 + 1),
    }
}

/// Sleeps until `instant`; returns at once if that has passed. A signal ends the sleep early.
pub fn sleep_until(instant: Timestamp<Monotonic>) {
    let (seconds, nanoseconds) = instant.to_timespec();
    let until = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
    // The result is of no use: the sleep is over, or a signal ended it, which is documented.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &until);
}

/// Sleeps until `instant` and returns true; returns false if `is_over` returns true first, which is
/// checked every 50 ms.
pub fn sleep_until_unless(instant: Timestamp<Monotonic>, is_over: impl Fn() -> bool) -> bool {
    loop {
        if is_over() {
            return false;
        }
        let now = ClockMonotonic.now();
        if now >= instant {
            return true;
        }
        sleep_until(instant.min(now + CHECK_INTERVAL));
    }
}

pub(crate) fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one timespec that outlives the call.
    let result = check(unsafe { libc::clock_gettime(clock, &raw mut time) });
    // It fails for an unknown clock or a bad address, and every Linux has the clocks that are read
    // here.
    debug_assert!(result.is_ok(), "clock_gettime: {result:?}");
    time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_carries_one_clock_to_the_other() {
        let ClockOffset { offset, uncertainty } = realtime_minus_monotonic();
        assert!(uncertainty > Span::ZERO && uncertainty < Span::from_ms(10), "{uncertainty:?}");
        let before = ClockRealtime.now();
        let carried = ClockMonotonic.now().as_ns() + offset.as_ns();
        let after = ClockRealtime.now();
        assert!(carried >= (before - uncertainty).as_ns(), "{carried} before {before:?}");
        assert!(carried <= (after + uncertainty).as_ns(), "{carried} after {after:?}");
    }

    #[test]
    fn sleeping_ends_no_earlier_than_requested() {
        let until = ClockMonotonic.now() + Span::from_ms(2);
        sleep_until(until);
        assert!(ClockMonotonic.now() >= until);
        sleep_until(until);
    }
}
