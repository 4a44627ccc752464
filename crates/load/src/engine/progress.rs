//! Forwarding of the lanes' progress to the interval sink, once per [`SNAPSHOT_INTERVAL`].

use horolog_record::{Progress, ProgressSlots, SNAPSHOT_INTERVAL};
use horolog_time::{Monotonic, Span, Timestamp};

use super::IntervalSink;

/// Returns one progress slot for each counting thread, if `intervals` wants snapshots.
pub(super) fn slots_if_wanted(count: usize, intervals: &dyn IntervalSink) -> Option<ProgressSlots> {
    intervals.wants_snapshots().then(|| ProgressSlots::new(count))
}

/// Forwards the summed progress of all lanes at the snapshot interval.
#[derive(Debug)]
pub(super) struct ProgressForwarder<'a> {
    slots: &'a ProgressSlots,
    sum: Progress,
    next: Span,
}

impl<'a> ProgressForwarder<'a> {
    pub(super) fn new(slots: &'a ProgressSlots) -> Self {
        Self { slots, sum: Progress::default(), next: SNAPSHOT_INTERVAL }
    }

    /// Forwards the next snapshot of a trial that began at `start`, if it is due. The snapshot
    /// carries the time of the lanes' last update, so that rates refer to the time covered by the
    /// counts.
    pub(super) fn forward(
        &mut self,
        start: Timestamp<Monotonic>,
        elapsed: Span,
        intervals: &mut dyn IntervalSink,
    ) {
        if elapsed >= self.next {
            self.next = elapsed + SNAPSHOT_INTERVAL;
            self.slots.sum(&mut self.sum);
            let counted = self.sum.published.map_or(elapsed, |published| published - start);
            intervals.report_progress(counted, &self.sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use horolog_record::ProgressPublisher;

    use super::*;
    use crate::request_tracker::TrialCounts;

    /// Times and request counts of the progress that was reported.
    #[derive(Default)]
    struct RecordedProgress(Vec<(Span, u64)>);

    impl IntervalSink for RecordedProgress {
        fn deliver_interval(&mut self, _: TrialCounts) {}

        fn wants_snapshots(&self) -> bool {
            true
        }

        fn report_progress(&mut self, counted: Span, so_far: &Progress) {
            self.0.push((counted, so_far.counts.sent));
        }
    }

    #[test]
    fn a_snapshot_is_as_old_as_the_published_progress() {
        let (start, mut recorded) =
            (Timestamp::from_ns(1_000_000_000), RecordedProgress::default());
        let slots = slots_if_wanted(2, &recorded).unwrap();
        for (lane, published_ms) in [(0, 380), (1, 420)] {
            let mut publisher = ProgressPublisher::new(slots.slot(lane).unwrap(), start);
            let mut progress = publisher.slot_if_due(start + Span::from_ms(published_ms)).unwrap();
            progress.counts.sent = published_ms as u64;
        }
        let mut forwarder = ProgressForwarder::new(&slots);
        forwarder.forward(start, Span::from_ms(499), &mut recorded);
        forwarder.forward(start, Span::from_ms(500), &mut recorded);
        assert_eq!(recorded.0, [(Span::from_ms(400), 800)]);
    }
}
