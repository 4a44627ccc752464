//! Search for the highest rate at which a loss goal holds, to a relative width: NDR (non-drop rate)
//! or PDR (partial drop rate, 0.5%).
//!
//! It implements `MLRsearch` (RFC 9971, <https://www.rfc-editor.org/rfc/rfc9971>), as the
//! *Controller* of that document: it selects the next trial and records its outcome. It runs
//! nothing and reads no clock; the caller loops over [`Search::next`] and [`Search::record`].
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
//!   it steps outwards, each time by the square of the last factor, at most by 2. Long trials are
//!   therefore spent only near the answer.
//! - In the first two stages a load needs two lossy trials to fail and one clean trial to pass (the
//!   "loss verification" of ETSI TST009): a mistake there costs time, not correctness.
//!
//! # Generator limits
//!
//! A trial that sent less than 99.5% of the intended rate is no success at that rate. If its loss
//! ratio exceeds the goal nevertheless, it is a high-loss trial, since more requests would not lose
//! less. Otherwise it is a *shortfall* and does not classify the rate. A rate with at least three
//! shortfalls, which are more than its other trials, is out of the generator's reach: the median of
//! the achieved rates becomes the highest rate to try. If the goal holds there, the search ends
//! with [`StopReason::GeneratorLimit`].

mod classify;
mod config;
mod select;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use config::{GoalLossRatio, SearchConfig, SearchConfigError};

use self::classify::{RateTrial, RateTrials, SearchGoal};
use self::select::{RateBounds, StageDecision};
use crate::loss::loss_ratio;

/// Smallest share of the intended rate that a trial must achieve to count at that rate.
const ACHIEVED_SHARE_MIN: f64 = 0.995;

/// Relative difference below which two intended rates are the same load.
const SAME_RATE_TOLERANCE: f64 = 1e-6;

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
    /// Achieved rate in requests per second, from the first to the last request (see
    /// [`crate::loss::AchievedRate`]).
    pub achieved_rate: f64,
    /// Requests sent.
    pub sent: u64,
    /// Requests without a valid reply in time.
    pub lost: u64,
    /// Duration of sending: that of [`SearchStep::Trial`], or the actual one.
    pub duration: Duration,
}

/// Reason for which a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The bounds are within the goal width of each other.
    Converged,
    /// The goal holds at the highest rate allowed; the server's limit is above it.
    CappedAtMax,
    /// The goal holds at the generator's highest rate; the server's limit is above it.
    GeneratorLimit,
    /// The goal fails at the lowest rate allowed.
    BelowMin,
    /// The budget of trials or time is spent; the bounds may be far apart.
    BudgetSpent,
}

/// Result of a search. RFC 9971 calls it regular if the reason is [`StopReason::Converged`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchOutcome {
    /// Conditional throughput: replies per second at the lower bound; `None` without a lower bound.
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
    /// Time spent sending, in all trials.
    pub trial_time: Duration,
    /// Reason for the end of the search.
    pub reason: StopReason,
}

impl SearchOutcome {
    /// Returns the loss ratio over the full-length trials at the lower bound; `None` without
    /// requests in them. It can exceed the goal, because the exceed ratio allows some trials with
    /// high loss.
    #[must_use]
    pub fn loss_ratio(&self) -> Option<f64> {
        loss_ratio(self.sent, self.lost)
    }
}

/// Stage of a search: a goal, and the precision to which its bounds are determined.
#[derive(Debug, Clone, Copy, PartialEq)]
struct SearchStage {
    goal: SearchGoal,
    /// Ratio of upper to lower bound at which the stage ends, above 1.
    width: f64,
    /// Ratio of the first step outwards from a bound.
    first_step: f64,
}

/// Search for a rate. Its next step depends only on the configuration and the recorded trials.
#[derive(Debug, Clone)]
pub struct Search {
    config: SearchConfig,
    stages: [SearchStage; 3],
    /// Index of the current stage.
    current_stage: usize,
    /// Bounds that the previous stage found.
    hint: RateBounds,
    /// Rates with trials, ascending.
    loads: Vec<RateTrials>,
    trials: usize,
    trial_time: Duration,
}

impl Search {
    /// Creates a search without trials.
    pub fn new(config: SearchConfig) -> Result<Self, SearchConfigError> {
        config.validate()?;
        Ok(Self {
            stages: config.stages(),
            config,
            current_stage: 0,
            hint: RateBounds::default(),
            loads: Vec::new(),
            trials: 0,
            trial_time: Duration::ZERO,
        })
    }

    /// Returns the next trial, or the outcome. Repeated calls return the same.
    #[must_use]
    pub fn next(&self) -> SearchStep {
        let rate = match self.decide() {
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

    /// Records the outcome of a trial; it need not be the one that [`Self::next`] requested.
    pub fn record(&mut self, outcome: &TrialOutcome) {
        self.trials += 1;
        self.trial_time += outcome.duration;
        let goal = self.stage().goal;
        self.trials_at(outcome.intended_rate).add(&RateTrial::from_outcome(outcome), &goal);
        while self.current_stage + 1 < self.stages.len()
            && matches!(self.decide(), StageDecision::Settled(_))
        {
            self.hint = select::relevant_bounds(&self.loads, &self.stage().goal);
            self.current_stage += 1;
        }
    }

    fn stage(&self) -> &SearchStage {
        &self.stages[self.current_stage]
    }

    fn decide(&self) -> StageDecision {
        select::decide(&self.config, self.stage(), self.hint, &self.loads)
    }

    /// Returns the trials at this rate, which are created if there are none.
    fn trials_at(&mut self, rate: f64) -> &mut RateTrials {
        let same = |load: &RateTrials| (load.rate - rate).abs() <= SAME_RATE_TOLERANCE * rate;
        let index = self.loads.iter().position(same).unwrap_or_else(|| {
            let index = self.loads.partition_point(|load| load.rate < rate);
            self.loads.insert(index, RateTrials::new(rate));
            index
        });
        &mut self.loads[index]
    }

    /// Returns the outcome for the goal. If the budget was spent earlier, it is based on the
    /// strictest stage that has found a bound.
    fn outcome(&self, reason: StopReason) -> SearchOutcome {
        let found = |stage: &SearchStage| select::relevant_bounds(&self.loads, &stage.goal);
        let goal = &self.stages[..=self.current_stage]
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
