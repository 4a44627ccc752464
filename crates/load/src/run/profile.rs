//! Run of a load profile: one long trial whose rate may change, counted in intervals and phases,
//! with its findings about outages and overload of a server.

use std::sync::Arc;
use std::time::Duration;

use horolog_record::{Outage, Overload, Point, Series};
use horolog_stats::Search;

use super::{LoadRun, Observer};
use crate::error::LoadError;
use crate::load_profile::{LoadPhase, LoadProfile, LoadProfileError};
use crate::options::{LoadJob, LoadOptions};
use crate::outage;
use crate::plan::TrialPlan;
use crate::profile_recorder::ProfileRecorder;
use crate::recovery::{BEFORE, recovered};
use crate::request_tracker::TrialCounts;

/// Overload test: a rate that a server can sustain, then one that it cannot, then the first again.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OverloadTest {
    /// Fraction of the configured or found rate that is sent before and after.
    pub base: f64,
    /// Multiple of that rate that is sent in between.
    pub factor: f64,
    /// Duration of each of the first two phases; the last phase lasts twice as long.
    pub time: Duration,
    /// Length of an interval.
    pub interval: Duration,
}

impl Default for OverloadTest {
    fn default() -> Self {
        let (time, interval) = (Duration::from_secs(2), Duration::from_millis(100));
        Self { base: 0.5, factor: 3.0, time, interval }
    }
}

impl OverloadTest {
    /// Returns its load profile around a rate.
    pub fn profile(&self, rate: f64) -> Result<LoadProfile, LoadProfileError> {
        let base = rate * self.base;
        LoadProfile::new(
            self.interval,
            vec![
                LoadPhase::steady("before", base, self.time),
                LoadPhase::steady("overload", rate * self.factor, self.time),
                LoadPhase::steady("after", base, self.time * 2),
            ],
        )
    }
}

/// Refuses an invalid job, before anything is resolved.
pub(super) fn check(options: &LoadOptions) -> Result<(), LoadError> {
    match &options.job {
        LoadJob::Ramp(ramp) => drop(ramp.rates()?),
        LoadJob::Search { config, .. } => drop(Search::new(*config)?),
        LoadJob::Profile(_) => {}
        LoadJob::Overload(rate) => drop(options.surge.unwrap_or_default().profile(*rate)?),
    }
    // Valid around any rate that a search finds.
    options.surge.map(|surge| surge.profile(1.0)).transpose()?;
    Ok(())
}

impl LoadRun {
    /// Runs a profile to its end, or until the observer ends it.
    pub(super) fn run_profile(
        &mut self,
        profile: &LoadProfile,
        observer: &mut dyn Observer,
    ) -> Result<(), LoadError> {
        let (rate, duration) = (profile.highest(), profile.duration());
        let profile = Some(Arc::new(profile.clone()));
        let plan = TrialPlan { profile, ..self.trial_plan(rate, duration) };
        self.run_profile_plan(&plan, observer)
    }

    fn run_profile_plan(
        &mut self,
        plan: &TrialPlan,
        observer: &mut dyn Observer,
    ) -> Result<(), LoadError> {
        let Some(profile) = &plan.profile else { return Ok(()) };
        observer.trial_started(plan.rate, plan.duration);
        self.begin_capture(plan.rate)?;
        self.warm_up(plan)?;
        let first = self.trials.len();
        self.sampler.begin(first);
        let sampler = &mut self.sampler;
        let mut follower =
            ProfileRecorder::new(plan, profile, &mut self.watch, (observer, sampler), first);
        let ran = self.prepared.engine.run(plan, &mut follower);
        let followed = follower.finish();
        self.interrupted |= followed.interrupted;
        // Outages are recorded in the counts of the last interval, from the start of the profile
        // on.
        let found = followed.trials.iter().find_map(|(_, counts)| counts.outages.clone());
        for outage in found.unwrap_or_default() {
            let outage = assign_to_phase(outage, profile, &followed.points, first);
            self.outages.push(outage);
        }
        self.trials.extend(followed.trials);
        if observer.wants_snapshots() {
            observer.findings(self.findings(None));
        }
        let interval_s = profile.interval().as_secs_f64();
        self.series = Some(Series { interval_s, points: followed.points });
        // The counts until then are kept.
        Ok(ran?)
    }

    /// Runs an overload test around `rate`, and determines the recovery.
    pub(super) fn run_overload(
        &mut self,
        surge: &OverloadTest,
        rate: f64,
        observer: &mut dyn Observer,
    ) -> Result<(), LoadError> {
        let profile = surge.profile(rate)?;
        let first = self.trials.len();
        self.run_profile(&profile, observer)?;
        let [Some((over, _)), Some(_)] = [first + 1, first + 2].map(|index| self.trials.get(index))
        else {
            return Ok(()); // ended early
        };
        let (ends, interval) = (profile.ends(), profile.interval());
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

    /// Records the outages of the server in a trial of one rate.
    pub(super) fn record_outages(&mut self, trial: usize, counts: &TrialCounts) {
        let of_trial = |outage: &outage::Outage| Outage {
            trial,
            from_s: outage.from.as_seconds(),
            to_s: outage.to.as_seconds(),
            ended: outage.ended,
            recovery_ms: None,
        };
        self.outages.extend(counts.outages.iter().flatten().map(of_trial));
    }
}

/// Assigns an outage of a profile to the phase in which it began, with the server's recovery time.
fn assign_to_phase(
    outage: outage::Outage,
    profile: &LoadProfile,
    points: &[Point],
    first_trial: usize,
) -> Outage {
    let interval_s = profile.interval().as_secs_f64();
    let (from_s, to_s) = (outage.from.as_seconds(), outage.to.as_seconds());
    let began = (from_s / interval_s) as usize;
    let after = (to_s / interval_s).ceil() as usize;
    let before = began.saturating_sub(BEFORE).max(usize::from(began > 1))..began;
    let back = if outage.ended { recovered(points, before, after) } else { None };
    let ends = profile.ends();
    let phase = ends.iter().filter(|end| **end <= began as u64).count().min(ends.len() - 1);
    let phase_s = phase.checked_sub(1).map_or(0.0, |before| ends[before] as f64 * interval_s);
    Outage {
        trial: first_trial + phase,
        from_s: from_s - phase_s,
        to_s: to_s - phase_s,
        ended: outage.ended,
        recovery_ms: back.map(|index| (index as f64 * interval_s - to_s).max(0.0) * 1e3),
    }
}
