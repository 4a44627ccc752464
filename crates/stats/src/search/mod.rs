//! Search for the highest rate at which a loss goal holds: NDR (no drop) or PDR (a partial drop of
//! 0.5%), to a relative width.
//!
//! It follows `MLRsearch` (RFC 9971, <https://www.rfc-editor.org/rfc/rfc9971>) and is that
//! document's *Controller*: it selects the next trial and records its outcome. It runs nothing and
//! reads no clock; the caller loops over [`Search::next`] and [`Search::record`].
//!
//! # Conformance
//!
//! - **Load classification** is RFC 9971's Appendix A to the letter. A load is an *upper bound*
//!   once its high-loss trials exceed the goal exceed ratio of the goal duration sum, a *lower
//!   bound* once no further trial within that sum could make them, and undecided until then. A
//!   single trial disturbed by chance therefore decides nothing.
//! - **Relevant bounds.** The relevant upper bound is the lowest upper bound, the relevant lower
//!   bound the highest lower bound below it. Where loss does not grow with the rate, the upper
//!   bound takes precedence, and successes above it are attributed to chance.
//! - **Conditional throughput** (Appendix B) is the rate reported: replies per second at the
//!   relevant lower bound, in the worst trial that the exceed ratio does not forgive.
//!
//! # Simplifications
//!
//! - **One goal per search.** RFC 9971 shares trials between goals; with trials of a second or
//!   less, two searches cost little more than one, and with a single goal the bounds are hard: no
//!   load below the relevant upper bound is ever measured because of another goal.
//! - **Three stages.** The RFC does not prescribe the path to the answer. This search processes
//!   three ever stricter copies of the goal in turn: a coarse one with trials of the initial
//!   duration, an intermediate one, and the goal itself. The first doubles the rate from the start
//!   until loss appears and never steps further, because some servers do not recover from an
//!   overload of several times their capacity. Each stage starts from the bounds of the one before,
//!   lower one first; they are hints that it must confirm with its own trials. If one proves wrong,
//!   it steps outwards, twice as far each time. Long trials are therefore spent only near the
//!   answer.
//! - In the first two stages a load needs two lossy trials to fail and one clean trial to pass (the
//!   "loss verification" of ETSI TST009): a mistake there costs time, not correctness.
//!
//! # Generator limits
//!
//! A trial in which less was sent than intended, by more than 0.5%, is no success at the
//! intended rate. If it lost too much nevertheless, that is a high-loss trial: more would not lose
//! less. If not, it is a *shortfall* and classifies nothing. A load that falls short three times,
//! and more often than not, is out of the generator's reach: the median of the achieved rates
//! becomes the highest load to try, and if that holds the goal, the search ends with
//! [`StopReason::GeneratorLimit`].

mod classify;
mod config;
mod select;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use config::{LossGoal, SearchConfig, SearchConfigError};

use self::classify::{Goal, RateTrials, TrialData};
use self::select::{RateBounds, StageDecision};
use crate::loss::loss_ratio;

/// Least share of the intended rate that must have been achieved for a trial to count for it.
const REACHED: f64 = 0.995;

/// Relative difference of intended rates below which outcomes are trials at one load.
const SAME_LOAD: f64 = 1e-6;

/// Next step of a search.
#[derive(Debug, Clone, PartialEq)]
pub enum SearchStep {
    /// Run a trial and [`record`](Search::record) its outcome.
    Trial {
        /// Intended rate, in requests per second.
        rate: f64,
        /// Duration of sending.
        duration: Duration,
    },
    /// The search is over.
    Done(SearchOutcome),
}

/// Outcome of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialOutcome {
    /// Intended rate by [`SearchStep::Trial`], per second.
    pub intended_rate: f64,
    /// Achieved rate, per second, from the first and last transmission (see [`crate::loss::Rate`]).
    pub achieved_rate: f64,
    /// Requests sent.
    pub sent: u64,
    /// Requests without a valid reply in time.
    pub lost: u64,
    /// Duration by [`SearchStep::Trial`], or the actual time of sending.
    pub duration: Duration,
}

/// Reason for the end of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The bounds are within the goal width of each other.
    Converged,
    /// The goal holds at the highest rate allowed; the server's limit is above it.
    CappedAtMax,
    /// The goal holds at the highest rate that the generator reaches; the server's limit is above.
    GeneratorLimit,
    /// The goal does not even hold at the lowest rate allowed.
    BelowMin,
    /// Trials or time ran out first; the bounds remain as far apart as they are.
    BudgetSpent,
}

