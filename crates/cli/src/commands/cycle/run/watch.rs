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
/// Columns of a bar of one period.
const BAR: usize = 40;
/// Bars that are drawn, at most; a terminal has no more lines.
const BARS_MAX: usize = 20;

/// Watches.
pub(super) struct Watcher {
    progress: Progress,
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
        Ok(Self { progress: Progress::new(), bars, log: log.map(Log::open).transpose()? })
    }

    /// Leaves the terminal as it was, and says whether all lines are in the file.
    pub(super) fn finish(self) -> Result<(), Failure> {
        self.progress.finish();
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
        let Some(bars) = &mut self.bars else {
            let (done, total) = (glance.elapsed.as_secs(), glance.total.as_secs());
            self.progress.counted(done, total, "s");
            return;
        };
        if Instant::now() >= bars.next {
            bars.draw(glance);
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
    fn draw(&mut self, glance: &Glance<'_>) {
        let mut text = String::new();
        if self.lines > 0 {
            // Up, and clear from there (ECMA-48, CUU and ED). Writing to memory does not fail.
            let _ = write!(text, "\x1b[{}A\x1b[J", self.lines);
        }
        let (run, of) = glance.run;
        let (done, total) = (glance.elapsed.as_secs_f64(), glance.total.as_secs_f64());
        let _ = writeln!(text, "run {} of {of}, {done:.1} of {total:.1} s", run + 1);
        let shown = glance.tasks.iter().take(BARS_MAX);
        for task in shown.clone() {
            let _ = writeln!(text, "{}", bar(task));
        }
        self.lines = 1 + shown.len();
        self.next = Instant::now() + EVERY;
        // Nobody may be there to see it any longer.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }
}

/// Execution to period of the last period of a task; beyond the period, the bar ends in `>`.
fn bar(task: &GlanceTask) -> String {
    let filled = (task.ratio * BAR as f64).round() as usize;
    let end = if filled > BAR { '>' } else { '|' };
    let bar = "#".repeat(filled.min(BAR));
    format!(
        "{:>12} {:<16} |{bar:<BAR$}{end} {:>6.1}%  missed {} of {}",
        task.node,
        task.task,
        task.ratio * 100.0,
        task.missed,
        task.periods
    )
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

    #[test]
    fn a_bar_is_as_long_as_the_share_of_the_period() {
        let task = |ratio| GlanceTask {
            node: "node1".to_owned(),
            task: "control".to_owned(),
            ratio,
            periods: 10,
            missed: 1,
        };
        let quarter = bar(&task(0.25));
        assert_eq!(quarter.matches('#').count(), 10);
        assert!(quarter.ends_with("|   25.0%  missed 1 of 10"), "{quarter}");
        let over = bar(&task(1.5));
        assert_eq!(over.matches('#').count(), BAR);
        assert!(over.contains("#>  150.0%"), "{over}");
    }
}
