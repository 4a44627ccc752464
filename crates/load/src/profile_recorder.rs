//! Recorder of a running load profile: makes a point of the time series from each interval and a
//! trial from each phase, and reads the counters for loss attribution between phases. Sends
//! nothing.

use std::mem;
use std::ops::ControlFlow;
use std::time::Duration;

use horolog_record::{LiveCounts, LoadSeriesPoint, PartPlan, Percentiles, Progress, Trial};
use horolog_time::Span;

use crate::engine::IntervalSink;
use crate::load_profile::LoadProfile;
use crate::loss_attribution::{self, LossAttributionCounts, MissingReplyCounts};
use crate::loss_attribution_counters::LossAttributionCounterReader;
use crate::plan::TrialPlan;
use crate::request_tracker::TrialCounts;
use crate::run::{LoadSampler, ended_values};
use crate::trial;

/// Records of a load profile: time series, and one trial per phase.
pub(crate) struct LoadProfileOutcome {
    pub(crate) points: Vec<LoadSeriesPoint>,
    pub(crate) trials: Vec<(Trial, TrialCounts)>,
    pub(crate) interrupted: bool,
}

/// Recorder of a load profile in progress.
pub(crate) struct LoadProfileRecorder<'a, 'o> {
    plan: &'a TrialPlan,
    profile: &'a LoadProfile,
    watch: &'a mut LossAttributionCounterReader,
    sampler: &'a mut LoadSampler<'o>,
    /// Numbers of the intervals at which the phases end.
    phase_ends: Vec<u64>,
    /// Index of the trial of the first phase.
    first_trial: usize,
    /// Counter readings: at the start, and at the end of each phase so far.
    readings: Vec<LossAttributionCounts>,
    /// Counts of the current phase.
    phase_counts: TrialCounts,
    outcome: LoadProfileOutcome,
}

impl<'a, 'o> LoadProfileRecorder<'a, 'o> {
    pub(crate) fn new(
        plan: &'a TrialPlan,
        profile: &'a LoadProfile,
        watch: &'a mut LossAttributionCounterReader,
        sampler: &'a mut LoadSampler<'o>,
        first_trial: usize,
    ) -> Self {
        let readings = vec![watch.read()];
        let outcome =
            LoadProfileOutcome { points: Vec::new(), trials: Vec::new(), interrupted: false };
        let (phase_ends, phase_counts) = (profile.phase_ends(), TrialCounts::default());
        Self {
            plan,
            profile,
            watch,
            sampler,
            phase_ends,
            first_trial,
            readings,
            phase_counts,
            outcome,
        }
    }

    /// Completes the records; a phase that was ended early is recorded as far as it ran.
    pub(crate) fn finish(mut self) -> LoadProfileOutcome {
        let ended_phases = self.outcome.trials.len();
        if ended_phases < self.phase_ends.len() && self.phase_counts.sent > 0 {
            self.end_phase();
        }
        if let Some((_, last)) = self.outcome.trials.last() {
            let phase = self.outcome.trials.len() - 1;
            let duration_s = self.duration(phase).as_secs_f64();
            let mut all = LiveCounts::default();
            self.outcome.trials.iter().for_each(|(_, counts)| all.add(&counts.live_counts()));
            let plan = self.phase_plan(phase, duration_s);
            self.sampler.finish(&plan, duration_s, &all, ended_values(last));
        }
        self.outcome
    }

    /// Returns a phase as the live view shows it, with this planned duration.
    fn phase_plan(&self, phase: usize, duration_s: f64) -> PartPlan {
        let interval_s = self.profile.interval().as_secs_f64();
        let begin = phase.checked_sub(1).map_or(0, |before| self.phase_ends[before]);
        let planned = &self.profile.phases()[phase];
        PartPlan {
            index: self.first_trial + phase,
            name: planned.name.clone(),
            intended_rate: Some(planned.mean_rate()),
            begun_s: begin as f64 * interval_s,
            duration_s: Some(duration_s),
            ..PartPlan::default()
        }
    }

