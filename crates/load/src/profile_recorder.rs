//! Recorder of a running load profile: makes a point of the time series from each interval and a
//! trial from each phase, and reads the counters for loss attribution between phases. Sends
//! nothing.

use std::mem;
use std::ops::ControlFlow;
use std::time::Duration;

use horolog_record::{LoadSeriesPoint, Percentiles, Progress, Trial};
use horolog_time::Span;

use crate::engine::IntervalSink;
use crate::load_profile::LoadProfile;
use crate::loss_attribution::{self, LossAttributionCounts, MissingReplyCounts};
use crate::loss_attribution_counters::LossAttributionCounterReader;
use crate::plan::TrialPlan;
use crate::request_tracker::TrialCounts;
use crate::run::{CurrentTrial, LiveSampler, LoadObserver};
use crate::trial;

/// Records of a load profile: time series, and one trial per phase.
pub(crate) struct LoadProfileOutcome {
    pub(crate) points: Vec<LoadSeriesPoint>,
    pub(crate) trials: Vec<(Trial, TrialCounts)>,
    pub(crate) interrupted: bool,
}

/// Recorder of a load profile in progress.
pub(crate) struct LoadProfileRecorder<'a> {
    plan: &'a TrialPlan,
    profile: &'a LoadProfile,
    watch: &'a mut LossAttributionCounterReader,
    observer: &'a mut dyn LoadObserver,
    sampler: &'a mut LiveSampler,
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

impl<'a> LoadProfileRecorder<'a> {
    pub(crate) fn new(
        plan: &'a TrialPlan,
        profile: &'a LoadProfile,
        watch: &'a mut LossAttributionCounterReader,
        (observer, sampler): (&'a mut dyn LoadObserver, &'a mut LiveSampler),
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
            observer,
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
        if self.observer.wants_snapshots() && !self.outcome.trials.is_empty() {
            let phase = self.outcome.trials.len() - 1;
            let current_trial = self.current_trial(phase, self.duration(phase).as_secs_f64());
            let counts = self.outcome.trials.iter().map(|(_, counts)| counts);
            if let Some(snapshot) = self.sampler.final_snapshot(&current_trial, counts) {
                self.observer.snapshot(snapshot);
            }
        }
        self.outcome
    }

    /// Returns a phase as the live view shows it, with this planned duration.
    fn current_trial(&self, phase: usize, duration_s: f64) -> CurrentTrial<'a> {
        let interval_s = self.profile.interval().as_secs_f64();
        let begin = phase.checked_sub(1).map_or(0, |before| self.phase_ends[before]);
        let planned = &self.profile.phases()[phase];
        CurrentTrial {
            index: self.first_trial + phase,
            name: &planned.name,
            rate: Some(planned.mean_rate()),
            begun_s: begin as f64 * interval_s,
            duration_s,
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
            rtt_ns: Percentiles::from_recorder(&counts.rtt),
        };
        self.observer.interval(&point);
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
        if self.observer.trial_ended(self.first_trial + index, &trial).is_break() {
            self.outcome.interrupted = true;
        }
        self.outcome.trials.push((trial, counts));
    }

    /// Returns the duration of a phase, up to its early end if there was one.
    fn duration(&self, phase: usize) -> Duration {
        let begin = phase.checked_sub(1).map_or(0, |before| self.phase_ends[before]);
        let intervals = (self.outcome.points.len() as u64).min(self.phase_ends[phase]) - begin;
        self.profile.interval() * intervals as u32
    }
}

impl IntervalSink for LoadProfileRecorder<'_> {
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
        let flow = self.observer.flow();
        self.outcome.interrupted |= flow.is_break();
        flow
    }

    fn wants_snapshots(&self) -> bool {
        self.observer.wants_snapshots()
    }

    fn report_progress(&mut self, elapsed: Span, progress: &Progress) {
        let interval_s = self.profile.interval().as_secs_f64();
        let number = (elapsed.as_seconds() / interval_s) as u64;
        let ended_phases = self.phase_ends.iter().filter(|end| **end <= number).count();
        let phase = ended_phases.min(self.phase_ends.len() - 1);
        let begun = phase.checked_sub(1).map_or(0, |before| self.phase_ends[before]);
        let current_trial =
            self.current_trial(phase, (self.phase_ends[phase] - begun) as f64 * interval_s);
        let current_trial =
            CurrentTrial { rate: Some(self.profile.rate_at(elapsed)), ..current_trial };
        let snapshot = self.sampler.sample(&current_trial, elapsed, progress);
        self.observer.snapshot(snapshot);
    }
}
