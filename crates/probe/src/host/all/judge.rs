//! Judgement of all parts together: findings that follow from several parts, the worst findings,
//! the verdict. Pure.

use std::cmp::Reverse;

use horolog_conditions::finding;
use horolog_record::{
    Finding, FindingCode, HostAllResult, HostInterruptResult, HostMeasurement,
    HostMeasurementOutcome, HostMeasurementState, HostTimerResult, HostVerdict, OsNoise,
    RankedFinding, Severity,
};

use crate::host::figures::time;
use crate::host::interrupt::loss;

/// Start latency in ns; above it for one wake-up in a hundred, every value in microseconds measured
/// by a program is questionable.
const LATE_NS: u64 = 100_000;
/// Start latency in ns from which such a value reflects this host more than its subject.
const TOO_LATE_NS: u64 = 1_000_000;
/// Share of a core taken by others from which code on it waits too often for values in
/// microseconds.
const TAKEN_SHARE: f64 = 0.1;
/// Findings reported as the worst.
const WORST: usize = 3;

/// Order of findings of one severity. A clock error affects every value; then comes what takes the
/// cores, then what is late for it; a NIC is one path of several.
const ORDER: [HostMeasurement; 6] = [
    HostMeasurement::Clock,
    HostMeasurement::Interrupt,
    HostMeasurement::Timer,
    HostMeasurement::Switch,
    HostMeasurement::Delay,
    HostMeasurement::Nic,
];

/// Parts without which the fitness of a host is uncertain.
const NEEDED: [HostMeasurement; 3] =
    [HostMeasurement::Clock, HostMeasurement::Timer, HostMeasurement::Interrupt];

/// Findings about a prerequisite that a part lacked.
const LACKS: [FindingCode; 6] = [
    FindingCode::RealTimeRefused,
    FindingCode::MemoryNotLocked,
    FindingCode::IdleStatesNotHeld,
    FindingCode::HandlerUnavailable,
    FindingCode::FunctionUnavailable,
    FindingCode::SwitchesMissing,
];

/// Returns the state of a part with a record, by its findings, and what it lacked.
pub(super) fn state(findings: &[Finding]) -> (HostMeasurementState, Vec<String>) {
    let messages = |is: fn(&&Finding) -> bool| -> Vec<String> {
        findings.iter().filter(is).map(|one| one.message.clone()).collect()
    };
    let ended = messages(|one| one.code == FindingCode::Interrupted);
    let lacked = messages(|one| LACKS.contains(&one.code));
    if !ended.is_empty() {
        (HostMeasurementState::Interrupted, ended)
    } else if !lacked.is_empty() {
        (HostMeasurementState::Reduced, lacked)
    } else {
        (HostMeasurementState::Measured, Vec::new())
    }
}

/// Adds the conclusions from its parts to a result.
pub(super) fn judge(result: &mut HostAllResult) {
    let mut findings: Vec<_> = result.timer.as_ref().and_then(late).into_iter().collect();
    findings.extend(result.interrupt.iter().flat_map(taken));
    findings.extend(result.parts.iter().filter_map(unmeasured));
    result.findings = findings;
    result.worst_findings = worst(result);
    result.verdict = verdict(result);
}

/// Reports wake-ups of the worst core that are too late for microseconds.
fn late(timer: &HostTimerResult) -> Option<Finding> {
    let cores = timer.cores.iter().filter_map(|core| Some((core.core, core.latency_ns.as_ref()?)));
    let (core, latency) = cores.max_by_key(|(_, latency)| latency.p99)?;
    if latency.p99 <= LATE_NS {
        return None;
    }
    let severity = if latency.p99 > TOO_LATE_NS { Severity::Error } else { Severity::Warning };
    Some(finding(
        FindingCode::WakeupLatencyHigh,
        severity,
        format!(
            "Core {core} wakes up more than {} late in one of 100 wake-ups, {} at worst.",
            time(latency.p99),
            time(latency.max)
        ),
        "Times measured by programs are off by as much: use timestamps of the kernel or the NIC, \
         and find what occupies the core ('horolog host interrupt', 'horolog host timer \
         --break-above').",
    ))
}

/// Reports the cores of which too much is taken, worst first: errors here, where the part itself
/// has warnings, since it does not judge the host.
fn taken(interrupt: &HostInterruptResult) -> Vec<Finding> {
    let share = |core: &OsNoise| core.all.total_ns as f64 / core.duration_ns.max(1) as f64;
    let mut cores: Vec<_> =
        interrupt.os_noise.iter().filter(|core| share(core) > TAKEN_SHARE).collect();
    cores.sort_by(|one, other| share(other).total_cmp(&share(one)));
    let warnings = cores.into_iter().filter_map(loss);
    warnings.map(|warning| Finding { severity: Severity::Error, ..warning }).collect()
}

