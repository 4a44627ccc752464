//! Run of a load profile: one trial with changing rate, counted in intervals and phases, and the
//! outages and the recovery from overload that it shows.

use std::sync::Arc;
use std::time::Duration;

use horolog_record::{LoadSeriesPoint, LoadTimeSeries, Outage, OverloadResult, PartPlan};
use horolog_stats::Search;

use super::{LoadRun, LoadSampler};
use crate::error::LoadError;
use crate::load_profile::{LoadPhase, LoadProfile, LoadProfileError};
use crate::options::{LoadOptions, LoadProcedure};
use crate::outage;
use crate::plan::TrialPlan;
use crate::profile_recorder::LoadProfileRecorder;
use crate::recovery::{REFERENCE_INTERVALS_MAX, recovery_interval};
use crate::request_tracker::TrialCounts;

/// Options of an overload test: a rate that a server can sustain, then one that it cannot, then the
/// first again.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OverloadTestOptions {
    /// Rate before and after the overload, as a fraction of the reference rate.
    pub base: f64,
    /// Rate of the overload, as a multiple of the reference rate.
    pub factor: f64,
    /// Duration of each of the first two phases; the last phase lasts twice as long.
    pub time: Duration,
    /// Length of an interval.
    pub interval: Duration,
}

impl Default for OverloadTestOptions {
    fn default() -> Self {
        let (time, interval) = (Duration::from_secs(2), Duration::from_millis(100));
        Self { base: 0.5, factor: 3.0, time, interval }
    }
}

impl OverloadTestOptions {
    /// Returns the load profile of the test for a reference rate.
    pub fn profile(&self, rate: f64) -> Result<LoadProfile, LoadProfileError> {
        let base = rate * self.base;
        LoadProfile::new(
            self.interval,
            vec![
                LoadPhase::constant("before", base, self.time),
                LoadPhase::constant("overload", rate * self.factor, self.time),
                LoadPhase::constant("after", base, self.time * 2),
            ],
        )
    }
}

/// Refuses an invalid job, before anything is resolved.
pub(super) fn check_job(options: &LoadOptions) -> Result<(), LoadError> {
    match &options.job {
        LoadProcedure::Ramp(ramp) => drop(ramp.rates()?),
        LoadProcedure::Search { config, .. } => drop(Search::new(*config)?),
        LoadProcedure::Profile(_) => {}
        LoadProcedure::Overload(rate) => {
            drop(options.overload_test.unwrap_or_default().profile(*rate)?);
        }
    }
    // If it is valid for one rate, it is valid for any rate that a search finds.
    options.overload_test.map(|surge| surge.profile(1.0)).transpose()?;
    Ok(())
}

impl LoadRun {
    /// Runs a profile to its end, or until the observer ends it.
    pub(super) fn run_profile(
        &mut self,
        profile: &LoadProfile,
        sampler: &mut LoadSampler<'_>,
    ) -> Result<(), LoadError> {
        let (rate, duration) = (profile.rate_max(), profile.duration());
        let profile = Some(Arc::new(profile.clone()));
        let plan = TrialPlan { profile, ..self.trial_plan(rate, duration) };
        self.run_profile_plan(&plan, sampler)
    }

