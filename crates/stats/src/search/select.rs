//! Selection of the next rate from the trials so far, independent of time and budget.

use super::classify::{LoadClass, RateTrials, SearchGoal};
use super::{SearchConfig, SearchStage, StopReason};

/// Largest factor between a bound and the next rate above or below it.
const STEP_FACTOR_MAX: f64 = 2.0;

/// Relevant bounds of RFC 9971, in requests per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct RateBounds {
    /// Highest lower bound below the relevant upper bound.
    pub(super) lower: Option<f64>,
    /// Lowest upper bound.
    pub(super) upper: Option<f64>,
}

/// Decision of the current stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum StageDecision {
    /// Run a trial at this rate, in requests per second.
    Measure(f64),
    /// End the stage for this reason.
    Settled(StopReason),
}

/// Returns the rates of a class, ascending.
fn rates_of_class<'a>(
    loads: &'a [RateTrials],
    goal: &'a SearchGoal,
    class: LoadClass,
) -> impl DoubleEndedIterator<Item = f64> + 'a {
    loads.iter().filter(move |load| load.classify(goal) == class).map(|load| load.rate)
}

/// Returns the relevant bounds among `loads`, which ascend.
pub(super) fn relevant_bounds(loads: &[RateTrials], goal: &SearchGoal) -> RateBounds {
    let upper = rates_of_class(loads, goal, LoadClass::Upper).next();
    let lower =
        rates_of_class(loads, goal, LoadClass::Lower).rfind(|&rate| upper.is_none_or(|u| rate < u));
    RateBounds { lower, upper }
}

/// Returns the next decision of `stage`, with the bounds found by the previous stage as `hint`.
///
/// The decision depends only on the classes of the rates, so a chosen rate remains chosen until its
/// trials classify it.
pub(super) fn decide(
    config: &SearchConfig,
    stage: &SearchStage,
    hint: RateBounds,
    loads: &[RateTrials],
) -> StageDecision {
    let RateBounds { lower, upper } = relevant_bounds(loads, &stage.goal);
    let generator_limit =
        loads.iter().filter_map(RateTrials::generator_limit).fold(f64::INFINITY, f64::min);
    let (rate_max, reason_at_max) = if generator_limit < config.max_rate {
        (generator_limit, StopReason::GeneratorLimit)
    } else {
        (config.max_rate, StopReason::CappedAtMax)
    };
    if lower.zip(upper).is_some_and(|(lower, upper)| upper <= lower * stage.width) {
        return StageDecision::Settled(StopReason::Converged);
    }
    if upper.is_some_and(|upper| upper <= config.min_rate) {
        return StageDecision::Settled(StopReason::BelowMin);
    }
    if rate_max < config.min_rate || lower.is_some_and(|lower| lower >= rate_max) {
        return StageDecision::Settled(reason_at_max);
    }
    // If the upper bound is above the generator's limit, that limit is still to be tried.
    let upper = upper.filter(|&upper| upper <= rate_max);
    let rate =
        untried_hint(hint, RateBounds { lower, upper }, rate_max).unwrap_or_else(|| {
            match (lower, upper) {
                (None, None) => config.start_rate,
                (Some(lower), None) => lower * step_up(stage, lower, loads),
                (None, Some(upper)) => upper / step_down(stage, upper, loads),
                (Some(lower), Some(upper)) => (lower * upper).sqrt(),
            }
        });
    StageDecision::Measure(rate.clamp(config.min_rate, rate_max))
}

/// Returns a bound of the previous stage that is strictly between the bounds of this stage. The
/// lower one is tried first: if it fails, the trials above it are not needed.
fn untried_hint(hint: RateBounds, bounds: RateBounds, rate_max: f64) -> Option<f64> {
    [hint.lower, hint.upper].into_iter().flatten().map(|rate| rate.min(rate_max)).find(|&rate| {
        bounds.lower.is_none_or(|lower| rate > lower)
            && bounds.upper.is_none_or(|upper| rate < upper)
    })
}

/// Returns the factor from the highest lower bound to the next rate: the square of the last factor
/// in this direction, from the first step of the stage to [`STEP_FACTOR_MAX`].
fn step_up(stage: &SearchStage, lower: f64, loads: &[RateTrials]) -> f64 {
    let before = rates_of_class(loads, &stage.goal, LoadClass::Lower).rfind(|&rate| rate < lower);
    next_step(stage, before.map(|before| lower / before))
}

/// Returns the divisor from the lowest upper bound to the next rate: the square of the last one in
/// this direction, from the first step of the stage to [`STEP_FACTOR_MAX`].
fn step_down(stage: &SearchStage, upper: f64, loads: &[RateTrials]) -> f64 {
    let before = rates_of_class(loads, &stage.goal, LoadClass::Upper).find(|&rate| rate > upper);
    next_step(stage, before.map(|before| before / upper))
}

fn next_step(stage: &SearchStage, last_step: Option<f64>) -> f64 {
    let doubled = last_step.map_or(stage.first_step, |ratio| ratio * ratio);
    doubled.clamp(stage.first_step, STEP_FACTOR_MAX)
}
