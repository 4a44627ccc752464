//! What is seen of a run that goes on: how far it is, and of each task of each node how much of its
//! period the last execution took, as a bar and over time.

use std::time::{Duration, Instant};

use horolog_cycle::run::{Glance, GlanceTask};
use horolog_report::units::full_count;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use crate::failure::Failure;
use crate::live::{Course, Viewed, bar};

/// How often it is looked at.
const EVERY: Duration = Duration::from_millis(500);
/// Columns of a bar: of the run, and of one period.
const BAR: usize = 30;
/// The names of a node and its task.
const NAMES: usize = 29;

/// The view of a run.
pub(super) struct Live {
    seen: Viewed<Seen>,
    next: Instant,
}

impl Live {
    pub(super) fn start() -> Result<Self, Failure> {
        Ok(Self { seen: Viewed::start(Seen::default(), Seen::lay)?, next: Instant::now() })
    }

    pub(super) fn joined(&self, members: usize, of: usize) {
        self.seen.change(|seen| seen.joined = Some((members, of)));
    }

    pub(super) fn glance(&mut self, glance: &Glance<'_>) {
        let now = Instant::now();
        if now >= self.next {
            self.next = now + EVERY;
            self.seen.change(|seen| seen.look(glance));
        }
    }
}

#[derive(Default)]
struct Seen {
    /// Other nodes that have joined, of how many.
    joined: Option<(usize, usize)>,
    elapsed: Duration,
    total: Duration,
    /// Which run of how many.
    run: (usize, usize),
    tasks: Vec<Task>,
}

/// A task of a node.
struct Task {
    last: GlanceTask,
    /// Execution to period, at each look.
    ratios: Course,
}

impl Seen {
    fn look(&mut self, glance: &Glance<'_>) {
        let is_same = |(seen, task): (&Task, &GlanceTask)| {
            (&seen.last.node, &seen.last.task) == (&task.node, &task.task)
        };
        if self.run != glance.run
            || self.tasks.len() != glance.tasks.len()
            || !self.tasks.iter().zip(glance.tasks).all(is_same)
        {
            let new = |task: &GlanceTask| Task { last: task.clone(), ratios: Course::default() };
            self.tasks = glance.tasks.iter().map(new).collect();
        }
        (self.elapsed, self.total, self.run) = (glance.elapsed, glance.total, glance.run);
        for (seen, task) in self.tasks.iter_mut().zip(glance.tasks) {
            seen.last.clone_from(task);
            seen.ratios.push((task.periods > 0).then_some(task.ratio));
        }
    }

    fn lay(&self, columns: usize) -> Vec<Line<'static>> {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut lines = vec![Line::styled("cycle run", bold)];
        if self.tasks.is_empty() {
            let text = match self.joined {
                Some((members, of)) => format!("{members} of {of} other nodes have joined"),
                None => "no period is over yet".to_owned(),
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

fn names(task: &GlanceTask) -> String {
    format!("{:<12.12} {:<16.16}", task.node, task.task)
}

/// Beyond the period, the bar ends in `>`.
fn row(task: &GlanceTask) -> String {
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

    fn task(node: &str, ratio: f64) -> GlanceTask {
        let task = "control".to_owned();
        GlanceTask { node: node.to_owned(), task, ratio, periods: 1_234, missed: 5 }
    }

    fn glance(run: usize, tasks: &[GlanceTask]) -> Glance<'_> {
        let (elapsed, total) = (Duration::from_secs(1), Duration::from_secs(4));
        Glance { elapsed, total, run: (run, 2), is_last: false, tasks }
    }

    fn drawn(seen: &Seen, columns: usize) -> String {
        seen.lay(columns).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_task_is_seen_as_a_bar_and_over_time() {
        let mut seen = Seen::default();
        assert!(drawn(&seen, 80).contains("no period"));
        seen.joined = Some((1, 3));
        assert!(drawn(&seen, 80).contains("1 of 3 other nodes"));
        for ratio in [0.25, 0.5, 1.0] {
            seen.look(&glance(0, &[task("node1", ratio), task("a-node-of-a-long-name", 1.5)]));
        }
        let screen = drawn(&seen, 100);
        for text in [
            "run 1 of 2: 1.0 of 4.0 s  ███████▌ ",
            "node1        control                 5      1,234  ██████████████████████████████|  100.0%",
            "a-node-of-a- control ",
            "█>  150.0%",
            "node1        control          ▂▄█",
        ] {
            assert!(screen.contains(text), "{text}: {screen}");
        }
        // What was seen of another run is forgotten.
        seen.look(&glance(1, &[task("node1", 0.5), task("node2", 0.5)]));
        assert!(drawn(&seen, 100).ends_with("node2        control          █"));
    }

    #[test]
    fn any_size_can_be_drawn() {
        let mut seen = Seen::default();
        let empty = GlanceTask { periods: 0, ratio: f64::NAN, ..task("node1", 0.0) };
        (0..9).for_each(|_| seen.look(&glance(0, std::slice::from_ref(&empty))));
        for columns in [0, 1, 10, 80, 500] {
            drawn(&seen, columns);
        }
    }
}
