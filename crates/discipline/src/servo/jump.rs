//! Detection of steps of the clock by other programs: its difference from the monotonic clock,
//! which cannot be set, changes.

use horolog_time::Span;

use crate::Pulse;

/// Smallest change that counts as a step; smaller ones arise because the two clocks are not read at
/// the same instant.
const EXTERNAL_STEP_MIN: Span = Span::from_ns(10_000);

/// Detector of steps by the difference between the two clocks from pulse to pulse.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ExternalStepDetector {
    /// Difference at the last pulse, plus the steps commanded since.
    expected_distance: Option<Span>,
}

impl ExternalStepDetector {
    /// Records a commanded step, which is not to be detected.
    pub(super) fn expect_step(&mut self, step: Span) {
        self.expected_distance = self.expected_distance.map(|expected| expected + step);
    }

    /// Returns the step of the clock since the last pulse, if there was one. It may have been a
    /// leap second, so it is used only if the pulse fits the prediction better with it.
    pub(super) fn detect_step(&mut self, pulse: &Pulse) -> Option<Span> {
        let distance =
            Span::from_ns(pulse.realtime.as_ns().saturating_sub(pulse.monotonic.as_ns()));
        let step = self.external_step(distance);
        self.expected_distance = Some(distance);
        step
    }

    /// Returns the step that follows from the present difference, without recording the difference.
    pub(super) fn external_step(&self, distance: Span) -> Option<Span> {
        let step = distance - self.expected_distance?;
        (step.as_ns().saturating_abs() > EXTERNAL_STEP_MIN.as_ns()).then_some(step)
    }
}
