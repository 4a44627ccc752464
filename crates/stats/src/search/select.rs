//! Selection of the next rate: pure functions of the loads tried so far, independent of time and
//! budgets.

use super::classify::{Goal, LoadClass, RateTrials};
use super::{GoalStage, SearchConfig, StopReason};

/// Longest step outwards from a bound: a doubling.
const STEP_MAX: f64 = 2.0;

/// Relevant bounds of RFC 9971, in requests per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct RateBounds {
    /// Highest lower bound below the relevant upper bound.
    pub(super) lower: Option<f64>,
    /// Lowest upper bound.
    pub(super) upper: Option<f64>,
}

/// Decision of a stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum StageDecision {
    /// Measure a trial at this rate.
    Measure(f64),
    /// End the stage for this reason.
    Settled(StopReason),
}

/// Returns the rates of a class, ascending.
fn rates<'a>(
    loads: &'a [RateTrials],
    goal: &'a Goal,
    class: LoadClass,
) -> impl DoubleEndedIterator<Item = f64> + 'a {
    loads.iter().filter(move |load| load.classify(goal) == class).map(|load| load.rate)
}

/// Returns the relevant bounds among `loads`, which ascend.
pub(super) fn relevant_bounds(loads: &[RateTrials], goal: &Goal) -> RateBounds {
    let upper = rates(loads, goal, LoadClass::Upper).next();
    let lower = rates(loads, goal, LoadClass::Lower).rfind(|&rate| upper.is_none_or(|u| rate < u));
    RateBounds { lower, upper }
}

/// Returns the next decision of `stage`, with the bounds found by the previous stage as `hint`.
///
/// The rate depends only on classified loads, so a load once chosen stays chosen until its trials
/// decide it.
pub(super) fn plan(
    config: &SearchConfig,
    stage: &GoalStage,
    hint: RateBounds,
    loads: &[RateTrials],
) -> StageDecision {
    let RateBounds { lower, upper } = relevant_bounds(loads, &stage.goal);
    let ceiling = loads.iter().filter_map(RateTrials::ceiling).fold(f64::INFINITY, f64::min);
    let (top, at_top) = if ceiling < config.max_rate {
        (ceiling, StopReason::GeneratorLimit)
    } else {
        (config.max_rate, StopReason::CappedAtMax)
    };
    if lower.zip(upper).is_some_and(|(lower, upper)| upper <= lower * stage.width) {
        return StageDecision::Settled(StopReason::Converged);
    }
    if upper.is_some_and(|upper| upper <= config.min_rate) {
        return StageDecision::Settled(StopReason::BelowMin);
    }
    if top < config.min_rate || lower.is_some_and(|lower| lower >= top) {
        return StageDecision::Settled(at_top);
    }
    // An upper bound out of the generator's reach leaves the top to be tried.
    let upper = upper.filter(|&upper| upper <= top);
    let rate = untried_hint(hint, RateBounds { lower, upper }, top).unwrap_or_else(|| {
        match (lower, upper) {
            (None, None) => config.start_rate,
            (Some(lower), None) => lower * step_up(stage, lower, loads),
            (None, Some(upper)) => upper / step_down(stage, upper, loads),
            (Some(lower), Some(upper)) => (lower * upper).sqrt(),
        }
    });
    StageDecision::Measure(rate.clamp(config.min_rate, top))
}

/// Returns a bound of the previous stage that lies between the bounds of this one. The lower one
/// comes first: a bound found at a low rate can spare the trials above it, but not the reverse.
fn untried_hint(hint: RateBounds, bounds: RateBounds, top: f64) -> Option<f64> {
    [hint.lower, hint.upper].into_iter().flatten().map(|rate| rate.min(top)).find(|&rate| {
        bounds.lower.is_none_or(|lower| rate > lower)
            && bounds.upper.is_none_or(|upper| rate < upper)
    })
}

/// Returns the factor from the highest lower bound to the next rate: twice the last step in this
/// direction.
fn step_up(stage: &GoalStage, lower: f64, loads: &[RateTrials]) -> f64 {
    let before = rates(loads, &stage.goal, LoadClass::Lower).rfind(|&rate| rate < lower);
    next_step(stage, before.map(|before| lower / before))
}

/// Returns the divisor from the lowest upper bound to the next rate, likewise.
fn step_down(stage: &GoalStage, upper: f64, loads: &[RateTrials]) -> f64 {
    let before = rates(loads, &stage.goal, LoadClass::Upper).find(|&rate| rate > upper);
    next_step(stage, before.map(|before| before / upper))
}

fn next_step(stage: &GoalStage, last_step: Option<f64>) -> f64 {
    let doubled = last_step.map_or(stage.first_step, |ratio| ratio * ratio);
    doubled.clamp(stage.first_step, STEP_MAX)
}
