//! A run on a course: one long trial whose rate may change, counted in intervals and phases, and
//! what it says of a server that was silent or was asked for too much.

use std::sync::Arc;
use std::time::Duration;

use horolog_record::{Overload, Point, Series, Silence};
use horolog_stats::Search;

use super::{Load, Observer};
use crate::account::TrialCounts;
use crate::course::{Course, CourseError, Phase};
use crate::error::LoadError;
use crate::follow::Follower;
use crate::options::{Job, LoadOptions};
use crate::plan::TrialPlan;
use crate::recovery::{BEFORE, recovered};
use crate::silence;

/// A rate that a server can take, then one that it cannot, then the first again.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Surge {
    /// The part of the rate that is given or found that is offered before and after.
    pub base: f64,
    /// How many times that rate is offered in between.
    pub factor: f64,
    /// How long each of the two is held; the rest lasts twice as long.
    pub time: Duration,
    /// How finely it is counted.
    pub interval: Duration,
}

impl Default for Surge {
    fn default() -> Self {
        let (time, interval) = (Duration::from_secs(2), Duration::from_millis(100));
        Self { base: 0.5, factor: 3.0, time, interval }
    }
}

impl Surge {
    /// Its course around a rate.
    pub fn course(&self, rate: f64) -> Result<Course, CourseError> {
        let base = rate * self.base;
        Course::new(
            self.interval,
            vec![
                Phase::steady("before", base, self.time),
                Phase::steady("overload", rate * self.factor, self.time),
                Phase::steady("after", base, self.time * 2),
            ],
        )
    }
}

/// Refuses a job that cannot be, before anything is found out.
pub(super) fn check(options: &LoadOptions) -> Result<(), LoadError> {
    match &options.job {
        Job::Ramp(ramp) => drop(ramp.rates()?),
        Job::Search { config, .. } => drop(Search::new(*config)?),
        Job::Course(_) => {}
        Job::Overload(rate) => drop(options.surge.unwrap_or_default().course(*rate)?),
    }
    // Around whatever rate a search finds.
    options.surge.map(|surge| surge.course(1.0)).transpose()?;
    Ok(())
}

impl Load {
    /// Runs a course to its end, or until the observer ends it.
    pub(super) fn follow(
        &mut self,
        course: &Course,
        observer: &mut dyn Observer,
    ) -> Result<(), LoadError> {
        let (rate, duration) = (course.highest(), course.duration());
        let course = Some(Arc::new(course.clone()));
        let plan = TrialPlan { course, ..self.trial_plan(rate, duration) };
        self.run_course(&plan, observer)
    }

    fn run_course(
        &mut self,
        plan: &TrialPlan,
        observer: &mut dyn Observer,
    ) -> Result<(), LoadError> {
        let Some(course) = &plan.course else { return Ok(()) };
        observer.begins(plan.rate, plan.duration);
        self.begin_capture(plan.rate)?;
        self.warm_up(plan)?;
        let first = self.trials.len();
        self.lookout.begin(first);
        let lookout = &mut self.lookout;
        let mut follower = Follower::new(plan, course, &mut self.watch, (observer, lookout), first);
        let ran = self.prepared.engine.run(plan, &mut follower);
        let followed = follower.finish();
        self.interrupted |= followed.interrupted;
        // What is known of silences stands in the books of the last interval, from the course's
        // beginning on.
        let found = followed.trials.iter().find_map(|(_, counts)| counts.silences.clone());
        for silence in found.unwrap_or_default() {
            let silence = of_course(silence, course, &followed.points, first);
            self.silences.push(silence);
        }
        self.trials.extend(followed.trials);
        if observer.looks() {
            observer.doubts(self.findings(None));
        }
        let interval_s = course.interval().as_secs_f64();
        self.series = Some(Series { interval_s, points: followed.points });
        // What was counted until then stands.
        Ok(ran?)
    }

    /// Asks for more than the server takes, around `rate`, and sees when it is itself again.
    pub(super) fn surge(
        &mut self,
        surge: &Surge,
        rate: f64,
        observer: &mut dyn Observer,
    ) -> Result<(), LoadError> {
        let course = surge.course(rate)?;
        let first = self.trials.len();
        self.follow(&course, observer)?;
        let [Some((over, _)), Some(_)] = [first + 1, first + 2].map(|index| self.trials.get(index))
        else {
            return Ok(()); // ended before it was over
        };
        let (ends, interval) = (course.ends(), course.interval());
        let points = self.series.as_ref().map_or(&[][..], |series| &series.points);
        let (before, after) = (ends[0] as usize, ends[1] as usize);
        // The first interval is that of a generator and a server that are not warm.
        let back = recovered(points, usize::from(before > 1)..before, after);
        let ms = |intervals: usize| intervals as f64 * interval.as_secs_f64() * 1e3;
        self.overload = Some(Overload {
            base_rate: rate * surge.base,
            overload_rate: over.achieved_rate,
            overload_s: over.duration_s,
            answered_rate: over.received as f64 / over.duration_s.max(1e-9),
            recovery_ms: back.map(|index| ms(index - after)),
            resolution_ms: ms(1),
        });
        Ok(())
    }

    /// Notes when the server was silent in a trial of one rate.
    pub(super) fn note_silences(&mut self, trial: usize, counts: &TrialCounts) {
        let of_trial = |silence: &silence::Silence| Silence {
            trial,
            from_s: silence.from.as_seconds(),
            to_s: silence.to.as_seconds(),
            ended: silence.ended,
            recovery_ms: None,
        };
        self.silences.extend(counts.silences.iter().flatten().map(of_trial));
    }
}

/// A silence of a course as one of the phase in which it began, with how long the server took to be
/// itself again.
fn of_course(
    silence: silence::Silence,
    course: &Course,
    points: &[Point],
    first_trial: usize,
) -> Silence {
    let interval_s = course.interval().as_secs_f64();
    let (from_s, to_s) = (silence.from.as_seconds(), silence.to.as_seconds());
    let began = (from_s / interval_s) as usize;
    let after = (to_s / interval_s).ceil() as usize;
    let before = began.saturating_sub(BEFORE).max(usize::from(began > 1))..began;
    let back = if silence.ended { recovered(points, before, after) } else { None };
    let ends = course.ends();
    let phase = ends.iter().filter(|end| **end <= began as u64).count().min(ends.len() - 1);
    let phase_s = phase.checked_sub(1).map_or(0.0, |before| ends[before] as f64 * interval_s);
    Silence {
        trial: first_trial + phase,
        from_s: from_s - phase_s,
        to_s: to_s - phase_s,
        ended: silence.ended,
        recovery_ms: back.map(|index| (index as f64 * interval_s - to_s).max(0.0) * 1e3),
    }
}
