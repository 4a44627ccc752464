//! Counts of each interval of a trial, delivered to an [`IntervalSink`] when all lanes have closed
//! it. Adds counts up; evaluates nothing.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use horolog_record::{Progress, ProgressSlots, SNAPSHOT_INTERVAL};
use horolog_sys::clock::ClockMonotonic;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use crate::plan::TrialPlan;
use crate::request_tracker::{ClosedInterval, TrialCounts};

/// Receiver of the counts of a trial, interval by interval. A trial without a load profile is one
/// interval.
pub trait IntervalSink {
    /// Receives the counts of the next interval, summed over all lanes.
    fn deliver_interval(&mut self, counts: TrialCounts);

    /// Called several times a second with the time since the start of the trial. `Break` ends the
    /// trial.
    fn tick(&mut self, _elapsed: Span) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Returns true if the engine must report progress.
    fn wants_snapshots(&self) -> bool {
        false
    }

    /// Receives the counts so far, twice a second, if [`IntervalSink::wants_snapshots`] is true.
    fn report_progress(&mut self, _elapsed: Span, _progress: &Progress) {}
}

/// Returns the interval at which a running trial is checked for its end: 20 ms with a load profile,
/// whose phases must end in time, otherwise 100 ms.
pub(super) fn check_interval(plan: &TrialPlan) -> Duration {
    Duration::from_millis(if plan.profile.is_some() { 20 } else { 100 })
}

/// Sink that merges all intervals of a trial into one set of counts.
pub(super) struct WholeTrialSink<'a> {
    pub(super) counts: TrialCounts,
    pub(super) flow: &'a mut dyn FnMut() -> ControlFlow<()>,
}

impl IntervalSink for WholeTrialSink<'_> {
    fn deliver_interval(&mut self, counts: TrialCounts) {
        self.counts.merge(&counts);
    }

    fn tick(&mut self, _: Span) -> ControlFlow<()> {
        (self.flow)()
    }
}

/// Merges the counts of several lanes, interval by interval.
pub(super) struct IntervalMerger {
    lanes: usize,
    first_open: u64,
    /// Open intervals from number `first_open` on: the number of lanes that have closed each, and
    /// the sum of their counts.
    open_intervals: VecDeque<(usize, TrialCounts)>,
}

impl IntervalMerger {
    pub(super) const fn new(lanes: usize) -> Self {
        Self { lanes, first_open: 0, open_intervals: VecDeque::new() }
    }

    /// Adds one lane's counts of an interval, and delivers the intervals that all lanes have
    /// closed.
    pub(super) fn add(
        &mut self,
        (number, counts): ClosedInterval,
        intervals: &mut dyn IntervalSink,
    ) {
        let index = number.saturating_sub(self.first_open) as usize;
        while self.open_intervals.len() <= index {
            self.open_intervals.push_back((0, TrialCounts::default()));
        }
        let (closed, sum) = &mut self.open_intervals[index];
        *closed += 1;
        sum.merge(&counts);
        while self.open_intervals.front().is_some_and(|(closed, _)| *closed == self.lanes) {
            self.deliver_first(intervals);
        }
    }

