//! Joint evaluation of all parts of `host all`: findings across parts, the worst findings, and the
//! verdict. Pure.

use std::cmp::Reverse;

use horolog_conditions::finding;
use horolog_record::{
    Finding, FindingCode, HostAllResult, HostInterruptResult, HostMeasurementKind,
    HostMeasurementOutcome, HostMeasurementState, HostTimerResult, HostVerdict, OsNoise, Severity,
    WorstFinding,
};

use crate::host::figures::format_time;
use crate::host::interrupt::noise_finding;

/// 99th percentile of start latency, in ns, above which microsecond measurements on this host are
/// questionable (warning).
const LATENCY_WARNING_NS: u64 = 100_000;
/// 99th percentile of start latency, in ns, above which microsecond measurements show the host
/// rather than their subject (error).
const LATENCY_ERROR_NS: u64 = 1_000_000;
/// Share of OS noise in a core's time above which the host is unfit for microsecond measurements.
const NOISE_SHARE_MAX: f64 = 0.1;
/// Number of findings reported as the worst.
const WORST_FINDINGS_MAX: usize = 3;

/// Order of findings of equal severity, by part. A clock error affects every value; then come OS
/// noise and its effects; a NIC affects only one path.
const FINDING_ORDER: [HostMeasurementKind; 6] = [
    HostMeasurementKind::Clock,
    HostMeasurementKind::Interrupt,
    HostMeasurementKind::Timer,
    HostMeasurementKind::Switch,
    HostMeasurementKind::Delay,
    HostMeasurementKind::Nic,
];

/// Parts without which there is no reliable verdict.
const REQUIRED_PARTS: [HostMeasurementKind; 3] =
    [HostMeasurementKind::Clock, HostMeasurementKind::Timer, HostMeasurementKind::Interrupt];

/// Findings that report a missing prerequisite of a part.
const PREREQUISITE_FINDINGS: [FindingCode; 6] = [
    FindingCode::RealTimeRefused,
    FindingCode::MemoryNotLocked,
    FindingCode::IdleStatesNotHeld,
    FindingCode::HandlerUnavailable,
    FindingCode::FunctionUnavailable,
    FindingCode::SwitchesMissing,
];

/// Returns the state of a measured part, and the messages of the findings that explain it.
pub(super) fn part_state(findings: &[Finding]) -> (HostMeasurementState, Vec<String>) {
    let messages = |is: fn(&&Finding) -> bool| -> Vec<String> {
        findings.iter().filter(is).map(|one| one.message.clone()).collect()
    };
    let interruptions = messages(|one| one.code == FindingCode::Interrupted);
    let missing_prerequisites = messages(|one| PREREQUISITE_FINDINGS.contains(&one.code));
    if !interruptions.is_empty() {
        (HostMeasurementState::Interrupted, interruptions)
    } else if !missing_prerequisites.is_empty() {
        (HostMeasurementState::Reduced, missing_prerequisites)
    } else {
        (HostMeasurementState::Measured, Vec::new())
    }
}

/// Adds the joint findings, the worst findings and the verdict to a result.
pub(super) fn judge(result: &mut HostAllResult) {
    let mut findings: Vec<_> =
        result.timer.as_ref().and_then(latency_finding).into_iter().collect();
    findings.extend(result.interrupt.iter().flat_map(noise_findings));
    findings.extend(result.parts.iter().filter_map(unmeasured_finding));
    result.findings = findings;
    result.worst_findings = worst_findings(result);
    result.verdict = verdict(result);
}

/// Returns a finding if the highest 99th percentile of start latency of any core exceeds
/// [`LATENCY_WARNING_NS`].
fn latency_finding(timer: &HostTimerResult) -> Option<Finding> {
    let cores = timer.cores.iter().filter_map(|core| Some((core.core, core.latency_ns.as_ref()?)));
    let (core, latency) = cores.max_by_key(|(_, latency)| latency.p99)?;
    if latency.p99 <= LATENCY_WARNING_NS {
        return None;
    }
    let severity = if latency.p99 > LATENCY_ERROR_NS { Severity::Error } else { Severity::Warning };
    Some(finding(
        FindingCode::WakeupLatencyHigh,
        severity,
        format!(
            "Core {core} wakes up more than {} late in one of 100 wake-ups, {} at worst.",
            format_time(latency.p99),
            format_time(latency.max)
        ),
        "Times measured by programs are off by as much: use timestamps of the kernel or the NIC, \
         and find what occupies the core ('horolog host interrupt', 'horolog host timer \
         --break-above').",
    ))
}

/// Returns findings for cores with too much OS noise, worst first. The same findings of the part
/// itself are warnings; here they are errors.
fn noise_findings(interrupt: &HostInterruptResult) -> Vec<Finding> {
    let share = |core: &OsNoise| core.all.total_ns as f64 / core.duration_ns.max(1) as f64;
    let mut cores: Vec<_> =
        interrupt.os_noise.iter().filter(|core| share(core) > NOISE_SHARE_MAX).collect();
    cores.sort_by(|one, other| share(other).total_cmp(&share(one)));
    let warnings = cores.into_iter().filter_map(noise_finding);
    warnings.map(|warning| Finding { severity: Severity::Error, ..warning }).collect()
}

