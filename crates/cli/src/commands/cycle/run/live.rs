//! Live view of a run: progress, and for each task of each node its execution time as a share of
//! its period (a bar for the last execution and a sparkline).

use std::time::{Duration, Instant};

use horolog_cycle::run::{RunSnapshot, TaskSnapshot};
use horolog_report::units::full_count;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use crate::failure::CommandFailure;
use crate::live::{SharedStateView, SparklineHistory, bar};

/// Minimum interval between two updates of the view.
const UPDATE_INTERVAL: Duration = Duration::from_millis(500);
/// Width of bars in columns: the duration of the run, or one period.
const BAR: usize = 30;
/// Width of the names of a node and its task, in columns.
const NAMES: usize = 29;

/// Terminal view of a run in progress.
pub(super) struct CycleRunLiveView {
    view: SharedStateView<CycleRunViewState>,
    /// Earliest time of the next update.
    next_update: Instant,
}

impl CycleRunLiveView {
    pub(super) fn start() -> Result<Self, CommandFailure> {
        Ok(Self {
            view: SharedStateView::start(CycleRunViewState::default(), CycleRunViewState::layout)?,
            next_update: Instant::now(),
        })
    }

    pub(super) fn show_joined(&self, members: usize, total: usize) {
        self.view.update(|state| state.joined = Some((members, total)));
    }

    pub(super) fn snapshot(&mut self, snapshot: &RunSnapshot<'_>) {
        let now = Instant::now();
        if now >= self.next_update {
            self.next_update = now + UPDATE_INTERVAL;
            self.view.update(|state| state.update(snapshot));
        }
    }
}

#[derive(Default)]
struct CycleRunViewState {
    /// Number of other nodes that have joined, and number of those expected; `None` before the
    /// first report of it.
    joined: Option<(usize, usize)>,
    elapsed: Duration,
    total: Duration,
    /// Index of the run, from 0, and number of runs.
    run: (usize, usize),
    tasks: Vec<TaskHistory>,
}

/// Last snapshot of a task of a node, and its ratios over time.
struct TaskHistory {
    last: TaskSnapshot,
    /// Ratio of execution time to period at each update.
    ratios: SparklineHistory,
}

impl CycleRunViewState {
    fn update(&mut self, snapshot: &RunSnapshot<'_>) {
        let is_same = |(history, task): (&TaskHistory, &TaskSnapshot)| {
            (&history.last.node, &history.last.task) == (&task.node, &task.task)
        };
        if self.run != snapshot.run
            || self.tasks.len() != snapshot.tasks.len()
            || !self.tasks.iter().zip(snapshot.tasks).all(is_same)
        {
            let new = |task: &TaskSnapshot| TaskHistory {
                last: task.clone(),
                ratios: SparklineHistory::default(),
            };
            self.tasks = snapshot.tasks.iter().map(new).collect();
        }
        (self.elapsed, self.total, self.run) = (snapshot.elapsed, snapshot.total, snapshot.run);
        for (history, task) in self.tasks.iter_mut().zip(snapshot.tasks) {
            history.last.clone_from(task);
            history.ratios.push((task.periods > 0).then_some(task.ratio));
        }
    }

    fn layout(&self, columns: usize) -> Vec<Line<'static>> {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut lines = vec![Line::styled("cycle run", bold)];
        if self.tasks.is_empty() {
            let text = match self.joined {
                Some((members, of)) => format!("{members} of {of} other nodes have joined"),
                None => "no periods completed yet".to_owned(),
            };
            lines.push(Line::from(text));
            return lines;
        }
        let (done, total) = (self.elapsed.as_secs_f64(), self.total.as_secs_f64());
        let (run, of) = self.run;
        let share = bar(done / total, BAR);
        lines.push(Line::from(format!(
            "run {} of {of}: {done:.1} of {total:.1} s  {share:BAR$}|",
            run + 1
        )));
        lines.push(Line::default());
        let header = format!("{:NAMES$} {:>8} {:>10}  of the period", "task", "missed", "periods");
        lines.push(Line::styled(header, Style::new().add_modifier(Modifier::REVERSED)));
        lines.extend(self.tasks.iter().map(|task| Line::from(task_row(&task.last))));
        lines.push(Line::default());
        lines.push(Line::from("execution to period over time"));
        let width = columns.saturating_sub(NAMES + 1).max(1);
        lines.extend(self.tasks.iter().map(|task| {
            Line::from(format!("{} {}", task_label(&task.last), task.ratios.render(width)))
        }));
        lines
    }
}

fn task_label(task: &TaskSnapshot) -> String {
    format!("{:<12.12} {:<16.16}", task.node, task.task)
}

/// Returns the row of a task. Its bar ends in `>` if the execution took longer than the period.
fn task_row(task: &TaskSnapshot) -> String {
    let (missed, periods) = (full_count(task.missed), full_count(task.periods));
    let end = if task.ratio > 1.0 { '>' } else { '|' };
    format!(
        "{} {missed:>8} {periods:>10}  {:BAR$}{end} {:>6.1}%",
        task_label(task),
        bar(task.ratio, BAR),
        task.ratio * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(node: &str, ratio: f64) -> TaskSnapshot {
        let task = "control".to_owned();
        TaskSnapshot { node: node.to_owned(), task, ratio, periods: 1_234, missed: 5 }
    }

    fn snapshot(run: usize, tasks: &[TaskSnapshot]) -> RunSnapshot<'_> {
        let (elapsed, total) = (Duration::from_secs(1), Duration::from_secs(4));
        RunSnapshot { elapsed, total, run: (run, 2), is_last: false, tasks }
    }

    fn drawn(state: &CycleRunViewState, columns: usize) -> String {
        state.layout(columns).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn task_is_drawn_as_a_bar_and_over_time() {
        let mut state = CycleRunViewState::default();
        assert!(drawn(&state, 80).contains("no period"));
        state.joined = Some((1, 3));
        assert!(drawn(&state, 80).contains("1 of 3 other nodes"));
        for ratio in [0.25, 0.5, 1.0] {
            state.update(&snapshot(0, &[task("node1", ratio), task("a-node-of-a-long-name", 1.5)]));
        }
        let screen = drawn(&state, 100);
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
        state.update(&snapshot(1, &[task("node1", 0.5), task("node2", 0.5)]));
        assert!(drawn(&state, 100).ends_with("node2        control          █"));
    }

    #[test]
    fn any_size_can_be_drawn() {
        let mut state = CycleRunViewState::default();
        let empty = TaskSnapshot { periods: 0, ratio: f64::NAN, ..task("node1", 0.0) };
        (0..9).for_each(|_| state.update(&snapshot(0, std::slice::from_ref(&empty))));
        for columns in [0, 1, 10, 80, 500] {
            drawn(&state, columns);
        }
    }
}
