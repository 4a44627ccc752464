//! Observers of a `horolog load` run: the printer of table rows, the live view and the live page.

use std::ops::ControlFlow;

use horolog_record::{
    Finding, LivePartSummary, LiveRun, LoadSeriesPoint, PartPlan, RequestMode, RunObserver,
    Snapshot, Trial,
};
use horolog_report::table;

use super::LoadOutputs;
use super::profile::LoadRowKind;
use crate::failure::CommandFailure;
use crate::live::web::LivePageServer;
use crate::live::{LiveFeed, TerminalView};
use crate::output::{self, ProgressLine};

/// Live view and live page of a run.
pub(super) struct LiveOutputs {
    /// Feed of the data that they show; `None` if neither was requested.
    feed: Option<LiveFeed>,
    view: Option<TerminalView>,
    web: Option<LivePageServer>,
}

impl LiveOutputs {
    /// Starts the requested live outputs. `part_kind` is the noun for one part of the run: "trial"
    /// or "phase".
    pub(super) fn start(
        outputs: &mut LoadOutputs,
        (title, part_kind): (String, &'static str),
    ) -> Result<Self, CommandFailure> {
        let web = outputs.web.take();
        let feed = (outputs.live || web.is_some())
            .then(|| LiveFeed::new(LiveRun::new("load", title, part_kind)));
        let (mut view, mut live_page) = (None, None);
        if let Some(feed) = &feed {
            live_page = web.map(|web| web.start(feed.clone())).transpose()?;
            view = outputs.live.then(|| feed.start_view()).transpose()?;
        }
        Ok(Self { feed, view, web: live_page })
    }

    /// Returns a handle to the feed of the live outputs; `None` if none was requested.
    pub(super) fn feed(&self) -> Option<LiveFeed> {
        self.feed.clone()
    }

    /// Ends the live view, which restores the terminal; marks the run as ended, with its findings,
    /// if these are given. Returns the live page, `None` without one.
    pub(super) fn finish(self, findings: Option<&[Finding]>) -> Option<LivePageServer> {
        drop(self.view);
        if let (Some(feed), Some(findings)) = (&self.feed, findings) {
            feed.end_run(findings);
        }
        self.web
    }
}

/// Printer of table rows: immediate, or deferred until a live view that occupies the terminal ends.
pub(super) struct TableRowPrinter {
    /// Progress line, above which rows are printed; `None` if the live view occupies the terminal.
    progress: Option<ProgressLine>,
    /// Rows to be printed after the live view ends.
    deferred_rows: Vec<String>,
}

impl TableRowPrinter {
    pub(super) fn new(live_outputs: &LiveOutputs) -> Self {
        Self {
            progress: live_outputs.view.is_none().then(ProgressLine::new),
            deferred_rows: Vec::new(),
        }
    }

    pub(super) fn print(&mut self, row: String) {
        match &self.progress {
            Some(progress) => progress.print_result_line(&row),
            None => self.deferred_rows.push(row),
        }
    }

    /// Prints the deferred rows. Call it after the terminal is restored.
    pub(super) fn finish(self) {
        let progress = self.progress.unwrap_or_else(ProgressLine::new);
        self.deferred_rows.iter().for_each(|row| progress.print_result_line(row));
        progress.finish();
    }
}

/// Observer that prints a row at the end of each trial, phase or interval, and updates the live
/// outputs.
pub(super) struct TrialPrinter {
    style: table::TableStyle,
    table_options: table::LoadTableOptions,
    kind: LoadRowKind,
    quiet: bool,
    printer: TableRowPrinter,
    feed: Option<LiveFeed>,
}

impl RunObserver<Trial, LoadSeriesPoint> for TrialPrinter {
    fn part_started(&mut self, plan: &PartPlan) {
        if let Some(progress) = &self.printer.progress {
            progress.show_trial(plan);
        }
    }

    fn event(&mut self, point: &LoadSeriesPoint) {
        if !self.quiet && self.kind == LoadRowKind::Intervals {
            let row = table::interval_row(point, &self.style);
            self.printer.print(row);
        }
    }

    fn flow(&self) -> ControlFlow<()> {
        output::check_stop_request()
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
            feed.set_findings(findings);
        }
    }

    fn part_ended(&mut self, index: usize, trial: &Trial) {
        if let Some(feed) = &self.feed {
            feed.end_part(LivePartSummary::from_trial(index, trial));
        }
        if !self.quiet && self.kind != LoadRowKind::Intervals {
            let phase = trial.phase.as_deref().unwrap_or("all");
            self.print_row(phase, trial);
            for part in &trial.parts {
                self.print_row(&part.name, &part.trial);
            }
        }
    }
}

impl TrialPrinter {
    pub(super) fn new(
        style: table::TableStyle,
        shown: table::LoadTableOptions,
        (kind, quiet): (LoadRowKind, bool),
        live_outputs: &LiveOutputs,
    ) -> Self {
        let (printer, feed) = (TableRowPrinter::new(live_outputs), live_outputs.feed());
        Self { style, table_options: shown, kind, quiet, printer, feed }
    }

    /// Prints the header of the table.
    pub(super) fn print_header(&mut self) {
        if self.quiet {
            return;
        }
        let header = match self.kind {
            LoadRowKind::Intervals => table::interval_header(&self.style),
            LoadRowKind::Phases => {
                self.labelled("phase", |style| table::header(self.table_options, style))
            }
            LoadRowKind::Trials => {
                self.labelled("requests", |style| table::header(self.table_options, style))
            }
        };
        self.printer.print(header);
    }

    /// Prints the deferred rows and returns the table's style. Call it after the terminal is
    /// restored.
    pub(super) fn finish(self) -> table::TableStyle {
        self.printer.finish();
        self.style
    }

    fn print_row(&mut self, label: &str, trial: &Trial) {
        let row = self.labelled(label, |style| table::row(trial, self.table_options, style));
        self.printer.print(row);
    }

    /// Returns the lines made by `lines`, preceded by `label` (a phase or a kind of requests) if
    /// the table has a column of labels.
    fn labelled(&self, label: &str, lines: impl Fn(&table::TableStyle) -> String) -> String {
        if self.kind == LoadRowKind::Phases || self.table_options.mode == RequestMode::Mix {
            table::labelled(label, &lines(&table::behind_label(&self.style)))
        } else {
            lines(&self.style)
        }
    }
}
