//! Live views of a running command: on the terminal (`--live`), with the same keys and sparklines
//! for all commands, and as a web page (`--web`).

mod layout;
mod screen;
mod sparkline;
mod view;
pub(crate) mod web;

use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use horolog_probe::path::PathRowObserver;
use horolog_record::{Finding, LivePartSummary, LiveRun, LiveSnapshot, MeasurementPhase};

use crate::failure::CommandFailure;

pub(crate) use layout::layout;
pub(crate) use screen::{ScrollView, ScrollViewAction};
pub(crate) use sparkline::{SparklineHistory, bar};
pub(crate) use view::{SharedStateView, TerminalView};

/// Fails unless standard output and standard input are terminals.
pub(crate) fn require_terminal() -> Result<(), CommandFailure> {
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        return Ok(());
    }
    Err(CommandFailure::usage("--live needs a terminal; omit it"))
}

/// Fails unless standard error and standard input are terminals, for views that draw on standard
/// error because the result goes to standard output.
pub(crate) fn require_stderr_terminal() -> Result<(), CommandFailure> {
    let missing = match (io::stderr().is_terminal(), io::stdin().is_terminal()) {
        (true, true) => return Ok(()),
        (false, _) => "standard error",
        (true, false) => "standard input",
    };
    Err(CommandFailure::usage(format!(
        "--live needs a terminal: {missing} is not one; omit --live"
    )))
}

/// Shared live values of one measurement: written by its observers, read by the live view and the
/// live page.
#[derive(Clone, Debug)]
pub(crate) struct LiveFeed(Arc<Mutex<LiveRun>>);

impl LiveFeed {
    pub(crate) fn new(run: LiveRun) -> Self {
        Self(Arc::new(Mutex::new(run)))
    }

    /// Locks the live values.
    pub(crate) fn lock_run(&self) -> MutexGuard<'_, LiveRun> {
        // A panic of another holder leaves consistent data, so poisoning is ignored.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a feed for a path measurement with this number of rows; `target` is the far end.
    pub(crate) fn for_rows(kind: &'static str, target: String, rows: usize) -> Self {
        let run = LiveRun::new(kind, target, "row");
        Self::new(LiveRun { parts: Some(rows), ..run })
    }

    /// Starts a view of the live values on the terminal of standard error, until it is dropped.
    pub(crate) fn start_view(&self) -> Result<TerminalView, CommandFailure> {
        let feed = self.clone();
        TerminalView::start(move |columns| layout(&feed.lock_run(), columns))
    }

    pub(crate) fn push(&self, snapshot: LiveSnapshot) {
        self.lock_run().snapshots.push(snapshot);
    }

    pub(crate) fn end_part(&self, part: LivePartSummary) {
        self.lock_run().end_part(part);
    }

    pub(crate) fn set_findings(&self, findings: Vec<Finding>) {
        self.lock_run().findings = findings;
    }

    /// Marks the run as ended, and sets its findings.
    pub(crate) fn end_run(&self, findings: &[Finding]) {
        let mut run = self.lock_run();
        run.state = MeasurementPhase::Ended;
        run.findings = findings.to_vec();
    }
}

impl PathRowObserver for LiveFeed {
    fn snapshot(&self, snapshot: LiveSnapshot) {
        self.lock_run().snapshots.push(snapshot);
    }

    fn row_ended(&self, row: LivePartSummary) {
        self.lock_run().end_part(row);
    }
}
