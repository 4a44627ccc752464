//! Finds the highest rate at which a loss goal holds: NDR (no drop) or PDR (a partial drop of
//! 0.5%), to a relative width.
//!
//! It follows `MLRsearch` (RFC 9971, <https://www.rfc-editor.org/rfc/rfc9971>) and is that
//! document's *Controller*: it says which trial to run next and takes in what the trial gave. It
//! runs nothing and reads no clock; the caller loops over [`Search::next`] and [`Search::record`].
//!
//! # What is taken over
//!
//! - **Load classification** is RFC 9971's Appendix A to the letter. A load is an *upper bound*
//!   once its high-loss trials exceed the goal exceed ratio of the goal duration sum, a *lower
//!   bound* once no further trial within that sum could make them, and undecided until then. A
//!   single trial spoiled by chance therefore decides nothing.
//! - **Relevant bounds.** The relevant upper bound is the lowest upper bound, the relevant lower
//!   bound the highest lower bound below it. Where loss does not grow with the rate, the upper
//!   bound is believed and whatever went well above it is taken for luck.
//! - **Conditional throughput** (Appendix B) is the rate reported: what came back at the relevant
//!   lower bound, in the worst trial that the exceed ratio does not forgive.
//!
//! # What is simpler, and why that is enough
//!
//! - **One goal per search.** RFC 9971 shares trials between goals; with trials of a second or
//!   less, two searches cost little more than one, and with a single goal the bounds are hard: no
//!   load below the relevant upper bound is ever measured because of another goal.
//! - **Three stages.** The way to the answer is not prescribed. Here three ever stricter copies of
//!   the goal are searched in turn: a coarse one with trials of the initial duration, one half way,
//!   and the goal itself. The first doubles the rate from the start until loss appears and never
//!   steps further, because some servers do not recover from an overload of several times their
//!   capacity. Each stage starts from the bounds of the one before, lower one first; they are
//!   hints that it must confirm with its own trials. If one turns out wrong, it steps outwards,
//!   twice as far each time. So long trials are spent near the answer only.
//! - In the first two stages a load needs two lossy trials to fail and one clean trial to pass (the
//!   "loss verification" of ETSI TST009): a mistake there costs time, not truth.
//!
//! # When the generator is the limit
//!
//! A trial in which less was sent than asked, by more than 0.5%, says nothing good about the rate
//! asked. If it lost too much nevertheless, that is a high-loss trial: more would not lose less. If
//! not, it is a *shortfall* and classifies nothing. A load that falls short three times, and more
//! often than not, is out of the generator's reach: the median of what was sent becomes the highest
//! load to try, and if that holds the goal, the search ends with [`Reason::GeneratorLimit`].

mod classify;
mod config;
mod select;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use config::{ConfigError, LossGoal, SearchConfig};

use self::classify::{Goal, Load, Trial};
use self::select::{Bounds, Plan};
use crate::loss::loss_ratio;

/// The share of the offered rate that must really have been sent for a trial to speak for it.
const REACHED: f64 = 0.995;

/// Outcomes whose offered rates differ by less than this share are trials at one load.
const SAME_LOAD: f64 = 1e-6;

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Run a trial and [`record`](Search::record) its outcome.
    Trial {
        /// Requests per second to offer.
        rate: f64,
        /// For how long to send.
        duration: Duration,
    },
    /// The search is over.
    Done(SearchOutcome),
}

/// What a trial gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialOutcome {
    /// The rate that [`Step::Trial`] asked for, per second.
    pub offered_rate: f64,
    /// The rate really sent, per second, from the first and last transmission (see
    /// [`crate::loss::Rate`]).
    pub achieved_rate: f64,
    /// Requests sent.
    pub sent: u64,
    /// Requests without a valid reply in time.
    pub lost: u64,
    /// The duration that [`Step::Trial`] asked for, or the time really spent sending.
    pub duration: Duration,
}

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The bounds are within the goal width of each other.
    Converged,
    /// The goal holds at the highest rate allowed; the server's limit is above it.
    CappedAtMax,
    /// The goal holds at the highest rate that the generator reaches; the server's limit is above.
    GeneratorLimit,
    /// The goal does not even hold at the lowest rate allowed.
    BelowMin,
    /// Trials or time ran out first; the bounds are as far apart as they are.
    BudgetSpent,
}

