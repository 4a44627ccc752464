//! Configuration of a search: goal, range of rates, durations and budget. Invalid configurations
//! are refused here, so that the search itself cannot fail.

use std::time::Duration;

use horolog_time::Span;
use thiserror::Error;

use super::SearchStage;
use super::classify::SearchGoal;

/// Goal widths of the first two stages, as powers of the goal width. Chosen by simulation: finer
/// widths save 3 s if loss begins abruptly, but cost more if it begins gradually, because then long
/// trials fail where short ones did not.
const COARSE_POWERS: [i32; 2] = [8, 4];

/// Largest factor between two rates while the search looks for the first loss; see the module's
/// documentation.
const RAMP_FACTOR: f64 = 2.0;

/// Number of trials in the duration sum of the first two stages: a trial with loss is repeated
/// once.
const COARSE_TRIALS: f64 = 2.0;

/// Lower limit of the time budget of a scaled search: a server with unstable results needs more
/// than ten final trials.
const TIME_BUDGET_MIN: Duration = Duration::from_secs(10);

/// Largest loss ratio of a trial without high loss (RFC 9971, Goal Loss Ratio).
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct GoalLossRatio(f64);

impl GoalLossRatio {
    /// Non-drop rate: no request is lost.
    pub const NDR: Self = Self(0.0);
    /// Partial drop rate: at most 0.5% are lost.
    pub const PDR: Self = Self(0.005);

    /// Creates a goal from a ratio of at least 0 and below 1.
    pub fn new(ratio: f64) -> Result<Self, SearchConfigError> {
        if (0.0..1.0).contains(&ratio) {
            Ok(Self(ratio))
        } else {
            Err(SearchConfigError::Goal(ratio))
        }
    }

    /// Returns the loss ratio.
    #[must_use]
    pub fn ratio(self) -> f64 {
        self.0
    }
}

/// Reason for which a search configuration is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum SearchConfigError {
    /// The loss ratio is out of range.
    #[error("a loss goal of {0} is invalid; choose a ratio of at least 0 and below 1")]
    Goal(f64),
    /// The rates are not positive, or not in order.
    #[error("the rates must be positive and rise from lowest over start to highest")]
    Rates,
    /// The width is out of range.
    #[error("a relative width of {0} is invalid; choose 0.0001 to 1")]
    Width(f64),
    /// The durations are not positive, or not in order.
    #[error("the durations must be positive and rise from initial over final to their sum")]
    Durations,
    /// The exceed ratio is out of range.
    #[error("an exceed ratio of {0} is invalid; choose a ratio of at least 0 and below 1")]
    ExceedRatio(f64),
    /// The shortest trial at the lowest rate would send nothing.
    #[error(
        "a trial of {} at {rate}/s sends no request; raise one of them",
        Span::from(*.duration)
    )]
    NoRequest {
        /// The lowest rate, per second.
        rate: f64,
        /// The initial trial duration.
        duration: Duration,
    },
}

/// Configuration of a search. [`SearchConfig::new`] sets defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchConfig {
    /// Largest loss ratio that a trial may have without counting as high loss.
    pub goal: GoalLossRatio,
    /// Lowest rate to try, per second (RFC 9971: Min Load).
    pub min_rate: f64,
    /// Rate of the first trial, per second.
    pub start_rate: f64,
    /// Highest rate to try, per second (Max Load).
    pub max_rate: f64,
    /// Relative distance of the bounds at which the search ends (Goal Width). A width below the
    /// goal's loss ratio has no benefit.
    pub width: f64,
    /// Length of the first, coarse trials (Goal Initial Trial Duration).
    pub initial_duration: Duration,
    /// Duration of the trials that determine the result (Goal Final Trial Duration).
    pub final_duration: Duration,
    /// Total duration of full-length trials that decides on one rate in any case (Goal Duration
    /// Sum).
    pub duration_sum: Duration,
    /// Share of the duration sum in which trials may exceed the loss goal (Goal Exceed Ratio).
    pub exceed_ratio: f64,
    /// Largest number of trials.
    pub max_trials: usize,
    /// Longest total time of sending.
    pub time_budget: Duration,
}

