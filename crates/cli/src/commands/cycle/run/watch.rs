//! Who watches a run: the progress line or the view of `--live`, and the file of `--log`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use horolog_cycle::run::{Glance, LOG_HEADER, LogLine, Watch};

use super::live::Live;
use crate::failure::Failure;
use crate::output::{self, Progress};

/// Watches.
pub(super) struct Watcher {
    /// None where a view has the terminal.
    progress: Option<Progress>,
    live: Option<Live>,
    log: Option<Log>,
}

struct Log {
    path: PathBuf,
    to: BufWriter<File>,
    failed: Option<io::Error>,
}

impl Watcher {
    pub(super) fn new(live: bool, log: Option<&Path>) -> Result<Self, Failure> {
        let progress = (!live).then(Progress::new);
        let log = log.map(Log::open).transpose()?;
        let live = live.then(Live::start).transpose()?;
        Ok(Self { progress, live, log })
    }

    /// Leaves the terminal as it was, and says whether all lines are in the file.
    pub(super) fn finish(self) -> Result<(), Failure> {
        drop(self.live);
        if let Some(progress) = self.progress {
            progress.finish();
        }
        self.log.map_or(Ok(()), Log::finish)
    }
}

impl Watch for Watcher {
    fn joined(&mut self, members: usize, of: usize) {
        if let Some(live) = &self.live {
            live.joined(members, of);
        } else if members < of {
            output::note(&format!("{members} of {of} other nodes have joined"));
        }
    }

    fn glance(&mut self, glance: &Glance<'_>) {
        if let Some(progress) = &mut self.progress {
            let (done, total) = (glance.elapsed.as_secs(), glance.total.as_secs());
            progress.counted(done, total, "s");
        }
        if let Some(live) = &mut self.live {
            live.glance(glance);
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
