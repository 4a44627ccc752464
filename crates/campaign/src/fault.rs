//! What is wrong with a file that people write, with its line.

use std::fmt::{self, Display, Formatter};

/// Why a file is not what it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The line, from 1 on; absent where it is about no line, such as something that is missing.
    pub line: Option<usize>,
    /// What is wrong, and what to do, in one line.
    pub reason: String,
}

impl std::error::Error for Fault {}

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl Fault {
    /// The same of a file that is called so, which stands before the line.
    #[must_use]
    pub fn of_file(&self, name: &str) -> String {
        match self.line {
            Some(line) => format!("{name}:{line}: {}", self.reason),
            None => format!("{name}: {}", self.reason),
        }
    }

    /// The words of others in a reason may hold anything; it is made one line.
    pub(crate) fn new(line: Option<usize>, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { line, reason: shown(&reason, usize::MAX) }
    }

    /// What a TOML parser complains of.
    pub(crate) fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        let line = error.span().map(|span| line_of(text, span.start));
        let reason = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        Self::new(line, reason)
    }
}

/// The line of a byte of a text, from 1 on.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
}

/// So many of something: `1 job`, `2 jobs`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A text of others as it may be shown: cut, on one line, and without what moves a terminal.
pub(crate) fn shown(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).map(|c| if c.is_control() { '?' } else { c }).collect()
}
