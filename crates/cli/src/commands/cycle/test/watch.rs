//! Observers of a test: the progress line or the view of `--live`.

use horolog_cycle::application::{TestObserver, TestSnapshot};

use super::live::CycleTestLiveView;
use crate::failure::CommandFailure;
use crate::output::{self, ProgressLine};

/// Observer of a test.
pub(super) enum CycleTestReporter {
    /// The progress line.
    Line(ProgressLine),
    /// A view that has the terminal.
    View(CycleTestLiveView),
}

impl CycleTestReporter {
    pub(super) fn new(live: bool) -> Result<Self, CommandFailure> {
        if live {
            CycleTestLiveView::start().map(Self::View)
        } else {
            Ok(Self::Line(ProgressLine::new()))
        }
    }

    /// Restores the terminal.
    pub(super) fn finish(self) {
        if let Self::Line(progress) = self {
            progress.finish();
        }
    }
}

impl TestObserver for CycleTestReporter {
    fn snapshot(&mut self, snapshot: &TestSnapshot<'_>) {
        match self {
            Self::Line(progress) => {
                let (elapsed, total) =
                    (snapshot.elapsed.as_secs_f64(), snapshot.total.as_secs_f64());
                progress.set_message(&format!("{}: {elapsed:.0} of {total:.0} s", snapshot.what));
            }
            Self::View(live) => live.snapshot(snapshot),
        }
    }

    fn is_over(&self) -> bool {
        output::flow().is_break()
    }
}
