//! Whether somebody else has set the clock: then its distance from the monotonic clock, which
//! nobody sets, has changed.

use horolog_time::Span;

use crate::Pulse;

/// Two clocks are not read at the same instant: less than this is no jump.
const JUMP_MIN: Span = Span::from_ns(10_000);

/// The distance between the two clocks, from pulse to pulse.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ClockJumps {
    /// What it was, with the steps that were commanded since.
    expected: Option<Span>,
}

impl ClockJumps {
    /// The clock will be stepped by command.
    pub(super) fn expect(&mut self, step: Span) {
        self.expected = self.expected.map(|expected| expected + step);
    }

    /// By how much the clock has been set since the last pulse, if it has. That may have been a
    /// leap second, so the pulses have to say the same before it counts.
    pub(super) fn take(&mut self, pulse: &Pulse) -> Option<Span> {
        let distance =
            Span::from_ns(pulse.realtime.as_ns().saturating_sub(pulse.monotonic.as_ns()));
        let moved = self.moved(distance);
        self.expected = Some(distance);
        moved
    }

    /// The same by the distance at any time, which stays expected.
    pub(super) fn moved(&self, distance: Span) -> Option<Span> {
        let jump = distance - self.expected?;
        (jump.as_ns().saturating_abs() > JUMP_MIN.as_ns()).then_some(jump)
    }
}
