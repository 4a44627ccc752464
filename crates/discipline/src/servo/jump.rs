//! Detection of a clock set by another program: its distance from the monotonic clock, which cannot
//! be set, has changed.

use horolog_time::Span;

use crate::Pulse;

/// Smallest change that is a jump: the two clocks are not read at the same instant.
const JUMP_MIN: Span = Span::from_ns(10_000);

/// Distance between the two clocks, from pulse to pulse.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ClockJumps {
    /// Last distance, with the steps commanded since.
    expected: Option<Span>,
}

impl ClockJumps {
    /// Records that the clock will be stepped by command.
    pub(super) fn expect(&mut self, step: Span) {
        self.expected = self.expected.map(|expected| expected + step);
    }

    /// Returns the amount by which the clock was set since the last pulse, if it was. That may have
    /// been a leap second, so the pulses must confirm it before it counts.
    pub(super) fn take(&mut self, pulse: &Pulse) -> Option<Span> {
        let distance =
            Span::from_ns(pulse.realtime.as_ns().saturating_sub(pulse.monotonic.as_ns()));
        let moved = self.moved(distance);
        self.expected = Some(distance);
        moved
    }

    /// Returns the amount by the distance at any time, which remains the expected one.
    pub(super) fn moved(&self, distance: Span) -> Option<Span> {
        let jump = distance - self.expected?;
        (jump.as_ns().saturating_abs() > JUMP_MIN.as_ns()).then_some(jump)
    }
}
