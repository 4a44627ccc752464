//! Error of a tree file or delay file, with its line.

/// Error in a line of a tree file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct TreeFileError {
    /// Line number, from 1 on.
    pub line: usize,
    /// Error in one line of text.
    pub reason: String,
}

impl TreeFileError {
    pub(super) fn new(line: usize, reason: impl std::fmt::Display) -> Self {
        Self { line, reason: reason.to_string() }
    }

    /// Makes an error for the line that contains a byte of a text.
    pub(super) fn at_byte(text: &str, byte: usize, reason: impl std::fmt::Display) -> Self {
        Self::new(1 + text.get(..byte).unwrap_or(text).matches('\n').count(), reason)
    }
}

/// Maximum length of a node's name, in bytes.
const NAME_MAX: usize = 64;

/// Checks the name of a node; the error is the reason. Valid names need no quoting in a file.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let is_permitted = |c: char| c.is_ascii_alphanumeric() || "-_.:[]".contains(c);
    if (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_permitted) {
        return Ok(());
    }
    Err(format!(
        "invalid node name '{}'; write 1 to {NAME_MAX} letters, digits, '-', '_', '.', ':', '[' \
         and ']'",
        printable_name(name)
    ))
}

/// Makes a name of a file printable: without control characters, and no longer than a name may be.
pub(super) fn printable_name(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(NAME_MAX).collect()
}

/// Longest permitted time: a day, in µs. Sums of such times stay exact enough.
const TIME_MAX_US: f64 = 86_400e6;
const NS_PER_US: f64 = 1e3;

/// Converts a time in µs to ns; the error is the reason for which it is invalid. `what` names the
/// time in the reason.
pub(super) fn checked_time_ns(what: &str, us: f64) -> Result<f64, String> {
    if us < 0.0 {
        Err(format!("{what} is {us} µs; a time cannot be negative"))
    } else if us <= TIME_MAX_US {
        Ok(us * NS_PER_US)
    } else {
        Err(format!("{what} is {us} µs; write a number of µs, at most a day"))
    }
}

/// Converts ns to µs, the unit of the files.
pub(super) fn to_us(ns: f64) -> f64 {
    ns / NS_PER_US
}
