//! Conversion of `CLOCK_REALTIME` instants, which the kernel's timestamps of marks and packets are,
//! to `CLOCK_MONOTONIC`, and detection of steps of the system clock. Sets no clock.

use horolog_sys::clock::{ClockMonotonic, ClockOffset, realtime_minus_monotonic};
use horolog_time::{Clock, Monotonic, Span, Timestamp, Utc};

/// Converter of system clock times, which reads the offset between the clocks at each conversion.
#[derive(Debug)]
pub(crate) struct SystemClockConverter(SystemClockOffsetTracker);

impl SystemClockConverter {
    pub(crate) fn new() -> Self {
        Self(SystemClockOffsetTracker::new(realtime_minus_monotonic(), ClockMonotonic.now()))
    }

    /// Returns the present offset of the system clock: `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`.
    pub(crate) fn offset(&mut self) -> Span {
        self.0.update(realtime_minus_monotonic(), ClockMonotonic.now());
        self.0.offset.offset
    }

    /// Returns the monotonic instant at which the system clock showed `shown`, a recent time.
    pub(crate) fn monotonic(&mut self, shown: Timestamp<Utc>) -> Timestamp<Monotonic> {
        let offset = realtime_minus_monotonic();
        let now = ClockMonotonic.now();
        self.0.update(offset, now);
        self.0.monotonic(shown, now)
    }

    /// Returns the error bound of converted instants.
    pub(crate) const fn error_bound(&self) -> Span {
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

/// Offset between the clocks as last read, and its steps. Pure.
#[derive(Debug)]
struct SystemClockOffsetTracker {
    offset: ClockOffset,
    /// Time of the latest reading of the offset.
    read_at: Timestamp<Monotonic>,
    last_step: Option<DetectedClockStep>,
    steps: u64,
}

/// Step of the clock between two readings of the offset.
#[derive(Debug)]
struct DetectedClockStep {
    offset_before: ClockOffset,
    after: Timestamp<Monotonic>,
    until: Timestamp<Monotonic>,
}

impl SystemClockOffsetTracker {
    const fn new(offset: ClockOffset, now: Timestamp<Monotonic>) -> Self {
        Self { offset, read_at: now, last_step: None, steps: 0 }
    }

    /// Updates the offset. Slewing changes the rates of both clocks equally, so a different offset
    /// is a step.
    fn update(&mut self, reading: ClockOffset, now: Timestamp<Monotonic>) {
        if self.offset.agrees(reading) {
            self.offset = self.offset.latest_or_tighter(reading);
        } else {
            let before = std::mem::replace(&mut self.offset, reading);
            self.last_step =
                Some(DetectedClockStep { offset_before: before, after: self.read_at, until: now });
            self.steps += 1;
        }
        self.read_at = now;
    }

    /// Converts a time that the system clock showed, at most `now`. If the present offset gives an
    /// instant before the latest step or in the future, the time was shown before the step: it is
    /// converted with the former offset, unless that gives an instant after the step.
    fn monotonic(&self, shown: Timestamp<Utc>, now: Timestamp<Monotonic>) -> Timestamp<Monotonic> {
        let converted_with =
            |offset: &ClockOffset| Timestamp::from_ns((shown - offset.offset).as_ns());
        let instant: Timestamp<Monotonic> = converted_with(&self.offset);
        let Some(step) = &self.last_step else { return instant };
        let (margin, instant_before) =
            (self.offset.uncertainty, converted_with(&step.offset_before));
        let is_after_step = step.after <= instant + margin && instant <= now + margin;
        if is_after_step || instant_before > step.until + step.offset_before.uncertainty {
            instant.min(now)
        } else {
            instant_before
        }
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
            let mut known = SystemClockOffsetTracker::new(offset(7 * SECOND), at(100_000));
            known.update(offset(7 * SECOND + 20), at(200_000));
            assert_eq!(known.steps, 0, "that is no step");
            known.update(offset(7 * SECOND + step), at(300_000));
            assert_eq!(known.steps, 1, "{step}");
            for instant in [150_000, 220_000, 280_000] {
                let shown = Timestamp::from_ns(7 * SECOND + instant);
                assert_eq!(known.monotonic(shown, at(310_000)), at(instant), "before {step}");
            }
            for instant in [220_000, 280_000, 305_000] {
                let shown = Timestamp::from_ns(7 * SECOND + step + instant);
                assert_eq!(known.monotonic(shown, at(310_000)), at(instant), "after {step}");
            }
            known.update(offset(7 * SECOND + step), at(400_000));
            assert_eq!(known.steps, 1, "{step} is counted once");
        }
    }

    #[test]
    fn a_clock_that_is_not_stepped_counts_no_steps() {
        let mut clock = SystemClockConverter::new();
        for _ in 0..1_000 {
            let now = horolog_sys::clock::ClockRealtime.now();
            let instant = clock.monotonic(now);
            assert!(instant <= ClockMonotonic.now() + clock.error_bound(), "{instant:?}");
        }
        assert_eq!(clock.steps(), 0);
        clock.was_ahead(Span::from_ms(1));
        let _ = clock.offset();
        assert_eq!(clock.steps(), 1);
    }
}
