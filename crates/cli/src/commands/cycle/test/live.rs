//! Live view of a test: progress, the response time of each node as a share of its deadline (a bar
//! for the last period and a sparkline), and injections, detections and recovery of each fault.

use std::time::Duration;

use horolog_cycle::application::{ApplicationTestSnapshot, NodeSnapshot};
use horolog_record::CycleTestFaultResult;
use horolog_report::cycle_test_fault_name;
use horolog_report::units::{ABSENT, full_count, human_ns};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use crate::failure::CommandFailure;
use crate::live::{SharedStateView, SparklineHistory, bar};

/// Width of bars in columns: the duration of the run, or one deadline.
const BAR: usize = 30;
/// Width of a node's name, in columns.
const NODE: usize = 8;
/// Width of a fault's name, in columns.
const FAULT: usize = 28;

/// Terminal view of a test in progress.
pub(super) struct CycleTestLiveView(SharedStateView<CycleTestViewState>);

impl CycleTestLiveView {
    pub(super) fn start() -> Result<Self, CommandFailure> {
        SharedStateView::start(CycleTestViewState::default(), CycleTestViewState::layout).map(Self)
    }

    pub(super) fn snapshot(&self, snapshot: &ApplicationTestSnapshot<'_>) {
        self.0.update(|state| state.update(snapshot));
    }
}

#[derive(Default)]
struct CycleTestViewState {
    label: String,
    elapsed: Duration,
    total: Duration,
    state: String,
    nodes: Vec<NodeHistory>,
    faults: Vec<CycleTestFaultResult>,
}

/// Last snapshot of a node, and its ratios over time.
struct NodeHistory {
    last: NodeSnapshot,
    /// Ratio of response time to deadline at each update; a gap if no period was completed since.
    ratios: SparklineHistory,
}

impl CycleTestViewState {
    fn update(&mut self, snapshot: &ApplicationTestSnapshot<'_>) {
        if self.label != snapshot.label {
            // The label changes with each trial of a search, which starts new nodes.
            snapshot.label.clone_into(&mut self.label);
            let new = |node: &NodeSnapshot| NodeHistory {
                last: node.clone(),
                ratios: SparklineHistory::default(),
            };
            self.nodes = snapshot.nodes.iter().map(new).collect();
        }
        (self.elapsed, self.total) = (snapshot.elapsed, snapshot.total);
        snapshot.state.clone_into(&mut self.state);
        self.faults = snapshot.faults.to_vec();
        for (history, node) in self.nodes.iter_mut().zip(snapshot.nodes) {
            let is_new = node.periods > history.last.periods || history.ratios.is_empty();
            history.ratios.push(node.ratio.filter(|_| is_new));
            history.last = node.clone();
        }
    }

    fn layout(&self, columns: usize) -> Vec<Line<'static>> {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut lines = vec![Line::styled("cycle test", bold)];
        if self.nodes.is_empty() {
            lines.push(Line::from("nodes are starting"));
            return lines;
        }
        let (done, total) = (self.elapsed.as_secs_f64(), self.total.as_secs_f64());
        let share = bar(done / total, BAR);
        let (what, state) = (&self.label, &self.state);
        lines.push(Line::from(format!(
            "{what}: {done:.1} of {total:.1} s  {share:BAR$}|  state {state}"
        )));
        lines.push(Line::default());
        lines.push(header_line(format!(
            "{:NODE$} {:>8} {:>10}  response",
            "node", "missed", "periods"
        )));
        lines.extend(self.nodes.iter().map(|node| Line::from(node_row(&node.last))));
        lines.push(Line::default());
        lines.push(Line::from("response to deadline over time"));
        let width = columns.saturating_sub(NODE + 1).max(1);
        lines.extend(self.nodes.iter().map(|node| {
            Line::from(format!("{:<NODE$.NODE$} {}", node.last.name, node.ratios.render(width)))
        }));
        if !self.faults.is_empty() {
            lines.push(Line::default());
            lines.push(header_line(format!(
                "{:FAULT$} {:>8} {:>9} {:>10} {:>9} {:>9}",
                "fault", "at", "injected", "detections", "detected", "recovered"
            )));
            lines.extend(self.faults.iter().map(|fault| Line::from(fault_row(fault))));
        }
        lines
    }
}

fn header_line(text: String) -> Line<'static> {
    Line::styled(text, Style::new().add_modifier(Modifier::REVERSED))
}

