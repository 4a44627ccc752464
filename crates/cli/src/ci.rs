//! What a continuous-integration machine reads of a command: JUnit XML, and a summary in Markdown.
//! Both are opened before the measurement and written when the command ends, however that is: a
//! command that could not measure says so there too, rather than leave no file.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::Args;
use horolog_report::{Checks, Ending, junit, summary};
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

use crate::failure::Failure;
use crate::files::apart;
use crate::output::{self, Destination};

/// The files for such a machine.
#[derive(Args, Clone, Debug)]
pub(crate) struct CiArgs {
    /// Write what was checked to this file as JUnit XML, with a case for each limit.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Add a summary in Markdown to this file, such as "$GITHUB_STEP_SUMMARY".
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
}

/// Files that wait for the end of the command, and what it has measured by then.
struct Open {
    junit: Option<Destination>,
    summary: Option<(PathBuf, File)>,
    began: Instant,
    result: Option<Value>,
}

/// A process runs one command, and its end is told in one place.
static OPEN: Mutex<Option<Open>> = Mutex::new(None);

impl CiArgs {
    /// Opens the files, which are none of these others of the command.
    pub(crate) fn open(&self, others: &[(&str, Option<&Path>)]) -> Result<(), Failure> {
        let own = [("--junit", self.junit.as_deref()), ("--summary", self.summary.as_deref())];
        for (flag, path) in own {
            if path.is_some_and(output::is_stdout) {
                return Err(Failure::usage(format!("{flag} takes a file, not standard output")));
            }
        }
        apart(&[others, &own].concat())?;
        if self.junit.is_none() && self.summary.is_none() {
            return Ok(());
        }
        let junit = self.junit.as_deref().map(Destination::open).transpose()?;
        let summary = self.summary.as_deref().map(at_its_end).transpose()?;
        let open = Open { junit, summary, began: Instant::now(), result: None };
        *OPEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(open);
        Ok(())
    }
}

/// A file that keeps what is in it: the commands of one job have one summary.
fn at_its_end(path: &Path) -> Result<(PathBuf, File), Failure> {
    let file = OpenOptions::new().append(true).create(true).open(path);
    Ok((path.to_owned(), file.map_err(|error| output::unwritable(path, &error))?))
}

/// Takes note of a result, if anybody wants to know.
pub(crate) fn measured(result: &impl Serialize) {
    if let Some(open) = &mut *OPEN.lock().unwrap_or_else(PoisonError::into_inner) {
        open.result = serde_json::to_value(result).ok();
    }
}

/// Writes the files at the end of the command; one that cannot be written is a failure of a command
/// that has no other.
pub(crate) fn ended(outcome: Result<(), Failure>) -> Result<(), Failure> {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(open) = open else { return outcome };
    let ending = match &outcome {
        Ok(()) => Ending::Done,
        Err(Failure::Limit(why)) => Ending::Failed(why.clone()),
        Err(other) => Ending::Unmeasured(other.to_string()),
    };
    outcome.and(open.write(&ending))
}

impl Open {
    fn write(self, ending: &Ending) -> Result<(), Failure> {
        let Self { junit: file, summary: at_end, began, result } = self;
        // Of a result its own words: secrets are left out of them.
        let words = result.as_ref().and_then(|result| Vec::deserialize(&result["command"]).ok());
        let command = words.unwrap_or_else(output::command_line);
        let seconds = began.elapsed().as_secs_f64();
        let checks = Checks::of(&command, result.as_ref(), ending, seconds);
        let written = file.map_or(Ok(()), |file| file.write(&junit(&checks)));
        let added = at_end.map_or(Ok(()), |(path, mut file)| {
            let added = file.write_all(summary(&checks).as_bytes());
            added.map_err(|error| output::unwritable(&path, &error))
        });
        written.and(added)
    }
}