    /// Records an interval as the next point of the time series.
    fn add_point(&mut self, counts: &TrialCounts) {
        let index = self.outcome.points.len();
        let interval_s = self.profile.interval().as_secs_f64();
        let middle = Span::from_ns(((index as f64 + 0.5) * interval_s * 1e9) as i64);
        let point = LoadSeriesPoint {
            at_s: index as f64 * interval_s,
            trial: self.first_trial + self.outcome.trials.len(),
            intended_rate: self.profile.rate_at(middle),
            sent: counts.sent,
            received: counts.sent.saturating_sub(counts.lost()),
            lost: counts.lost(),
            late: counts.late,
            unsynchronised: counts.unsynchronised(),
            invalid: counts.invalid.iter().sum(),
            rtt_ns: Percentiles::from_histogram(&counts.rtt),
        };
        self.sampler.observer.event(&point);
        self.outcome.points.push(point);
    }

    fn end_phase(&mut self) {
        let index = self.outcome.trials.len();
        let mut counts = mem::take(&mut self.phase_counts);
        counts.add_omitted();
        if self.readings.len() < index + 2 {
            self.readings.push(self.watch.read());
        }
        let (before, after) = (&self.readings[index], &self.readings[index + 1]);
        let missing = MissingReplyCounts::from_counts(&counts);
        let phase = &self.profile.phases()[index];
        let plan = TrialPlan {
            rate: phase.mean_rate(),
            duration: self.duration(index),
            profile: None,
            ..self.plan.clone()
        };
        let trial =
            trial::record(&plan, &counts, loss_attribution::attribute(missing, before, after));
        let trial = Trial { phase: Some(phase.name.clone()), ..trial };
        self.sampler.observer.part_ended(self.first_trial + index, &trial);
        self.outcome.interrupted |= self.sampler.observer.flow().is_break();
        self.outcome.trials.push((trial, counts));
    }

    /// Returns the duration of a phase, up to its early end if there was one.
    fn duration(&self, phase: usize) -> Duration {
        let begin = phase.checked_sub(1).map_or(0, |before| self.phase_ends[before]);
        let intervals = (self.outcome.points.len() as u64).min(self.phase_ends[phase]) - begin;
        self.profile.interval() * intervals as u32
    }
}

impl IntervalSink for LoadProfileRecorder<'_, '_> {
    fn deliver_interval(&mut self, counts: TrialCounts) {
        let index = self.outcome.points.len() as u64;
        let phase = self.outcome.trials.len();
        if phase == self.phase_ends.len() {
            return; // nothing is due after the end of the profile
        }
        self.add_point(&counts);
        self.phase_counts.merge(&counts);
        if index + 1 == self.phase_ends[phase] {
            self.end_phase();
        }
    }

    fn tick(&mut self, elapsed: Span) -> ControlFlow<()> {
        let read = self.readings.len();
        // The last phase's counters are read after its last replies.
        let ended = self.phase_ends[..self.phase_ends.len() - 1].get(read - 1);
        let interval_s = self.profile.interval().as_secs_f64();
        if ended.is_some_and(|end| elapsed.as_seconds() >= *end as f64 * interval_s) {
            self.readings.push(self.watch.read());
        }
        let flow = self.sampler.observer.flow();
        self.outcome.interrupted |= flow.is_break();
        flow
    }

    fn wants_snapshots(&self) -> bool {
        self.sampler.observer.wants_snapshots()
    }

    fn report_progress(&mut self, elapsed: Span, progress: &Progress) {
        let interval_s = self.profile.interval().as_secs_f64();
        let number = (elapsed.as_seconds() / interval_s) as u64;
        let ended_phases = self.phase_ends.iter().filter(|end| **end <= number).count();
        let phase = ended_phases.min(self.phase_ends.len() - 1);
        let begun = phase.checked_sub(1).map_or(0, |before| self.phase_ends[before]);
        let duration_s = (self.phase_ends[phase] - begun) as f64 * interval_s;
        let intended_rate = Some(self.profile.rate_at(elapsed));
        let plan = PartPlan { intended_rate, ..self.phase_plan(phase, duration_s) };
        self.sampler.sample(&plan, elapsed, progress);
    }
}
