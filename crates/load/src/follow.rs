//! Follows a course while it runs: intervals become the points of the series, phases become trials,
//! and the counters that tell where packets were lost are read where one phase ends and the next
//! begins. It sends nothing and judges nothing.

use std::mem;
use std::ops::ControlFlow;
use std::time::Duration;

use horolog_record::{Percentiles, Point, SoFar, Trial};
use horolog_time::Span;

use crate::account::TrialCounts;
use crate::course::Course;
use crate::engine::Intervals;
use crate::places::{self, Counters, Missing};
use crate::plan::TrialPlan;
use crate::run::{Lookout, Observer, Under};
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
    lookout: &'a mut Lookout,
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
        (observer, lookout): (&'a mut dyn Observer, &'a mut Lookout),
        first_trial: usize,
    ) -> Self {
        let read = vec![watch.read()];
        let followed = Followed { points: Vec::new(), trials: Vec::new(), interrupted: false };
        let (ends, phase) = (course.ends(), TrialCounts::default());
        Self { plan, course, watch, observer, lookout, ends, first_trial, read, phase, followed }
    }

    /// Ends the phase that was not finished, where the run was ended before it was through.
    pub(crate) fn finish(mut self) -> Followed {
        let over = self.followed.trials.len();
        if over < self.ends.len() && self.phase.sent > 0 {
            self.end_phase();
        }
        if self.observer.looks() && !self.followed.trials.is_empty() {
            let phase = self.followed.trials.len() - 1;
            let under = self.under(phase, self.duration(phase).as_secs_f64());
            let counts = self.followed.trials.iter().map(|(_, counts)| counts);
            if let Some(look) = self.lookout.end(&under, counts) {
                self.observer.look(look);
            }
        }
        self.followed
    }

    /// A phase as those see it who look on, of which this much is planned.
    fn under(&self, phase: usize, duration_s: f64) -> Under<'a> {
        let interval_s = self.course.interval().as_secs_f64();
        let began = phase.checked_sub(1).map_or(0, |before| self.ends[before]);
        let planned = &self.course.phases()[phase];
        Under {
            index: self.first_trial + phase,
            name: &planned.name,
            rate: Some(planned.mean_rate()),
            begun_s: began as f64 * interval_s,
            duration_s,
        }
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
            rtt_ns: Percentiles::of_recorder(&counts.rtt),
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

    fn looks(&self) -> bool {
        self.observer.looks()
    }

    fn look(&mut self, elapsed: Span, so_far: &SoFar) {
        let interval_s = self.course.interval().as_secs_f64();
        let number = (elapsed.as_seconds() / interval_s) as u64;
        let over = self.ends.iter().filter(|end| **end <= number).count();
        let phase = over.min(self.ends.len() - 1);
        let begun = phase.checked_sub(1).map_or(0, |before| self.ends[before]);
        let under = self.under(phase, (self.ends[phase] - begun) as f64 * interval_s);
        let under = Under { rate: Some(self.course.rate_at(elapsed)), ..under };
        let look = self.lookout.look(&under, elapsed, so_far);
        self.observer.look(look);
    }
}
