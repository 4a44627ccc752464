//! Live views of a run and of an application test: the last execution or response time of each task
//! or node as a bar, the same over time, and the faults of a test.

use horolog_cycle::application::{ApplicationTestValues, NodeSnapshot};
use horolog_cycle::run::TaskSnapshot;
use horolog_record::{CycleTestFaultResult, LiveRun};
use horolog_report::cycle_test_fault_name;
use horolog_report::units::{ABSENT, full_count, human_ns};

use crate::live::{BAR, LiveBlock, LiveViewValues, bar, part_series};

/// Width of a fault's name, in columns.
const FAULT: usize = 28;

/// Row of a task or node.
struct RatioRow {
    /// Name, as wide as in all other rows.
    label: String,
    missed: u64,
    periods: u64,
    /// Ratio of the last time to its limit; `None` before the first.
    ratio: Option<f64>,
    has_exited: bool,
    /// Ratio at each snapshot.
    series: Vec<Option<f64>>,
}

impl RatioRow {
    /// Returns the text of the row. Its bar ends in `>` if the time exceeds the limit.
    fn text(&self) -> String {
        let (missed, periods) = (full_count(self.missed), full_count(self.periods));
        let ratio = self.ratio.unwrap_or(0.0);
        let end = if ratio > 1.0 { '>' } else { '|' };
        let gone = if self.has_exited { "  exited" } else { "" };
        let percent = |ratio| format!("{:.1}%", ratio * 100.0);
        let ratio_text = self.ratio.map_or_else(|| ABSENT.to_owned(), percent);
        format!(
            "{} {missed:>8} {periods:>10}  {:BAR$}{end} {ratio_text:>7}{gone}",
            self.label,
            bar(ratio, BAR)
        )
    }
}

/// Returns a table of the rows, and their ratios over time.
fn ratio_blocks(
    rows: Vec<RatioRow>,
    (name, ratio_name): (&str, &str),
    series_title: &str,
) -> [LiveBlock; 2] {
    let width = rows.first().map_or(0, |row| row.label.chars().count());
    let header = format!("{name:width$} {:>8} {:>10}  {ratio_name}", "missed", "periods");
    let texts = rows.iter().map(RatioRow::text).collect();
    let lines = rows.into_iter().map(|row| (row.label, row.series)).collect();
    [
        LiveBlock::Table { header, rows: texts },
        LiveBlock::Series { title: series_title.to_owned(), lines },
    ]
}

/// Tasks of a run: execution time as a share of the period.
impl LiveViewValues for Vec<TaskSnapshot> {
    fn blocks(&self, run: &LiveRun<Self>) -> Vec<LiveBlock> {
        let row = |(index, task): (usize, &TaskSnapshot)| RatioRow {
            label: format!("{:<12.12} {:<16.16}", task.node, task.task),
            missed: task.missed,
            periods: task.periods,
            ratio: Some(task.ratio),
            has_exited: false,
            series: part_series(run, |_, now: &Self| {
                now.get(index).filter(|task| task.periods > 0).map(|task| task.ratio)
            }),
        };
        let rows = self.iter().enumerate().map(row).collect();
        ratio_blocks(rows, ("task", "of the period"), "execution to period over time").into()
    }
}

/// Nodes and faults of a test: response time as a share of the deadline.
impl LiveViewValues for ApplicationTestValues {
    fn progress_note(&self) -> String {
        format!("  state {}", self.state)
    }

    fn blocks(&self, run: &LiveRun<Self>) -> Vec<LiveBlock> {
        let row = |(index, node): (usize, &NodeSnapshot)| RatioRow {
            label: format!("{:<8.8}", node.name),
            missed: node.missed,
            periods: node.periods,
            ratio: node.ratio,
            has_exited: node.has_exited,
            series: part_series(run, |before, now: &Self| {
                let periods = before.and_then(|before| Some(before.nodes.get(index)?.periods));
                // A gap if no period was completed since the previous snapshot.
                let is_new = |node: &&NodeSnapshot| periods.is_none_or(|all| node.periods > all);
                now.nodes.get(index).filter(is_new)?.ratio
            }),
        };
        let rows = self.nodes.iter().enumerate().map(row).collect();
        let header = format!(
            "{:FAULT$} {:>8} {:>9} {:>10} {:>9} {:>9}",
            "fault", "at", "injected", "detections", "detected", "recovered"
        );
        let faults = LiveBlock::Table { header, rows: self.faults.iter().map(fault_row).collect() };
        let [nodes, series] =
            ratio_blocks(rows, ("node", "response"), "response to deadline over time");
        vec![nodes, series, faults]
    }
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
    use horolog_record::{
        CycleTestDetectionKind, CycleTestFaultKind, DetectionCount, PartProgress, Snapshot,
    };

