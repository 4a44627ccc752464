//! Where the result of a path measurement goes: files first, then the text, then the verdict.

use std::path::PathBuf;

use clap::Args;
use horolog_record::{Finding, LimitResult, Severity};

use crate::failure::Failure;
use crate::output::{self, Destination};

/// Files that a result is written to.
#[derive(Args, Debug)]
pub(super) struct Files {
    /// Write the result to this file; to standard output with -, instead of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the result as a page with plots to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Files that were tried before the measurement.
pub(super) struct Opened {
    json: Option<Destination>,
    html: Option<Destination>,
    has_text: bool,
}

impl Files {
    pub(super) fn open(&self) -> Result<Opened, Failure> {
        let named = [&self.json, &self.html];
        let to_stdout = named.into_iter().flatten().filter(|path| output::is_stdout(path)).count();
        if to_stdout > 1 {
            return Err(Failure::usage("only one of --json and --html can go to standard output"));
        }
        let open = |path: &Option<PathBuf>| path.as_deref().map(Destination::open).transpose();
        Ok(Opened { json: open(&self.json)?, html: open(&self.html)?, has_text: to_stdout == 0 })
    }
}

impl Opened {
    /// Writes all forms of a result.
    pub(super) fn write(
        self,
        json: impl FnOnce() -> String,
        html: impl FnOnce() -> String,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let files =
            [self.json.map(|file| file.write(&json())), self.html.map(|file| file.write(&html()))];
        // Behind the files: a reader of the text that went away ends the command here.
        if self.has_text {
            output::line(&text())?;
        }
        files.into_iter().flatten().collect()
    }
}

/// How the command ends.
pub(super) fn verdict(limits: &[LimitResult], findings: &[Finding]) -> Result<(), Failure> {
    if let Some(broken) = horolog_report::broken_limits(limits) {
        return Err(Failure::Limit(broken));
    }
    match findings.iter().find(|finding| finding.severity == Severity::Error) {
        Some(finding) => Err(Failure::Limit(finding.message.clone())),
        None => Ok(()),
    }
}
