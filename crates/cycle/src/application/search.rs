//! Search for the largest load without a missed deadline, by the rate search of [`horolog_stats`].
//! Its rate is the load times the number of periods that all nodes together have per second; a
//! period that misses its deadline, and a lost or late report, count as lost packets.

use std::time::Duration;

use horolog_record::{
    CycleTestDetectionKind, CycleTestRunResult, CycleTestSearchResult, CycleTestTrial,
};
use horolog_stats::{GoalLossRatio, Search, SearchConfig, SearchStep, TrialOutcome};

use super::run::{
    ApplicationTestError, ApplicationTestOptions, ApplicationTestOutcome, TestObserver, run_once,
};

/// Number of periods of the shortest trial.
const PERIODS_MIN: u64 = 10;
/// Largest number of trials. The time budget is that of as many trials of the longest duration.
const TRIALS_MAX: usize = 60;
/// Relative difference below which two loads are the same.
const LOAD_TOLERANCE: f64 = 1e-6;

/// Parameters of a search for the largest load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ApplicationSearchOptions {
    /// Smallest load tried, as a factor of the plan's rates and fixed computation.
    pub from: f64,
    /// Largest load tried, as a factor of the plan's rates and fixed computation.
    pub to: f64,
    /// Largest relative distance between the final bounds.
    pub width: f64,
    /// Duration of the deciding trials.
    pub trial: Duration,
}

/// Outcome of a search.
pub(super) struct ApplicationSearchOutcome {
    /// Latest run at the load that was found; `None` if none was found.
    pub(super) run: Option<ApplicationTestOutcome>,
    /// Result of the search.
    pub(super) search: CycleTestSearchResult,
    /// True if the user ended the search early.
    pub(super) is_interrupted: bool,
}

/// Searches for the largest load without a missed deadline, in trials without faults and states.
pub(super) fn search(
    options: &ApplicationTestOptions,
    search_options: &ApplicationSearchOptions,
    observer: &mut TestObserver<'_>,
) -> Result<ApplicationSearchOutcome, ApplicationTestError> {
    let plan = &options.plan;
    let least_ns = PERIODS_MIN.saturating_mul(plan.period_ns);
    if search_options.trial.as_nanos() < u128::from(least_ns) {
        return Err(ApplicationTestError::TrialTooShort { least: PERIODS_MIN, least_ns });
    }
    let nominal = f64::from(plan.nodes) * 1e9 / plan.period_ns as f64;
    let mut search = Search::new(config(search_options, least_ns, nominal))
        .map_err(ApplicationTestError::Search)?;
    let (mut trials, mut runs) = (Vec::new(), Vec::<ApplicationTestOutcome>::new());
    let outcome = loop {
        let (rate, duration) = match search.next() {
            SearchStep::Trial { rate, duration } if !observer.is_stop_requested() => {
                (rate, duration)
            }
            SearchStep::Trial { .. } => break None,
            SearchStep::Done(outcome) => break Some(outcome),
        };
        let load = rate / nominal;
        let trial_plan =
            plan.without_faults(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
        let label = format!("run {}, load {load:.3}", trials.len() + 1);
        let ran = run_once(options, &trial_plan, load, (&label, observer))?;
        if observer.is_stop_requested() {
            break None;
        }
        let trial = trial(&ran.run, load, duration);
        search.record(&TrialOutcome {
            intended_rate: rate,
            achieved_rate: rate * trial.sent_ratio,
            sent: trial.planned,
            lost: trial.missed,
            duration,
        });
        trials.push(trial);
        runs.push(ran);
    };
    let (lower, upper, end) = outcome.map_or_else(
        || (None, None, horolog_record::SearchEndReason::BudgetSpent),
        |found| (found.lower, found.upper, found.reason.into()),
    );
    let (lower, upper) = (lower.map(|rate| rate / nominal), upper.map(|rate| rate / nominal));
    let is_found =
        |load: f64| lower.is_some_and(|lower| (load - lower).abs() <= LOAD_TOLERANCE * lower);
    let best = runs.iter().rposition(|ran| is_found(ran.run.load));
    let best_run = best.map(|at| runs.swap_remove(at));
    let ApplicationSearchOptions { from, to, width, .. } = *search_options;
    let result = CycleTestSearchResult { from, to, width, lower, upper, end, trials };
    Ok(ApplicationSearchOutcome {
        run: best_run,
        search: result,
        is_interrupted: outcome.is_none(),
    })
}

fn config(search_options: &ApplicationSearchOptions, least_ns: u64, nominal: f64) -> SearchConfig {
    let rates = (search_options.from * nominal, search_options.to * nominal);
    let least = Duration::from_nanos(least_ns);
    SearchConfig {
        start_rate: nominal.clamp(rates.0, rates.1.max(rates.0)),
        width: search_options.width,
        initial_duration: (search_options.trial / 4).max(least),
        final_duration: search_options.trial,
        duration_sum: search_options.trial * 3,
        max_trials: TRIALS_MAX,
        time_budget: search_options.trial * TRIALS_MAX as u32,
        ..SearchConfig::new(GoalLossRatio::NDR, rates.0, rates.1)
    }
}

/// Summarises a run as a trial at its load. Periods that were not run and reports that were lost or
/// late count as missed.
fn trial(run: &CycleTestRunResult, load: f64, duration: Duration) -> CycleTestTrial {
    let planned: u64 = run.nodes.iter().map(|node| node.planned).sum();
    let in_time_count: u64 = run.nodes.iter().map(|node| node.periods - node.missed).sum();
    let due: u64 = run.sources.iter().map(|source| source.due).sum();
    let sent: u64 = run.sources.iter().map(|source| source.sent).sum();
    // A search injects no faults, so lost and late reports are a sign of overload.
    let is_overload =
        |kind| matches!(kind, CycleTestDetectionKind::Lost | CycleTestDetectionKind::Late);
    let unprocessed_count =
        run.detections.iter().filter(|one| is_overload(one.kind)).map(|one| one.count).sum::<u64>();
    CycleTestTrial {
        load,
        duration_s: duration.as_secs_f64(),
        planned,
        missed: (planned.saturating_sub(in_time_count) + unprocessed_count).min(planned),
        sent_ratio: if due > 0 { sent as f64 / due as f64 } else { 1.0 },
    }
}
