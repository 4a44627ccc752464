//! Where the result of a load goes, and where the run is shown while it goes on.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::course::Rows as RowKind;
use crate::ci::{self, CiArgs};
use crate::failure::Failure;
use crate::files::apart;
use crate::keep::KeepArgs;
use crate::live::needs_a_terminal_beside;
use crate::live::web::{self, WebArgs};
use crate::output::{self, Destination};

/// The flags of a load's result.
#[derive(Args, Debug)]
pub(super) struct OutputArgs {
    /// Write the result to this file; to standard output with -, instead of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the result as a page to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Show the run on the terminal while it goes on: q, Escape and Ctrl-C end it with what there
    /// is by then. The text follows when it is over.
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
    /// Opens what is written at the end, so that the run is not for nothing, and the page.
    pub(super) fn open(self) -> Result<Outputs, Failure> {
        if self.live {
            needs_a_terminal_beside()?;
        }
        self.ci.open(&[("--json", self.json.as_deref()), ("--html", self.html.as_deref())])?;
        let outputs = Outputs::open(self.json.as_deref(), self.html.as_deref(), self.keep)?;
        Ok(Outputs { live: self.live, web: self.web.open()?, ..outputs })
    }
}

/// Where a result goes besides the table, and how the table tells it.
pub(super) struct Outputs {
    /// The result itself takes the table's place on standard output.
    pub(super) quiet: bool,
    /// How the table's rows are told.
    pub(super) rows: RowKind,
    /// Whether the run is shown on the terminal.
    pub(super) live: bool,
    /// The page that it is shown on.
    pub(super) web: Option<web::Opened>,
    json: Option<Destination>,
    html: Option<Destination>,
    keep: KeepArgs,
}

impl Outputs {
    pub(super) fn open(
        json: Option<&Path>,
        html: Option<&Path>,
        keep: KeepArgs,
    ) -> Result<Self, Failure> {
        apart(&[("--json", json), ("--html", html)])?;
        Ok(Self {
            quiet: json.is_some_and(output::is_stdout),
            rows: RowKind::Trials,
            live: false,
            web: None,
            json: json.map(Destination::open).transpose()?,
            html: html.map(Destination::open).transpose()?,
            keep,
        })
    }

    /// Writes the files, all of them though one cannot be written, and keeps the result.
    pub(super) fn write<R: Serialize>(
        self,
        result: &R,
        page: fn(&R) -> String,
    ) -> Result<(), Failure> {
        ci::measured(result);
        let json = self.json.map(|file| file.write(&horolog_report::to_json(result)));
        let html = self.html.map(|file| file.write(&page(result)));
        let written: Vec<_> = json.into_iter().chain(html).collect();
        self.keep.keep(result, written.iter().any(Result::is_err));
        written.into_iter().collect()
    }
}
