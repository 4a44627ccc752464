//! Observers of a run: the progress line or the view of `--live`, and the file of `--log`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use horolog_cycle::run::{LOG_HEADER, LogLine, RunObserver, RunSnapshot};

use super::live::CycleLiveView;
use crate::failure::CommandFailure;
use crate::output::{self, ProgressLine};

/// Observer of a run.
pub(super) struct CycleRunReporter {
    /// The progress line; `None` if a view has the terminal.
    progress: Option<ProgressLine>,
    live: Option<CycleLiveView>,
    log: Option<RunLog>,
}

struct RunLog {
    path: PathBuf,
    to: BufWriter<File>,
    failed: Option<io::Error>,
}

impl CycleRunReporter {
    pub(super) fn new(live: bool, log: Option<&Path>) -> Result<Self, CommandFailure> {
        let progress = (!live).then(ProgressLine::new);
        let log = log.map(RunLog::open).transpose()?;
        let live = live.then(CycleLiveView::start).transpose()?;
        Ok(Self { progress, live, log })
    }

    /// Restores the terminal; an error if not all lines were written to the file.
    pub(super) fn finish(self) -> Result<(), CommandFailure> {
        drop(self.live);
        if let Some(progress) = self.progress {
            progress.finish();
        }
        self.log.map_or(Ok(()), RunLog::finish)
    }
}

impl RunObserver for CycleRunReporter {
    fn joined(&mut self, members: usize, of: usize) {
        if let Some(live) = &self.live {
            live.joined(members, of);
        } else if members < of {
            output::print_note(&format!("{members} of {of} other nodes have joined"));
        }
    }

    fn snapshot(&mut self, snapshot: &RunSnapshot<'_>) {
        if let Some(progress) = &mut self.progress {
            let (done, total) = (snapshot.elapsed.as_secs(), snapshot.total.as_secs());
            progress.counted(done, total, "s");
        }
        if let Some(live) = &mut self.live {
            live.snapshot(snapshot);
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

impl RunLog {
    fn open(path: &Path) -> Result<Self, CommandFailure> {
        let unwritable = |error| CommandFailure::environment(unwritable(path, &error));
        let mut to = BufWriter::new(File::create(path).map_err(unwritable)?);
        writeln!(to, "{LOG_HEADER}").map_err(unwritable)?;
        Ok(Self { path: path.to_owned(), to, failed: None })
    }

    fn line(&mut self, line: &LogLine<'_>) {
        if self.failed.is_none() {
            self.failed = writeln!(self.to, "{line}").err();
        }
    }

    fn finish(mut self) -> Result<(), CommandFailure> {
        let written = self.failed.map_or_else(|| self.to.flush(), Err);
        written.map_err(|error| CommandFailure::environment(unwritable(&self.path, &error)))
    }
}

fn unwritable(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}; choose another file", path.display())
}
