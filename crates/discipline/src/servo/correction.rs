//! By how much the clock has been corrected: the difference between what it shows and what it would
//! show had nobody touched it. The filter knows the clock without corrections, so that a command
//! never disturbs what it knows.

use horolog_time::{Monotonic, Span, Timestamp};

/// All corrections up to an instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Correction {
    at: Timestamp<Monotonic>,
    /// Steps, in whole nanoseconds: they may be years.
    stepped: Span,
    /// What was slewed, in ns.
    slewed: f64,
    /// The correction of the frequency that holds from `at` on, in ppb, and the one before.
    pub(super) frequency: f64,
    before: f64,
}

impl Correction {
    pub(super) fn new(at: Timestamp<Monotonic>, frequency: f64) -> Self {
        Self { at, stepped: Span::ZERO, slewed: 0.0, frequency, before: frequency }
    }

    /// The steps and what was slewed at `at`.
    fn parts(&self, at: Timestamp<Monotonic>) -> (Span, f64) {
        // A pulse may be older than the command that was carried out last.
        let frequency = if at < self.at { self.before } else { self.frequency };
        (self.stepped, self.slewed + frequency * (at - self.at).as_seconds())
    }

    /// What an untouched clock would be ahead of `origin`, in ns, where the real one is `offset`
    /// ahead.
    pub(super) fn without(&self, at: Timestamp<Monotonic>, offset: Span, origin: Span) -> f64 {
        let (stepped, slewed) = self.parts(at);
        (offset - stepped - origin).as_ns() as f64 - slewed
    }

    /// The other way: what the real clock is ahead, as whole nanoseconds and the rest.
    pub(super) fn with(&self, at: Timestamp<Monotonic>, phase: f64, origin: Span) -> Span {
        let (stepped, slewed) = self.parts(at);
        origin + stepped + Span::from_ns((phase + slewed).round() as i64)
    }

    /// A command is carried out at `at`.
    pub(super) fn change(&mut self, at: Timestamp<Monotonic>, frequency: f64, step: Span) {
        let (stepped, slewed) = self.parts(at);
        *self = Self { at, stepped: stepped + step, slewed, frequency, before: self.frequency };
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
        let mut correction = Correction::new(second(0), 100.0);
        correction.change(second(10), -50.0, Span::from_ms(-3));
        let decades = Span::from_ns(1_700_000_000_000_000_000);
        let offset = decades + Span::from_ns(7);
        let free = correction.without(second(12), offset, decades);
        assert!((free - (7.0 + 3e6 - 1_000.0 + 100.0)).abs() < 1e-6, "{free}");
        assert_eq!(correction.with(second(12), free, decades), offset);
        let before = correction.without(second(9), offset, decades);
        assert!((before - (7.0 + 3e6 - 900.0)).abs() < 1e-6, "{before}");
    }
}
