//! Output of a command for continuous integration: JUnit XML, and a summary in Markdown. Both files
//! are opened before the measurement and written when the command ends, however it ends: a command
//! that could not measure reports so there too, rather than leave no file.

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
use crate::files::apart;
use crate::output::{self, ResultDestination};

/// Output files for CI systems.
#[derive(Args, Clone, Debug)]
pub(crate) struct CiArgs {
    /// Write JUnit XML to FILE: a test case for each --fail-if expression ('runs compare': for each
    /// metric), and one for the measurement itself.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Append a Markdown summary to FILE, such as "$GITHUB_STEP_SUMMARY".
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
}

/// Open output files, and the result measured so far.
struct OpenCiFiles {
    junit: Option<ResultDestination>,
    summary: Option<(PathBuf, File)>,
    began: Instant,
    result: Option<Value>,
}

/// A process runs one command, and its end is recorded once.
static OPEN: Mutex<Option<OpenCiFiles>> = Mutex::new(None);

impl CiArgs {
    /// Opens the files, which must differ from these other files of the command.
    pub(crate) fn open(&self, others: &[(&str, Option<&Path>)]) -> Result<(), CommandFailure> {
        let own = [("--junit", self.junit.as_deref()), ("--summary", self.summary.as_deref())];
        for (flag, path) in own {
            if path.is_some_and(output::is_stdout) {
                return Err(CommandFailure::usage(format!(
                    "{flag} takes a file, not standard output"
                )));
            }
        }
        apart(&[others, &own].concat())?;
        if self.junit.is_none() && self.summary.is_none() {
            return Ok(());
        }
        let junit = self.junit.as_deref().map(ResultDestination::open).transpose()?;
        let summary = self.summary.as_deref().map(at_its_end).transpose()?;
        let open = OpenCiFiles { junit, summary, began: Instant::now(), result: None };
        *OPEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(open);
        Ok(())
    }
}

/// Opens a file to append to it: the commands of one job share one summary.
fn at_its_end(path: &Path) -> Result<(PathBuf, File), CommandFailure> {
    let file = OpenOptions::new().append(true).create(true).open(path);
    Ok((path.to_owned(), file.map_err(|error| output::unwritable(path, &error))?))
}

/// Records a result, if CI output is open.
pub(crate) fn measured(result: &impl Serialize) {
    if let Some(open) = &mut *OPEN.lock().unwrap_or_else(PoisonError::into_inner) {
        open.result = serde_json::to_value(result).ok();
    }
}

/// Writes the files at the end of the command; a failure to write one is the command's failure if
/// it has no other.
pub(crate) fn ended(outcome: Result<(), CommandFailure>) -> Result<(), CommandFailure> {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(open) = open else { return outcome };
    let ending = match &outcome {
        Ok(()) => CommandOutcome::Done,
        Err(CommandFailure::Limit(why)) => CommandOutcome::Failed(why.clone()),
        Err(other) => CommandOutcome::Unmeasured(other.to_string()),
    };
    outcome.and(open.write(&ending))
}

impl OpenCiFiles {
    fn write(self, ending: &CommandOutcome) -> Result<(), CommandFailure> {
        let Self { junit: file, summary: at_end, began, result } = self;
        // The command line comes from the result if there is one: secrets are left out of it.
        let words = result.as_ref().and_then(|result| Vec::deserialize(&result["command"]).ok());
        let command = words.unwrap_or_else(output::command_line);
        let seconds = began.elapsed().as_secs_f64();
        let checks = CommandChecks::of(&command, result.as_ref(), ending, seconds);
        let written = file.map_or(Ok(()), |file| file.write(&junit(&checks)));
        let added = at_end.map_or(Ok(()), |(path, mut file)| {
            let added = file.write_all(summary(&checks).as_bytes());
            added.map_err(|error| output::unwritable(&path, &error))
        });
        written.and(added)
    }
}
