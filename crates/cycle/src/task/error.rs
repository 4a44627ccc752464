//! Error of a set of tasks, with its location.

use std::fmt::{self, Display, Formatter};

use super::STATE_MAX;

/// Longest name of a task.
const NAME_MAX: usize = 32;

/// Error of a set of tasks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskSetError {
    location: ErrorLocation,
    reason: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum ErrorLocation {
    Set,
    Task(String),
    Line(usize),
}

impl TaskSetError {
    pub(crate) fn of_set(reason: impl Display) -> Self {
        Self { location: ErrorLocation::Set, reason: reason.to_string() }
    }

    pub(super) fn of_task(name: &str, reason: impl Display) -> Self {
        Self { location: ErrorLocation::Task(quoted(name)), reason: reason.to_string() }
    }

    /// Makes an error at the location of a byte of a text.
    pub(crate) fn at(text: &str, byte: usize, reason: impl Display) -> Self {
        let line = 1 + text.get(..byte).unwrap_or(text).matches('\n').count();
        Self { location: ErrorLocation::Line(line), reason: reason.to_string() }
    }
}

impl Display for TaskSetError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.location {
            ErrorLocation::Set => f.write_str(&self.reason),
            ErrorLocation::Task(name) => write!(f, "task '{name}': {}", self.reason),
            ErrorLocation::Line(line) => write!(f, "line {line}: {}", self.reason),
        }
    }
}

impl std::error::Error for TaskSetError {}

/// Checks the name of a task; the error is the reason. Names stand in file names, tables and
/// messages.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if (1..=NAME_MAX).contains(&name.len()) && name.chars().all(plain) {
        return Ok(());
    }
    Err(format!(
        "invalid name '{}'; write 1 to {NAME_MAX} letters, digits, '-', '_' and '.'",
        quoted(name)
    ))
}

/// Checks the name of a state; the error is the reason. Names stand in messages, tables and lines
/// of CSV.
pub(super) fn check_state(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_. ".contains(c);
    if (1..=STATE_MAX).contains(&name.len())
        && name.chars().all(plain)
        && !name.starts_with(' ')
        && !name.ends_with(' ')
    {
        return Ok(());
    }
    Err(format!(
        "invalid state name '{}'; write 1 to {STATE_MAX} letters, digits, spaces, '-', '_' and '.'",
        quoted(name)
    ))
}

/// Quotes text of a file on one line, no longer than a name may be.
fn quoted(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(NAME_MAX).collect()
}
