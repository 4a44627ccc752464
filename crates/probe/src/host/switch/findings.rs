//! The doubts about a run of switches, from its record alone. Pure.

use horolog_conditions::{self as conditions, finding};
use horolog_record::{
    Code, Finding, HostSwitchResult, Severity, StepsRepetition, SwitchPartner, SwitchSteps,
};

use super::super::figures::counted;

/// All doubts.
pub(super) fn all(
    result: &HostSwitchResult,
    repetitions: usize,
    is_interrupted: bool,
) -> Vec<Finding> {
    let mut findings = conditions::findings(&result.conditions, &[&result.scheduling]);
    findings.extend(result.steps.iter().filter_map(|steps| refused(steps, result.turns)));
    let errors = result.exchanges.iter().filter_map(|one| one.error.as_deref());
    let errors = errors.chain(result.steps.iter().filter_map(|one| one.error.as_deref()));
    if let Some(error) = errors.into_iter().next().filter(|_| !is_interrupted) {
        findings.push(finding(
            Code::HandlerUnavailable,
            Severity::Warning,
            format!("A partner could not be had or went away ({error})."),
            "See the limits of this user for processes, threads and descriptors.",
        ));
    }
    let negative = result.exchanges.iter().flat_map(|one| &one.repetitions);
    let negative = negative.filter(|one| one.per_switch_ns.is_none()).count();
    if negative > 0 {
        findings.push(finding(
            Code::NegativeFigure,
            Severity::Note,
            format!(
                "{} of exchanges took less than the calls alone: no figure for a switch.",
                counted(negative as u64, "repetition")
            ),
            "Give more --turns on a machine that is quiet.",
        ));
    }
    let taken = result.exchanges.iter().map(|one| one.repetitions.len());
    if is_interrupted || taken.into_iter().any(|taken| taken < repetitions) {
        findings.push(finding(
            Code::Interrupted,
            Severity::Note,
            "The run was ended before all repetitions were taken.".to_owned(),
            "",
        ));
    }
    findings
}

/// Repetitions of the eight steps that have no figure, and why.
fn refused(steps: &SwitchSteps, turns: u64) -> Option<Finding> {
    let count = |is: fn(&StepsRepetition, u64) -> bool| {
        steps.repetitions.iter().filter(|one| is(one, turns)).count()
    };
    let missing = count(|one, turns| one.switches < turns / 100 * 99);
    let negative =
        count(|one, turns| one.per_switch_ns.is_none() && one.switches >= turns / 100 * 99);
    let partner = match steps.partner {
        SwitchPartner::Process => "processes",
        SwitchPartner::Thread => "threads",
    };
    if missing > 0 {
        return Some(finding(
            Code::SwitchesMissing,
            Severity::Warning,
            format!(
                "In {} of the eight steps with {partner} the scheduler did not switch at each \
                 turn: no figure.",
                counted(missing as u64, "repetition")
            ),
            "Only SCHED_FIFO gives way at each sched_yield; run as root or with CAP_SYS_NICE.",
        ));
    }
    (negative > 0).then(|| {
        finding(
            Code::NegativeFigure,
            Severity::Warning,
            format!(
                "In {} of the eight steps with {partner} the loop alone took longer than its \
                 share: no figure.",
                counted(negative as u64, "repetition")
            ),
            "Give more --turns on a machine that is quiet.",
        )
    })
}
