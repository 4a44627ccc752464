//! Sampler of a running load: combines the engine's progress with the counts before it and with the
//! plan. Pure.

use std::ops::ControlFlow;
use std::time::Instant;

use horolog_record::{LiveCounts, PartProgress, Percentiles, Progress, Snapshot};
use horolog_time::Span;

use super::Observer;
use crate::engine::IntervalSink;
use crate::request_tracker::TrialCounts;

/// Current part of the run, as it was planned.
#[derive(Clone, Debug)]
pub(crate) struct CurrentPart<'a> {
    /// Number and name of the part.
    pub(crate) index: usize,
    pub(crate) name: &'a str,
    /// Requests per second that are planned at this instant, if any.
    pub(crate) rate: Option<f64>,
    /// Start of the part, relative to the start of the engine's counts; and its duration.
    pub(crate) begun_s: f64,
    pub(crate) duration_s: f64,
}

/// State carried from one snapshot to the next.
#[derive(Debug)]
pub(crate) struct LiveSampler {
    begun: Instant,
    /// Counts before the engine's current ones.
    before: LiveCounts,
    /// Index of the current part, and the engine's counts at its start.
    part: (usize, LiveCounts),
    /// Time and counts of the last snapshot.
    last: (f64, LiveCounts),
}

impl LiveSampler {
    pub(crate) fn new() -> Self {
        let zero = LiveCounts::default();
        Self { begun: Instant::now(), before: zero, part: (0, zero), last: (0.0, zero) }
    }

    /// Starts the engine's counts at 0, with this part.
    pub(crate) fn begin(&mut self, part: usize) {
        let zero = LiveCounts::default();
        (self.part, self.last) = ((part, zero), (0.0, zero));
    }

    /// Makes a snapshot of the engine's counts at this time after their start.
    pub(crate) fn sample(
        &mut self,
        under: &CurrentPart<'_>,
        elapsed: Span,
        so_far: &Progress,
    ) -> Snapshot {
        let (now, counts) = (elapsed.as_seconds(), so_far.counts);
        if under.index != self.part.0 {
            // The part began between two snapshots: counts that may not be its own are left out.
            self.part = (under.index, self.last.1);
        }
        let (then, counted) = std::mem::replace(&mut self.last, (now, counts));
        let gained = counts.since(&counted);
        let per_second = |count: u64| count as f64 / (now - then).max(1e-9);
        let mut all = self.before;
        all.add(&counts);
        Snapshot {
            at_s: self.begun.elapsed().as_secs_f64(),
            intended_rate: under.rate,
            sent_rate: per_second(gained.sent),
            received_rate: per_second(gained.received),
            byte_rate: None,
            unanswered_ratio: gained.unanswered() as f64 / gained.sent.max(1) as f64,
            counts: all,
            part: PartProgress {
                index: under.index,
                name: under.name.to_owned(),
                elapsed_s: (now - under.begun_s).max(0.0),
                duration_s: Some(under.duration_s),
                counts: counts.since(&self.part.1),
            },
            latency_ns: Percentiles::of_recorder(&so_far.latency),
            lateness_ns: Percentiles::of_recorder(&so_far.lateness),
        }
    }

    /// Makes the last snapshots of the engine's counts when they are complete, part by part: of the
    /// last part, with the rates of the whole part.
    pub(crate) fn end<'c>(
        &mut self,
        under: &CurrentPart<'_>,
        parts: impl Iterator<Item = &'c TrialCounts>,
    ) -> Option<Snapshot> {
        let (mut so_far, mut last) = (Progress::default(), None);
        for counts in parts {
            so_far.counts.add(&counts.live_counts());
            last = Some(counts);
        }
        let last = last?;
        so_far.latency.merge(&last.rtt);
        so_far.lateness.merge(&last.lateness);
        let elapsed = Span::from_ns(((under.begun_s + under.duration_s) * 1e9) as i64);
        let snapshot = self.sample(under, elapsed, &so_far);
        self.before.add(&so_far.counts);
        let counts = last.live_counts();
        let per_second = |count: u64| count as f64 / under.duration_s.max(1e-9);
        Some(Snapshot {
            sent_rate: per_second(counts.sent),
            received_rate: per_second(counts.received),
            unanswered_ratio: counts.unanswered() as f64 / counts.sent.max(1) as f64,
            part: PartProgress { elapsed_s: under.duration_s, counts, ..snapshot.part },
            ..snapshot
        })
    }
}

/// A trial of one rate, counted as a whole, with snapshots if the observer wants them.
pub(crate) struct SampledTrial<'a> {
    pub(crate) counts: TrialCounts,
    pub(crate) stopped: bool,
    pub(crate) observer: &'a mut dyn Observer,
    pub(crate) sampler: &'a mut LiveSampler,
    pub(crate) under: CurrentPart<'a>,
}

impl IntervalSink for SampledTrial<'_> {
    fn closed(&mut self, counts: TrialCounts) {
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

    fn report_progress(&mut self, elapsed: Span, so_far: &Progress) {
        let snapshot = self.sampler.sample(&self.under, elapsed, so_far);
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

    fn under(index: usize) -> CurrentPart<'static> {
        CurrentPart { index, name: "", rate: Some(100.0), begun_s: index as f64, duration_s: 1.0 }
    }

    #[test]
    fn rates_cover_the_time_since_the_last_snapshot_and_counts_all_trials() {
        let mut sampler = LiveSampler::new();
        sampler.begin(0);
        let first = sampler.sample(&under(0), Span::from_ms(500), &so_far(50, 40));
        assert_eq!((first.sent_rate as u64, first.received_rate as u64), (100, 80));
        assert_eq!((first.counts.sent, first.part.counts.sent), (50, 50));
        let trial = TrialCounts { sent: 100, received: 90, ..TrialCounts::default() };
        let last = sampler.end(&under(0), std::iter::once(&trial)).unwrap();
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
