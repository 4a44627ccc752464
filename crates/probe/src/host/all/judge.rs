//! What the parts together come to: doubts that follow from several, the worst findings, the
//! verdict. Pure.

use std::cmp::Reverse;

use horolog_conditions::finding;
use horolog_record::{
    Code, Finding, HostAllResult, HostInterruptResult, HostPart, HostPartOutcome, HostPartState,
    HostTimerResult, HostVerdict, Severity, StolenCore, WorstFinding,
};

use crate::host::figures::time;
use crate::host::interrupt::loss;

/// Wake-ups of which one in a hundred is later than this put a doubt on every figure in
/// microseconds that a program takes.
const LATE_NS: u64 = 100_000;
/// From here on such a figure says more of this host than of what it is to be of.
const TOO_LATE_NS: u64 = 1_000_000;
/// The share of a core that others take, from which what runs there waits too often for figures in
/// microseconds.
const TAKEN_SHARE: f64 = 0.1;
/// Findings that are told as the worst.
const WORST: usize = 3;

/// The order of findings of one severity. What is wrong with the clock is in every figure; then
/// comes what takes the cores, then what is late for it; a card is one path of several.
const ORDER: [HostPart; 6] = [
    HostPart::Clock,
    HostPart::Interrupt,
    HostPart::Timer,
    HostPart::Switch,
    HostPart::Delay,
    HostPart::Nic,
];

/// Parts without which there is a doubt whether a host is fit.
const NEEDED: [HostPart; 3] = [HostPart::Clock, HostPart::Timer, HostPart::Interrupt];

/// What says that a part had to do without something.
const LACKS: [Code; 6] = [
    Code::RealTimeRefused,
    Code::MemoryUnlocked,
    Code::IdleStatesFree,
    Code::HandlerUnavailable,
    Code::FunctionUnavailable,
    Code::SwitchesMissing,
];

/// How far a part came that gave a record, by its findings; and what it lacked.
pub(super) fn state(findings: &[Finding]) -> (HostPartState, Vec<String>) {
    let messages = |is: fn(&&Finding) -> bool| -> Vec<String> {
        findings.iter().filter(is).map(|one| one.message.clone()).collect()
    };
    let ended = messages(|one| one.code == Code::Interrupted);
    let lacked = messages(|one| LACKS.contains(&one.code));
    if !ended.is_empty() {
        (HostPartState::Interrupted, ended)
    } else if !lacked.is_empty() {
        (HostPartState::Reduced, lacked)
    } else {
        (HostPartState::Measured, Vec::new())
    }
}

/// Puts into a result what follows from its parts.
pub(super) fn judge(result: &mut HostAllResult) {
    let mut findings: Vec<_> = result.timer.as_ref().and_then(late).into_iter().collect();
    findings.extend(result.interrupt.iter().flat_map(taken));
    findings.extend(result.parts.iter().filter_map(unmeasured));
    result.findings = findings;
    result.worst = worst(result);
    result.verdict = verdict(result);
}

/// Whether wake-ups of the worst core are too late for microseconds.
fn late(timer: &HostTimerResult) -> Option<Finding> {
    let cores = timer.cores.iter().filter_map(|core| Some((core.core, core.latency_ns.as_ref()?)));
    let (core, latency) = cores.max_by_key(|(_, latency)| latency.p99)?;
    if latency.p99 <= LATE_NS {
        return None;
    }
    let severity = if latency.p99 > TOO_LATE_NS { Severity::Error } else { Severity::Warning };
    Some(finding(
        Code::WakeUpsLate,
        severity,
        format!(
            "Core {core} wakes up more than {} late at one instant in a hundred, {} at the worst.",
            time(latency.p99),
            time(latency.max)
        ),
        "What a program times is off by as much: have the kernel or the card take timestamps, and \
         see what holds the core ('horolog host interrupt', 'horolog host timer --break-above').",
    ))
}

/// The cores of which too much is taken, the worst first: errors here, where the part itself has
/// warnings, since that is not to judge the host.
fn taken(interrupt: &HostInterruptResult) -> Vec<Finding> {
    let share = |core: &StolenCore| core.all.total_ns as f64 / core.duration_ns.max(1) as f64;
    let mut cores: Vec<_> =
        interrupt.stolen.iter().filter(|core| share(core) > TAKEN_SHARE).collect();
    cores.sort_by(|one, other| share(other).total_cmp(&share(one)));
    let warnings = cores.into_iter().filter_map(loss);
    warnings.map(|warning| Finding { severity: Severity::Error, ..warning }).collect()
}

