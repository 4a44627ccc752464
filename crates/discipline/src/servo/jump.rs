//! Detection of a clock set by another program: its distance from the monotonic clock, which cannot
//! be set, has changed.

use horolog_time::Span;

use crate::Pulse;

/// Smallest change that is a jump: the two clocks are not read at the same instant.
const EXTERNAL_STEP_MIN: Span = Span::from_ns(10_000);

/// Distance between the two clocks, from pulse to pulse.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ExternalStepDetector {
    /// Last distance, with the steps commanded since.
    expected_distance: Option<Span>,
}

impl ExternalStepDetector {
    /// Records that the clock will be stepped by command.
    pub(super) fn expect_step(&mut self, step: Span) {
        self.expected_distance = self.expected_distance.map(|expected| expected + step);
    }

    /// Returns the amount by which the clock was set since the last pulse, if it was. That may have
    /// been a leap second, so the pulses must confirm it before it counts.
    pub(super) fn detect_step(&mut self, pulse: &Pulse) -> Option<Span> {
        let distance =
            Span::from_ns(pulse.realtime.as_ns().saturating_sub(pulse.monotonic.as_ns()));
        let step = self.external_step(distance);
        self.expected_distance = Some(distance);
        step
    }

    /// Returns the amount by the distance at any time, which remains the expected one.
    pub(super) fn external_step(&self, distance: Span) -> Option<Span> {
        let step = distance - self.expected_distance?;
        (step.as_ns().saturating_abs() > EXTERNAL_STEP_MIN.as_ns()).then_some(step)
    }
}
