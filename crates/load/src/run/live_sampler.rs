//! Sampler of a running load: makes snapshots from the engine's progress, the counts of earlier
//! trials and the plan. Does no I/O.

use std::ops::ControlFlow;
use std::time::Instant;

use horolog_record::{LiveCounts, LivePartProgress, LiveSnapshot, Percentiles, Progress};
use horolog_time::Span;

use super::LoadObserver;
use crate::engine::IntervalSink;
use crate::request_tracker::TrialCounts;

/// Trial or phase in progress, as planned.
#[derive(Clone, Debug)]
pub(crate) struct CurrentTrial<'a> {
    /// Index and name of the trial.
    pub(crate) index: usize,
    pub(crate) name: &'a str,
    /// Intended rate at this instant, in requests per second.
    pub(crate) rate: Option<f64>,
    /// Start of the trial from the start of the engine's counts, and its duration, in seconds.
    pub(crate) begun_s: f64,
    pub(crate) duration_s: f64,
}

/// State that snapshots need from earlier ones.
#[derive(Debug)]
pub(crate) struct LiveSampler {
    run_start: Instant,
    /// Sum of the counts of earlier trials.
    previous_counts: LiveCounts,
    /// Index of the current part, and the engine's counts at its start.
    current: (usize, LiveCounts),
    /// Time and counts of the last snapshot.
    last: (f64, LiveCounts),
}

impl LiveSampler {
    pub(crate) fn new() -> Self {
        let zero = LiveCounts::default();
        Self {
            run_start: Instant::now(),
            previous_counts: zero,
            current: (0, zero),
            last: (0.0, zero),
        }
    }

    /// Begins a trial, with the engine's counts at 0.
    pub(crate) fn begin(&mut self, part: usize) {
        let zero = LiveCounts::default();
        (self.current, self.last) = ((part, zero), (0.0, zero));
    }

    /// Makes a snapshot of the engine's counts, `elapsed` after their start.
    pub(crate) fn sample(
        &mut self,
        trial: &CurrentTrial<'_>,
        elapsed: Span,
        progress: &Progress,
    ) -> LiveSnapshot {
        let (now, counts) = (elapsed.as_seconds(), progress.counts);
        if trial.index != self.current.0 {
            // The trial began between two snapshots: its counts start at those of the last
            // snapshot.
            self.current = (trial.index, self.last.1);
        }
        let (last_s, last_counts) = std::mem::replace(&mut self.last, (now, counts));
        let increase = counts.since(&last_counts);
        let per_second = |count: u64| count as f64 / (now - last_s).max(1e-9);
        let mut total = self.previous_counts;
        total.add(&counts);
        LiveSnapshot {
            at_s: self.run_start.elapsed().as_secs_f64(),
            intended_rate: trial.rate,
            sent_rate: per_second(increase.sent),
            received_rate: per_second(increase.received),
            byte_rate: None,
            unanswered_ratio: increase.unanswered() as f64 / increase.sent.max(1) as f64,
            counts: total,
            part: LivePartProgress {
                index: trial.index,
                name: trial.name.to_owned(),
                elapsed_s: (now - trial.begun_s).max(0.0),
                duration_s: Some(trial.duration_s),
                counts: counts.since(&self.current.1),
            },
            latency_ns: Percentiles::from_recorder(&progress.latency),
            lateness_ns: Percentiles::from_recorder(&progress.lateness),
        }
    }

