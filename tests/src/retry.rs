//! A second attempt, alone, for scenarios that failed while other groups ran in parallel.
//!
//! Scenarios that measure are meant to have the machine to themselves, and the groups beside them
//! take some of it: mostly little, now and then a core for some milliseconds. Scenarios that wait
//! sometimes have to act before their peer does, while the measuring group loads every core. So a
//! failure counts if it happens again with nothing in parallel; leftovers count at once. Both
//! attempts are printed. If many of a group fail it is no accident, and nothing is retried.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitStatus;

use anyhow::{Context as _, Result, ensure};
use tempfile::NamedTempFile;

/// Holds the path of the file that takes the names of those that failed.
const VARIABLE: &str = "HOROLOG_SCENARIOS_FAILED";
/// More failures than this are no accident.
const FAILURES_MAX: usize = 3;
/// What the list of scenarios ends with when all ran and some failed.
const SOME_FAILED: i32 = 101;

/// Before the name of one whose failure counts at once.
const FINAL: char = '!';

/// The names of the scenarios that failed in a group's process, one in each line of a file.
pub(crate) struct Failures(NamedTempFile);

impl Failures {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(NamedTempFile::new().context("cannot keep the names of what fails")?))
    }

    /// What the group's process needs in its environment.
    pub(crate) fn variable(&self) -> (&'static str, &Path) {
        (VARIABLE, self.0.path())
    }

    /// Those to try again, of a group that ended so; `None` if its end counts as it is.
    pub(crate) fn to_retry(&self, ended: ExitStatus) -> Result<Option<Vec<String>>> {
        let text = fs::read_to_string(self.0.path()).context("cannot read what failed")?;
        Ok(if ended.code() == Some(SOME_FAILED) { to_retry(&text) } else { None })
    }
}

fn to_retry(noted: &str) -> Option<Vec<String>> {
    let names: Vec<String> = noted.lines().map(str::to_owned).collect();
    let accident = (1..=FAILURES_MAX).contains(&names.len());
    (accident && !names.iter().any(|name| name.starts_with(FINAL))).then_some(names)
}

/// A scenario that runs: its name is noted unless it holds, be its end a panic.
pub(crate) struct Running {
    name: String,
    noted: bool,
}

impl Running {
    pub(crate) fn new(name: String) -> Self {
        Self { name, noted: true }
    }

    pub(crate) fn name(&self) -> &str {
        self.name.trim_start_matches(FINAL)
    }

    /// What it came to. One that leaves something behind is tried no second time.
    pub(crate) fn end(&mut self, held: bool, left_nothing: bool) {
        self.noted = !(held && left_nothing);
        if !left_nothing {
            self.name.insert(0, FINAL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(path) = std::env::var_os(VARIABLE).filter(|_| self.noted) else { return };
        let line = |mut file: fs::File| writeln!(file, "{}", self.name);
        if let Err(error) = OpenOptions::new().append(true).open(&path).and_then(line) {
            eprintln!("cannot note in {} that {} failed: {error}", path.display(), self.name);
        }
    }
}

/// Few failures are tried again, unless one of them counts at once.
pub(crate) fn few_failures_are_retried() -> Result<()> {
    let both = Some(vec!["a::b".to_owned(), "c::d".to_owned()]);
    // The last failed without a name: its process was killed, say.
    let cases =
        [("a::b\nc::d\n", both), ("a\nb\nc\nd\n", None), ("a::b\n!c::d\n", None), ("", None)];
    for (noted, expected) in cases {
        let names = to_retry(noted);
        ensure!(names == expected, "{noted:?}: {names:?}");
    }
    Ok(())
}
