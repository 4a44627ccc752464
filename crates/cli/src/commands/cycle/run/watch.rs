//! Who watches a run: the progress line or the bars of `--live`, and the file of `--log`.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use horolog_cycle::run::{Glance, GlanceTask, LOG_HEADER, LogLine, Watch};

use crate::failure::Failure;
use crate::output::{self, Progress};

/// How often bars are drawn anew.
const EVERY: Duration = Duration::from_millis(200);
/// Columns of a bar of one period, at most and at least.
const BAR: usize = 40;
const BAR_MIN: usize = 8;
/// A terminal that does not say how large it is.
const USUAL: (usize, usize) = (80, 24);

/// Watches.
pub(super) struct Watcher {
    /// None where bars are drawn: it would draw on the same lines.
    progress: Option<Progress>,
    bars: Option<Bars>,
    log: Option<Log>,
}

struct Bars {
    lines: usize,
    next: Instant,
}

struct Log {
    path: PathBuf,
    to: BufWriter<File>,
    failed: Option<io::Error>,
}

impl Watcher {
    pub(super) fn new(live: bool, log: Option<&Path>) -> Result<Self, Failure> {
        if live && !io::stderr().is_terminal() {
            return Err(Failure::usage(
                "--live draws on a terminal, and standard error is none; leave it out",
            ));
        }
        let bars = live.then(|| Bars { lines: 0, next: Instant::now() });
        let progress = (!live).then(Progress::new);
        Ok(Self { progress, bars, log: log.map(Log::open).transpose()? })
    }

    /// Leaves the terminal as it was, and says whether all lines are in the file.
    pub(super) fn finish(self) -> Result<(), Failure> {
        if let Some(progress) = self.progress {
            progress.finish();
        }
        self.log.map_or(Ok(()), Log::finish)
    }
}

impl Watch for Watcher {
    fn joined(&mut self, members: usize, of: usize) {
        if members < of {
            output::note(&format!("{members} of {of} other nodes have joined"));
        }
    }

    fn glance(&mut self, glance: &Glance<'_>) {
        if let Some(progress) = &mut self.progress {
            let (done, total) = (glance.elapsed.as_secs(), glance.total.as_secs());
            progress.counted(done, total, "s");
        }
        let Some(bars) = &mut self.bars else { return };
        // At the end all periods are shown.
        if Instant::now() >= bars.next || glance.is_last {
            bars.draw(glance, terminal());
        }
    }

    fn log(&mut self, line: &LogLine<'_>) {
        if let Some(log) = &mut self.log {
            log.line(line);
        }
    }

    fn is_over(&self) -> bool {
        output::flow().is_break()
    }
}