    /// Makes the final snapshot of the engine's counts, summed over `parts` (the phases of a
    /// profile, or one trial): its rates are means over the last of them. `None` if there are none.
    pub(crate) fn final_snapshot<'c>(
        &mut self,
        trial: &CurrentTrial<'_>,
        parts: impl Iterator<Item = &'c TrialCounts>,
    ) -> Option<LiveSnapshot> {
        let (mut progress, mut last) = (Progress::default(), None);
        for counts in parts {
            progress.counts.add(&counts.live_counts());
            last = Some(counts);
        }
        let last = last?;
        progress.latency.merge(&last.rtt);
        progress.lateness.merge(&last.lateness);
        let elapsed = Span::from_ns(((trial.begun_s + trial.duration_s) * 1e9) as i64);
        let snapshot = self.sample(trial, elapsed, &progress);
        self.previous_counts.add(&progress.counts);
        let counts = last.live_counts();
        let per_second = |count: u64| count as f64 / trial.duration_s.max(1e-9);
        Some(LiveSnapshot {
            sent_rate: per_second(counts.sent),
            received_rate: per_second(counts.received),
            unanswered_ratio: counts.unanswered() as f64 / counts.sent.max(1) as f64,
            part: LivePartProgress { elapsed_s: trial.duration_s, counts, ..snapshot.part },
            ..snapshot
        })
    }
}

/// Sink for a trial of one rate: merges its counts, and passes snapshots to the observer.
pub(crate) struct SampledTrialSink<'a> {
    pub(crate) counts: TrialCounts,
    pub(crate) stopped: bool,
    pub(crate) observer: &'a mut dyn LoadObserver,
    pub(crate) sampler: &'a mut LiveSampler,
    pub(crate) trial: CurrentTrial<'a>,
}

impl IntervalSink for SampledTrialSink<'_> {
    fn deliver_interval(&mut self, counts: TrialCounts) {
        self.counts.merge(&counts);
    }

    fn tick(&mut self, _: Span) -> ControlFlow<()> {
        let flow = self.observer.flow();
        self.stopped |= flow.is_break();
        flow
    }

    fn wants_snapshots(&self) -> bool {
        self.observer.wants_snapshots()
    }

    fn report_progress(&mut self, elapsed: Span, progress: &Progress) {
        let snapshot = self.sampler.sample(&self.trial, elapsed, progress);
        self.observer.snapshot(snapshot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn so_far(sent: u64, received: u64) -> Progress {
        let counts = LiveCounts { sent, received, ..LiveCounts::default() };
        Progress { counts, ..Progress::default() }
    }

    fn under(index: usize) -> CurrentTrial<'static> {
        CurrentTrial { index, name: "", rate: Some(100.0), begun_s: index as f64, duration_s: 1.0 }
    }

    #[test]
    fn rates_cover_the_time_since_the_last_snapshot_and_counts_all_trials() {
        let mut sampler = LiveSampler::new();
        sampler.begin(0);
        let first = sampler.sample(&under(0), Span::from_ms(500), &so_far(50, 40));
        assert_eq!((first.sent_rate as u64, first.received_rate as u64), (100, 80));
        assert_eq!((first.counts.sent, first.part.counts.sent), (50, 50));
        let trial = TrialCounts { sent: 100, received: 90, ..TrialCounts::default() };
        let last = sampler.final_snapshot(&under(0), std::iter::once(&trial)).unwrap();
        assert_eq!((last.sent_rate as u64, last.received_rate as u64), (100, 90));
        assert!((last.unanswered_ratio - 0.1).abs() < 1e-9, "{last:?}");
        sampler.begin(1);
        let next = sampler.sample(&under(1), Span::from_ms(500), &so_far(10, 10));
        assert_eq!((next.counts.sent, next.part.counts.sent), (110, 10));
        assert_eq!((next.sent_rate as u64, next.unanswered_ratio), (20, 0.0));
    }

    #[test]
    fn phases_of_a_profile_are_distinguished() {
        let mut sampler = LiveSampler::new();
        sampler.begin(0);
        sampler.sample(&under(0), Span::from_ms(900), &so_far(90, 90));
        let second = sampler.sample(&under(1), Span::from_ms(1_400), &so_far(140, 140));
        assert_eq!((second.counts.sent, second.part.counts.sent), (140, 50));
        assert!((second.part.elapsed_s - 0.4).abs() < 1e-9);
    }
}
