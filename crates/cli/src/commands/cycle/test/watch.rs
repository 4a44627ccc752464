//! Who watches a test: the progress line or the view of `--live`.

use horolog_cycle::application::{Glance, Watch};

use super::live::Live;
use crate::failure::Failure;
use crate::output::{self, Progress};

/// Watches.
pub(super) enum Watcher {
    /// In a line.
    Line(Progress),
    /// With a view that has the terminal.
    View(Live),
}

impl Watcher {
    pub(super) fn new(live: bool) -> Result<Self, Failure> {
        if live { Live::start().map(Self::View) } else { Ok(Self::Line(Progress::new())) }
    }

    /// Leaves the terminal as it was.
    pub(super) fn finish(self) {
        if let Self::Line(progress) = self {
            progress.finish();
        }
    }
}

impl Watch for Watcher {
    fn glance(&mut self, glance: &Glance<'_>) {
        match self {
            Self::Line(progress) => {
                let (elapsed, total) = (glance.elapsed.as_secs_f64(), glance.total.as_secs_f64());
                progress.doing(&format!("{}: {elapsed:.0} of {total:.0} s", glance.what));
            }
            Self::View(live) => live.look(glance),
        }
    }

    fn is_over(&self) -> bool {
        output::flow().is_break()
    }
}