    /// Merges the counts of all lanes until the last of them has ended, in a trial that began at
    /// `start`. Sets `stop` if the sink ends the trial; the sink is called at least once per
    /// `tick_interval`. Forwards progress to the sink.
    pub(super) fn merge_until_end(
        mut self,
        receiver: &Receiver<ClosedInterval>,
        (start, stop): (Timestamp<Monotonic>, &AtomicBool),
        (tick_interval, mut forwarder): (Duration, Option<ProgressForwarder<'_>>),
        intervals: &mut dyn IntervalSink,
    ) {
        loop {
            match receiver.recv_timeout(tick_interval) {
                Ok(closed_interval) => self.add(closed_interval, intervals),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let elapsed = ClockMonotonic.now() - start;
            if intervals.tick(elapsed).is_break() {
                stop.store(true, Ordering::Relaxed);
            }
            if let Some(forwarder) = &mut forwarder {
                forwarder.forward(start, elapsed, intervals);
            }
        }
        self.finish(intervals);
    }

    /// Delivers the remaining intervals, which not every lane has closed.
    pub(super) fn finish(mut self, intervals: &mut dyn IntervalSink) {
        while !self.open_intervals.is_empty() {
            self.deliver_first(intervals);
        }
    }

    fn deliver_first(&mut self, intervals: &mut dyn IntervalSink) {
        if let Some((_, counts)) = self.open_intervals.pop_front() {
            self.first_open += 1;
            intervals.deliver_interval(counts);
        }
    }
}

/// Merges the intervals of the parts of a mix that run on one thread; those of a single part are
/// passed through.
pub(super) struct MixIntervalMerger<'a> {
    merger: IntervalMerger,
    /// Number of intervals that each part has reported.
    reported: Vec<u64>,
    next_snapshot: Span,
    intervals: &'a mut dyn IntervalSink,
}

/// Interval sink of one part.
pub(super) struct MixPartSink<'s, 'a> {
    index: usize,
    mix_intervals: &'s mut MixIntervalMerger<'a>,
}

impl<'a> MixIntervalMerger<'a> {
    pub(super) fn new(parts: usize, intervals: &'a mut dyn IntervalSink) -> Self {
        let (merger, reported) = (IntervalMerger::new(parts), vec![0; parts]);
        Self { merger, reported, next_snapshot: SNAPSHOT_INTERVAL, intervals }
    }

    pub(super) fn part_sink(&mut self, index: usize) -> MixPartSink<'_, 'a> {
        MixPartSink { index, mix_intervals: self }
    }

    /// Reports the elapsed time; `Break` ends the trial.
    pub(super) fn tick(&mut self, elapsed: Span) -> ControlFlow<()> {
        self.intervals.tick(elapsed)
    }

    /// Returns true if snapshots are wanted and the next one is due; schedules the one after it.
    pub(super) fn is_snapshot_due(&mut self, elapsed: Span) -> bool {
        let is_due = self.intervals.wants_snapshots() && elapsed >= self.next_snapshot;
        if is_due {
            self.next_snapshot = elapsed + SNAPSHOT_INTERVAL;
        }
        is_due
    }

    /// Forwards the counts so far to the sink.
    pub(super) fn report_progress(&mut self, elapsed: Span, progress: &Progress) {
        self.intervals.report_progress(elapsed, progress);
    }

    /// Delivers the remaining intervals, which not every part has closed.
    pub(super) fn finish(self) {
        self.merger.finish(self.intervals);
    }
}

impl IntervalSink for MixPartSink<'_, '_> {
    fn deliver_interval(&mut self, counts: TrialCounts) {
        let (index, MixIntervalMerger { merger, reported, intervals, .. }) =
            (self.index, &mut *self.mix_intervals);
        let count = reported.len();
        let counts = if count > 1 { counts.as_part(index, count) } else { counts };
        merger.add((reported[index], Box::new(counts)), *intervals);
        reported[index] += 1;
    }
}

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

    struct Sent(Vec<u64>);

    impl IntervalSink for Sent {
        fn deliver_interval(&mut self, counts: TrialCounts) {
            self.0.push(counts.sent);
        }
    }

    #[test]
    fn an_interval_is_handed_over_once_all_lanes_have_closed_it() {
        let closed_interval =
            |number, sent| (number, Box::new(TrialCounts { sent, ..Default::default() }));
        let (mut gathering, mut taken) = (IntervalMerger::new(2), Sent(Vec::new()));
        for (number, sent) in [(0, 1), (1, 10), (2, 100)] {
            gathering.add(closed_interval(number, sent), &mut taken);
        }
        assert!(taken.0.is_empty());
        gathering.add(closed_interval(0, 5), &mut taken);
        assert_eq!(taken.0, [6]);
        gathering.add(closed_interval(1, 50), &mut taken);
        gathering.finish(&mut taken);
        assert_eq!(taken.0, [6, 60, 100]);
    }

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