impl Bars {
    /// Draws over what was drawn before.
    fn draw(&mut self, glance: &Glance<'_>, terminal: (usize, usize)) {
        let text = self.text(glance, terminal);
        // Nobody may be there to see it any longer.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }

    /// No line is longer than the terminal is wide, nor are there more than it has: otherwise the
    /// next ones could not be drawn over them.
    fn text(&mut self, glance: &Glance<'_>, (columns, lines): (usize, usize)) -> String {
        let mut text = String::new();
        if self.lines > 0 {
            // Up, and clear from there (ECMA-48, CUU and ED). Writing to memory does not fail.
            let _ = write!(text, "\r\x1b[{}A\x1b[J", self.lines);
        }
        let (run, of) = glance.run;
        let (done, total) = (glance.elapsed.as_secs_f64(), glance.total.as_secs_f64());
        let _ = writeln!(text, "run {} of {of}, {done:.1} of {total:.1} s", run + 1);
        // One for the run, one for those that are not shown, and the one that the cursor is in.
        let (shown, more) = glance.tasks.split_at(glance.tasks.len().min(lines.max(4) - 3));
        for task in shown {
            let _ = writeln!(text, "{}", bar(task, columns));
        }
        if !more.is_empty() {
            let _ = writeln!(text, "and {} more", more.len());
        }
        self.lines = 1 + shown.len() + usize::from(!more.is_empty());
        self.next = Instant::now() + EVERY;
        text
    }
}

/// Columns and lines of the terminal.
fn terminal() -> (usize, usize) {
    let size = terminal_size::terminal_size_of(io::stderr());
    // A terminal that nobody has told its size has none.
    let size = size.map(|(columns, lines)| (usize::from(columns.0), usize::from(lines.0)));
    size.filter(|(columns, lines)| *columns > 0 && *lines > 0).unwrap_or(USUAL)
}

/// Execution to period of the last period of a task; beyond the period, the bar ends in `>`.
fn bar(task: &GlanceTask, columns: usize) -> String {
    let names = format!("{:>12.12} {:<16.16} |", task.node, task.task);
    let (missed, periods) = (task.missed, task.periods);
    let figures = format!(" {:>6.1}%  missed {missed} of {periods}", task.ratio * 100.0);
    // One for its end, one that stays free.
    let width = columns.saturating_sub(names.len() + figures.len() + 2).clamp(BAR_MIN, BAR);
    let filled = (task.ratio * width as f64).round() as usize;
    let end = if filled > width { '>' } else { '|' };
    let bar = "#".repeat(filled.min(width));
    let line = format!("{names}{bar:<width$}{end}{figures}");
    line.chars().take(columns.saturating_sub(1)).collect()
}

impl Log {
    fn open(path: &Path) -> Result<Self, Failure> {
        let unwritable = |error| Failure::environment(unwritable(path, &error));
        let mut to = BufWriter::new(File::create(path).map_err(unwritable)?);
        writeln!(to, "{LOG_HEADER}").map_err(unwritable)?;
        Ok(Self { path: path.to_owned(), to, failed: None })
    }

    fn line(&mut self, line: &LogLine<'_>) {
        if self.failed.is_none() {
            self.failed = writeln!(self.to, "{line}").err();
        }
    }

    fn finish(mut self) -> Result<(), Failure> {
        let written = self.failed.map_or_else(|| self.to.flush(), Err);
        written.map_err(|error| Failure::environment(unwritable(&self.path, &error)))
    }
}

fn unwritable(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}; name another file", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(ratio: f64) -> GlanceTask {
        GlanceTask {
            node: "node1".to_owned(),
            task: "control".to_owned(),
            ratio,
            periods: 10,
            missed: 1,
        }
    }

    #[test]
    fn a_bar_is_as_long_as_the_share_of_the_period() {
        let quarter = bar(&task(0.25), 100);
        assert_eq!(quarter.matches('#').count(), 10);
        assert!(quarter.ends_with("|   25.0%  missed 1 of 10"), "{quarter}");
        let over = bar(&task(1.5), 100);
        assert_eq!(over.matches('#').count(), BAR);
        assert!(over.contains("#>  150.0%"), "{over}");
    }

    #[test]
    fn lines_are_no_longer_than_the_terminal_is_wide_and_no_more_than_it_has() {
        let named = GlanceTask { node: "a-node-of-a-long-name".to_owned(), ..task(0.5) };
        for columns in [1, 20, 79, 80, 81, 200] {
            for task in [&task(0.5), &named] {
                assert!(bar(task, columns).chars().count() < columns, "{columns}");
            }
        }
        assert!(bar(&named, 80).ends_with("50.0%  missed 1 of 10"), "{}", bar(&named, 80));
        let tasks = vec![task(0.5); 30];
        let (elapsed, total) = (Duration::ZERO, EVERY);
        let glance = Glance { elapsed, total, run: (0, 1), is_last: false, tasks: &tasks };
        let mut bars = Bars { lines: 0, next: Instant::now() };
        let text = bars.text(&glance, (80, 24));
        assert_eq!((text.lines().count(), bars.lines), (23, 23));
        assert!(text.ends_with("and 9 more\n"), "{text}");
        assert!(bars.text(&glance, (80, 40)).starts_with("\r\x1b[23A\x1b[J"));
        assert_eq!(bars.lines, 31);
    }
}
