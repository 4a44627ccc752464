//! Why a file says no tree, or no delays: what is wrong, and in which line.

/// What is wrong with a line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct Fault {
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong with it, in one line.
    pub reason: String,
}

impl Fault {
    pub(super) fn new(line: usize, reason: impl std::fmt::Display) -> Self {
        Self { line, reason: reason.to_string() }
    }

    /// A fault where a byte of a text stands.
    pub(super) fn at(text: &str, byte: usize, reason: impl std::fmt::Display) -> Self {
        Self::new(1 + text.get(..byte).unwrap_or(text).matches('\n').count(), reason)
    }
}

/// Longest name of a node.
const NAME_MAX: usize = 64;

/// Whether a node may be called so, or why not. Names are such that they need no quoting in a file.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:[]".contains(c);
    if (1..=NAME_MAX).contains(&name.len()) && name.chars().all(plain) {
        return Ok(());
    }
    Err(format!(
        "'{}' is no name for a node; write 1 to {NAME_MAX} letters, digits, '-', '_', '.', ':', \
         '[' and ']'",
        quoted(name)
    ))
}

/// What is quoted of a file stays in its line and is no longer than a name may be.
pub(super) fn quoted(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(NAME_MAX).collect()
}

/// The longest time that is taken: a day, in µs. Sums of them stay exact enough.
const TIME_MAX_US: f64 = 86_400e6;
const NS_PER_US: f64 = 1e3;

/// A time in ns from one in µs, or why it is none. What it is is told by `what`.
pub(super) fn time_ns(what: &str, us: f64) -> Result<f64, String> {
    if us < 0.0 {
        Err(format!("{what} is {us} µs; a time cannot be negative"))
    } else if us <= TIME_MAX_US {
        Ok(us * NS_PER_US)
    } else {
        Err(format!("{what} is {us} µs; write a number of µs, a day at most"))
    }
}

/// The same time in µs as it is written in a file.
pub(super) fn us(ns: f64) -> f64 {
    ns / NS_PER_US
}
