//! Sink of a trial of one rate: sums its counts, and passes its progress on to the sampler.

use std::ops::ControlFlow;

use horolog_record::{
    LiveSampler, LoadSeriesPoint, PartPlan, Percentiles, Progress, RequestValues, Trial,
};
use horolog_time::Span;

use crate::engine::IntervalSink;
use crate::request_tracker::TrialCounts;

/// Sampler of a load, whose events are the completed intervals of a load profile.
pub(crate) type LoadSampler<'o> = LiveSampler<'o, Trial, LoadSeriesPoint>;

/// Sink of a trial in progress.
pub(super) struct TrialSink<'a, 'o> {
    pub(super) counts: TrialCounts,
    pub(super) stopped: bool,
    pub(super) sampler: &'a mut LoadSampler<'o>,
    pub(super) plan: PartPlan,
}

impl IntervalSink for TrialSink<'_, '_> {
    fn deliver_interval(&mut self, counts: TrialCounts) {
        self.counts.merge(&counts);
    }

    fn tick(&mut self, _: Span) -> ControlFlow<()> {
        let flow = self.sampler.observer.flow();
        self.stopped |= flow.is_break();
        flow
    }

    fn wants_snapshots(&self) -> bool {
        self.sampler.observer.wants_snapshots()
    }

    fn report_progress(&mut self, elapsed: Span, progress: &Progress) {
        self.sampler.sample(&self.plan, elapsed, progress);
    }
}

/// Returns the values of a completed trial or phase for its final snapshot.
pub(crate) fn ended_values(counts: &TrialCounts) -> RequestValues {
    RequestValues {
        part_counts: counts.live_counts(),
        latency_ns: Percentiles::from_histogram(&counts.rtt),
        lateness_ns: Percentiles::from_histogram(&counts.lateness),
        ..RequestValues::default()
    }
}
