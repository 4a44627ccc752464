//! Findings of `host switch`, from its record alone. Pure.

use horolog_conditions::{self as conditions, finding};
use horolog_record::{
    ContextSwitchPeerKind, Finding, FindingCode, HostSwitchResult, Severity, YieldSwitchCost,
    YieldSwitchRepetition,
};

use super::super::figures::format_count;
use super::arithmetic::has_switched;

/// Returns all findings of a switch measurement with `repetitions` planned for each exchange kind.
pub(super) fn all_findings(
    result: &HostSwitchResult,
    repetitions: usize,
    is_interrupted: bool,
) -> Vec<Finding> {
    let mut findings = conditions::findings(&result.conditions, &[&result.scheduling]);
    findings
        .extend(result.steps.iter().filter_map(|steps| missing_steps_finding(steps, result.turns)));
    let errors = result.exchanges.iter().filter_map(|one| one.error.as_deref());
    let errors = errors.chain(result.steps.iter().filter_map(|one| one.error.as_deref()));
    if let Some(error) = errors.into_iter().next().filter(|_| !is_interrupted) {
        findings.push(finding(
            FindingCode::HandlerUnavailable,
            Severity::Warning,
            format!("A peer could not be started or ended unexpectedly ({error})."),
            "Check this user's limits on processes, threads and descriptors.",
        ));
    }
    let negative = result.exchanges.iter().flat_map(|one| &one.repetitions);
    let negative = negative.filter(|one| one.per_switch_ns.is_none()).count();
    if negative > 0 {
        findings.push(finding(
            FindingCode::NegativeFigure,
            Severity::Note,
            format!(
                "{} of exchanges took less than the calls alone: the switch time is unavailable.",
                format_count(negative as u64, "repetition")
            ),
            "Use more --turns on an idle host.",
        ));
    }
    let taken = result.exchanges.iter().map(|one| one.repetitions.len());
    if is_interrupted || taken.into_iter().any(|taken| taken < repetitions) {
        findings.push(finding(
            FindingCode::Interrupted,
            Severity::Note,
            "The run was interrupted.".to_owned(),
            "",
        ));
    }
    findings
}

/// Returns a finding for repetitions of the eight steps that have no value, with the reason.
fn missing_steps_finding(steps: &YieldSwitchCost, turns: u64) -> Option<Finding> {
    let count = |is: fn(&YieldSwitchRepetition, u64) -> bool| {
        steps.repetitions.iter().filter(|one| is(one, turns)).count()
    };
    let missing = count(|one, turns| !has_switched(one.switches, turns));
    let negative =
        count(|one, turns| one.per_switch_ns.is_none() && has_switched(one.switches, turns));
    let peers = match steps.peer {
        ContextSwitchPeerKind::Process => "processes",
        ContextSwitchPeerKind::Thread => "threads",
    };
    if missing > 0 {
        return Some(finding(
            FindingCode::SwitchesMissing,
            Severity::Warning,
            format!(
                "In {} of the eight steps with {peers} the scheduler did not switch at each \
                 turn: the step has no value.",
                format_count(missing as u64, "repetition")
            ),
            "Only SCHED_FIFO yields at each sched_yield; run as root or with CAP_SYS_NICE.",
        ));
    }
    (negative > 0).then(|| {
        finding(
            FindingCode::NegativeFigure,
            Severity::Warning,
            format!(
                "In {} of the eight steps with {peers} the loop alone took longer than its \
                 share: the step has no value.",
                format_count(negative as u64, "repetition")
            ),
            "Use more --turns on an idle host.",
        )
    })
}
