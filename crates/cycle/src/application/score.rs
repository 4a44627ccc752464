//! Scorecard of Hao, Xue and Qin, "Performance and test method for real-time parallel system"
//! (2010), Table 2: two values of the operating system and three of the middleware, each with a
//! grade. Pure.
//!
//! The paper names the graded values but no scale. Here grades differ by a factor of ten
//! everywhere:
//!
//! - A cost in each period (a switch, an interrupt, a message) is graded by its share of the
//!   deadline. The paper calls costs of microseconds predictable if execution takes milliseconds
//!   (section 4.1): a thousandth is excellent, a hundredth good, a tenth fair.
//! - Granularity is the ratio of communication to computation; load strategy is the excess of the
//!   largest computation of a node over the mean. At a ratio `r`, computation is `1 / (1 + r)` of
//!   the time: 99% if excellent, 91% if good, half if fair.

use horolog_record::{
    CycleTestApplication, CycleTestGrade as Grade, CycleTestRunResult, HostInterruptResult,
    HostSwitchResult, ScorecardCriterion as Scale, ScorecardRow, TimerHandlerKind,
};

use crate::predict::{CostInput, CostSourceResult};

/// Upper bounds of a cost, as shares of the deadline, for the grades excellent, good and fair.
pub const COST_BOUNDS: [f64; 3] = [0.001, 0.01, 0.1];
/// Upper bounds, for excellent, good and fair, of communication relative to computation
/// (granularity) and of the excess of the largest computation over the mean (load strategy).
pub const IDLE_BOUNDS: [f64; 3] = [0.01, 0.1, 1.0];

/// Returns the grade of a share by its upper bounds.
#[must_use]
pub fn grade(share: f64, bounds: [f64; 3]) -> Grade {
    let better = bounds.iter().zip(Grade::ALL).find(|(bound, _)| share <= **bound);
    better.map_or(Grade::Poor, |(_, grade)| grade)
}

/// Returns the scorecard of a run, with the costs measured on the host.
#[must_use]
pub fn scorecard(
    run: Option<&CycleTestRunResult>,
    application: &CycleTestApplication,
    measured: &[CostInput],
) -> Vec<ScorecardRow> {
    let row = |scale| match scale {
        Scale::SwitchTime => {
            cost_score(scale, largest(measured.iter().filter_map(switch_time)), application)
        }
        Scale::InterruptTime => {
            cost_score(scale, largest(measured.iter().filter_map(interrupt_delay)), application)
        }
        Scale::MessageLatency => cost_score(scale, run.and_then(message_latency), application),
        Scale::Granularity => ratio_score(scale, run.and_then(granularity)),
        Scale::LoadStrategy => ratio_score(scale, run.and_then(load_imbalance)),
    };
    Scale::ALL.into_iter().map(row).collect()
}

/// Value in ns, and a description of its basis.
type ScoreValueWithBasis = (f64, String);

fn largest(values: impl Iterator<Item = ScoreValueWithBasis>) -> Option<ScoreValueWithBasis> {
    values.max_by(|(one, _), (other, _)| one.total_cmp(other))
}

fn cost_score(
    scale: Scale,
    value: Option<ScoreValueWithBasis>,
    application: &CycleTestApplication,
) -> ScorecardRow {
    let share = value.as_ref().map(|(ns, _)| ns / application.deadline_ns.max(1) as f64);
    let absent = match scale {
        Scale::MessageLatency => "not measured: no messages were sent to another node",
        _ => "not measured; add a result of 'host all' with --measured",
    };
    ScorecardRow {
        scale,
        value_ns: value.as_ref().map(|(ns, _)| *ns),
        ratio: None,
        basis: value.map_or_else(|| absent.to_owned(), |(_, basis)| basis),
        share,
        bounds: COST_BOUNDS,
        grade: share.map(|share| grade(share, COST_BOUNDS)),
    }
}

/// Returns the row of a granularity or load strategy; `value` holds the ratio, the graded share and
/// the basis. Without a value, the row has no grade.
fn ratio_score(scale: Scale, value: Option<(f64, f64, &str)>) -> ScorecardRow {
    let absent = "not measured: a single node, or nothing was computed or sent";
    let share = value.map(|(_, share, _)| share);
    ScorecardRow {
        scale,
        value_ns: None,
        ratio: value.map(|(ratio, ..)| ratio),
        basis: value.map_or(absent, |(.., basis)| basis).to_owned(),
        share,
        bounds: IDLE_BOUNDS,
        grade: share.map(|share| grade(share, IDLE_BOUNDS)),
    }
}

