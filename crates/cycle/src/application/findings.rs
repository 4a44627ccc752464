//! Findings of a test, from its record and the way in which it ended.

use horolog_conditions::{self as conditions, REAL_TIME_ADVICE, finding};
use horolog_record::{
    CyclePredictPercentile, CycleTestFaultResult, CycleTestResult, CycleTestRunResult, Finding,
    FindingCode, Severity,
};

use crate::predict::{CostInput, source};

/// Circumstances of the end of an application test's run.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct ApplicationTestEnd {
    /// True if the user ended the run early.
    pub(super) is_interrupted: bool,
    /// True if the run was stopped because nodes had not finished 1 s after the planned end.
    pub(super) is_truncated: bool,
    /// Names of the nodes that exited unexpectedly, and the reasons.
    pub(super) exited: Vec<(String, String)>,
    /// Names of the nodes that a fault of the plan killed.
    pub(super) killed: Vec<String>,
    /// Names of the nodes that did not finish within the grace period after the stop.
    pub(super) stuck: Vec<String>,
    /// Number of missed deadlines that no fault can explain.
    pub(super) missed_unexplained: u64,
}

pub(super) fn findings(
    result: &CycleTestResult,
    ending: &ApplicationTestEnd,
    measured: &[CostInput],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(run) = &result.run {
        add_run_findings(run, result, &mut findings);
        if result.search.is_none() {
            add_missed_finding(run, ending, &mut findings);
        }
        findings.extend(run.faults.iter().filter_map(fault_finding));
    }
    add_end_findings(ending, &mut findings);
    // The median, because the scorecard uses no tail percentiles, which would need more values.
    findings.extend(source::source_findings(measured, &result.host, CyclePredictPercentile::P50));
    findings
}

fn add_run_findings(
    run: &CycleTestRunResult,
    result: &CycleTestResult,
    findings: &mut Vec<Finding>,
) {
    let refused = run.nodes.iter().find_map(|node| Some((node, node.scheduling.error.as_ref()?)));
    if let Some((node, error)) = refused {
        findings.push(finding(
            FindingCode::RealTimeRefused,
            Severity::Warning,
            format!(
                "Policy {} was refused ({error}): {} ran as a sched-other process.",
                node.scheduling.requested.name(),
                node.name
            ),
            REAL_TIME_ADVICE,
        ));
    }
    findings.extend(conditions::findings(&run.conditions, &[]));
    if run.nodes.len() > result.host.cores {
        findings.push(finding(
            FindingCode::SharedMachine,
            Severity::Warning,
            format!(
                "{} nodes shared {} CPUs: they waited for each other's cores, not only for each \
                 other.",
                run.nodes.len(),
                result.host.cores
            ),
            "Run at most one node per CPU.",
        ));
    }
    let uncounted: u64 = run.nodes.iter().map(|node| node.uncounted).sum();
    if uncounted > 0 {
        findings.push(finding(
            FindingCode::PeriodsNotRecorded,
            Severity::Warning,
            format!(
                "{uncounted} entries of nodes are missing from the results: the collector was too \
                 slow."
            ),
            "Reserve a core, or time on one, for the collector.",
        ));
    }
    let (unsent, due) = run
        .sources
        .iter()
        .fold((0, 0), |(unsent, due), source| (unsent + source.send_failed, due + source.due));
    if unsent > 0 {
        findings.push(finding(
            FindingCode::GeneratorBehind,
            Severity::Warning,
            format!("{unsent} of {due} reports were not sent: their sources fell behind."),
            "Lower the rates of the sources, or use more cores.",
        ));
    }
    let period_ns = result.application.period_ns;
    let late = run.sources.iter().find(|source| {
        source.lateness_ns.as_ref().is_some_and(|lateness| lateness.p99 > period_ns)
    });
    if let Some(source) = late {
        findings.push(finding(
            FindingCode::GeneratorBehind,
            Severity::Warning,
            format!(
                "One in a hundred reports of source '{}' was sent more than a period late: \
                 detections include this lateness.",
                source.name
            ),
            "Reserve CPU time for the sources: run as root, or with a lower load.",
        ));
    }
}

/// Adds the finding on missed deadlines that no fault can explain.
fn add_missed_finding(
    run: &CycleTestRunResult,
    ending: &ApplicationTestEnd,
    findings: &mut Vec<Finding>,
) {
    if ending.missed_unexplained > 0 {
        let periods: u64 = run.nodes.iter().map(|node| node.periods).sum();
        findings.push(finding(
            FindingCode::DeadlinesMissed,
            Severity::Warning,
            format!(
                "{} of {periods} periods missed their deadline without a fault nearby.",
                ending.missed_unexplained
            ),
            "See the states for the times; a lower --load shows whether there is too much work.",
        ));
    }
}

fn fault_finding(fault: &CycleTestFaultResult) -> Option<Finding> {
    let of = fault.of.as_ref().map_or_else(String::new, |of| format!(" of {of}"));
    let named = format!("Fault {}{of} at {} s", fault.kind.name(), fault.at_s);
    let warning = |code, words: &str, advice| {
        Some(finding(code, Severity::Warning, format!("{named} {words}"), advice))
    };
    if fault.injected == 0 {
        let advice = "Use a larger share, a longer time, or a source that sends then.";
        return warning(FindingCode::FaultNotInjected, "was never injected.", advice);
    }
    if fault.detected.is_none() {
        let advice = "It may be too small to matter; otherwise check late-after, response-limit \
                      and node-timeout.";
        return warning(FindingCode::FaultNotDetected, "was injected and not detected.", advice);
    }
    if !fault.has_recovered() {
        let advice = "See the detections after it; allow more time before the next fault.";
        return warning(FindingCode::FaultNotRecovered, "was not recovered from.", advice);
    }
    None
}

fn add_end_findings(ending: &ApplicationTestEnd, findings: &mut Vec<Finding>) {
    for (node, how) in &ending.exited {
        findings.push(finding(
            FindingCode::NodeLost,
            Severity::Error,
            format!("The process of {node} ended {how}; the others continued without it."),
            "Find what terminated it: out of memory (dmesg), a limit, or a signal.",
        ));
    }
    for node in &ending.stuck {
        findings.push(finding(
            FindingCode::NodeLost,
            Severity::Error,
            format!("{node} did not finish, and was terminated."),
            "Use a longer period or less work.",
        ));
    }
    if ending.is_truncated {
        findings.push(finding(
            FindingCode::PeriodsNotRun,
            Severity::Error,
            "Periods were still unfinished long after their end: the rest were not run.".to_owned(),
            "Use a longer period or less work.",
        ));
    }
    if ending.is_interrupted {
        findings.push(finding(
            FindingCode::Interrupted,
            Severity::Note,
            "The test was interrupted.".to_owned(),
            "",
        ));
    }
}
