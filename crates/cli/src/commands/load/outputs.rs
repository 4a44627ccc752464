//! Outputs of a load: files and store of its result, live view and live page.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::{Path, PathBuf};

use clap::Args;
use horolog_report::RenderableResult;
use serde::Serialize;

use super::profile::LoadRowKind;
use crate::ci::{self, CiOutputArgs};
use crate::failure::CommandFailure;
use crate::files::require_distinct_files;
use crate::live::require_terminal;
use crate::live::web::{self, LivePageArgs};
use crate::output::{self, ResultDestination};
use crate::result_store::StoreResultArgs;

/// Outputs of a load's result.
#[derive(Args, Debug)]
pub(super) struct LoadOutputArgs {
    /// Write the result to FILE as JSON; '-' writes it to standard output instead of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML report to FILE.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Show the run in progress on the terminal: q, Escape and Ctrl-C end the run with the result
    /// so far. The text is printed after the run.
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    web: LivePageArgs,
    #[command(flatten)]
    ci: CiOutputArgs,
    #[command(flatten)]
    store_args: StoreResultArgs,
}

impl LoadOutputArgs {
    /// Opens the live page and the output files before the run, so that an error is found early.
    pub(super) fn open(self) -> Result<LoadOutputs, CommandFailure> {
        if self.live {
            require_terminal()?;
        }
        self.ci.open(&[("--json", self.json.as_deref()), ("--html", self.html.as_deref())])?;
        let outputs =
            LoadOutputs::open(self.json.as_deref(), self.html.as_deref(), self.store_args)?;
        Ok(LoadOutputs { live: self.live, web: self.web.open()?, ..outputs })
    }
}

/// Destinations of a load's result other than its table, and settings of the table.
pub(super) struct LoadOutputs {
    /// True if the result is written to standard output as JSON, in place of the table.
    pub(super) quiet: bool,
    /// Kind of the table's rows.
    pub(super) row_kind: LoadRowKind,
    /// True if the run has a live view on the terminal.
    pub(super) live: bool,
    /// Live page, bound to its address but not yet started; `None` without --web.
    pub(super) web: Option<web::BoundLivePageServer>,
    json: Option<ResultDestination>,
    html: Option<ResultDestination>,
    store_args: StoreResultArgs,
}

impl LoadOutputs {
    pub(super) fn open(
        json: Option<&Path>,
        html: Option<&Path>,
        keep: StoreResultArgs,
    ) -> Result<Self, CommandFailure> {
        require_distinct_files(&[("--json", json), ("--html", html)])?;
        Ok(Self {
            quiet: json.is_some_and(output::is_stdout),
            row_kind: LoadRowKind::Trials,
            live: false,
            web: None,
            json: json.map(ResultDestination::open).transpose()?,
            html: html.map(ResultDestination::open).transpose()?,
            store_args: keep,
        })
    }

    /// Writes all files, stores the result, and returns the first error of the files.
    pub(super) fn write<R: Serialize + RenderableResult>(
        self,
        result: &R,
    ) -> Result<(), CommandFailure> {
        ci::record_result(result);
        let json = self.json.map(|file| file.write(&horolog_report::to_json(result)));
        let html = self.html.map(|file| file.write(&result.page()));
        let written: Vec<_> = json.into_iter().chain(html).collect();
        self.store_args.store_result(result, written.iter().any(Result::is_err));
        written.into_iter().collect()
    }
}
