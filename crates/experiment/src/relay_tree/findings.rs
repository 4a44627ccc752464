//! Findings of the measurement of a tree.

use std::io;

use horolog_record::{Finding, FindingCode, RelayTreeResult, Severity};

use super::TreeMeasurementOptions;
use super::delay_samples::fit_line;

/// Number of packets below which the 99th percentile is determined by one packet or two.
const PACKETS_WANTED: u32 = 200;

/// Returns the findings of a measurement. `is_clock_stepped` is true if the system clock was
/// stepped during it; `idle_states_error` is the reason why idle states were not held off, if any;
/// `is_interrupted` is true if the end was requested.
pub(super) fn findings(
    result: &RelayTreeResult,
    options: &TreeMeasurementOptions,
    is_clock_stepped: bool,
    idle_states_error: Option<io::Error>,
    is_interrupted: bool,
) -> Vec<Finding> {
    let finding = |code, severity, message: String, advice: &str| Finding {
        code,
        severity,
        message,
        advice: advice.to_owned(),
        trial: None,
    };
    let (cores, relays) = (result.host.cores, inner_node_count(result));
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
    if longest.is_some_and(|longest| u128::from(longest) > options.interval.as_nanos()) {
        findings.push(finding(
            FindingCode::TrialsInconsistent,
            Severity::Warning,
            "Packets were sent before the previous ones had reached all leaves.".to_owned(),
            "Give a longer --interval.",
        ));
    }
    let (has_negative_slope, has_negative_intercept) =
        (|(_, rise): (f64, f64)| rise < 0.0, |(first, _)| first < 0.0);
    let fitted_lines = || measured().map(|one| fit_line(&one.calibration.copies_ns));
    if fitted_lines().any(has_negative_slope) || fitted_lines().any(has_negative_intercept) {
        findings.push(finding(
            FindingCode::NegativeFigure,
            Severity::Warning,
            "The line fitted to the copies of one node gives a negative time to the first copy, \
             or between copies; 0 was used."
                .to_owned(),
            "Give more --packets, on an idle host.",
        ));
    }
    if options.packets < PACKETS_WANTED {
        findings.push(finding(
            FindingCode::FewSamples,
            Severity::Note,
            format!("{} packets are few for a 99th percentile.", options.packets),
            "Give more --packets.",
        ));
    }
    if let Some(error) = idle_states_error {
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
    if is_clock_stepped {
        findings.push(finding(
            FindingCode::ClockStepped,
            Severity::Error,
            "The system clock was set during the run, so delays are wrong by that step.".to_owned(),
            "Run it again.",
        ));
    }
    if is_interrupted {
        findings.push(finding(
            FindingCode::Interrupted,
            Severity::Warning,
            "The run was ended early.".to_owned(),
            "Missing values were not measured.",
        ));
    }
    findings
}

/// Returns the number of nodes with children.
fn inner_node_count(result: &RelayTreeResult) -> usize {
    let mut parents: Vec<usize> = result.nodes.iter().filter_map(|node| node.parent).collect();
    parents.sort_unstable();
    parents.dedup();
    parents.len()
}
