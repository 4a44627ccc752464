//! Live view of a run: its progress, and for each task of each node the share of its period that
//! the last execution took, as a bar and over time.

use std::time::{Duration, Instant};

use horolog_cycle::run::{RunSnapshot, TaskSnapshot};
use horolog_report::units::full_count;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use crate::failure::CommandFailure;
use crate::live::{SharedView, SparklineHistory, bar};

/// Interval between two updates.
const EVERY: Duration = Duration::from_millis(500);
/// Columns of a bar: of the run, and of one period.
const BAR: usize = 30;
/// Columns of the names of a node and its task.
const NAMES: usize = 29;

/// The view of a run.
pub(super) struct CycleLiveView {
    view: SharedView<CycleViewState>,
    next: Instant,
}

impl CycleLiveView {
    pub(super) fn start() -> Result<Self, CommandFailure> {
        Ok(Self {
            view: SharedView::start(CycleViewState::default(), CycleViewState::lay)?,
            next: Instant::now(),
        })
    }

    pub(super) fn joined(&self, members: usize, of: usize) {
        self.view.change(|state| state.joined = Some((members, of)));
    }

    pub(super) fn snapshot(&mut self, snapshot: &RunSnapshot<'_>) {
        let now = Instant::now();
        if now >= self.next {
            self.next = now + EVERY;
            self.view.change(|state| state.update(snapshot));
        }
    }
}

#[derive(Default)]
struct CycleViewState {
    /// Other nodes that have joined, and their total.
    joined: Option<(usize, usize)>,
    elapsed: Duration,
    total: Duration,
    /// Number of the run, and the total.
    run: (usize, usize),
    tasks: Vec<TaskHistory>,
}

/// A task of a node.
struct TaskHistory {
    last: TaskSnapshot,
    /// Execution time divided by period, at each update.
    ratios: SparklineHistory,
}

impl CycleViewState {
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

    fn lay(&self, columns: usize) -> Vec<Line<'static>> {
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
        let head = format!("{:NAMES$} {:>8} {:>10}  of the period", "task", "missed", "periods");
        lines.push(Line::styled(head, Style::new().add_modifier(Modifier::REVERSED)));
        lines.extend(self.tasks.iter().map(|task| Line::from(row(&task.last))));
        lines.push(Line::default());
        lines.push(Line::from("execution to period over time"));
        let width = columns.saturating_sub(NAMES + 1).max(1);
        lines.extend(
            self.tasks.iter().map(|task| {
                Line::from(format!("{} {}", names(&task.last), task.ratios.line(width)))
            }),
        );
        lines
    }
}

fn names(task: &TaskSnapshot) -> String {
    format!("{:<12.12} {:<16.16}", task.node, task.task)
}

/// A task's row. Beyond the period, the bar ends in `>`.
fn row(task: &TaskSnapshot) -> String {
    let (missed, periods) = (full_count(task.missed), full_count(task.periods));
    let end = if task.ratio > 1.0 { '>' } else { '|' };
    format!(
        "{} {missed:>8} {periods:>10}  {:BAR$}{end} {:>6.1}%",
        names(task),
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

    fn drawn(state: &CycleViewState, columns: usize) -> String {
        state.lay(columns).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn task_is_drawn_as_a_bar_and_over_time() {
        let mut state = CycleViewState::default();
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
        let mut state = CycleViewState::default();
        let empty = TaskSnapshot { periods: 0, ratio: f64::NAN, ..task("node1", 0.0) };
        (0..9).for_each(|_| state.update(&snapshot(0, std::slice::from_ref(&empty))));
        for columns in [0, 1, 10, 80, 500] {
            drawn(&state, columns);
        }
    }
}
