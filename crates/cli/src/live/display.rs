//! Display of a run in progress on the terminal of standard error: its live view, or a progress
//! line if that is not requested.

use std::ops::ControlFlow;

use horolog_record::{
    LivePartSummary, LiveRun, PartPlan, RecentItems, RequestValues, RunObserver, Snapshot,
};

use super::layout::{LiveViewValues, part_label};
use super::{LiveFeed, TerminalView};
use crate::failure::CommandFailure;
use crate::output::{self, ProgressLine};

/// Largest number of stored snapshots, above the width of usual terminals.
const VIEW_SNAPSHOTS_MAX: usize = 500;

/// Live view or progress line of a run.
pub(crate) struct RunDisplay<V> {
    feed: LiveFeed<V>,
    view: Option<TerminalView>,
    /// Progress line; `None` with a live view.
    progress: Option<ProgressLine>,
}

impl<V: LiveViewValues + Send + 'static> RunDisplay<V> {
    /// Starts the display; `live` selects the live view.
    pub(crate) fn start(run: LiveRun<V>, live: bool) -> Result<Self, CommandFailure> {
        let feed =
            LiveFeed::new(LiveRun { snapshots: RecentItems::new(VIEW_SNAPSHOTS_MAX), ..run });
        let view = live.then(|| feed.start_view()).transpose()?;
        Ok(Self { feed, view, progress: (!live).then(ProgressLine::new) })
    }

    /// Returns true with a live view, which occupies the terminal.
    pub(crate) fn has_view(&self) -> bool {
        self.view.is_some()
    }

    /// Sets the text of the live view before the first snapshot.
    pub(crate) fn set_initial_state(&self, text: String) {
        self.feed.lock_run().initial_state = text;
    }

    /// Shows a snapshot.
    pub(crate) fn show(&self, snapshot: Snapshot<V>) {
        if let Some(progress) = &self.progress {
            let part = &snapshot.part;
            let label = part_label(self.feed.lock_run().part_kind, part);
            let of = part.duration_s.map(|duration| format!(" of {duration:.0}"));
            let of = of.unwrap_or_default();
            progress.set_message(&format!("{label}{:.0}{of} s", part.elapsed_s));
        } else {
            self.feed.push(snapshot);
        }
    }

    /// Removes the view or the progress line, and restores the terminal.
    pub(crate) fn finish(self) {
        drop(self.view);
        if let Some(progress) = self.progress {
            progress.finish();
        }
    }
}

/// Observer of a run whose snapshots say everything.
impl<V: LiveViewValues + Send + 'static> RunObserver<(), (), V> for RunDisplay<V> {
    fn wants_snapshots(&self) -> bool {
        true
    }

    fn snapshot(&mut self, snapshot: Snapshot<V>) {
        self.show(snapshot);
    }

    fn flow(&self) -> ControlFlow<()> {
        output::check_stop_request()
    }
}

/// Observer of a run with rows, whose snapshots only the live view shows.
impl RunObserver for RunDisplay<RequestValues> {
    fn wants_snapshots(&self) -> bool {
        self.view.is_some()
    }

    fn snapshot(&mut self, snapshot: Snapshot) {
        self.show(snapshot);
    }

    fn part_started(&mut self, plan: &PartPlan) {
        if let Some(progress) = &self.progress {
            let count = plan.count.unwrap_or(plan.index + 1);
            progress.set_message(&format!("row {} of {count}: {}", plan.index + 1, plan.name));
        }
    }

    fn part_ended(&mut self, _: usize, row: &LivePartSummary) {
        self.feed.end_part(row.clone());
    }

    fn flow(&self) -> ControlFlow<()> {
        output::check_stop_request()
    }
}
