//! Error of a set of tasks, with its location.

use std::fmt::{self, Display, Formatter};

use super::STATE_MAX;

/// Longest name of a task, in bytes.
const NAME_MAX: usize = 32;

/// Reason for which a set of tasks or its file is invalid, with the location.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskSetError {
    location: TaskSetErrorLocation,
    reason: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum TaskSetErrorLocation {
    Set,
    Task(String),
    Line(usize),
}

impl TaskSetError {
    pub(crate) fn for_set(reason: impl Display) -> Self {
        Self { location: TaskSetErrorLocation::Set, reason: reason.to_string() }
    }

    pub(super) fn for_task(name: &str, reason: impl Display) -> Self {
        Self { location: TaskSetErrorLocation::Task(quoted(name)), reason: reason.to_string() }
    }

    /// Creates an error at the line that contains this byte of the text.
    pub(crate) fn at_byte(text: &str, byte: usize, reason: impl Display) -> Self {
        let line = 1 + text.get(..byte).unwrap_or(text).matches('\n').count();
        Self { location: TaskSetErrorLocation::Line(line), reason: reason.to_string() }
    }
}

impl Display for TaskSetError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.location {
            TaskSetErrorLocation::Set => f.write_str(&self.reason),
            TaskSetErrorLocation::Task(name) => write!(f, "task '{name}': {}", self.reason),
            TaskSetErrorLocation::Line(line) => write!(f, "line {line}: {}", self.reason),
        }
    }
}

impl std::error::Error for TaskSetError {}

/// Checks the name of a task, which is used in file names, tables and messages. The error is the
/// reason.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_allowed) {
        return Ok(());
    }
    Err(format!(
        "invalid name '{}'; write 1 to {NAME_MAX} letters, digits, '-', '_' and '.'",
        quoted(name)
    ))
}

/// Checks the name of a state, which is used in messages, tables and CSV. The error is the reason.
pub(super) fn check_state(name: &str) -> Result<(), String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_. ".contains(c);
    if (1..=STATE_MAX).contains(&name.len())
        && name.chars().all(is_allowed)
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

/// Returns a text of a file without control characters, truncated to the longest name.
fn quoted(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(NAME_MAX).collect()
}