/// A part that gave nothing.
fn unmeasured(outcome: &HostPartOutcome) -> Option<Finding> {
    let name = match &outcome.interface {
        Some(interface) => format!("{} {interface}", outcome.part.name()),
        None => outcome.part.name().to_owned(),
    };
    let (said, advice) = match outcome.state {
        HostPartState::Measured | HostPartState::Reduced | HostPartState::Absent => return None,
        HostPartState::Failed => (
            format!("'{name}' gave no figures: {}.", outcome.why.join("; ")),
            format!("See what 'horolog host {name}' says."),
        ),
        HostPartState::Interrupted => {
            (format!("'{name}' was ended before it was through."), "Let it run to its end.".into())
        }
        HostPartState::NotBegun => (
            format!("'{name}' was not begun: the run was ended before."),
            "Let it run to its end.".into(),
        ),
        HostPartState::Skipped => {
            (format!("'{name}' was left out, so the verdict knows nothing of it."), String::new())
        }
    };
    let needed = NEEDED.contains(&outcome.part);
    let severity = if needed { Severity::Warning } else { Severity::Note };
    Some(finding(Code::PartUnmeasured, severity, said, &advice))
}

/// The findings of a part's record or records.
fn of_part(result: &HostAllResult, part: HostPart) -> Vec<&Finding> {
    fn of<R>(record: Option<&R>, findings: fn(&R) -> &Vec<Finding>) -> Vec<&Finding> {
        record.into_iter().flat_map(findings).collect()
    }
    match part {
        HostPart::Clock => of(result.clock.as_ref(), |one| &one.findings),
        HostPart::Delay => of(result.delay.as_ref(), |one| &one.findings),
        HostPart::Timer => of(result.timer.as_ref(), |one| &one.findings),
        HostPart::Switch => of(result.switch.as_ref(), |one| &one.findings),
        HostPart::Interrupt => of(result.interrupt.as_ref(), |one| &one.findings),
        HostPart::Nic => result.nics.iter().flat_map(|one| &one.findings).collect(),
    }
}

/// All findings with their parts: those that follow from the parts together, then part by part.
fn all(result: &HostAllResult) -> Vec<(Option<HostPart>, &Finding)> {
    let own = result.findings.iter().map(|one| match one.code {
        Code::WakeUpsLate => (Some(HostPart::Timer), one),
        Code::TimeStolen => (Some(HostPart::Interrupt), one),
        _ => (None, one),
    });
    let parts = ORDER.into_iter().flat_map(|part| {
        of_part(result, part).into_iter().map(move |finding| (Some(part), finding))
    });
    // What was judged to be worse here is not told a second time.
    let parts = parts.filter(|(_, of_part)| {
        result
            .findings
            .iter()
            .all(|own| (own.code, &own.message) != (of_part.code, &of_part.message))
    });
    own.chain(parts).collect()
}

/// The worst findings: by severity, then in the order of [`all`]. Those that say the same of
/// several parts or cores are told once.
fn worst(result: &HostAllResult) -> Vec<WorstFinding> {
    let mut worst: Vec<WorstFinding> = Vec::new();
    for (part, finding) in all(result) {
        let is_same = |one: &&mut WorstFinding| {
            let first = &one.finding;
            (first.code, first.severity, &first.advice)
                == (finding.code, finding.severity, &finding.advice)
        };
        match worst.iter_mut().find(is_same) {
            Some(same) => same.others += 1,
            None => worst.push(WorstFinding { part, finding: finding.clone(), others: 0 }),
        }
    }
    worst.sort_by_key(|one| Reverse(one.finding.severity));
    worst.truncate(WORST);
    worst
}

/// Whether there are figures of both what decides that a host is fit: wake-ups, and the time that
/// others take. Those of a part that was cut short may have missed what it is to find.
fn is_decided(result: &HostAllResult) -> bool {
    let is_cut = |one: &HostPartOutcome| {
        matches!(one.part, HostPart::Timer | HostPart::Interrupt)
            && matches!(one.state, HostPartState::Interrupted | HostPartState::NotBegun)
    };
    let mut wake_ups = result.timer.iter().flat_map(|timer| &timer.cores);
    let stolen = result.interrupt.iter().any(|one| !one.stolen.is_empty());
    wake_ups.any(|core| core.latency_ns.is_some()) && stolen && !result.parts.iter().any(is_cut)
}

/// The verdict that the most severe finding gives. An error is one whatever else was measured, as
/// long as anything needed was; that a host is fit takes all that decides it.
fn verdict(result: &HostAllResult) -> HostVerdict {
    let measured = |part| match part {
        HostPart::Clock => result.clock.is_some(),
        HostPart::Timer => result.timer.is_some(),
        _ => result.interrupt.is_some(),
    };
    if !NEEDED.into_iter().any(measured) {
        return HostVerdict::Unjudged;
    }
    match all(result).iter().map(|(_, finding)| finding.severity).max() {
        Some(Severity::Error) => HostVerdict::Unfit,
        _ if !is_decided(result) => HostVerdict::Unjudged,
        Some(Severity::Warning) => HostVerdict::Doubtful,
        Some(Severity::Note) | None => HostVerdict::Fit,
    }
}

#[cfg(test)]
mod tests;
