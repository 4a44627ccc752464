//! Observers of a run of `horolog load`: the rows of its table as trials end, and the live view and
//! the live page.

use std::ops::ControlFlow;
use std::time::Duration;

use horolog_load::Observer;
use horolog_record::{Finding, LiveRun, PartSummary, RequestMode, SeriesPoint, Snapshot, Trial};
use horolog_report::table;

use super::LoadOutputs;
use super::profile::RowKind;
use crate::failure::CommandFailure;
use crate::live::web::LivePage;
use crate::live::{LiveFeed, TerminalView};
use crate::output::{self, ProgressLine};

/// Live outputs of a run.
pub(super) struct LiveOutputs {
    /// Data shown in them; `None` without live outputs.
    feed: Option<LiveFeed>,
    view: Option<TerminalView>,
    web: Option<LivePage>,
}

impl LiveOutputs {
    /// Starts the requested live outputs of a run with these parts.
    pub(super) fn start(
        outputs: &mut LoadOutputs,
        (title, part_is): (String, &'static str),
    ) -> Result<Self, CommandFailure> {
        let web = outputs.web.take();
        let feed = (outputs.live || web.is_some())
            .then(|| LiveFeed::new(LiveRun::new("load", title, part_is)));
        let (mut view, mut answered) = (None, None);
        if let Some(feed) = &feed {
            answered = web.map(|web| web.start(feed.clone())).transpose()?;
            view = outputs.live.then(|| feed.view()).transpose()?;
        }
        Ok(Self { feed, view, web: answered })
    }

    /// Data shown in the live outputs; `None` without any.
    pub(super) fn feed(&self) -> Option<LiveFeed> {
        self.feed.clone()
    }

    /// Restores the terminal, and returns the live page, which shows the findings.
    pub(super) fn finish(self, findings: Option<&[Finding]>) -> Option<LivePage> {
        drop(self.view);
        if let (Some(feed), Some(findings)) = (&self.feed, findings) {
            feed.over(findings);
        }
        self.web
    }
}

/// Prints rows as they come or, if a view has the terminal, after the view ends.
pub(super) struct LinePrinter {
    /// The progress line; `None` if a view has the terminal.
    progress: Option<ProgressLine>,
    /// Rows to print after the view ends.
    waiting: Vec<String>,
}

impl LinePrinter {
    pub(super) fn new(onlookers: &LiveOutputs) -> Self {
        Self { progress: onlookers.view.is_none().then(ProgressLine::new), waiting: Vec::new() }
    }

    pub(super) fn print(&mut self, row: String) {
        match &self.progress {
            Some(progress) => progress.print(&row),
            None => self.waiting.push(row),
        }
    }

    /// Prints the waiting rows, once the terminal is restored.
    pub(super) fn finish(self) {
        let progress = self.progress.unwrap_or_else(ProgressLine::new);
        self.waiting.iter().for_each(|row| progress.print(row));
        progress.finish();
    }
}

/// Prints each row as its trial ends.
pub(super) struct TrialPrinter {
    style: table::TableStyle,
    shown: table::LoadTableOptions,
    kind: RowKind,
    quiet: bool,
    printer: LinePrinter,
    feed: Option<LiveFeed>,
}

impl Observer for TrialPrinter {
    fn trial_started(&mut self, rate: f64, duration: Duration) {
        if let Some(progress) = &self.printer.progress {
            progress.trial(rate, duration);
        }
    }

    fn interval(&mut self, point: &SeriesPoint) {
        if !self.quiet && self.kind == RowKind::Intervals {
            let row = table::interval_row(point, &self.style);
            self.printer.print(row);
        }
    }

    fn flow(&mut self) -> ControlFlow<()> {
        output::flow()
    }

    fn wants_snapshots(&self) -> bool {
        self.feed.is_some()
    }

    fn snapshot(&mut self, snapshot: Snapshot) {
        if let Some(feed) = &self.feed {
            feed.push(snapshot);
        }
    }

    fn findings(&mut self, findings: Vec<Finding>) {
        if let Some(feed) = &self.feed {
            feed.findings(findings);
        }
    }

    fn trial_ended(&mut self, index: usize, trial: &Trial) -> ControlFlow<()> {
        if let Some(feed) = &self.feed {
            feed.ended(PartSummary::from_trial(index, trial));
        }
        if !self.quiet && self.kind != RowKind::Intervals {
            let phase = trial.phase.as_deref().unwrap_or("all");
            self.row(phase, trial);
            for part in &trial.parts {
                self.row(&part.name, &part.trial);
            }
        }
        output::flow()
    }
}

impl TrialPrinter {
    pub(super) fn new(
        style: table::TableStyle,
        shown: table::LoadTableOptions,
        (kind, quiet): (RowKind, bool),
        onlookers: &LiveOutputs,
    ) -> Self {
        let (printer, feed) = (LinePrinter::new(onlookers), onlookers.feed());
        Self { style, shown, kind, quiet, printer, feed }
    }

    /// Prints the table's head.
    pub(super) fn header(&mut self) {
        if self.quiet {
            return;
        }
        let header = match self.kind {
            RowKind::Intervals => table::interval_header(&self.style),
            RowKind::Phases => self.labelled("phase", |style| table::header(self.shown, style)),
            RowKind::Trials => self.labelled("requests", |style| table::header(self.shown, style)),
        };
        self.printer.print(header);
    }

    /// Ends the table, once the terminal is restored.
    pub(super) fn finish(self) -> table::TableStyle {
        self.printer.finish();
        self.style
    }

    fn row(&mut self, label: &str, trial: &Trial) {
        let row = self.labelled(label, |style| table::row(trial, self.shown, style));
        self.printer.print(row);
    }

    /// Lines preceded by the name of a phase or of a kind of requests, if there are any.
    fn labelled(&self, label: &str, lines: impl Fn(&table::TableStyle) -> String) -> String {
        if self.kind == RowKind::Phases || self.shown.mode == RequestMode::Mix {
            table::labelled(label, &lines(&table::behind_label(&self.style)))
        } else {
            lines(&self.style)
        }
    }
}
