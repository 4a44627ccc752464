//! Configuration of a search: the goal, the range of rates, the durations and the budget. Values
//! with which no search can work are refused here, so that the search itself cannot fail.

use std::time::Duration;

use horolog_time::Span;
use thiserror::Error;

use super::GoalStage;
use super::classify::Goal;

/// Goal width of the first two stages, as powers of the last one's. Simulated servers decided:
/// finer ones save 3 s where loss sets in at an edge, and cost more than that where it sets in
/// gradually, because long trials then fail where short ones did not.
const COARSE_POWERS: [i32; 2] = [8, 4];

/// Factor of the ramp, which doubles the rate: the module's documentation explains the limit.
const RAMP_STEP: f64 = 2.0;

/// Trials that fill the goal duration sum in the first two stages: a lossy one is repeated once.
const COARSE_TRIALS: f64 = 2.0;

/// Largest loss ratio with which a trial still counts as good (RFC 9971: Goal Loss Ratio).
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct LossGoal(f64);

impl LossGoal {
    /// Non-drop rate: no request is lost.
    pub const NDR: Self = Self(0.0);
    /// Partial drop rate: at most 0.5% are lost.
    pub const PDR: Self = Self(0.005);

    /// Creates any other goal, at least 0 and below 1.
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

/// Reason for which a search cannot be created.
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

/// Configuration of a search. [`SearchConfig::new`] provides defaults to change where needed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchConfig {
    /// Loss goal.
    pub goal: LossGoal,
    /// Lowest rate to try, per second (RFC 9971: Min Load).
    pub min_rate: f64,
    /// Rate of the first trial, per second.
    pub start_rate: f64,
    /// Highest rate to try, per second (Max Load).
    pub max_rate: f64,
    /// Relative distance of the bounds that is close enough (Goal Width). A width below the loss
    /// ratio of the goal gains nothing.
    pub width: f64,
    /// Length of the first, coarse trials (Goal Initial Trial Duration).
    pub initial_duration: Duration,
    /// Length of the trials that the result rests on (Goal Final Trial Duration).
    pub final_duration: Duration,
    /// Total time of such trials that always decides about one rate (Goal Duration Sum).
    pub duration_sum: Duration,
    /// Share of that time that may exceed the loss goal (Goal Exceed Ratio).
    pub exceed_ratio: f64,
    /// Largest number of trials.
    pub max_trials: usize,
    /// Largest time spent sending.
    pub time_budget: Duration,
}

impl SearchConfig {
    /// Configures a search from `min_rate` to `max_rate`, both per second, with the usual settings.
    ///
    /// Width 1%. Trials of 0.1 s at first: long enough to fill every queue on the path at any
    /// relevant rate, and so short that doubling from a thousand to ten million takes under two
    /// seconds. Trials of 1 s at last, three of them to settle an uncertain rate (two that agree
    /// do), with the exceed ratio of one half that RFC 9971 recommends: a rate holds the goal when
    /// it does so more often than not, and one disturbed second decides nothing. Such a search
    /// sends for about ten seconds where loss sets in at an edge, and for twenty where it sets in
    /// gradually; the budget of 60 s and 200 trials is for servers with varying capacity.
    #[must_use]
    pub fn new(goal: LossGoal, min_rate: f64, max_rate: f64) -> Self {
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

    pub(super) fn validate(&self) -> Result<(), SearchConfigError> {
        // Written so that NaN fails each of them.
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

    /// Returns the stages: the goal, after two copies of it that are quicker to decide and wider.
    pub(super) fn stages(&self) -> [GoalStage; 3] {
        let first_s = self.initial_duration.as_secs_f64();
        let last_s = self.final_duration.as_secs_f64();
        let sum_s = self.duration_sum.as_secs_f64();
        let coarse_trials = COARSE_TRIALS.min(sum_s / last_s);
        let stage = |trial_s: f64, trials: f64, width: f64, first_step: f64| GoalStage {
            goal: Goal {
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
            stage(first_s, coarse_trials, coarse.min(RAMP_STEP), RAMP_STEP),
            stage(middle_s, coarse_trials, middle.min(RAMP_STEP), coarse.min(RAMP_STEP)),
            stage(last_s, sum_s / last_s, width, middle.min(RAMP_STEP)),
        ]
    }
}
