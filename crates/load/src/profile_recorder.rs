//! Recorder of a running load profile: intervals become the points of the series, phases become
//! trials, and the counters for loss attribution are read between two phases. Sends nothing and
//! evaluates nothing.

use std::mem;
use std::ops::ControlFlow;
use std::time::Duration;

use horolog_record::{Percentiles, Point, Progress, Trial};
use horolog_time::Span;

use crate::counter_watch::CounterWatch;
use crate::engine::IntervalSink;
use crate::load_profile::LoadProfile;
use crate::loss_attribution::{self, Counters, MissingReplies};
use crate::plan::TrialPlan;
use crate::request_tracker::TrialCounts;
use crate::run::{CurrentPart, LiveSampler, Observer};
use crate::trial;

/// Result of a load profile.
pub(crate) struct ProfileOutcome {
    pub(crate) points: Vec<Point>,
    pub(crate) trials: Vec<(Trial, TrialCounts)>,
    pub(crate) interrupted: bool,
}

/// Recorder of a load profile in progress.
pub(crate) struct ProfileRecorder<'a> {
    plan: &'a TrialPlan,
    profile: &'a LoadProfile,
    watch: &'a mut CounterWatch,
    observer: &'a mut dyn Observer,
    sampler: &'a mut LiveSampler,
    /// Numbers of the intervals at which the phases end.
    ends: Vec<u64>,
    /// Index of the trial of the first phase.
    first_trial: usize,
    /// Counters at the start, and at the end of each completed phase.
    read: Vec<Counters>,
    /// Counts of the current phase.
    phase: TrialCounts,
    followed: ProfileOutcome,
}

impl<'a> ProfileRecorder<'a> {
    pub(crate) fn new(
        plan: &'a TrialPlan,
        profile: &'a LoadProfile,
        watch: &'a mut CounterWatch,
        (observer, sampler): (&'a mut dyn Observer, &'a mut LiveSampler),
        first_trial: usize,
    ) -> Self {
        let read = vec![watch.read()];
        let followed =
            ProfileOutcome { points: Vec::new(), trials: Vec::new(), interrupted: false };
        let (ends, phase) = (profile.ends(), TrialCounts::default());
        Self { plan, profile, watch, observer, sampler, ends, first_trial, read, phase, followed }
    }

    /// Ends the incomplete phase, if the run was ended early.
    pub(crate) fn finish(mut self) -> ProfileOutcome {
        let over = self.followed.trials.len();
        if over < self.ends.len() && self.phase.sent > 0 {
            self.end_phase();
        }
        if self.observer.wants_snapshots() && !self.followed.trials.is_empty() {
            let phase = self.followed.trials.len() - 1;
            let under = self.under(phase, self.duration(phase).as_secs_f64());
            let counts = self.followed.trials.iter().map(|(_, counts)| counts);
            if let Some(snapshot) = self.sampler.end(&under, counts) {
                self.observer.snapshot(snapshot);
            }
        }
        self.followed
    }

    /// Returns a phase as the live view shows it, with this planned duration.
    fn under(&self, phase: usize, duration_s: f64) -> CurrentPart<'a> {
        let interval_s = self.profile.interval().as_secs_f64();
        let began = phase.checked_sub(1).map_or(0, |before| self.ends[before]);
        let planned = &self.profile.phases()[phase];
        CurrentPart {
            index: self.first_trial + phase,
            name: &planned.name,
            rate: Some(planned.mean_rate()),
            begun_s: began as f64 * interval_s,
            duration_s,
        }
    }

    /// Adds the next point of the series.
    fn point(&mut self, counts: &TrialCounts) {
        let index = self.followed.points.len();
        let interval_s = self.profile.interval().as_secs_f64();
        let middle = Span::from_ns(((index as f64 + 0.5) * interval_s * 1e9) as i64);
        let point = Point {
            at_s: index as f64 * interval_s,
            trial: self.first_trial + self.followed.trials.len(),
            intended_rate: self.profile.rate_at(middle),
            sent: counts.sent,
            received: counts.sent.saturating_sub(counts.lost()),
            lost: counts.lost(),
            late: counts.late,
            unsynchronised: counts.unsynchronised(),
            invalid: counts.invalid.iter().sum(),
            rtt_ns: Percentiles::of_recorder(&counts.rtt),
        };
        self.observer.interval(&point);
        self.followed.points.push(point);
    }

    fn end_phase(&mut self) {
        let index = self.followed.trials.len();
        let mut counts = mem::take(&mut self.phase);
        counts.add_omitted();
        if self.read.len() < index + 2 {
            self.read.push(self.watch.read());
        }
        let (before, after) = (&self.read[index], &self.read[index + 1]);
        let missing = MissingReplies::of(&counts);
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
            self.followed.interrupted = true;
        }
        self.followed.trials.push((trial, counts));
    }

    /// Returns the duration of a phase: less than planned if it was ended early.
    fn duration(&self, phase: usize) -> Duration {
        let begin = phase.checked_sub(1).map_or(0, |before| self.ends[before]);
        let intervals = (self.followed.points.len() as u64).min(self.ends[phase]) - begin;
        self.profile.interval() * intervals as u32
    }
}

impl IntervalSink for ProfileRecorder<'_> {
    fn closed(&mut self, counts: TrialCounts) {
        let index = self.followed.points.len() as u64;
        let phase = self.followed.trials.len();
        if phase == self.ends.len() {
            return; // nothing is due after the end of the profile
        }
        self.point(&counts);
        self.phase.merge(&counts);
        if index + 1 == self.ends[phase] {
            self.end_phase();
        }
    }

    fn tick(&mut self, elapsed: Span) -> ControlFlow<()> {
        let read = self.read.len();
        // The last phase's counters are read after its last replies.
        let ended = self.ends[..self.ends.len() - 1].get(read - 1);
        let interval_s = self.profile.interval().as_secs_f64();
        if ended.is_some_and(|end| elapsed.as_seconds() >= *end as f64 * interval_s) {
            self.read.push(self.watch.read());
        }
        let flow = self.observer.flow();
        self.followed.interrupted |= flow.is_break();
        flow
    }

    fn wants_snapshots(&self) -> bool {
        self.observer.wants_snapshots()
    }

    fn report_progress(&mut self, elapsed: Span, so_far: &Progress) {
        let interval_s = self.profile.interval().as_secs_f64();
        let number = (elapsed.as_seconds() / interval_s) as u64;
        let over = self.ends.iter().filter(|end| **end <= number).count();
        let phase = over.min(self.ends.len() - 1);
        let begun = phase.checked_sub(1).map_or(0, |before| self.ends[before]);
        let under = self.under(phase, (self.ends[phase] - begun) as f64 * interval_s);
        let under = CurrentPart { rate: Some(self.profile.rate_at(elapsed)), ..under };
        let snapshot = self.sampler.sample(&under, elapsed, so_far);
        self.observer.snapshot(snapshot);
    }
}