/// Returns the row of a node. Its bar ends in `>` if the response time exceeds the deadline.
fn node_row(node: &NodeSnapshot) -> String {
    let (missed, periods) = (full_count(node.missed), full_count(node.periods));
    let ratio = node.ratio.unwrap_or(0.0);
    let end = if ratio > 1.0 { '>' } else { '|' };
    let gone = if node.has_exited { "  exited" } else { "" };
    let figure = node.ratio.map_or_else(|| ABSENT.to_owned(), |_| format!("{:.1}%", ratio * 100.0));
    format!(
        "{:<NODE$.NODE$} {missed:>8} {periods:>10}  {:BAR$}{end} {figure:>7}{gone}",
        node.name,
        bar(ratio, BAR),
    )
}

/// Returns the row of a fault. An unknown time is shown as [`ABSENT`].
fn fault_row(fault: &CycleTestFaultResult) -> String {
    let detections = fault.detections.iter().map(|one| one.count).fold(0, u64::saturating_add);
    let time = |ns: Option<u64>| ns.map_or_else(|| ABSENT.to_owned(), human_ns);
    format!(
        "{:<FAULT$.FAULT$} {:>6.1} s {:>9} {:>10} {:>9} {:>9}",
        cycle_test_fault_name(fault),
        fault.at_s,
        full_count(fault.injected),
        full_count(detections),
        time(fault.detected.as_ref().map(|first| first.after_ns)),
        time(fault.recovered_after_ns),
    )
}

#[cfg(test)]
mod tests {
    use horolog_record::{CycleTestDetectionKind, CycleTestFaultKind, DetectionCount};

    use super::*;

    fn node(name: &str, periods: u64, ratio: f64) -> NodeSnapshot {
        let ratio = (periods > 0).then_some(ratio);
        NodeSnapshot { name: name.to_owned(), periods, missed: 3, ratio, has_exited: false }
    }

    fn fault() -> CycleTestFaultResult {
        CycleTestFaultResult {
            kind: CycleTestFaultKind::Stop,
            of: Some("node2".to_owned()),
            at_s: 8.0,
            duration_s: Some(0.5),
            state: None,
            injected: 1,
            first_s: Some(8.0),
            detections: vec![DetectionCount {
                kind: CycleTestDetectionKind::NodeTimeout,
                count: 7,
            }],
            detected: None,
            recovered_after_ns: Some(50_000_000),
        }
    }

    fn push_snapshot(
        state: &mut CycleTestViewState,
        what: &str,
        nodes: &[NodeSnapshot],
        faults: &[CycleTestFaultResult],
    ) {
        let (elapsed, total) = (Duration::from_secs(4), Duration::from_secs(16));
        state.update(&ApplicationTestSnapshot {
            label: what,
            elapsed,
            total,
            state: "rising",
            nodes,
            faults,
        });
    }

    fn drawn(state: &CycleTestViewState, columns: usize) -> String {
        state.layout(columns).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn nodes_are_drawn_as_bars_and_over_time_with_present_faults() {
        let mut state = CycleTestViewState::default();
        assert!(drawn(&state, 80).contains("nodes are starting"));
        for (periods, ratio) in [(1, 0.25), (1, 0.25), (2, 0.5), (1_234, 1.0)] {
            let gone = NodeSnapshot { has_exited: true, ..node("node2", periods, 1.5) };
            push_snapshot(&mut state, "load 1", &[node("node1", periods, ratio), gone], &[fault()]);
        }
        let screen = drawn(&state, 100);
        for text in [
            "load 1: 4.0 of 16.0 s  ███████▌                      |  state rising",
            "node1           3      1,234  ██████████████████████████████|  100.0%",
            "█>  150.0%  exited",
            // The second snapshot has no new period.
            "node1    ▂ ▄█",
            "stop node2                      8.0 s         1          7         -   50.0 ms",
        ] {
            assert!(screen.contains(text), "{text}: {screen}");
        }
        // The history of another run is discarded.
        push_snapshot(&mut state, "load 2", &[node("node1", 5, 0.5)], &[]);
        let screen = drawn(&state, 100);
        assert!(screen.ends_with("node1    █") && !screen.contains("fault"), "{screen}");
    }

    #[test]
    fn any_size_can_be_drawn() {
        let mut state = CycleTestViewState::default();
        for _ in 0..9 {
            push_snapshot(&mut state, "load 1", &[node("node1", 0, f64::NAN)], &[fault()]);
        }
        for columns in [0, 1, 10, 80, 500] {
            drawn(&state, columns);
        }
    }
}