/// Returns a finding for a part that failed, was interrupted, not started or skipped.
fn unmeasured_finding(outcome: &HostMeasurementOutcome) -> Option<Finding> {
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
    let needed = REQUIRED_PARTS.contains(&outcome.part);
    let severity = if needed { Severity::Warning } else { Severity::Note };
    Some(finding(FindingCode::PartUnmeasured, severity, message, &advice))
}

/// Returns the findings in the record of a part, or for NICs in all records.
fn part_findings(result: &HostAllResult, part: HostMeasurementKind) -> Vec<&Finding> {
    fn record_findings<R>(record: Option<&R>, findings: fn(&R) -> &Vec<Finding>) -> Vec<&Finding> {
        record.into_iter().flat_map(findings).collect()
    }
    match part {
        HostMeasurementKind::Clock => record_findings(result.clock.as_ref(), |one| &one.findings),
        HostMeasurementKind::Delay => record_findings(result.delay.as_ref(), |one| &one.findings),
        HostMeasurementKind::Timer => record_findings(result.timer.as_ref(), |one| &one.findings),
        HostMeasurementKind::Switch => record_findings(result.switch.as_ref(), |one| &one.findings),
        HostMeasurementKind::Interrupt => {
            record_findings(result.interrupt.as_ref(), |one| &one.findings)
        }
        HostMeasurementKind::Nic => result.nics.iter().flat_map(|one| &one.findings).collect(),
    }
}

/// Returns all findings with the part that each concerns (`None` for an unmeasured part): joint
/// findings first, then part by part, without those repeated as joint findings.
fn all_findings(result: &HostAllResult) -> Vec<(Option<HostMeasurementKind>, &Finding)> {
    let joint_findings = result.findings.iter().map(|one| match one.code {
        FindingCode::WakeupLatencyHigh => (Some(HostMeasurementKind::Timer), one),
        FindingCode::OsNoise => (Some(HostMeasurementKind::Interrupt), one),
        _ => (None, one),
    });
    let parts = FINDING_ORDER.into_iter().flat_map(|part| {
        part_findings(result, part).into_iter().map(move |finding| (Some(part), finding))
    });
    // Findings that are repeated above with a higher severity are omitted.
    let parts = parts.filter(|(_, of_part)| {
        result
            .findings
            .iter()
            .all(|own| (own.code, &own.message) != (of_part.code, &of_part.message))
    });
    joint_findings.chain(parts).collect()
}

/// Returns the [`WORST_FINDINGS_MAX`] worst findings, by severity and then in the order of
/// [`all_findings`]. Findings with equal code, severity and advice are reported once, with a count
/// of the others.
fn worst_findings(result: &HostAllResult) -> Vec<WorstFinding> {
    let mut worst: Vec<WorstFinding> = Vec::new();
    for (part, finding) in all_findings(result) {
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
    worst.truncate(WORST_FINDINGS_MAX);
    worst
}

/// Returns true if start latency (on any core) and OS noise, which the verdict "fit" requires, were
/// measured and neither part was interrupted or not started.
fn is_decided(result: &HostAllResult) -> bool {
    let is_incomplete = |one: &HostMeasurementOutcome| {
        matches!(one.part, HostMeasurementKind::Timer | HostMeasurementKind::Interrupt)
            && matches!(
                one.state,
                HostMeasurementState::Interrupted | HostMeasurementState::NotBegun
            )
    };
    let mut wake_ups = result.timer.iter().flat_map(|timer| &timer.cores);
    let has_os_noise = result.interrupt.iter().any(|one| !one.os_noise.is_empty());
    wake_ups.any(|core| core.latency_ns.is_some())
        && has_os_noise
        && !result.parts.iter().any(is_incomplete)
}

/// Returns the verdict, by the most severe finding. An error makes the host unfit as soon as any
/// required part was measured; other verdicts require all that [`is_decided`] names, and without it
/// the host is unjudged.
fn verdict(result: &HostAllResult) -> HostVerdict {
    let measured = |part| match part {
        HostMeasurementKind::Clock => result.clock.is_some(),
        HostMeasurementKind::Timer => result.timer.is_some(),
        _ => result.interrupt.is_some(),
    };
    if !REQUIRED_PARTS.into_iter().any(measured) {
        return HostVerdict::Unjudged;
    }
    match all_findings(result).iter().map(|(_, finding)| finding.severity).max() {
        Some(Severity::Error) => HostVerdict::Unfit,
        _ if !is_decided(result) => HostVerdict::Unjudged,
        Some(Severity::Warning) => HostVerdict::Marginal,
        Some(Severity::Note) | None => HostVerdict::Fit,
    }
}

#[cfg(test)]
mod tests;
