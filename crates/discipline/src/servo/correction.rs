//! Total correction of the clock: the difference between its reading and the reading without any
//! correction. The filter models the uncorrected clock, so that a command never disturbs its state.

use horolog_time::{Monotonic, Span, Timestamp};

/// Sum of all corrections up to an instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct TotalClockCorrection {
    at: Timestamp<Monotonic>,
    /// Sum of the steps; an integer, because steps may amount to years.
    stepped: Span,
    /// Sum of the slews up to `at`, in ns.
    slewed: f64,
    /// Frequency correction from `at` on, in ppb; `previous_frequency` applies before `at`.
    pub(super) frequency: f64,
    previous_frequency: f64,
}

impl TotalClockCorrection {
    pub(super) fn new(at: Timestamp<Monotonic>, frequency: f64) -> Self {
        Self { at, stepped: Span::ZERO, slewed: 0.0, frequency, previous_frequency: frequency }
    }

    /// Returns the sum of the steps, and that of the slews in ns, at `at`.
    fn steps_and_slew(&self, at: Timestamp<Monotonic>) -> (Span, f64) {
        // A pulse may be older than the latest command.
        let frequency = if at < self.at { self.previous_frequency } else { self.frequency };
        (self.stepped, self.slewed + frequency * (at - self.at).as_seconds())
    }

    /// Removes the correction from a measured offset: returns the phase of the uncorrected clock
    /// against `origin`, in ns.
    pub(super) fn uncorrected_phase(
        &self,
        at: Timestamp<Monotonic>,
        offset: Span,
        origin: Span,
    ) -> f64 {
        let (stepped, slewed) = self.steps_and_slew(at);
        (offset - stepped - origin).as_ns() as f64 - slewed
    }

    /// Inverse of [`Self::uncorrected_phase`]: returns the offset of the corrected clock, rounded
    /// to ns.
    pub(super) fn corrected_offset(
        &self,
        at: Timestamp<Monotonic>,
        phase: f64,
        origin: Span,
    ) -> Span {
        let (stepped, slewed) = self.steps_and_slew(at);
        origin + stepped + Span::from_ns((phase + slewed).round() as i64)
    }

    /// Records a step and a frequency correction in ppb, both from `at` on.
    pub(super) fn record_change(&mut self, at: Timestamp<Monotonic>, frequency: f64, step: Span) {
        let (stepped, slewed) = self.steps_and_slew(at);
        *self = Self {
            at,
            stepped: stepped + step,
            slewed,
            frequency,
            previous_frequency: self.frequency,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(count: i64) -> Timestamp<Monotonic> {
        Timestamp::from_ns(count * 1_000_000_000)
    }

    #[test]
    fn steps_and_slews_add_up_and_are_taken_off_again() {
        let mut correction = TotalClockCorrection::new(second(0), 100.0);
        correction.record_change(second(10), -50.0, Span::from_ms(-3));
        let decades = Span::from_ns(1_700_000_000_000_000_000);
        let offset = decades + Span::from_ns(7);
        let free = correction.uncorrected_phase(second(12), offset, decades);
        assert!((free - (7.0 + 3e6 - 1_000.0 + 100.0)).abs() < 1e-6, "{free}");
        assert_eq!(correction.corrected_offset(second(12), free, decades), offset);
        let before = correction.uncorrected_phase(second(9), offset, decades);
        assert!((before - (7.0 + 3e6 - 900.0)).abs() < 1e-6, "{before}");
    }
}
