//! What is to be doubted of a measured tree.

use std::io;

use horolog_record::{Code, Finding, RelayTreeResult, Severity};

use super::MeasureArgs;
use super::pool::line;
use crate::output;

/// Below, the 99th percentile is one packet or two.
const PACKETS_WANTED: u32 = 200;

/// The findings of a run, in which the system clock was set or not, and idle states could not be
/// held off for a reason.
pub(super) fn findings(
    result: &RelayTreeResult,
    args: &MeasureArgs,
    stepped: bool,
    not_awake: Option<io::Error>,
) -> Vec<Finding> {
    let finding = |code, severity, message: String, advice: &str| Finding {
        code,
        severity,
        message,
        advice: advice.to_owned(),
        trial: None,
    };
    let (cores, relays) = (result.host.cores, inner(result));
    let mut findings = vec![finding(
        Code::SharedMachine,
        if relays + 1 > cores { Severity::Warning } else { Severity::Note },
        format!(
            "{relays} relays and the sender shared {cores} cores. In the model each node works at \
             its own pace; here those of one level take turns, which adds to what is measured."
        ),
        "Compare engines and the order of nodes rather than read the figures as those of hosts of \
         their own.",
    )];
    let measured = || result.engines.iter().filter_map(|engine| engine.measured.as_ref());
    let lost: u64 = measured().map(|one| one.lost).sum();
    if lost > 0 {
        findings.push(finding(
            Code::PathLoss,
            Severity::Warning,
            format!("{lost} copies did not come."),
            "Give a longer --interval.",
        ));
    }
    let longest = measured().filter_map(|one| one.last_leaf_ns.as_ref()).map(|all| all.p99).max();
    if longest.is_some_and(|longest| u128::from(longest) > args.interval().as_nanos()) {
        findings.push(finding(
            Code::Noisy,
            Severity::Warning,
            "Packets were sent before those ahead of them had come to all leaves.".to_owned(),
            "Give a longer --interval.",
        ));
    }
    let (falls, begins_early) = (|(_, rise): (f64, f64)| rise < 0.0, |(first, _)| first < 0.0);
    let lines = || measured().map(|one| line(&one.calibration.copies_ns));
    if lines().any(falls) || lines().any(begins_early) {
        findings.push(finding(
            Code::NegativeFigure,
            Severity::Warning,
            "By the line through its copies one node alone takes less than no time for the first, \
             or from one to the next; 0 was used."
                .to_owned(),
            "Give more --packets, on a machine that is quiet.",
        ));
    }
    if args.packets() < PACKETS_WANTED {
        findings.push(finding(
            Code::FewSamples,
            Severity::Note,
            format!("{} packets are few for a 99th percentile.", args.packets()),
            "Give more --packets.",
        ));
    }
    if let Some(error) = not_awake {
        findings.push(finding(
            Code::IdleStatesFree,
            Severity::Note,
            format!(
                "/dev/cpu_dma_latency could not be held ({error}): the time to leave an idle state \
                 is in the figures, and differs from level to level."
            ),
            "Let this user write to it.",
        ));
    }
    if stepped {
        findings.push(finding(
            Code::ClockStepped,
            Severity::Error,
            "The system clock was set during the run, so delays are wrong by as much.".to_owned(),
            "Run it again.",
        ));
    }
    if output::flow().is_break() {
        findings.push(finding(
            Code::Interrupted,
            Severity::Warning,
            "The run was ended before it was through.".to_owned(),
            "Figures that are missing were not measured.",
        ));
    }
    findings
}

/// Nodes with children.
fn inner(result: &RelayTreeResult) -> usize {
    let mut parents: Vec<usize> = result.nodes.iter().filter_map(|node| node.parent).collect();
    parents.sort_unstable();
    parents.dedup();
    parents.len()
}
