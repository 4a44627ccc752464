//! Findings about the clocks of nodes: stepped during a run, further off than permitted, or not
//! measured.

use horolog_conditions::finding;
use horolog_record::{
    CycleClockOffset, CycleNodeResult, CycleResult, Finding, FindingCode, ReleaseSignal, Severity,
};

/// Returns the finding that the system clock of a node was stepped during the run, with the number
/// of steps.
pub(in crate::run) fn clock_step_finding((node, sets): &(String, u64)) -> Finding {
    let often = if *sets == 1 { "once".to_owned() } else { format!("{sets} times") };
    finding(
        FindingCode::ClockStepped,
        Severity::Warning,
        format!(
            "The system clock of {node} was stepped {often} during the run. The kernel timestamps \
             marks and packets with it, and it releases the periods of nodes on several hosts: \
             near each step, times may be wrong by its size, and clock releases moved with it."
        ),
        "Slew clocks while tasks run instead of stepping them; find what stepped it (chronyc \
         tracking).",
    )
}

/// Returns the findings about nodes whose clocks exceeded the permitted offset during a run by more
/// than the error bound. Releases by packets need no accurate clock.
pub(in crate::run) fn clock_offset_findings(result: &CycleResult, max_ns: u64) -> Vec<Finding> {
    if result.signal == ReleaseSignal::Packet {
        return Vec::new();
    }
    let nodes = result.runs.iter().flat_map(|run| &run.nodes);
    nodes.filter_map(|node| clock_offset_finding(node, max_ns)).collect()
}

fn clock_offset_finding(node: &CycleNodeResult, max_ns: u64) -> Option<Finding> {
    let offset_min_ns =
        |clock: &&CycleClockOffset| clock.ahead_ns.unsigned_abs().saturating_sub(clock.error_ns);
    let furthest = node.clocks.iter().max_by_key(offset_min_ns)?;
    (offset_min_ns(&furthest) > max_ns).then(|| {
        let way = if furthest.ahead_ns < 0 { "behind" } else { "ahead of" };
        finding(
            FindingCode::ClockUnsynchronised,
            Severity::Warning,
            format!(
                "The clock of {} was {} us {way} the first node's during the run, more than \
                 --max-offset allows at the start ({} us): its periods began that much earlier or \
                 later.",
                node.name,
                furthest.ahead_ns.unsigned_abs() / 1_000,
                max_ns / 1_000
            ),
            "Check its synchronisation (chronyc tracking), or release the periods by packets \
             (--release-signal udp).",
        )
    })
}

/// Returns the finding that the clock of a node could not be measured at least once.
pub(in crate::run) fn unmeasured_clock_finding((node, why): &(String, String)) -> Finding {
    finding(
        FindingCode::ClockUnreadable,
        Severity::Warning,
        format!("The clock of {node} could not be measured each time: {why}."),
        "Check whether a firewall drops UDP to the port of --listen.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_clock_that_was_stepped_yields_a_finding_on_its_node() {
        for (sets, often) in [(1, "stepped once during"), (3, "stepped 3 times during")] {
            let warning = clock_step_finding(&("far".to_owned(), sets));
            assert_eq!(
                (warning.code, warning.severity),
                (FindingCode::ClockStepped, Severity::Warning)
            );
            assert!(warning.message.contains("clock of far") && warning.message.contains(often));
        }
    }

    #[test]
    fn a_clock_that_drifts_in_a_run_is_reported_if_beyond_the_error_bound() {
        let golden = include_str!("../../../../record/samples/cycle.json");
        let mut result: CycleResult = serde_json::from_str(golden).unwrap();
        result.runs.truncate(1);
        let messages = |result: &mut CycleResult, clocks: &[(i64, u64)]| {
            let clock =
                |&(ahead_ns, error_ns): &(i64, u64)| CycleClockOffset { ahead_ns, error_ns };
            result.runs[0].nodes.iter_mut().for_each(|node| node.clocks.clear());
            result.runs[0].nodes[1].clocks = clocks.iter().map(clock).collect();
            let findings = clock_offset_findings(result, 1_000_000);
            findings.into_iter().map(|one| one.message).collect::<Vec<_>>()
        };
        for signal in [ReleaseSignal::Utc, ReleaseSignal::Packet] {
            result.signal = signal;
            assert!(messages(&mut result, &[]).is_empty());
            // Too far if the error is all one way, and not if it is the other way.
            assert!(messages(&mut result, &[(900_000, 1_000), (-1_001_000, 3_000)]).is_empty());
            let strayed = messages(&mut result, &[(0, 0), (-3_000_000, 5_000), (20_000, 1_000)]);
            assert_eq!(strayed.len(), usize::from(signal == ReleaseSignal::Utc));
            let name = &result.runs[0].nodes[1].name;
            let wanted = format!("The clock of {name} was 3000 us behind the first node's");
            assert!(strayed.iter().all(|one| one.starts_with(&wanted)), "{strayed:?}");
        }
    }

    #[test]
    fn a_clock_that_is_not_measured_yields_a_finding() {
        let warning = unmeasured_clock_finding(&("far".to_owned(), "nobody answers".to_owned()));
        assert!(
            warning.message.contains("clock of far") && warning.message.contains("nobody answers")
        );
    }
}
