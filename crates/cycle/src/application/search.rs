//! Search for the largest load at which no deadline is missed, by the rate search of
//! [`horolog_stats`]: a load is a rate of periods' worth of work, and a period that is not in time
//! counts as lost.

use std::time::Duration;

use horolog_record::{CycleTestDetectionKind, CycleTestRun, CycleTestSearch, CycleTestTrial};
use horolog_stats::{LossGoal, Search, SearchConfig, SearchStep, TrialOutcome};

use super::run::{TestError, TestObserver, TestOptions, TestRun, run_once};

/// Periods of the shortest run.
const PERIODS_MIN: u64 = 10;
/// Runs at most, and their total time at most as a multiple of the longest one.
const TRIALS_MAX: usize = 60;
/// Relative difference below which loads are the same.
const SAME: f64 = 1e-6;

/// Parameters of a search.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SearchOptions {
    /// Smallest load that is tried.
    pub from: f64,
    /// Largest load that is tried.
    pub to: f64,
    /// Greatest distance of the final bounds, as a share.
    pub width: f64,
    /// Duration of the runs that decide.
    pub trial: Duration,
}

/// Outcome of a search.
pub(super) struct TestSearchOutcome {
    /// Last run at the load that was found.
    pub(super) ran: Option<TestRun>,
    /// Result of the search.
    pub(super) found: CycleTestSearch,
    /// True if the user ended it early.
    pub(super) is_called: bool,
}

/// Searches for the largest load.
pub(super) fn search(
    options: &TestOptions,
    wanted: &SearchOptions,
    watch: &mut dyn TestObserver,
) -> Result<TestSearchOutcome, TestError> {
    let plan = &options.plan;
    let least_ns = PERIODS_MIN.saturating_mul(plan.period_ns);
    if wanted.trial.as_nanos() < u128::from(least_ns) {
        return Err(TestError::Short { least: PERIODS_MIN, least_ns });
    }
    let nominal = f64::from(plan.nodes) * 1e9 / plan.period_ns as f64;
    let mut search = Search::new(config(wanted, least_ns, nominal)).map_err(TestError::Search)?;
    let (mut trials, mut runs) = (Vec::new(), Vec::<TestRun>::new());
    let outcome = loop {
        let (rate, duration) = match search.next() {
            SearchStep::Trial { rate, duration } if !watch.is_over() => (rate, duration),
            SearchStep::Trial { .. } => break None,
            SearchStep::Done(outcome) => break Some(outcome),
        };
        let load = rate / nominal;
        let bare = plan.bare(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
        let what = format!("run {}, load {load:.3}", trials.len() + 1);
        let ran = run_once(options, &bare, load, (&what, watch))?;
        if watch.is_over() {
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
        || (None, None, horolog_record::SearchEnd::BudgetSpent),
        |found| (found.lower, found.upper, found.reason.into()),
    );
    let (lower, upper) = (lower.map(|rate| rate / nominal), upper.map(|rate| rate / nominal));
    let is_found = |load: f64| lower.is_some_and(|lower| (load - lower).abs() <= SAME * lower);
    let best = runs.iter().rposition(|ran| is_found(ran.run.load));
    let ran = best.map(|at| runs.swap_remove(at));
    let SearchOptions { from, to, width, .. } = *wanted;
    let found = CycleTestSearch { from, to, width, lower, upper, end, trials };
    Ok(TestSearchOutcome { ran, found, is_called: outcome.is_none() })
}

fn config(wanted: &SearchOptions, least_ns: u64, nominal: f64) -> SearchConfig {
    let rates = (wanted.from * nominal, wanted.to * nominal);
    let least = Duration::from_nanos(least_ns);
    SearchConfig {
        start_rate: nominal.clamp(rates.0, rates.1.max(rates.0)),
        width: wanted.width,
        initial_duration: (wanted.trial / 4).max(least),
        final_duration: wanted.trial,
        duration_sum: wanted.trial * 3,
        max_trials: TRIALS_MAX,
        time_budget: wanted.trial * TRIALS_MAX as u32,
        ..SearchConfig::new(LossGoal::NDR, rates.0, rates.1)
    }
}

/// Returns the trial that a run amounts to at its load.
fn trial(run: &CycleTestRun, load: f64, duration: Duration) -> CycleTestTrial {
    let planned: u64 = run.nodes.iter().map(|node| node.planned).sum();
    let in_time: u64 = run.nodes.iter().map(|node| node.periods - node.missed).sum();
    let due: u64 = run.sources.iter().map(|source| source.due).sum();
    let sent: u64 = run.sources.iter().map(|source| source.sent).sum();
    // A search injects no faults: lost or old reports were more than the nodes could take.
    let is_of_load =
        |kind| matches!(kind, CycleTestDetectionKind::Lost | CycleTestDetectionKind::Late);
    let left_over =
        run.detections.iter().filter(|one| is_of_load(one.kind)).map(|one| one.count).sum::<u64>();
    CycleTestTrial {
        load,
        duration_s: duration.as_secs_f64(),
        planned,
        missed: (planned.saturating_sub(in_time) + left_over).min(planned),
        sent_ratio: if due > 0 { sent as f64 / due as f64 } else { 1.0 },
    }
}