/// Reports a part without a result.
fn unmeasured(outcome: &HostMeasurementOutcome) -> Option<Finding> {
    let name = match &outcome.interface {
        Some(interface) => format!("{} {interface}", outcome.part.name()),
        None => outcome.part.name().to_owned(),
    };
    let (message, advice) = match outcome.state {
        HostMeasurementState::Measured
        | HostMeasurementState::Reduced
        | HostMeasurementState::Absent => return None,
        HostMeasurementState::Failed => (
            format!("'{name}' returned no values: {}.", outcome.reason.join("; ")),
            format!("Run 'horolog host {name}' for the reason."),
        ),
        HostMeasurementState::Interrupted => {
            (format!("'{name}' was interrupted."), "Run it to completion.".into())
        }
        HostMeasurementState::NotBegun => (
            format!("'{name}' was not started: the run was interrupted before."),
            "Run it to completion.".into(),
        ),
        HostMeasurementState::Skipped => {
            (format!("'{name}' was skipped, so the verdict does not cover it."), String::new())
        }
    };
    let needed = NEEDED.contains(&outcome.part);
    let severity = if needed { Severity::Warning } else { Severity::Note };
    Some(finding(FindingCode::PartUnmeasured, severity, message, &advice))
}

/// Returns the findings of a part's record or records.
fn of_part(result: &HostAllResult, part: HostMeasurement) -> Vec<&Finding> {
    fn of<R>(record: Option<&R>, findings: fn(&R) -> &Vec<Finding>) -> Vec<&Finding> {
        record.into_iter().flat_map(findings).collect()
    }
    match part {
        HostMeasurement::Clock => of(result.clock.as_ref(), |one| &one.findings),
        HostMeasurement::Delay => of(result.delay.as_ref(), |one| &one.findings),
        HostMeasurement::Timer => of(result.timer.as_ref(), |one| &one.findings),
        HostMeasurement::Switch => of(result.switch.as_ref(), |one| &one.findings),
        HostMeasurement::Interrupt => of(result.interrupt.as_ref(), |one| &one.findings),
        HostMeasurement::Nic => result.nics.iter().flat_map(|one| &one.findings).collect(),
    }
}

/// Returns all findings with their parts: those that follow from the parts together, then part by
/// part.
fn all(result: &HostAllResult) -> Vec<(Option<HostMeasurement>, &Finding)> {
    let own = result.findings.iter().map(|one| match one.code {
        FindingCode::WakeupLatencyHigh => (Some(HostMeasurement::Timer), one),
        FindingCode::OsNoise => (Some(HostMeasurement::Interrupt), one),
        _ => (None, one),
    });
    let parts = ORDER.into_iter().flat_map(|part| {
        of_part(result, part).into_iter().map(move |finding| (Some(part), finding))
    });
    // Findings judged to be worse here are not repeated.
    let parts = parts.filter(|(_, of_part)| {
        result
            .findings
            .iter()
            .all(|own| (own.code, &own.message) != (of_part.code, &of_part.message))
    });
    own.chain(parts).collect()
}

/// Returns the worst findings: by severity, then in the order of [`all`]. Identical ones of several
/// parts or cores are reported once.
fn worst(result: &HostAllResult) -> Vec<RankedFinding> {
    let mut worst: Vec<RankedFinding> = Vec::new();
    for (part, finding) in all(result) {
        let is_same = |one: &&mut RankedFinding| {
            let first = &one.finding;
            (first.code, first.severity, &first.advice)
                == (finding.code, finding.severity, &finding.advice)
        };
        match worst.iter_mut().find(is_same) {
            Some(same) => same.others += 1,
            None => worst.push(RankedFinding { part, finding: finding.clone(), others: 0 }),
        }
    }
    worst.sort_by_key(|one| Reverse(one.finding.severity));
    worst.truncate(WORST);
    worst
}

/// Returns true if both measurements that decide the fitness of a host are complete: wake-ups, and
/// the time that others take. A part that was cut short may have missed something.
fn is_decided(result: &HostAllResult) -> bool {
    let is_cut = |one: &HostMeasurementOutcome| {
        matches!(one.part, HostMeasurement::Timer | HostMeasurement::Interrupt)
            && matches!(
                one.state,
                HostMeasurementState::Interrupted | HostMeasurementState::NotBegun
            )
    };
    let mut wake_ups = result.timer.iter().flat_map(|timer| &timer.cores);
    let stolen = result.interrupt.iter().any(|one| !one.os_noise.is_empty());
    wake_ups.any(|core| core.latency_ns.is_some()) && stolen && !result.parts.iter().any(is_cut)
}

/// Returns the verdict by the most severe finding. An error decides whatever else was measured, as
/// long as anything needed was; fitness requires all that decides it.
fn verdict(result: &HostAllResult) -> HostVerdict {
    let measured = |part| match part {
        HostMeasurement::Clock => result.clock.is_some(),
        HostMeasurement::Timer => result.timer.is_some(),
        _ => result.interrupt.is_some(),
    };
    if !NEEDED.into_iter().any(measured) {
        return HostVerdict::Unjudged;
    }
    match all(result).iter().map(|(_, finding)| finding.severity).max() {
        Some(Severity::Error) => HostVerdict::Unfit,
        _ if !is_decided(result) => HostVerdict::Unjudged,
        Some(Severity::Warning) => HostVerdict::Marginal,
        Some(Severity::Note) | None => HostVerdict::Fit,
    }
}

#[cfg(test)]
mod tests;