    use super::*;
    use crate::live::drawn;

    fn task(node: &str, ratio: f64) -> TaskSnapshot {
        let task = "control".to_owned();
        TaskSnapshot { node: node.to_owned(), task, ratio, periods: 1_234, missed: 5 }
    }

    fn push_tasks(run: &mut LiveRun<Vec<TaskSnapshot>>, index: usize, values: Vec<TaskSnapshot>) {
        let (count, elapsed_s, duration_s) = (Some(2), 1.0, Some(4.0));
        let part = PartProgress { index, count, elapsed_s, duration_s, ..PartProgress::default() };
        run.snapshots.push(Snapshot { at_s: 1.0, part, values });
    }

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

    fn push_nodes(
        run: &mut LiveRun<ApplicationTestValues>,
        name: &str,
        nodes: Vec<NodeSnapshot>,
        faults: Vec<CycleTestFaultResult>,
    ) {
        let part = PartProgress {
            name: name.to_owned(),
            elapsed_s: 4.0,
            duration_s: Some(16.0),
            ..PartProgress::default()
        };
        let values = ApplicationTestValues { state: "rising".to_owned(), nodes, faults };
        run.snapshots.push(Snapshot { at_s: 4.0, part, values });
    }

    #[test]
    fn task_is_drawn_as_a_bar_and_over_time() {
        let mut run = LiveRun::new("cycle run", String::new(), "run");
        assert!(drawn(&run, 80).starts_with("cycle run\n"));
        for ratio in [0.25, 0.5, 1.0] {
            let tasks = vec![task("node1", ratio), task("a-node-of-a-long-name", 1.5)];
            push_tasks(&mut run, 0, tasks);
        }
        let screen = drawn(&run, 100);
        for text in [
            "run 1 of 2: 1.0 of 4.0 s  ███████▌ ",
            "node1        control                 5      1,234  ██████████████████████████████|  100.0%",
            "a-node-of-a- control ",
            "█>  150.0%",
            "node1        control          ▂▄█",
        ] {
            assert!(screen.contains(text), "{text}: {screen}");
        }
        // The history of another run is discarded.
        push_tasks(&mut run, 1, vec![task("node1", 0.5), task("node2", 0.5)]);
        assert!(drawn(&run, 100).ends_with("node2        control          █"));
    }

    #[test]
    fn nodes_are_drawn_as_bars_and_over_time_with_present_faults() {
        let mut run = LiveRun::new("cycle test", String::new(), "");
        for (periods, ratio) in [(1, 0.25), (1, 0.25), (2, 0.5), (1_234, 1.0)] {
            let gone = NodeSnapshot { has_exited: true, ..node("node2", periods, 1.5) };
            push_nodes(
                &mut run,
                "load 1",
                vec![node("node1", periods, ratio), gone],
                vec![fault()],
            );
        }
        let screen = drawn(&run, 100);
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
        push_nodes(&mut run, "load 2", vec![node("node1", 5, 0.5)], Vec::new());
        let screen = drawn(&run, 100);
        assert!(screen.ends_with("node1    █") && !screen.contains("fault"), "{screen}");
    }

    #[test]
    fn any_size_can_be_drawn() {
        let mut tasks = LiveRun::new("cycle run", String::new(), "run");
        let empty = TaskSnapshot { periods: 0, ratio: f64::NAN, ..task("node1", 0.0) };
        (0..9).for_each(|_| push_tasks(&mut tasks, 0, vec![empty.clone()]));
        let mut nodes = LiveRun::new("cycle test", String::new(), "");
        for _ in 0..9 {
            push_nodes(&mut nodes, "load 1", vec![node("node1", 0, f64::NAN)], vec![fault()]);
        }
        for columns in [0, 1, 10, 80, 500] {
            drawn(&tasks, columns);
            drawn(&nodes, columns);
        }
    }
}
