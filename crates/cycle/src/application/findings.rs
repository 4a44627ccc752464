//! The doubts about a test, from its record and how it ended.

use horolog_conditions::{self as conditions, REAL_TIME_ADVICE, finding};
use horolog_record::{
    Code, CyclePredictWorst, CycleTestFault, CycleTestResult, CycleTestRun, Finding, Severity,
};

use crate::predict::{Source, source};

/// How a run came to its end.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Ending {
    /// Somebody wanted it to end early.
    pub(super) is_called: bool,
    /// It was ended since it took much longer than planned.
    pub(super) is_cut: bool,
    /// Nodes that ended by themselves, and how.
    pub(super) died: Vec<(String, String)>,
    /// Nodes that were ended on purpose.
    pub(super) killed: Vec<String>,
    /// Nodes that were not through when all were to be.
    pub(super) stuck: Vec<String>,
    /// Deadlines missed far from every fault.
    pub(super) missed_apart: u64,
}

pub(super) fn findings(
    result: &CycleTestResult,
    ending: &Ending,
    measured: &[Source],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(run) = &result.run {
        of_run(run, result, &mut findings);
        if result.search.is_none() {
            missed(run, ending, &mut findings);
        }
        findings.extend(run.faults.iter().filter_map(of_fault));
    }
    ended(ending, &mut findings);
    // The scorecard takes means; they need no more values than there are.
    findings.extend(source::doubts(measured, &result.host, CyclePredictWorst::P50));
    findings
}

fn of_run(run: &CycleTestRun, result: &CycleTestResult, findings: &mut Vec<Finding>) {
    let refused = run.nodes.iter().find_map(|node| Some((node, node.scheduling.error.as_ref()?)));
    if let Some((node, error)) = refused {
        findings.push(finding(
            Code::RealTimeRefused,
            Severity::Warning,
            format!(
                "Policy {} was refused ({error}): {} ran as an ordinary process.",
                node.scheduling.asked.name(),
                node.name
            ),
            REAL_TIME_ADVICE,
        ));
    }
    findings.extend(conditions::findings(&run.conditions, &[]));
    if run.nodes.len() > result.host.cores {
        findings.push(finding(
            Code::SharedMachine,
            Severity::Warning,
            format!(
                "{} nodes shared {} processors: they waited for each other's cores, not only for \
                 each other.",
                run.nodes.len(),
                result.host.cores
            ),
            "Run no more nodes than there are processors.",
        ));
    }
    let uncounted: u64 = run.nodes.iter().map(|node| node.uncounted).sum();
    if uncounted > 0 {
        findings.push(finding(
            Code::PeriodsUncounted,
            Severity::Warning,
            format!(
                "{uncounted} entries of nodes are not in the figures: nobody took them in time."
            ),
            "Leave the collector a core, or some time on one.",
        ));
    }
    let (unsent, due) = run
        .sources
        .iter()
        .fold((0, 0), |(unsent, due), source| (unsent + source.unsent, due + source.due));
    if unsent > 0 {
        findings.push(finding(
            Code::GeneratorBehind,
            Severity::Warning,
            format!("{unsent} of {due} reports were not sent: their sources fell behind."),
            "Give the sources lower rates, or the machine more cores.",
        ));
    }
    let period_ns = result.application.period_ns;
    let late = run.sources.iter().find(|source| {
        source.lateness_ns.as_ref().is_some_and(|lateness| lateness.p99 > period_ns)
    });
    if let Some(source) = late {
        findings.push(finding(
            Code::GeneratorBehind,
            Severity::Warning,
            format!(
                "Reports of source '{}' were sent more than a period late, one in a hundred of \
                 them: what was late by itself is among what nodes noticed.",
                source.name
            ),
            "Leave the sources time on a core: run as root, or with a lower load.",
        ));
    }
}

/// What was missed that no fault explains.
fn missed(run: &CycleTestRun, ending: &Ending, findings: &mut Vec<Finding>) {
    if ending.missed_apart > 0 {
        let periods: u64 = run.nodes.iter().map(|node| node.periods).sum();
        findings.push(finding(
            Code::DeadlinesMissed,
            Severity::Warning,
            format!(
                "{} of {periods} periods were not done by their deadline with no fault near.",
                ending.missed_apart
            ),
            "Look at the states for when; a lower --load tells whether it is too much work.",
        ));
    }
}

fn of_fault(fault: &CycleTestFault) -> Option<Finding> {
    let of = fault.of.as_ref().map_or_else(String::new, |of| format!(" of {of}"));
    let named = format!("Fault {}{of} at {} s", fault.kind.name(), fault.at_s);
    let told = |code, words: &str, advice| {
        Some(finding(code, Severity::Warning, format!("{named} {words}"), advice))
    };
    if fault.injected == 0 {
        let advice = "Give it a larger share, a longer time, or a source that sends then.";
        return told(Code::FaultNotInjected, "was never injected.", advice);
    }
    if fault.detected.is_none() {
        let advice = "It may be too small to matter; else look at late-after, slow-after and \
                      silent-after.";
        return told(Code::FaultUnnoticed, "was injected and nobody noticed it.", advice);
    }
    if !fault.has_recovered() {
        let advice = "See what is noticed after it; leave more time to the next fault.";
        return told(Code::FaultNotRecovered, "was not recovered from.", advice);
    }
    None
}

fn ended(ending: &Ending, findings: &mut Vec<Finding>) {
    for (node, how) in &ending.died {
        findings.push(finding(
            Code::NodeLost,
            Severity::Error,
            format!("The process of {node} ended {how}; the others went on without it."),
            "See what ended it: memory (dmesg), a limit, or somebody.",
        ));
    }
    for node in &ending.stuck {
        findings.push(finding(
            Code::NodeLost,
            Severity::Error,
            format!("{node} did not come to its end, and was ended."),
            "Give it a longer period or less to do.",
        ));
    }
    if ending.is_cut {
        findings.push(finding(
            Code::PeriodsNotRun,
            Severity::Error,
            "Not all periods were over long after they should have been: the rest were not run."
                .to_owned(),
            "Give it a longer period or less to do.",
        ));
    }
    if ending.is_called {
        findings.push(finding(
            Code::Interrupted,
            Severity::Note,
            "The test was ended before it was through.".to_owned(),
            "",
        ));
    }
}
