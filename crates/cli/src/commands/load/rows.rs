//! Who follows a run of `horolog load`: the rows of its table as trials end, and those who look on
//! meanwhile, at the terminal or at a page.

use std::ops::ControlFlow;
use std::time::Duration;

use horolog_load::Observer;
use horolog_record::{Finding, Look, LookEnded, Looks, Mode, Point, Trial};
use horolog_report::table;

use super::Outputs;
use super::course::Rows as RowKind;
use crate::failure::Failure;
use crate::live::web::Web;
use crate::live::{Feed, View};
use crate::output::{self, Progress};

/// Those who look on while it runs.
pub(super) struct Onlookers {
    /// What they see; none where nobody looks on.
    feed: Option<Feed>,
    view: Option<View>,
    web: Option<Web>,
}

impl Onlookers {
    /// Lets those look on who are wanted at what is made of such parts.
    pub(super) fn start(
        outputs: &mut Outputs,
        (title, part_is): (String, &'static str),
    ) -> Result<Self, Failure> {
        let web = outputs.web.take();
        let feed =
            (outputs.live || web.is_some()).then(|| Feed::new(Looks::new("load", title, part_is)));
        let (mut view, mut answered) = (None, None);
        if let Some(feed) = &feed {
            answered = web.map(|web| web.start(feed.clone())).transpose()?;
            view = outputs.live.then(|| feed.view()).transpose()?;
        }
        Ok(Self { feed, view, web: answered })
    }

    /// What they see; none where nobody looks on.
    pub(super) fn feed(&self) -> Option<Feed> {
        self.feed.clone()
    }

    /// Gives the terminal back, and returns the page, which shows what there is to doubt.
    pub(super) fn finish(self, findings: Option<&[Finding]>) -> Option<Web> {
        drop(self.view);
        if let (Some(feed), Some(findings)) = (&self.feed, findings) {
            feed.over(findings);
        }
        self.web
    }
}

/// Prints rows as they come, or, where a view has the terminal, when that is over.
pub(super) struct Printer {
    /// None where a view has the terminal.
    progress: Option<Progress>,
    /// Rows that wait for the view's end.
    waiting: Vec<String>,
}

impl Printer {
    pub(super) fn new(onlookers: &Onlookers) -> Self {
        Self { progress: onlookers.view.is_none().then(Progress::new), waiting: Vec::new() }
    }

    pub(super) fn print(&mut self, row: String) {
        match &self.progress {
            Some(progress) => progress.print(&row),
            None => self.waiting.push(row),
        }
    }

    /// Prints what has waited, when the terminal is there again.
    pub(super) fn finish(self) {
        let progress = self.progress.unwrap_or_else(Progress::new);
        self.waiting.iter().for_each(|row| progress.print(row));
        progress.finish();
    }
}

/// Prints each row as its trial ends.
pub(super) struct Rows {
    style: table::TableStyle,
    shown: table::Shown,
    kind: RowKind,
    quiet: bool,
    printer: Printer,
    feed: Option<Feed>,
}

impl Observer for Rows {
    fn begins(&mut self, rate: f64, duration: Duration) {
        if let Some(progress) = &self.printer.progress {
            progress.trial(rate, duration);
        }
    }

    fn interval(&mut self, point: &Point) {
        if !self.quiet && self.kind == RowKind::Intervals {
            let row = table::interval_row(point, &self.style);
            self.printer.print(row);
        }
    }

    fn flow(&mut self) -> ControlFlow<()> {
        output::flow()
    }

    fn looks(&self) -> bool {
        self.feed.is_some()
    }

    fn look(&mut self, look: Look) {
        if let Some(feed) = &self.feed {
            feed.look(look);
        }
    }

    fn doubts(&mut self, findings: Vec<Finding>) {
        if let Some(feed) = &self.feed {
            feed.doubts(findings);
        }
    }

    fn ended(&mut self, index: usize, trial: &Trial) -> ControlFlow<()> {
        if let Some(feed) = &self.feed {
            feed.ended(LookEnded::of_trial(index, trial));
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

impl Rows {
    pub(super) fn new(
        style: table::TableStyle,
        shown: table::Shown,
        (kind, quiet): (RowKind, bool),
        onlookers: &Onlookers,
    ) -> Self {
        let (printer, feed) = (Printer::new(onlookers), onlookers.feed());
        Self { style, shown, kind, quiet, printer, feed }
    }

    /// Begins the table.
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

    /// Ends the table, when the terminal is there again.
    pub(super) fn finish(self) -> table::TableStyle {
        self.printer.finish();
        self.style
    }

    fn row(&mut self, label: &str, trial: &Trial) {
        let row = self.labelled(label, |style| table::row(trial, self.shown, style));
        self.printer.print(row);
    }

    /// Lines with the name of a phase or of a kind of requests before them, where there are any.
    fn labelled(&self, label: &str, lines: impl Fn(&table::TableStyle) -> String) -> String {
        if self.kind == RowKind::Phases || self.shown.mode == Mode::Mix {
            table::labelled(label, &lines(&table::behind_label(&self.style)))
        } else {
            lines(&self.style)
        }
    }
}
