//! Findings of a measured tree.

use std::io;

use horolog_record::{Finding, FindingCode, RelayTreeResult, Severity};

use super::MeasureArgs;
use super::delay_samples::line;
use crate::output;

/// Least number of packets; with fewer, the 99th percentile is one packet or two.
const PACKETS_WANTED: u32 = 200;

/// The findings of a run, given whether the system clock was stepped during it and the reason, if
/// any, why idle states could not be held off.
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
        FindingCode::SharedMachine,
        if relays + 1 > cores { Severity::Warning } else { Severity::Note },
        format!(
            "{relays} relays and the sender shared {cores} cores. In the model nodes work in \
             parallel; here those of one level take turns, which adds to the measured delays."
        ),
        "Compare engines and the order of nodes; do not read the values as those of separate \
         hosts.",
    )];
    let measured = || result.engines.iter().filter_map(|engine| engine.measured.as_ref());
    let lost: u64 = measured().map(|one| one.lost).sum();
    if lost > 0 {
        findings.push(finding(
            FindingCode::PathLoss,
            Severity::Warning,
            format!("{lost} copies were lost."),
            "Give a longer --interval.",
        ));
    }
    let longest = measured().filter_map(|one| one.last_leaf_ns.as_ref()).map(|all| all.p99).max();
    if longest.is_some_and(|longest| u128::from(longest) > args.interval().as_nanos()) {
        findings.push(finding(
            FindingCode::TrialsInconsistent,
            Severity::Warning,
            "Packets were sent before the previous ones had reached all leaves.".to_owned(),
            "Give a longer --interval.",
        ));
    }
    let (falls, begins_early) = (|(_, rise): (f64, f64)| rise < 0.0, |(first, _)| first < 0.0);
    let lines = || measured().map(|one| line(&one.calibration.copies_ns));
    if lines().any(falls) || lines().any(begins_early) {
        findings.push(finding(
            FindingCode::NegativeFigure,
            Severity::Warning,
            "The line fitted to the copies of one node gives a negative time to the first copy, \
             or between copies; 0 was used."
                .to_owned(),
            "Give more --packets, on an idle host.",
        ));
    }
    if args.packets() < PACKETS_WANTED {
        findings.push(finding(
            FindingCode::FewSamples,
            Severity::Note,
            format!("{} packets are few for a 99th percentile.", args.packets()),
            "Give more --packets.",
        ));
    }
    if let Some(error) = not_awake {
        findings.push(finding(
            FindingCode::IdleStatesNotHeld,
            Severity::Note,
            format!(
                "/dev/cpu_dma_latency could not be held ({error}): exit latencies of idle states \
                 are included, and differ between levels."
            ),
            "Give this user write access to it.",
        ));
    }
    if stepped {
        findings.push(finding(
            FindingCode::ClockStepped,
            Severity::Error,
            "The system clock was set during the run, so delays are wrong by that step.".to_owned(),
            "Run it again.",
        ));
    }
    if output::flow().is_break() {
        findings.push(finding(
            FindingCode::Interrupted,
            Severity::Warning,
            "The run was ended early.".to_owned(),
            "Missing values were not measured.",
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