/// Result of a search. RFC 9971 calls it regular if the reason is [`StopReason::Converged`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchOutcome {
    /// Conditional throughput: replies per second at the relevant lower bound. `None` if there is
    /// no lower bound.
    pub rate: Option<f64>,
    /// Relevant lower bound: the highest rate, below every upper bound, at which the goal holds.
    pub lower: Option<f64>,
    /// Relevant upper bound: the lowest rate at which the goal fails.
    pub upper: Option<f64>,
    /// Requests sent at the lower bound, in the trials that count.
    pub sent: u64,
    /// Requests lost at the lower bound, in the same trials.
    pub lost: u64,
    /// Number of trials run.
    pub trials: usize,
    /// Time spent sending.
    pub trial_time: Duration,
    /// Reason for the end of the search.
    pub reason: StopReason,
}

impl SearchOutcome {
    /// Returns the loss ratio over all trials that count at the lower bound. It can exceed the
    /// goal, if the exceed ratio forgave a trial.
    #[must_use]
    pub fn loss_ratio(&self) -> Option<f64> {
        loss_ratio(self.sent, self.lost)
    }
}

/// One goal, and the precision of its search.
#[derive(Debug, Clone, Copy, PartialEq)]
struct GoalStage {
    goal: Goal,
    /// Largest ratio of upper to lower bound that ends the stage; above 1.
    width: f64,
    /// Ratio of the first step outwards from a bound.
    first_step: f64,
}

/// Search: a function of its configuration and of the trials recorded so far.
#[derive(Debug, Clone)]
pub struct Search {
    config: SearchConfig,
    stages: [GoalStage; 3],
    /// Index of the current stage.
    current: usize,
    /// Bounds found by the previous stage.
    hint: RateBounds,
    /// All rates tried, ascending.
    loads: Vec<RateTrials>,
    trials: usize,
    trial_time: Duration,
}

impl Search {
    /// Creates a search that has not run a trial yet.
    pub fn new(config: SearchConfig) -> Result<Self, SearchConfigError> {
        config.validate()?;
        Ok(Self {
            stages: config.stages(),
            config,
            current: 0,
            hint: RateBounds::default(),
            loads: Vec::new(),
            trials: 0,
            trial_time: Duration::ZERO,
        })
    }

    /// Returns the next trial, or the result. It changes nothing: repeated calls return the same.
    #[must_use]
    pub fn next(&self) -> SearchStep {
        let rate = match self.plan() {
            StageDecision::Measure(rate) => rate,
            StageDecision::Settled(reason) => return SearchStep::Done(self.outcome(reason)),
        };
        let duration = Duration::from_secs_f64(self.stage().goal.trial_s);
        let time_left = self.config.time_budget.saturating_sub(self.trial_time);
        if self.trials >= self.config.max_trials || duration > time_left {
            return SearchStep::Done(self.outcome(StopReason::BudgetSpent));
        }
        SearchStep::Trial { rate, duration }
    }

    /// Records the outcome of a trial. Trials that were not requested count as well.
    pub fn record(&mut self, outcome: &TrialOutcome) {
        self.trials += 1;
        self.trial_time += outcome.duration;
        let goal = self.stage().goal;
        self.load_at(outcome.intended_rate).add(&TrialData::from_outcome(outcome), &goal);
        while self.current + 1 < self.stages.len()
            && matches!(self.plan(), StageDecision::Settled(_))
        {
            self.hint = select::relevant_bounds(&self.loads, &self.stage().goal);
            self.current += 1;
        }
    }

    fn stage(&self) -> &GoalStage {
        &self.stages[self.current]
    }

    fn plan(&self) -> StageDecision {
        select::plan(&self.config, self.stage(), self.hint, &self.loads)
    }

    /// Returns the load of this rate, created if it was never tried.
    fn load_at(&mut self, rate: f64) -> &mut RateTrials {
        let same = |load: &RateTrials| (load.rate - rate).abs() <= SAME_LOAD * rate;
        let index = self.loads.iter().position(same).unwrap_or_else(|| {
            let index = self.loads.partition_point(|load| load.rate < rate);
            self.loads.insert(index, RateTrials::new(rate));
            index
        });
        &mut self.loads[index]
    }

    /// Returns the result by the goal itself; or, if the budget ran out before, by the strictest
    /// stage that has found a bound.
    fn outcome(&self, reason: StopReason) -> SearchOutcome {
        let found = |stage: &GoalStage| select::relevant_bounds(&self.loads, &stage.goal);
        let goal = &self.stages[..=self.current]
            .iter()
            .rfind(|stage| found(stage) != RateBounds::default())
            .unwrap_or(self.stage())
            .goal;
        let bounds = select::relevant_bounds(&self.loads, goal);
        let at_lower = self.loads.iter().find(|load| Some(load.rate) == bounds.lower);
        let (sent, lost) = at_lower.map_or((0, 0), |load| load.totals(goal));
        SearchOutcome {
            rate: at_lower.map(|load| load.conditional_throughput(goal)),
            lower: bounds.lower,
            upper: bounds.upper,
            sent,
            lost,
            trials: self.trials,
            trial_time: self.trial_time,
            reason,
        }
    }
}
