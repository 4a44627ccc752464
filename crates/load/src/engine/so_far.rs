//! Looks at what lanes have counted so far, handed over as often as they are wanted.

use horolog_record::{LOOK_EVERY, Slots, SoFar};
use horolog_time::{Monotonic, Span, Timestamp};

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

    /// Hands over the next one of what began at `start`, where it is time to. What lanes have told
    /// is as old as it is: a rate is of the time until then, not until now.
    pub(super) fn hand_over(
        &mut self,
        start: Timestamp<Monotonic>,
        elapsed: Span,
        intervals: &mut dyn Intervals,
    ) {
        if elapsed >= self.next {
            self.next = elapsed + LOOK_EVERY;
            self.slots.sum(&mut self.sum);
            let counted = self.sum.told.map_or(elapsed, |told| told - start);
            intervals.look(counted, &self.sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use horolog_record::Telling;

    use super::*;
    use crate::account::TrialCounts;

    /// Until when what was looked at was counted, and how much.
    #[derive(Default)]
    struct Seen(Vec<(Span, u64)>);

    impl Intervals for Seen {
        fn closed(&mut self, _: TrialCounts) {}

        fn looks(&self) -> bool {
            true
        }

        fn look(&mut self, counted: Span, so_far: &SoFar) {
            self.0.push((counted, so_far.counts.sent));
        }
    }

    #[test]
    fn a_look_is_as_old_as_what_was_told() {
        let (start, mut seen) = (Timestamp::from_ns(1_000_000_000), Seen::default());
        let slots = wanted(2, &seen).unwrap();
        for (lane, told_ms) in [(0, 380), (1, 420)] {
            let mut telling = Telling::new(slots.of(lane).unwrap(), start);
            let mut told = telling.due(start + Span::from_ms(told_ms)).unwrap();
            told.counts.sent = told_ms as u64;
        }
        let mut looking = Looking::new(&slots);
        looking.hand_over(start, Span::from_ms(499), &mut seen);
        looking.hand_over(start, Span::from_ms(500), &mut seen);
        assert_eq!(seen.0, [(Span::from_ms(400), 800)]);
    }
}
