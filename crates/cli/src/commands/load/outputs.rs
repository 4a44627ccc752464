//! Outputs of a load: destinations of its result, and live views of the run.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::profile::RowKind;
use crate::ci::{self, CiArgs};
use crate::failure::CommandFailure;
use crate::files::apart;
use crate::live::needs_a_terminal_on_stderr;
use crate::live::web::{self, WebArgs};
use crate::output::{self, ResultDestination};
use crate::result_store::KeepArgs;

/// Outputs of a load's result.
#[derive(Args, Debug)]
pub(super) struct OutputArgs {
    /// Write the result to FILE as JSON; '-' writes it to standard output instead of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML report to FILE.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Show the run in progress on the terminal: q, Escape and Ctrl-C end it with the result so
    /// far. The text follows at the end.
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    web: WebArgs,
    #[command(flatten)]
    ci: CiArgs,
    #[command(flatten)]
    keep: KeepArgs,
}

impl OutputArgs {
    /// Opens the outputs written at the end, so that an error is found before the run, and the live
    /// page.
    pub(super) fn open(self) -> Result<LoadOutputs, CommandFailure> {
        if self.live {
            needs_a_terminal_on_stderr()?;
        }
        self.ci.open(&[("--json", self.json.as_deref()), ("--html", self.html.as_deref())])?;
        let outputs = LoadOutputs::open(self.json.as_deref(), self.html.as_deref(), self.keep)?;
        Ok(LoadOutputs { live: self.live, web: self.web.open()?, ..outputs })
    }
}

/// Destinations of a result other than the table, and the form of the table.
pub(super) struct LoadOutputs {
    /// True if standard output receives the result itself instead of the table.
    pub(super) quiet: bool,
    /// Kind of the table's rows.
    pub(super) rows: RowKind,
    /// True if the run is shown on the terminal.
    pub(super) live: bool,
    /// The live page, if any.
    pub(super) web: Option<web::BoundLivePage>,
    json: Option<ResultDestination>,
    html: Option<ResultDestination>,
    keep: KeepArgs,
}

impl LoadOutputs {
    pub(super) fn open(
        json: Option<&Path>,
        html: Option<&Path>,
        keep: KeepArgs,
    ) -> Result<Self, CommandFailure> {
        apart(&[("--json", json), ("--html", html)])?;
        Ok(Self {
            quiet: json.is_some_and(output::is_stdout),
            rows: RowKind::Trials,
            live: false,
            web: None,
            json: json.map(ResultDestination::open).transpose()?,
            html: html.map(ResultDestination::open).transpose()?,
            keep,
        })
    }

    /// Writes all files, even if one cannot be written, and stores the result.
    pub(super) fn write<R: Serialize>(
        self,
        result: &R,
        page: fn(&R) -> String,
    ) -> Result<(), CommandFailure> {
        ci::measured(result);
        let json = self.json.map(|file| file.write(&horolog_report::to_json(result)));
        let html = self.html.map(|file| file.write(&page(result)));
        let written: Vec<_> = json.into_iter().chain(html).collect();
        self.keep.store_result(result, written.iter().any(Result::is_err));
        written.into_iter().collect()
    }
}
