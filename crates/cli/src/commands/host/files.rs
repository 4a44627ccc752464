//! Where the result of a measurement of this host goes: text, JSON and page; and what its limits
//! and findings make of the command's end.

use std::path::PathBuf;

use clap::Args;
use horolog_record::{Finding, LimitResult, Severity};

use crate::failure::Failure;
use crate::output::{self, Destination};

/// The files of a result.
#[derive(Args, Debug)]
pub(super) struct FileArgs {
    /// Write the result to this file; to standard output with -, instead of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the result as a page with plots to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The same, opened, so that a measurement is not for nothing.
pub(super) struct Files {
    json: Option<Destination>,
    html: Option<Destination>,
    takes_stdout: bool,
}

impl FileArgs {
    pub(super) fn open(&self) -> Result<Files, Failure> {
        let named = [&self.json, &self.html].into_iter().flatten();
        let to_stdout = named.filter(|path| output::is_stdout(path)).count();
        if to_stdout > 1 {
            return Err(Failure::usage("only one of --json and --html can go to standard output"));
        }
        let open = |path: &Option<PathBuf>| path.as_deref().map(Destination::open).transpose();
        let (json, html) = (open(&self.json)?, open(&self.html)?);
        Ok(Files { json, html, takes_stdout: to_stdout > 0 })
    }
}

impl Files {
    /// Writes a result, and its text to standard output where nothing else goes there.
    pub(super) fn write<R>(
        self,
        result: &R,
        json: fn(&R) -> String,
        page: fn(&R) -> String,
        text: &str,
    ) -> Result<(), Failure> {
        let written = [
            self.json.map(|file| file.write(&json(result))),
            self.html.map(|file| file.write(&page(result))),
        ];
        // Behind the files: a reader of the text that went away ends the command here.
        if !self.takes_stdout {
            output::line(text)?;
        }
        written.into_iter().flatten().collect()
    }
}

/// How a command ends: a limit that is broken, or a finding of the worst kind, is its status.
pub(super) fn verdict(limits: &[LimitResult], findings: &[Finding]) -> Result<(), Failure> {
    if let Some(broken) = horolog_report::broken_limits(limits) {
        return Err(Failure::Limit(broken));
    }
    match findings.iter().find(|finding| finding.severity == Severity::Error) {
        Some(finding) => Err(Failure::Limit(finding.message.clone())),
        None => Ok(()),
    }
}