/// What a search found. RFC 9971 calls it regular when the reason is [`Reason::Converged`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchOutcome {
    /// The conditional throughput: replies per second at the relevant lower bound. `None` when
    /// there is no lower bound.
    pub rate: Option<f64>,
    /// The relevant lower bound: the highest rate, below every upper bound, at
    /// which the goal holds.
    pub lower: Option<f64>,
    /// The relevant upper bound: the lowest rate at which the goal fails.
    pub upper: Option<f64>,
    /// Requests sent at the lower bound, in the trials that count.
    pub sent: u64,
    /// Requests lost at the lower bound, in the same trials.
    pub lost: u64,
    /// Number of trials run.
    pub trials: usize,
    /// Time spent sending.
    pub trial_time: Duration,
    /// Why the search ended.
    pub reason: Reason,
}

impl SearchOutcome {
    /// The loss ratio over all trials that count at the lower bound. It can exceed the goal, if the
    /// exceed ratio forgave a trial.
    #[must_use]
    pub fn loss_ratio(&self) -> Option<f64> {
        loss_ratio(self.sent, self.lost)
    }
}

/// One goal, and how precisely to search it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stage {
    goal: Goal,
    /// Largest ratio of upper to lower bound that ends the stage; above 1.
    width: f64,
    /// Ratio of the first step outwards from a bound.
    first_step: f64,
}

/// The search: a function of its configuration and of the trials recorded so far.
#[derive(Debug, Clone)]
pub struct Search {
    config: SearchConfig,
    stages: [Stage; 3],
    /// The stage being searched.
    current: usize,
    /// The bounds that the stage before ended with.
    hint: Bounds,
    /// Every rate tried, ascending.
    loads: Vec<Load>,
    trials: usize,
    trial_time: Duration,
}

impl Search {
    /// A search that has not run a trial yet.
    pub fn new(config: SearchConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            stages: config.stages(),
            config,
            current: 0,
            hint: Bounds::default(),
            loads: Vec::new(),
            trials: 0,
            trial_time: Duration::ZERO,
        })
    }

    /// The next trial, or the result. It changes nothing: asked again, it answers the same.
    #[must_use]
    pub fn next(&self) -> Step {
        let rate = match self.plan() {
            Plan::Measure(rate) => rate,
            Plan::Settled(reason) => return Step::Done(self.outcome(reason)),
        };
        let duration = Duration::from_secs_f64(self.stage().goal.trial_s);
        let time_left = self.config.time_budget.saturating_sub(self.trial_time);
        if self.trials >= self.config.max_trials || duration > time_left {
            return Step::Done(self.outcome(Reason::BudgetSpent));
        }
        Step::Trial { rate, duration }
    }

    /// Takes in the outcome of a trial. Trials that were not asked for count as well.
    pub fn record(&mut self, outcome: &TrialOutcome) {
        self.trials += 1;
        self.trial_time += outcome.duration;
        let goal = self.stage().goal;
        self.load_at(outcome.offered_rate).add(&Trial::from_outcome(outcome), &goal);
        while self.current + 1 < self.stages.len() && matches!(self.plan(), Plan::Settled(_)) {
            self.hint = select::relevant_bounds(&self.loads, &self.stage().goal);
            self.current += 1;
        }
    }

    fn stage(&self) -> &Stage {
        &self.stages[self.current]
    }

    fn plan(&self) -> Plan {
        select::plan(&self.config, self.stage(), self.hint, &self.loads)
    }

    /// The load of this rate, made if it was never tried.
    fn load_at(&mut self, rate: f64) -> &mut Load {
        let same = |load: &Load| (load.rate - rate).abs() <= SAME_LOAD * rate;
        let place = self.loads.iter().position(same).unwrap_or_else(|| {
            let place = self.loads.partition_point(|load| load.rate < rate);
            self.loads.insert(place, Load::new(rate));
            place
        });
        &mut self.loads[place]
    }

    /// The result by the goal itself; or, if the budget ran out before, by the strictest stage that
    /// has found a bound.
    fn outcome(&self, reason: Reason) -> SearchOutcome {
        let found = |stage: &Stage| select::relevant_bounds(&self.loads, &stage.goal);
        let goal = &self.stages[..=self.current]
            .iter()
            .rfind(|stage| found(stage) != Bounds::default())
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