    fn run_profile_plan(
        &mut self,
        plan: &TrialPlan,
        sampler: &mut LoadSampler<'_>,
    ) -> Result<(), LoadError> {
        let Some(profile) = &plan.profile else { return Ok(()) };
        let first = self.trials.len();
        sampler.observer.part_started(&PartPlan {
            index: first,
            intended_rate: Some(plan.rate),
            duration_s: Some(plan.duration.as_secs_f64()),
            ..PartPlan::default()
        });
        self.begin_capture(plan.rate)?;
        self.warm_up(plan)?;
        sampler.begin(first);
        let mut recorder = LoadProfileRecorder::new(plan, profile, &mut self.watch, sampler, first);
        let result = self.prepared.engine.run(plan, &mut recorder);
        let outcome = recorder.finish();
        self.interrupted |= outcome.interrupted;
        // The counts of the last interval contain all outages of the profile.
        let found = outcome.trials.iter().find_map(|(_, counts)| counts.outages.clone());
        for outage in found.unwrap_or_default() {
            let outage = assign_to_phase(outage, profile, &outcome.points, first);
            self.outages.push(outage);
        }
        for (trial, counts) in outcome.trials {
            self.add_trial(trial, &counts);
        }
        if sampler.observer.wants_snapshots() {
            sampler.observer.findings(self.findings(None));
        }
        let interval_s = profile.interval().as_secs_f64();
        self.series = Some(LoadTimeSeries { interval_s, points: outcome.points });
        // The counts until then are kept.
        Ok(result?)
    }

    /// Runs an overload test with the reference rate `rate`, and determines the recovery time.
    pub(super) fn run_overload(
        &mut self,
        overload_test: &OverloadTestOptions,
        rate: f64,
        sampler: &mut LoadSampler<'_>,
    ) -> Result<(), LoadError> {
        let profile = overload_test.profile(rate)?;
        let first = self.trials.len();
        self.run_profile(&profile, sampler)?;
        let [Some(over), Some(_)] = [first + 1, first + 2].map(|index| self.trials.get(index))
        else {
            return Ok(()); // ended early
        };
        let (ends, interval) = (profile.phase_ends(), profile.interval());
        let points = self.series.as_ref().map_or(&[][..], |series| &series.points);
        let (before, after) = (ends[0] as usize, ends[1] as usize);
        // The first interval is that of a generator and a server that are not warm.
        let recovered_at = recovery_interval(points, usize::from(before > 1)..before, after);
        let ms = |intervals: usize| intervals as f64 * interval.as_secs_f64() * 1e3;
        self.overload = Some(OverloadResult {
            base_rate: rate * overload_test.base,
            overload_rate: over.achieved_rate,
            overload_s: over.duration_s,
            answered_rate: over.received as f64 / over.duration_s.max(1e-9),
            recovery_ms: recovered_at.map(|index| ms(index - after)),
            resolution_ms: ms(1),
        });
        Ok(())
    }

    /// Records the outages of the server in a trial of one rate.
    pub(super) fn record_outages(&mut self, trial: usize, counts: &TrialCounts) {
        let to_record = |outage: &outage::Outage| Outage {
            trial,
            from_s: outage.from.as_seconds(),
            to_s: outage.to.as_seconds(),
            ended: outage.ended,
            recovery_ms: None,
        };
        self.outages.extend(counts.outages.iter().flatten().map(to_record));
    }
}

/// Assigns an outage of a profile to the phase in which it began, with the server's recovery time.
fn assign_to_phase(
    outage: outage::Outage,
    profile: &LoadProfile,
    points: &[LoadSeriesPoint],
    first_trial: usize,
) -> Outage {
    let interval_s = profile.interval().as_secs_f64();
    let (from_s, to_s) = (outage.from.as_seconds(), outage.to.as_seconds());
    let first_interval = (from_s / interval_s) as usize;
    let after = (to_s / interval_s).ceil() as usize;
    let before = first_interval
        .saturating_sub(REFERENCE_INTERVALS_MAX)
        .max(usize::from(first_interval > 1))..first_interval;
    let recovered_at = if outage.ended { recovery_interval(points, before, after) } else { None };
    let ends = profile.phase_ends();
    let phase =
        ends.iter().filter(|end| **end <= first_interval as u64).count().min(ends.len() - 1);
    let phase_s = phase.checked_sub(1).map_or(0.0, |before| ends[before] as f64 * interval_s);
    Outage {
        trial: first_trial + phase,
        from_s: from_s - phase_s,
        to_s: to_s - phase_s,
        ended: outage.ended,
        recovery_ms: recovered_at.map(|index| (index as f64 * interval_s - to_s).max(0.0) * 1e3),
    }
}
