//! Conversion of instants of `CLOCK_REALTIME`, the kernel's timestamps of marks and packets, to
//! instants of `CLOCK_MONOTONIC`, and detection of steps of the system clock. It sets no clock.

use horolog_sys::clock::{ClockOffset, MonotonicClock, realtime_minus_monotonic};
use horolog_time::{Clock, Monotonic, Span, Timestamp, Utc};

/// System clock of this host, whose offset is read again with each converted instant.
#[derive(Debug)]
pub(crate) struct SystemClockConverter(OffsetState);

impl SystemClockConverter {
    pub(crate) fn new() -> Self {
        Self(OffsetState::new(realtime_minus_monotonic(), MonotonicClock.now()))
    }

    /// Returns its present lead over the monotonic clock.
    pub(crate) fn offset(&mut self) -> Span {
        self.0.learn(realtime_minus_monotonic(), MonotonicClock.now());
        self.0.offset.offset
    }

    /// Returns the recent instant at which the clock showed `shown`.
    pub(crate) fn monotonic(&mut self, shown: Timestamp<Utc>) -> Timestamp<Monotonic> {
        let found = realtime_minus_monotonic();
        let now = MonotonicClock.now();
        self.0.learn(found, now);
        self.0.monotonic(shown, now)
    }

    /// Returns the error bound of an instant.
    pub(crate) const fn uncertainty(&self) -> Span {
        self.0.offset.uncertainty
    }

    /// Returns the number of detected steps.
    pub(crate) const fn steps(&self) -> u64 {
        self.0.steps
    }

    /// Simulates a clock that was ahead by this much until now, and was stepped just then.
    #[cfg(test)]
    pub(crate) fn was_ahead(&mut self, by: Span) {
        self.0.offset.offset = self.0.offset.offset + by;
    }
}

/// State of the offset. Pure.
#[derive(Debug)]
struct OffsetState {
    offset: ClockOffset,
    /// Time of the latest reading of the offset.
    read_at: Timestamp<Monotonic>,
    last_set: Option<DetectedClockStep>,
    steps: u64,
}

/// Interval between two readings in which the clock was stepped.
#[derive(Debug)]
struct DetectedClockStep {
    before: ClockOffset,
    after: Timestamp<Monotonic>,
    until: Timestamp<Monotonic>,
}

impl OffsetState {
    const fn new(offset: ClockOffset, now: Timestamp<Monotonic>) -> Self {
        Self { offset, read_at: now, last_set: None, steps: 0 }
    }

    /// Updates the offset. Both clocks are slewed alike, so only a step of one of them changes it.
    fn learn(&mut self, found: ClockOffset, now: Timestamp<Monotonic>) {
        if self.offset.agrees(found) {
            self.offset = self.offset.latest_or_tighter(found);
        } else {
            let before = std::mem::replace(&mut self.offset, found);
            self.last_set = Some(DetectedClockStep { before, after: self.read_at, until: now });
            self.steps += 1;
        }
        self.read_at = now;
    }

    /// Converts a shown time. A time from before a step is converted by the offset of then: the
    /// present offset would give an instant at which it was not yet valid, or one in the future.
    fn monotonic(&self, shown: Timestamp<Utc>, now: Timestamp<Monotonic>) -> Timestamp<Monotonic> {
        let by = |offset: &ClockOffset| Timestamp::from_ns((shown - offset.offset).as_ns());
        let at: Timestamp<Monotonic> = by(&self.offset);
        let Some(set) = &self.last_set else { return at };
        let (margin, then) = (self.offset.uncertainty, by(&set.before));
        let is_now = set.after <= at + margin && at <= now + margin;
        if is_now || then > set.until + set.before.uncertainty { at.min(now) } else { then }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn offset(ns: i64) -> ClockOffset {
        ClockOffset { offset: Span::from_ns(ns), uncertainty: Span::from_ns(50) }
    }

    fn at(ns: i64) -> Timestamp<Monotonic> {
        Timestamp::from_ns(ns)
    }

    /// What was shown before the step, behind which it is read, and what was shown after it.
    #[test]
    fn instants_on_both_sides_of_a_step_are_converted_and_the_step_is_counted() {
        for step in [3_600 * SECOND, -3_600 * SECOND, 5_000_000, -5_000_000] {
            let mut known = OffsetState::new(offset(7 * SECOND), at(100_000));
            known.learn(offset(7 * SECOND + 20), at(200_000));
            assert_eq!(known.steps, 0, "that is no step");
            known.learn(offset(7 * SECOND + step), at(300_000));
            assert_eq!(known.steps, 1, "{step}");
            for instant in [150_000, 220_000, 280_000] {
                let shown = Timestamp::from_ns(7 * SECOND + instant);
                assert_eq!(known.monotonic(shown, at(310_000)), at(instant), "before {step}");
            }
            for instant in [220_000, 280_000, 305_000] {
                let shown = Timestamp::from_ns(7 * SECOND + step + instant);
                assert_eq!(known.monotonic(shown, at(310_000)), at(instant), "after {step}");
            }
            known.learn(offset(7 * SECOND + step), at(400_000));
            assert_eq!(known.steps, 1, "{step} is counted once");
        }
    }

    #[test]
    fn a_clock_that_is_not_stepped_counts_no_steps() {
        let mut clock = SystemClockConverter::new();
        for _ in 0..1_000 {
            let now = horolog_sys::clock::Realtime.now();
            let instant = clock.monotonic(now);
            assert!(instant <= MonotonicClock.now() + clock.uncertainty(), "{instant:?}");
        }
        assert_eq!(clock.steps(), 0);
        clock.was_ahead(Span::from_ms(1));
        let _ = clock.offset();
        assert_eq!(clock.steps(), 1);
    }
}
