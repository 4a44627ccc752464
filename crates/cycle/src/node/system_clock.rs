//! Instants of `CLOCK_REALTIME`, by which the kernel tells when a mark was made or a packet came,
//! as instants of `CLOCK_MONOTONIC`; and whether somebody set the system clock meanwhile. It sets
//! no clock.

use horolog_sys::clock::{ClockOffset, MonotonicClock, realtime_minus_monotonic};
use horolog_time::{Clock, Monotonic, Span, Timestamp, Utc};

/// The system clock of this machine, looked at again with each instant that is converted.
#[derive(Debug)]
pub(crate) struct SystemClock(Known);

impl SystemClock {
    pub(crate) fn new() -> Self {
        Self(Known::new(realtime_minus_monotonic(), MonotonicClock.now()))
    }

    /// How far it is ahead of the monotonic clock at present.
    pub(crate) fn offset(&mut self) -> Span {
        self.0.learn(realtime_minus_monotonic(), MonotonicClock.now());
        self.0.offset.offset
    }

    /// When something was that it showed this for, not long ago.
    pub(crate) fn monotonic(&mut self, shown: Timestamp<Utc>) -> Timestamp<Monotonic> {
        let found = realtime_minus_monotonic();
        let now = MonotonicClock.now();
        self.0.learn(found, now);
        self.0.monotonic(shown, now)
    }

    /// By how much an instant may be wrong.
    pub(crate) const fn uncertainty(&self) -> Span {
        self.0.offset.uncertainty
    }

    /// How often somebody was found to have set it.
    pub(crate) const fn sets(&self) -> u64 {
        self.0.sets
    }

    /// As if it had shown so much more until now, and been set just then.
    #[cfg(test)]
    pub(crate) fn was_ahead(&mut self, by: Span) {
        self.0.offset.offset = self.0.offset.offset + by;
    }
}

/// What is known of it. Pure.
#[derive(Debug)]
struct Known {
    offset: ClockOffset,
    /// When that was found last.
    looked: Timestamp<Monotonic>,
    last_set: Option<Set>,
    sets: u64,
}

/// A time between two looks at which it was set.
#[derive(Debug)]
struct Set {
    before: ClockOffset,
    after: Timestamp<Monotonic>,
    until: Timestamp<Monotonic>,
}

impl Known {
    const fn new(offset: ClockOffset, now: Timestamp<Monotonic>) -> Self {
        Self { offset, looked: now, last_set: None, sets: 0 }
    }

    /// Both clocks are slewed alike, so the offset changes by setting one of them and no other way.
    fn learn(&mut self, found: ClockOffset, now: Timestamp<Monotonic>) {
        if self.offset.agrees(found) {
            self.offset = self.offset.follow(found);
        } else {
            let before = std::mem::replace(&mut self.offset, found);
            self.last_set = Some(Set { before, after: self.looked, until: now });
            self.sets += 1;
        }
        self.looked = now;
    }

    /// What was shown before it was set is read as it was then: by the present offset it would be
    /// of an instant at which that did not hold yet, or of one that is still to come.
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
    fn instants_on_both_sides_of_a_step_are_told_right_and_the_step_is_counted() {
        for step in [3_600 * SECOND, -3_600 * SECOND, 5_000_000, -5_000_000] {
            let mut known = Known::new(offset(7 * SECOND), at(100_000));
            known.learn(offset(7 * SECOND + 20), at(200_000));
            assert_eq!(known.sets, 0, "that is no step");
            known.learn(offset(7 * SECOND + step), at(300_000));
            assert_eq!(known.sets, 1, "{step}");
            for instant in [150_000, 220_000, 280_000] {
                let shown = Timestamp::from_ns(7 * SECOND + instant);
                assert_eq!(known.monotonic(shown, at(310_000)), at(instant), "before {step}");
            }
            for instant in [220_000, 280_000, 305_000] {
                let shown = Timestamp::from_ns(7 * SECOND + step + instant);
                assert_eq!(known.monotonic(shown, at(310_000)), at(instant), "after {step}");
            }
            known.learn(offset(7 * SECOND + step), at(400_000));
            assert_eq!(known.sets, 1, "{step} is counted once");
        }
    }

    #[test]
    fn a_clock_that_nobody_sets_is_not_found_to_be_set() {
        let mut clock = SystemClock::new();
        for _ in 0..1_000 {
            let now = horolog_sys::clock::Realtime.now();
            let instant = clock.monotonic(now);
            assert!(instant <= MonotonicClock.now() + clock.uncertainty(), "{instant:?}");
        }
        assert_eq!(clock.sets(), 0);
        clock.was_ahead(Span::from_ms(1));
        let _ = clock.offset();
        assert_eq!(clock.sets(), 1);
    }
}
