//! Findings of `host delay`, from its record. Pure.

use horolog_conditions::REAL_TIME_ADVICE;
use horolog_record::{
    DelayClaimVerdict, Finding, FindingCode, HostDelayResult, SchedulingPolicy, Severity,
    TimerSlackSetting,
};

use crate::host::clock::finding;
use crate::host::figures::{format_count, format_time};

/// Default timer slack of a thread, in ns.
const DEFAULT_SLACK_NS: u64 = 50_000;

/// Returns all findings, in no order.
pub(super) fn all_findings(result: &HostDelayResult, is_interrupted: bool) -> Vec<Finding> {
    let mut findings: Vec<_> =
        early_finding(result).into_iter().chain(unavailable_finding(result)).collect();
    for setting in &result.settings {
        if let Some(error) = &setting.error {
            let policy = match setting.policy {
                SchedulingPolicy::Fifo => "SCHED_FIFO",
                SchedulingPolicy::Other => "SCHED_OTHER",
            };
            findings.push(finding(
                FindingCode::RealTimeRefused,
                Severity::Warning,
                format!("Nothing was measured under {policy}: {error}."),
                REAL_TIME_ADVICE,
            ));
        }
    }
    let default = result.settings.iter().find(|one| one.slack == TimerSlackSetting::Default);
    if let Some(slack) =
        default.and_then(|one| one.slack_ns).filter(|slack| *slack > DEFAULT_SLACK_NS)
    {
        findings.push(finding(
            FindingCode::TimerSlackLarge,
            Severity::Warning,
            format!(
                "Timers of this process may be {} late: it inherited that timer slack.",
                format_time(slack)
            ),
            "The parent process set PR_SET_TIMERSLACK (systemd: TimerSlackNSec=).",
        ));
    }
    if is_interrupted {
        findings.push(finding(
            FindingCode::Interrupted,
            Severity::Note,
            "The run was interrupted.".to_owned(),
            "",
        ));
    }
    findings.extend(unmeasured_finding(result));
    findings
}

fn early_finding(result: &HostDelayResult) -> Option<Finding> {
    let cells = result.cells.iter().filter(|cell| cell.early > 0);
    let worst = cells.clone().max_by_key(|cell| cell.early_max_ns)?;
    Some(finding(
        FindingCode::WaitsReturnedEarly,
        Severity::Warning,
        format!(
            "{} returned too early, {} by {} at most.",
            format_count(cells.map(|cell| cell.early).sum(), "wait"),
            worst.function.name(),
            format_time(worst.early_max_ns)
        ),
        "An early return means that something else ended the wait, or that its clock runs apart \
         from CLOCK_MONOTONIC.",
    ))
}

fn unavailable_finding(result: &HostDelayResult) -> Option<Finding> {
    let mut texts: Vec<_> = result
        .cells
        .iter()
        .filter_map(|cell| Some(format!("{} ({})", cell.function.name(), cell.error.as_ref()?)))
        .collect();
    texts.sort();
    texts.dedup();
    (!texts.is_empty()).then(|| {
        finding(
            FindingCode::FunctionUnavailable,
            Severity::Note,
            format!("Some functions could not be measured completely: {}.", texts.join(", ")),
            "io_uring may be disabled (sysctl kernel.io_uring_disabled), and a sandbox may block \
             others.",
        )
    })
}

fn unmeasured_finding(result: &HostDelayResult) -> Option<Finding> {
    let claims = result.claims.iter().filter(|one| one.verdict == DelayClaimVerdict::NotMeasured);
    let count = claims.count();
    (count > 0).then(|| {
        finding(
            FindingCode::FewSamples,
            Severity::Note,
            format!("{count} claims were not judged: their measurements are missing."),
            "Omit --delays and --functions, and run as root, to measure all of them.",
        )
    })
}
