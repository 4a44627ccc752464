//! Interface between an engine and the run while a trial is in progress: the counts of each
//! interval, once all lanes have closed it. Only sums; no evaluation.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use horolog_sys::clock::MonotonicClock;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use horolog_record::{Progress, SNAPSHOT_INTERVAL};

use super::progress::ProgressForwarder;
use crate::plan::TrialPlan;
use crate::request_tracker::{ClosedInterval, TrialCounts};

/// Receiver of the counts of the intervals of a trial. A trial without intervals is one interval.
pub trait IntervalSink {
    /// Takes the next interval, all lanes together.
    fn closed(&mut self, counts: TrialCounts);

    /// Reports the time since the trial began, several times a second. `Break` ends the trial.
    fn tick(&mut self, _elapsed: Span) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Returns true if snapshots of the counts so far are wanted.
    fn wants_snapshots(&self) -> bool {
        false
    }

    /// Takes the counts so far, twice a second if wanted.
    fn report_progress(&mut self, _elapsed: Span, _so_far: &Progress) {}
}

/// Returns the time between two checks whether a trial must end: with intervals, short enough for
/// the end of a phase; otherwise, as long as a user does not notice.
pub(super) fn check_interval(plan: &TrialPlan) -> Duration {
    Duration::from_millis(if plan.profile.is_some() { 20 } else { 100 })
}

/// All intervals merged into one.
pub(super) struct WholeTrial<'a> {
    pub(super) counts: TrialCounts,
    pub(super) flow: &'a mut dyn FnMut() -> ControlFlow<()>,
}

impl IntervalSink for WholeTrial<'_> {
    fn closed(&mut self, counts: TrialCounts) {
        self.counts.merge(&counts);
    }

    fn tick(&mut self, _: Span) -> ControlFlow<()> {
        (self.flow)()
    }
}

/// Merges the counts of several lanes, interval by interval.
pub(super) struct IntervalMerger {
    lanes: usize,
    first: u64,
    /// For each interval from the first open one: number of lanes that have closed it, and their
    /// counts.
    parts: VecDeque<(usize, TrialCounts)>,
}

impl IntervalMerger {
    pub(super) const fn new(lanes: usize) -> Self {
        Self { lanes, first: 0, parts: VecDeque::new() }
    }

    /// Adds the counts of one lane, and delivers the intervals that they complete.
    pub(super) fn add(
        &mut self,
        (number, counts): ClosedInterval,
        intervals: &mut dyn IntervalSink,
    ) {
        let index = number.saturating_sub(self.first) as usize;
        while self.parts.len() <= index {
            self.parts.push_back((0, TrialCounts::default()));
        }
        let (closed, sum) = &mut self.parts[index];
        *closed += 1;
        sum.merge(&counts);
        while self.parts.front().is_some_and(|(closed, _)| *closed == self.lanes) {
            self.hand_over(intervals);
        }
    }

    /// Merges the counts of lanes that began at `start`, until all of them have ended. Sets `stop`
    /// when the trial must end early, checked at least once per `tick_interval`, and forwards
    /// progress to the observer.
    pub(super) fn gather(
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
            let elapsed = MonotonicClock.now() - start;
            if intervals.tick(elapsed).is_break() {
                stop.store(true, Ordering::Relaxed);
            }
            if let Some(forwarder) = &mut forwarder {
                forwarder.forward(start, elapsed, intervals);
            }
        }
        self.finish(intervals);
    }

    /// Delivers the rest: intervals that not every lane has reached.
    pub(super) fn finish(mut self, intervals: &mut dyn IntervalSink) {
        while !self.parts.is_empty() {
            self.hand_over(intervals);
        }
    }

    fn hand_over(&mut self, intervals: &mut dyn IntervalSink) {
        if let Some((_, counts)) = self.parts.pop_front() {
            self.first += 1;
            intervals.closed(counts);
        }
    }
}

/// Merges the intervals of the parts of a mix that run on one thread; those of an only part are
/// passed through.
pub(super) struct MixIntervals<'a> {
    gathering: IntervalMerger,
    /// Number of intervals that each part has reported.
    reported: Vec<u64>,
    next_snapshot: Span,
    intervals: &'a mut dyn IntervalSink,
}

/// Interval sink of one part.
pub(super) struct MixIntervalPart<'s, 'a> {
    index: usize,
    shares: &'s mut MixIntervals<'a>,
}

impl<'a> MixIntervals<'a> {
    pub(super) fn new(parts: usize, intervals: &'a mut dyn IntervalSink) -> Self {
        let (gathering, reported) = (IntervalMerger::new(parts), vec![0; parts]);
        Self { gathering, reported, next_snapshot: SNAPSHOT_INTERVAL, intervals }
    }

    pub(super) fn part(&mut self, index: usize) -> MixIntervalPart<'_, 'a> {
        MixIntervalPart { index, shares: self }
    }

    /// Reports the elapsed time; `Break` ends the trial.
    pub(super) fn tick(&mut self, elapsed: Span) -> ControlFlow<()> {
        self.intervals.tick(elapsed)
    }

    /// Returns true if a snapshot is wanted and due.
    pub(super) fn is_snapshot_due(&mut self, elapsed: Span) -> bool {
        let is_due = self.intervals.wants_snapshots() && elapsed >= self.next_snapshot;
        if is_due {
            self.next_snapshot = elapsed + SNAPSHOT_INTERVAL;
        }
        is_due
    }

    /// Takes the counts so far.
    pub(super) fn report_progress(&mut self, elapsed: Span, so_far: &Progress) {
        self.intervals.report_progress(elapsed, so_far);
    }

    /// Delivers the rest.
    pub(super) fn finish(self) {
        self.gathering.finish(self.intervals);
    }
}

impl IntervalSink for MixIntervalPart<'_, '_> {
    fn closed(&mut self, counts: TrialCounts) {
        let (index, MixIntervals { gathering, reported, intervals, .. }) =
            (self.index, &mut *self.shares);
        let count = reported.len();
        let counts = if count > 1 { counts.as_part(index, count) } else { counts };
        gathering.add((reported[index], Box::new(counts)), *intervals);
        reported[index] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sent(Vec<u64>);

    impl IntervalSink for Sent {
        fn closed(&mut self, counts: TrialCounts) {
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
}
