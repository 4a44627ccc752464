//! Which rate to try next: pure functions of the loads tried so far. Nothing here knows of time or
//! budgets.

use super::classify::{Class, Goal, Load};
use super::{Reason, SearchConfig, Stage};

/// No step outwards from a bound is longer than a doubling.
const STEP_MAX: f64 = 2.0;

/// RFC 9971's relevant bounds, in requests per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Bounds {
    /// The highest lower bound below the relevant upper bound.
    pub(super) lower: Option<f64>,
    /// The lowest upper bound.
    pub(super) upper: Option<f64>,
}

/// What a stage wants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Plan {
    /// A trial at this rate.
    Measure(f64),
    /// Nothing more.
    Settled(Reason),
}

/// The rates of a class, ascending.
fn rates<'a>(
    loads: &'a [Load],
    goal: &'a Goal,
    class: Class,
) -> impl DoubleEndedIterator<Item = f64> + 'a {
    loads.iter().filter(move |load| load.classify(goal) == class).map(|load| load.rate)
}

/// The relevant bounds among `loads`, which ascend.
pub(super) fn relevant_bounds(loads: &[Load], goal: &Goal) -> Bounds {
    let upper = rates(loads, goal, Class::Upper).next();
    let lower = rates(loads, goal, Class::Lower).rfind(|&rate| upper.is_none_or(|u| rate < u));
    Bounds { lower, upper }
}

/// What `stage` wants next, with the bounds that the stage before found as `hint`.
///
/// The rate depends on classified loads alone, so a load once chosen stays chosen until its trials
/// decide it.
pub(super) fn plan(config: &SearchConfig, stage: &Stage, hint: Bounds, loads: &[Load]) -> Plan {
    let Bounds { lower, upper } = relevant_bounds(loads, &stage.goal);
    let ceiling = loads.iter().filter_map(Load::ceiling).fold(f64::INFINITY, f64::min);
    let (top, at_top) = if ceiling < config.max_rate {
        (ceiling, Reason::GeneratorLimit)
    } else {
        (config.max_rate, Reason::CappedAtMax)
    };
    if lower.zip(upper).is_some_and(|(lower, upper)| upper <= lower * stage.width) {
        return Plan::Settled(Reason::Converged);
    }
    if upper.is_some_and(|upper| upper <= config.min_rate) {
        return Plan::Settled(Reason::BelowMin);
    }
    if top < config.min_rate || lower.is_some_and(|lower| lower >= top) {
        return Plan::Settled(at_top);
    }
    // An upper bound out of the generator's reach leaves the top to be tried.
    let upper = upper.filter(|&upper| upper <= top);
    let rate =
        untried_hint(hint, Bounds { lower, upper }, top).unwrap_or_else(|| match (lower, upper) {
            (None, None) => config.start_rate,
            (Some(lower), None) => lower * step_up(stage, lower, loads),
            (None, Some(upper)) => upper / step_down(stage, upper, loads),
            (Some(lower), Some(upper)) => (lower * upper).sqrt(),
        });
    Plan::Measure(rate.clamp(config.min_rate, top))
}

/// A bound of the stage before that lies between the bounds of this one. The lower one comes first:
/// a bound found low down can spare the trials above it, not the other way round.
fn untried_hint(hint: Bounds, bounds: Bounds, top: f64) -> Option<f64> {
    [hint.lower, hint.upper].into_iter().flatten().map(|rate| rate.min(top)).find(|&rate| {
        bounds.lower.is_none_or(|lower| rate > lower)
            && bounds.upper.is_none_or(|upper| rate < upper)
    })
}

/// The factor from the highest lower bound to the next rate: twice the last step on this way.
fn step_up(stage: &Stage, lower: f64, loads: &[Load]) -> f64 {
    let before = rates(loads, &stage.goal, Class::Lower).rfind(|&rate| rate < lower);
    next_step(stage, before.map(|before| lower / before))
}

/// The divisor from the lowest upper bound to the next rate, likewise.
fn step_down(stage: &Stage, upper: f64, loads: &[Load]) -> f64 {
    let before = rates(loads, &stage.goal, Class::Upper).find(|&rate| rate > upper);
    next_step(stage, before.map(|before| before / upper))
}

fn next_step(stage: &Stage, last_step: Option<f64>) -> f64 {
    let doubled = last_step.map_or(stage.first_step, |ratio| ratio * ratio);
    doubled.clamp(stage.first_step, STEP_MAX)
}
