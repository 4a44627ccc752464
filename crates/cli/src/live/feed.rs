//! Live values of a measurement, passed to the live outputs: the latest snapshots, behind a lock
//! that is held only while one is read or added.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use horolog_probe::path::PathObserver;
use horolog_record::{Finding, LiveRun, LiveState, PartSummary, Snapshot};

use super::{TerminalView, layout};
use crate::failure::CommandFailure;

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

    fn ended(&self, row: PartSummary) {
        self.read().end_part(row);
    }
}
