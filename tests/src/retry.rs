//! Second attempts, alone, of scenarios that failed while other groups ran in parallel.
//!
//! Measuring scenarios are designed for an otherwise idle host, and the other groups use some of
//! it: mostly little, occasionally a core for some milliseconds. Waiting scenarios sometimes have
//! to
//! act before their peer does, while the measuring group loads every core. A failure therefore
//! counts if it recurs with nothing in parallel; leftovers count at once. Both attempts are
//! printed.
//! Many failures in one group have another cause, and none of them is retried.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitStatus;

use anyhow::{Context as _, Result, ensure};
use tempfile::NamedTempFile;

/// Environment variable with the path of the file that collects the names of failed scenarios.
const FAILURES_VARIABLE: &str = "HOROLOG_SCENARIOS_FAILED";
/// Most failures of a group that are retried.
const FAILURES_MAX: usize = 3;
/// Exit status of the test harness when all scenarios ran and some failed.
const SOME_FAILED: i32 = 101;

/// Prefix of the name of a scenario whose failure counts at once.
const FINAL_PREFIX: char = '!';

/// Names of the scenarios that failed in a group's process: a file with one name per line.
pub(crate) struct Failures(NamedTempFile);

impl Failures {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(NamedTempFile::new().context("cannot create the list of failures")?))
    }

    /// Returns the environment variable for the group's process.
    pub(crate) fn variable(&self) -> (&'static str, &Path) {
        (FAILURES_VARIABLE, self.0.path())
    }

    /// Returns the scenarios to retry of a group with this status; `None` if the status is final.
    pub(crate) fn to_retry(&self, ended: ExitStatus) -> Result<Option<Vec<String>>> {
        let text = fs::read_to_string(self.0.path()).context("cannot read the list of failures")?;
        Ok(if ended.code() == Some(SOME_FAILED) { names_to_retry(&text) } else { None })
    }
}

fn names_to_retry(failures: &str) -> Option<Vec<String>> {
    let names: Vec<String> = failures.lines().map(str::to_owned).collect();
    let is_few = (1..=FAILURES_MAX).contains(&names.len());
    (is_few && !names.iter().any(|name| name.starts_with(FINAL_PREFIX))).then_some(names)
}

/// Running scenario. Its drop records its name as failed unless it passed, even after a panic.
pub(crate) struct RunningScenario {
    name: String,
    has_failed: bool,
}

impl RunningScenario {
    pub(crate) fn new(name: String) -> Self {
        Self { name, has_failed: true }
    }

    pub(crate) fn name(&self) -> &str {
        self.name.trim_start_matches(FINAL_PREFIX)
    }

    /// Sets the outcome. A scenario that leaves resources behind is not retried.
    pub(crate) fn end(&mut self, passed: bool, left_nothing: bool) {
        self.has_failed = !(passed && left_nothing);
        if !left_nothing {
            self.name.insert(0, FINAL_PREFIX);
        }
    }
}

impl Drop for RunningScenario {
    fn drop(&mut self) {
        let Some(path) = std::env::var_os(FAILURES_VARIABLE).filter(|_| self.has_failed) else {
            return;
        };
        let line = |mut file: fs::File| writeln!(file, "{}", self.name);
        if let Err(error) = OpenOptions::new().append(true).open(&path).and_then(line) {
            eprintln!("cannot record in {} that {} failed: {error}", path.display(), self.name);
        }
    }
}

/// Few failures are retried, unless one of them counts at once.
pub(crate) fn few_failures_are_retried() -> Result<()> {
    let both = Some(vec!["a::b".to_owned(), "c::d".to_owned()]);
    // In the last case no scenario failed, but the process, which was killed for example.
    let cases =
        [("a::b\nc::d\n", both), ("a\nb\nc\nd\n", None), ("a::b\n!c::d\n", None), ("", None)];
    for (noted, expected) in cases {
        let names = names_to_retry(noted);
        ensure!(names == expected, "{noted:?}: {names:?}");
    }
    Ok(())
}
