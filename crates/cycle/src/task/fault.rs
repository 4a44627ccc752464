//! Why something is no set of tasks: what is wrong, and where.

use std::fmt::{self, Display, Formatter};

use super::STATE_MAX;

/// Longest name of a task.
const NAME_MAX: usize = 32;

/// What is wrong with a set of tasks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    place: Place,
    reason: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    Set,
    Task(String),
    Line(usize),
}

impl Fault {
    pub(crate) fn of_set(reason: impl Display) -> Self {
        Self { place: Place::Set, reason: reason.to_string() }
    }

    pub(super) fn of_task(name: &str, reason: impl Display) -> Self {
        Self { place: Place::Task(quoted(name)), reason: reason.to_string() }
    }

    /// A fault where a byte of a text stands.
    pub(crate) fn at(text: &str, byte: usize, reason: impl Display) -> Self {
        let line = 1 + text.get(..byte).unwrap_or(text).matches('\n').count();
        Self { place: Place::Line(line), reason: reason.to_string() }
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Set => f.write_str(&self.reason),
            Place::Task(name) => write!(f, "task '{name}': {}", self.reason),
            Place::Line(line) => write!(f, "line {line}: {}", self.reason),
        }
    }
}

impl std::error::Error for Fault {}

/// Whether a task may be called so, or why not. Names stand in file names, tables and messages.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if (1..=NAME_MAX).contains(&name.len()) && name.chars().all(plain) {
        return Ok(());
    }
    Err(format!(
        "'{}' is no name; write 1 to {NAME_MAX} letters, digits, '-', '_' and '.'",
        quoted(name)
    ))
}

/// Whether a state may be called so, or why not. Names stand in messages, tables and lines of CSV.
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
        "'{}' is no name of a state; write 1 to {STATE_MAX} letters, digits, spaces, '-', '_' and \
         '.'",
        quoted(name)
    ))
}

/// What is quoted of a file stays in its line and is no longer than a name may be.
fn quoted(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(NAME_MAX).collect()
}