impl SearchConfig {
    /// Returns a search from `min_rate` to `max_rate`, in requests per second, with default
    /// settings.
    ///
    /// The width is 1%. The first trials last 0.1 s, long enough to fill all queues on the path at
    /// any relevant rate, and short enough that doubling from 1,000 to 10,000,000 requests/s takes
    /// less than 2 s. The final trials last 1 s, and at most three of them decide on a rate (two if
    /// they agree), with the exceed ratio of 0.5 that RFC 9971 recommends: a rate meets the goal if
    /// most trials do, so one disturbed second decides nothing. Such a search sends for about 10 s
    /// if loss begins abruptly, and for 20 s if it begins gradually. The budget of 60 s and 200
    /// trials is for servers of varying capacity.
    #[must_use]
    pub fn new(goal: GoalLossRatio, min_rate: f64, max_rate: f64) -> Self {
        Self {
            goal,
            min_rate,
            start_rate: min_rate,
            max_rate,
            width: 0.01,
            initial_duration: Duration::from_millis(100),
            final_duration: Duration::from_secs(1),
            duration_sum: Duration::from_secs(3),
            exceed_ratio: 0.5,
            max_trials: 200,
            time_budget: Duration::from_mins(1),
        }
    }

    /// Sets the duration of the final trials, to which that of the first trials is limited, and
    /// scales the sum of all durations and the time budget in proportion; the budget is at least
    /// 10 s.
    pub fn scale(&mut self, final_duration: Duration) {
        let factor = final_duration.as_secs_f64() / self.final_duration.as_secs_f64();
        self.final_duration = final_duration;
        self.initial_duration = self.initial_duration.min(final_duration);
        self.duration_sum = self.duration_sum.mul_f64(factor);
        self.time_budget = self.time_budget.mul_f64(factor).max(TIME_BUDGET_MIN);
    }

    pub(super) fn validate(&self) -> Result<(), SearchConfigError> {
        // NaN fails each of these checks.
        let ordered = |values: [f64; 4]| values.is_sorted() && values.iter().all(|v| v.is_finite());
        if !ordered([f64::MIN_POSITIVE, self.min_rate, self.start_rate, self.max_rate]) {
            return Err(SearchConfigError::Rates);
        }
        if !(1e-4..=1.0).contains(&self.width) {
            return Err(SearchConfigError::Width(self.width));
        }
        if !(0.0..1.0).contains(&self.exceed_ratio) {
            return Err(SearchConfigError::ExceedRatio(self.exceed_ratio));
        }
        if self.initial_duration.is_zero()
            || ![self.initial_duration, self.final_duration, self.duration_sum].is_sorted()
        {
            return Err(SearchConfigError::Durations);
        }
        if self.min_rate * self.initial_duration.as_secs_f64() < 1.0 {
            return Err(SearchConfigError::NoRequest {
                rate: self.min_rate,
                duration: self.initial_duration,
            });
        }
        Ok(())
    }

    /// Returns the stages: two copies of the goal with shorter and fewer trials and larger widths,
    /// then the goal itself.
    pub(super) fn stages(&self) -> [SearchStage; 3] {
        let first_s = self.initial_duration.as_secs_f64();
        let last_s = self.final_duration.as_secs_f64();
        let sum_s = self.duration_sum.as_secs_f64();
        let coarse_trials = COARSE_TRIALS.min(sum_s / last_s);
        let stage = |trial_s: f64, trials: f64, width: f64, first_step: f64| SearchStage {
            goal: SearchGoal {
                loss_ratio: self.goal.ratio(),
                exceed_ratio: self.exceed_ratio,
                trial_s,
                sum_s: trial_s * trials,
            },
            width,
            first_step,
        };
        let width = 1.0 + self.width;
        let [coarse, middle] = COARSE_POWERS.map(|power| width.powi(power));
        let middle_s = (first_s * last_s).sqrt();
        [
            stage(first_s, coarse_trials, coarse.min(RAMP_FACTOR), RAMP_FACTOR),
            stage(middle_s, coarse_trials, middle.min(RAMP_FACTOR), coarse.min(RAMP_FACTOR)),
            stage(last_s, sum_s / last_s, width, middle.min(RAMP_FACTOR)),
        ]
    }
}
