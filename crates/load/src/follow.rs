//! Follows a course while it runs: intervals become the points of the series, phases become trials,
//! and the counters that tell where packets were lost are read where one phase ends and the next
//! begins. It sends nothing and judges nothing.

use std::mem;
use std::ops::ControlFlow;
use std::time::Duration;

use horolog_record::{Percentiles, Point, Trial};
use horolog_stats::Recorder;
use horolog_time::Span;

use crate::account::TrialCounts;
use crate::course::Course;
use crate::engine::Intervals;
use crate::places::{self, Counters, Missing};
use crate::plan::TrialPlan;
use crate::run::Observer;
use crate::trial;
use crate::watch::Watch;

/// What a course came to.
pub(crate) struct Followed {
    pub(crate) points: Vec<Point>,
    pub(crate) trials: Vec<(Trial, TrialCounts)>,
    pub(crate) interrupted: bool,
}

/// A course that is under way.
pub(crate) struct Follower<'a> {
    plan: &'a TrialPlan,
    course: &'a Course,
    watch: &'a mut Watch,
    observer: &'a mut dyn Observer,
    /// The numbers of the intervals at which the phases end.
    ends: Vec<u64>,
    /// The trial that the first phase is.
    first_trial: usize,
    /// The counters at the beginning, and at the end of each phase that is over.
    read: Vec<Counters>,
    /// What was counted in the current phase.
    phase: TrialCounts,
    followed: Followed,
}

impl<'a> Follower<'a> {
    pub(crate) fn new(
        plan: &'a TrialPlan,
        course: &'a Course,
        watch: &'a mut Watch,
        observer: &'a mut dyn Observer,
        first_trial: usize,
    ) -> Self {
        let read = vec![watch.read()];
        let followed = Followed { points: Vec::new(), trials: Vec::new(), interrupted: false };
        let (ends, phase) = (course.ends(), TrialCounts::default());
        Self { plan, course, watch, observer, ends, first_trial, read, phase, followed }
    }

    /// Ends the phase that was not finished, where the run was ended before it was through.
    pub(crate) fn finish(mut self) -> Followed {
        let over = self.followed.trials.len();
        if over < self.ends.len() && self.phase.sent > 0 {
            self.end_phase();
        }
        self.followed
    }

    /// The next point of the series.
    fn point(&mut self, counts: &TrialCounts) {
        let index = self.followed.points.len();
        let interval_s = self.course.interval().as_secs_f64();
        let middle = Span::from_ns(((index as f64 + 0.5) * interval_s * 1e9) as i64);
        let point = Point {
            at_s: index as f64 * interval_s,
            trial: self.first_trial + self.followed.trials.len(),
            offered_rate: self.course.rate_at(middle),
            sent: counts.sent,
            received: counts.sent.saturating_sub(counts.lost()),
            lost: counts.lost(),
            late: counts.late,
            invalid: counts.invalid.iter().sum(),
            rtt_ns: percentiles(&counts.rtt),
        };
        self.observer.interval(&point);
        self.followed.points.push(point);
    }

    fn end_phase(&mut self) {
        let index = self.followed.trials.len();
        let mut counts = mem::take(&mut self.phase);
        counts.plan_in_full();
        if self.read.len() < index + 2 {
            self.read.push(self.watch.read());
        }
        let (before, after) = (&self.read[index], &self.read[index + 1]);
        let missing = Missing::of(&counts);
        let phase = &self.course.phases()[index];
        let plan = TrialPlan {
            rate: phase.mean_rate(),
            duration: self.duration(index),
            course: None,
            ..self.plan.clone()
        };
        let trial = trial::record(&plan, &counts, places::assign(missing, before, after));
        let trial = Trial { phase: Some(phase.name.clone()), ..trial };
        if self.observer.ended(self.first_trial + index, &trial).is_break() {
            self.followed.interrupted = true;
        }
        self.followed.trials.push((trial, counts));
    }

    /// How long a phase lasted: less than was planned where it was ended.
    fn duration(&self, phase: usize) -> Duration {
        let begin = phase.checked_sub(1).map_or(0, |before| self.ends[before]);
        let intervals = (self.followed.points.len() as u64).min(self.ends[phase]) - begin;
        self.course.interval() * intervals as u32
    }
}

impl Intervals for Follower<'_> {
    fn closed(&mut self, counts: TrialCounts) {
        let index = self.followed.points.len() as u64;
        let phase = self.followed.trials.len();
        if phase == self.ends.len() {
            return; // behind the end of the course nothing is due
        }
        self.point(&counts);
        self.phase.merge(&counts);
        if index + 1 == self.ends[phase] {
            self.end_phase();
        }
    }

    fn tick(&mut self, elapsed: Span) -> ControlFlow<()> {
        let read = self.read.len();
        // The last phase's counters are read when its last replies are there.
        let ended = self.ends[..self.ends.len() - 1].get(read - 1);
        let interval_s = self.course.interval().as_secs_f64();
        if ended.is_some_and(|end| elapsed.as_seconds() >= *end as f64 * interval_s) {
            self.read.push(self.watch.read());
        }
        let flow = self.observer.flow();
        self.followed.interrupted |= flow.is_break();
        flow
    }
}

fn percentiles(recorder: &Recorder) -> Option<Percentiles> {
    let summary = recorder.to_histogram().summary()?;
    let (p50, p90, p99, p99_9) = (summary.p50, summary.p90, summary.p99, summary.p99_9);
    Some(Percentiles { p50, p90, p99, p99_9, max: summary.max })
}
