//! Live views of a running command: on the terminal, with the same keys and marks for all commands,
//! and as a page for a browser.

mod layout;
mod screen;
mod sparkline;
mod view;
pub(crate) mod web;

use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use horolog_probe::path::PathObserver;
use horolog_record::{Finding, LiveRun, LiveState, PartSummary, Snapshot};

use crate::failure::CommandFailure;

pub(crate) use layout::layout;
pub(crate) use screen::{KeyAction, Screen};
pub(crate) use sparkline::{SparklineHistory, bar};
pub(crate) use view::{SharedView, TerminalView};

/// Fails if there is no terminal to draw on and to read keys from.
pub(crate) fn needs_a_terminal() -> Result<(), CommandFailure> {
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        return Ok(());
    }
    Err(CommandFailure::usage("--live needs a terminal; omit it"))
}

/// Checks the terminal of a view that draws on standard error, because its result goes to standard
/// output.
pub(crate) fn needs_a_terminal_on_stderr() -> Result<(), CommandFailure> {
    let missing = match (io::stderr().is_terminal(), io::stdin().is_terminal()) {
        (true, true) => return Ok(()),
        (false, _) => "standard error",
        (true, false) => "standard input",
    };
    Err(CommandFailure::usage(format!(
        "--live needs a terminal: {missing} is not one; omit --live"
    )))
}

/// Snapshots of one measurement.
#[derive(Clone, Debug)]
pub(crate) struct LiveFeed(Arc<Mutex<LiveRun>>);

impl LiveFeed {
    pub(crate) fn new(run: LiveRun) -> Self {
        Self(Arc::new(Mutex::new(run)))
    }

    /// The snapshots so far.
    pub(crate) fn read(&self) -> MutexGuard<'_, LiveRun> {
        // The data is consistent between any two of its own operations.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a feed for the rows of a path to a far end.
    pub(crate) fn of_rows(kind: &'static str, target: String, rows: usize) -> Self {
        let run = LiveRun::new(kind, target, "row");
        Self::new(LiveRun { parts: Some(rows), ..run })
    }

    /// Shows the snapshots on the terminal.
    pub(crate) fn view(&self) -> Result<TerminalView, CommandFailure> {
        let feed = self.clone();
        TerminalView::start(move |columns| layout(&feed.read(), columns))
    }

    pub(crate) fn push(&self, snapshot: Snapshot) {
        self.read().snapshots.push(snapshot);
    }

    pub(crate) fn ended(&self, part: PartSummary) {
        self.read().end_part(part);
    }

    pub(crate) fn findings(&self, findings: Vec<Finding>) {
        self.read().findings = findings;
    }

    /// Ends the feed, with these findings.
    pub(crate) fn over(&self, findings: &[Finding]) {
        let mut run = self.read();
        run.state = LiveState::Ended;
        run.findings = findings.to_vec();
    }
}

impl PathObserver for LiveFeed {
    fn snapshot(&self, snapshot: Snapshot) {
        self.read().snapshots.push(snapshot);
    }

    fn row_ended(&self, row: PartSummary) {
        self.read().end_part(row);
    }
}
