//! Live views of a running command: on the terminal (`--live`), with the same keys and sparklines
//! for all commands, and as a web page (`--web`).

mod display;
mod layout;
mod requests;
mod screen;
mod sparkline;
mod view;
pub(crate) mod web;

use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use horolog_record::{Finding, LivePartSummary, LiveRun, LiveRunStatus, RequestValues, Snapshot};

use crate::failure::CommandFailure;

pub(crate) use display::RunDisplay;
#[cfg(test)]
pub(crate) use layout::drawn;
pub(crate) use layout::{BAR, LiveBlock, LiveViewValues, part_series};
use screen::{ScrollView, ScrollViewAction};
pub(crate) use sparkline::bar;
pub(crate) use view::TerminalView;

/// Fails unless standard error and standard input are terminals: views draw on standard
/// error, because results go to standard output.
pub(crate) fn require_terminal() -> Result<(), CommandFailure> {
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
pub(crate) struct LiveFeed<V = RequestValues>(Arc<Mutex<LiveRun<V>>>);

impl<V: LiveViewValues + Send + 'static> LiveFeed<V> {
    pub(crate) fn new(run: LiveRun<V>) -> Self {
        Self(Arc::new(Mutex::new(run)))
    }

    /// Locks the live values.
    pub(crate) fn lock_run(&self) -> MutexGuard<'_, LiveRun<V>> {
        // A panic of another holder leaves consistent data, so poisoning is ignored.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a view of the live values on the terminal of standard error, until it is dropped.
    pub(crate) fn start_view(&self) -> Result<TerminalView, CommandFailure> {
        let feed = Self(Arc::clone(&self.0));
        TerminalView::start("updated twice a second", move |columns| {
            layout::layout(&feed.lock_run(), columns)
        })
    }

    pub(crate) fn push(&self, snapshot: Snapshot<V>) {
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
        run.state = LiveRunStatus::Ended;
        run.findings = findings.to_vec();
    }
}
