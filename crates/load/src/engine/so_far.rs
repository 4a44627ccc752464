//! Looks at what lanes have counted so far, handed over as often as they are wanted.

use horolog_record::{LOOK_EVERY, Slots, SoFar};
use horolog_time::Span;

use super::Intervals;

/// A place for each of those that count, where `intervals` want looks.
pub(super) fn wanted(count: usize, intervals: &dyn Intervals) -> Option<Slots> {
    intervals.looks().then(|| Slots::new(count))
}

/// Hands looks over, as often as they are wanted.
#[derive(Debug)]
pub(super) struct Looking<'a> {
    slots: &'a Slots,
    sum: SoFar,
    next: Span,
}

impl<'a> Looking<'a> {
    pub(super) fn new(slots: &'a Slots) -> Self {
        Self { slots, sum: SoFar::default(), next: LOOK_EVERY }
    }

    /// Hands over the next one, where it is time to.
    pub(super) fn hand_over(&mut self, elapsed: Span, intervals: &mut dyn Intervals) {
        if elapsed >= self.next {
            self.next = elapsed + LOOK_EVERY;
            self.slots.sum(&mut self.sum);
            intervals.look(elapsed, &self.sum);
        }
    }
}
