//! Doubts about the clocks of nodes: set while they ran, further off than they may be, or not
//! measured.

use horolog_conditions::finding;
use horolog_record::{Code, CycleClock, CycleNode, CycleResult, CycleSignal, Finding, Severity};

/// The system clock of a node was set, so often, while instants came by it.
pub(in crate::run) fn set((node, sets): &(String, u64)) -> Finding {
    let often = if *sets == 1 { "once".to_owned() } else { format!("{sets} times") };
    finding(
        Code::ClockStepped,
        Severity::Warning,
        format!(
            "The system clock of {node} was set {often} while it ran. The kernel tells by it when \
             marks are made and packets come, and it releases the periods of nodes on several \
             machines: near each of these instants, times may be wrong by as much, and releases \
             that come by it moved with it."
        ),
        "Have clocks slewed while tasks run, not set; see what set it (chronyc tracking).",
    )
}

/// Nodes whose clocks were close enough when a run began and, for sure, no longer after that.
/// Packets need no clock that is right.
pub(in crate::run) fn strayed(result: &CycleResult, max_ns: u64) -> Vec<Finding> {
    if result.signal == CycleSignal::Packet {
        return Vec::new();
    }
    let nodes = result.runs.iter().flat_map(|run| &run.nodes);
    nodes.filter_map(|node| strayed_of(node, max_ns)).collect()
}

fn strayed_of(node: &CycleNode, max_ns: u64) -> Option<Finding> {
    let surely_ns =
        |clock: &&CycleClock| clock.ahead_ns.unsigned_abs().saturating_sub(clock.error_ns);
    let furthest = node.clocks.iter().max_by_key(surely_ns)?;
    (surely_ns(&furthest) > max_ns).then(|| {
        let way = if furthest.ahead_ns < 0 { "behind" } else { "ahead of" };
        finding(
            Code::ClockUnsynchronised,
            Severity::Warning,
            format!(
                "The clock of {} was {} us {way} the first node's while it ran, further than \
                 --max-offset allows when it begins ({} us): its periods began by so much at \
                 another time.",
                node.name,
                furthest.ahead_ns.unsigned_abs() / 1_000,
                max_ns / 1_000
            ),
            "See what keeps it synchronised (chronyc tracking), or have packets release the \
             periods (--signal udp).",
        )
    })
}

/// The clock of a node could not be measured, or not each time.
pub(in crate::run) fn unread((node, why): &(String, String)) -> Finding {
    finding(
        Code::ClockUnread,
        Severity::Warning,
        format!("The clock of {node} could not be measured each time: {why}."),
        "See whether a firewall keeps UDP away from the port of --listen.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_clock_that_was_set_is_a_doubt_of_its_node() {
        for (sets, often) in [(1, "set once while"), (3, "set 3 times while")] {
            let told = set(&("far".to_owned(), sets));
            assert_eq!((told.code, told.severity), (Code::ClockStepped, Severity::Warning));
            assert!(told.message.contains("clock of far") && told.message.contains(often));
        }
    }

    #[test]
    fn a_clock_that_strays_while_it_runs_is_told_where_that_is_sure() {
        let golden = include_str!("../../../../record/tests/schema/cycle.json");
        let mut result: CycleResult = serde_json::from_str(golden).unwrap();
        result.runs.truncate(1);
        let told = |result: &mut CycleResult, clocks: &[(i64, u64)]| {
            let clock = |&(ahead_ns, error_ns): &(i64, u64)| CycleClock { ahead_ns, error_ns };
            result.runs[0].nodes.iter_mut().for_each(|node| node.clocks.clear());
            result.runs[0].nodes[1].clocks = clocks.iter().map(clock).collect();
            let told = strayed(result, 1_000_000);
            told.into_iter().map(|one| one.message).collect::<Vec<_>>()
        };
        for signal in [CycleSignal::Utc, CycleSignal::Packet] {
            result.signal = signal;
            assert!(told(&mut result, &[]).is_empty());
            // Too far if the error is all one way, and not if it is the other way.
            assert!(told(&mut result, &[(900_000, 1_000), (-1_001_000, 3_000)]).is_empty());
            let strayed = told(&mut result, &[(0, 0), (-3_000_000, 5_000), (20_000, 1_000)]);
            assert_eq!(strayed.len(), usize::from(signal == CycleSignal::Utc));
            let name = &result.runs[0].nodes[1].name;
            let wanted = format!("The clock of {name} was 3000 us behind the first node's");
            assert!(strayed.iter().all(|one| one.starts_with(&wanted)), "{strayed:?}");
        }
    }

    #[test]
    fn a_clock_that_is_not_measured_is_a_doubt() {
        let told = unread(&("far".to_owned(), "nobody answers".to_owned()));
        assert!(told.message.contains("clock of far") && told.message.contains("nobody answers"));
    }
}
