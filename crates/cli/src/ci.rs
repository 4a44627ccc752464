//! Output files of a command for continuous integration: JUnit XML and a Markdown summary. Both are
//! opened before the measurement and written when the command ends, even if it could not measure,
//! so that a CI system always finds a report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::Args;
use horolog_report::{CommandChecks, CommandOutcome, junit, summary};
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

use crate::failure::CommandFailure;
use crate::files::require_distinct_files;
use crate::output::{self, ResultDestination};

/// Output files for CI systems.
#[derive(Args, Clone, Debug)]
pub(crate) struct CiOutputArgs {
    /// Write JUnit XML to FILE: a test case for each limit, if there are any, and one for the
    /// measurement itself.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Append a Markdown summary to FILE, such as "$GITHUB_STEP_SUMMARY".
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
}

/// Open CI files of this command, its start, and its result as JSON once it has been recorded.
struct OpenCiOutputFiles {
    junit: Option<ResultDestination>,
    summary: Option<(PathBuf, File)>,
    began: Instant,
    result: Option<Value>,
}

/// CI files of the one command that this process runs; `None` without CI flags, and after
/// [`write_ci_files`].
static OPEN_FILES: Mutex<Option<OpenCiOutputFiles>> = Mutex::new(None);

impl CiOutputArgs {
    /// Opens the CI files. Fails if two flags name the same file, including the flags `other_files`
    /// of the command, or if a CI flag names standard output.
    pub(crate) fn open(&self, other_files: &[(&str, Option<&Path>)]) -> Result<(), CommandFailure> {
        let own = [("--junit", self.junit.as_deref()), ("--summary", self.summary.as_deref())];
        for (flag, path) in own {
            if path.is_some_and(output::is_stdout) {
                return Err(CommandFailure::usage(format!(
                    "{flag} takes a file, not standard output"
                )));
            }
        }
        require_distinct_files(&[other_files, &own].concat())?;
        if self.junit.is_none() && self.summary.is_none() {
            return Ok(());
        }
        let junit = self.junit.as_deref().map(ResultDestination::open).transpose()?;
        let summary = self.summary.as_deref().map(open_for_append).transpose()?;
        let files = OpenCiOutputFiles { junit, summary, began: Instant::now(), result: None };
        *OPEN_FILES.lock().unwrap_or_else(PoisonError::into_inner) = Some(files);
        Ok(())
    }
}

/// Opens a file for appending, because all commands of a CI job write to the same summary.
fn open_for_append(path: &Path) -> Result<(PathBuf, File), CommandFailure> {
    let file = OpenOptions::new().append(true).create(true).open(path);
    Ok((path.to_owned(), file.map_err(|error| output::write_failure(path, &error))?))
}

/// Records the result of the measurement for the CI files, if any are open.
pub(crate) fn record_result(result: &impl Serialize) {
    if let Some(files) = &mut *OPEN_FILES.lock().unwrap_or_else(PoisonError::into_inner) {
        files.result = serde_json::to_value(result).ok();
    }
}

/// Writes the CI files at the end of the command, and returns `outcome`. If the command itself
/// succeeded, returns the first failure to write a file.
pub(crate) fn write_ci_files(outcome: Result<(), CommandFailure>) -> Result<(), CommandFailure> {
    let files = OPEN_FILES.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(files) = files else { return outcome };
    let command_outcome = match &outcome {
        Ok(()) => CommandOutcome::Done,
        Err(CommandFailure::Measurement(reason)) => CommandOutcome::Failed(reason.clone()),
        Err(other) => CommandOutcome::Unmeasured(other.to_string()),
    };
    outcome.and(files.write(&command_outcome))
}

impl OpenCiOutputFiles {
    fn write(self, outcome: &CommandOutcome) -> Result<(), CommandFailure> {
        let Self { junit: junit_file, summary: summary_file, began, result } = self;
        // The command line that a result records has no secrets; this process's own may have some.
        let recorded_command =
            result.as_ref().and_then(|result| Vec::deserialize(&result["command"]).ok());
        let command = recorded_command.unwrap_or_else(output::command_line);
        let seconds = began.elapsed().as_secs_f64();
        let checks = CommandChecks::of(&command, result.as_ref(), outcome, seconds);
        let written = junit_file.map_or(Ok(()), |file| file.write(&junit(&checks)));
        let appended = summary_file.map_or(Ok(()), |(path, mut file)| {
            let appended = file.write_all(summary(&checks).as_bytes());
            appended.map_err(|error| output::write_failure(&path, &error))
        });
        written.and(appended)
    }
}