fn switch_time(source: &CostInput) -> Option<ScoreValueWithBasis> {
    let CostSourceResult::Switch(result) = &source.measured else { return None };
    let HostSwitchResult { steps, exchanges, .. } = &**result;
    let by_steps = steps.iter().filter_map(|steps| steps.per_switch_ns).reduce(f64::max);
    let by_exchanges = exchanges.iter().filter_map(|turns| turns.per_switch_ns).reduce(f64::max);
    let found =
        by_steps.map(|ns| (ns, "by the eight steps")).or(by_exchanges.map(|ns| (ns, "of a turn")));
    let (ns, how) = found.filter(|(ns, _)| ns.is_finite() && *ns >= 0.0)?;
    Some((ns, format!("a switch {how} [{}]", source.name)))
}

fn interrupt_delay(source: &CostInput) -> Option<ScoreValueWithBasis> {
    let CostSourceResult::Interrupt(result) = &source.measured else { return None };
    let HostInterruptResult { handlers, .. } = &**result;
    // The paper means the kernel's own handler; without one, the closest measured kind is used.
    let of = |kind: TimerHandlerKind| {
        let delays = handlers.iter().filter(|handler| handler.kind == kind);
        delays.filter_map(|handler| Some(handler.delay_ns.as_ref()?.mean)).reduce(f64::max)
    };
    let kinds = [
        (TimerHandlerKind::Kernel, "an in-kernel handler"),
        (TimerHandlerKind::Timerfd, "a thread woken by a timer"),
        (TimerHandlerKind::Signal, "a signal handler"),
    ];
    let (ns, what) = kinds.into_iter().find_map(|(kind, what)| Some((of(kind)?, what)))?;
    Some((
        ns,
        format!("from the interrupt to {what}, the mean of the slowest core [{}]", source.name),
    ))
}

fn message_latency(run: &CycleTestRunResult) -> Option<ScoreValueWithBasis> {
    let slowest = run.nodes.iter().filter_map(|node| node.latency_ns).max()?;
    let basis = "half of the shortest message's round trip before the run, the median of the slowest \
                 node";
    Some((slowest as f64, basis.to_owned()))
}

fn granularity(run: &CycleTestRunResult) -> Option<(f64, f64, &'static str)> {
    let computation: f64 = run.stages.iter().map(|stage| stage.computation_ns).sum();
    let communication: f64 =
        run.stages.iter().map(|stage| stage.communication_ns + stage.barrier_ns).sum();
    let is_known = computation > 0.0 && communication > 0.0;
    let basis = "computation to communication, barriers included, means of a period";
    is_known.then(|| (computation / communication, communication / computation, basis))
}

fn load_imbalance(run: &CycleTestRunResult) -> Option<(f64, f64, &'static str)> {
    let share = run.imbalance?;
    Some((1.0 + share, share, "the maximum computation of a node to the mean of all"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grades_are_a_tenth_apart_and_their_bounds_belong_to_the_better() {
        for (share, expected) in [
            (0.0, Grade::Excellent),
            (0.001, Grade::Excellent),
            (0.001_1, Grade::Good),
            (0.01, Grade::Good),
            (0.1, Grade::Fair),
            (0.11, Grade::Poor),
            (f64::INFINITY, Grade::Poor),
        ] {
            assert_eq!(grade(share, COST_BOUNDS), expected, "{share}");
        }
        assert_eq!(grade(1.0, IDLE_BOUNDS), Grade::Fair);
        for bounds in [COST_BOUNDS, IDLE_BOUNDS] {
            assert!(bounds.windows(2).all(|two| (two[1] / two[0] - 10.0).abs() < 1e-9));
        }
    }

    #[test]
    fn what_was_not_measured_has_no_grade() {
        let application = CycleTestApplication {
            name: "a".to_owned(),
            period_ns: 50_000_000,
            deadline_ns: 40_000_000,
            nodes: 1,
            steady: 5,
            response_limit_ns: 1,
            node_timeout: 3,
        };
        let rows = scorecard(None, &application, &[]);
        assert_eq!(rows.iter().map(|row| row.scale).collect::<Vec<_>>(), Scale::ALL);
        assert!(
            rows.iter().all(|row| row.grade.is_none() && row.basis.starts_with("not measured"))
        );
    }
}
