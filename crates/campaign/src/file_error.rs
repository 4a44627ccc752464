//! Error in a user-written file, with its line.

use std::fmt::{self, Display, Formatter};

/// Reason why the content of a file is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileContentError {
    /// Line number, from 1; `None` if the error has no line, such as a missing entry.
    pub line: Option<usize>,
    /// Reason and remedy, in one line.
    pub reason: String,
}

impl std::error::Error for FileContentError {}

impl Display for FileContentError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl FileContentError {
    /// Formats the error with the name of the file, which precedes the line number.
    #[must_use]
    pub fn in_file(&self, name: &str) -> String {
        match self.line {
            Some(line) => format!("{name}:{line}: {}", self.reason),
            None => format!("{name}: {}", self.reason),
        }
    }

    /// Creates an error. Control characters in the reason are replaced, so that it is one line.
    pub(crate) fn new(line: Option<usize>, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { line, reason: sanitised(&reason, usize::MAX) }
    }

    /// Converts an error of the TOML parser, with the line of its position if it has one.
    pub(crate) fn from_toml_error(text: &str, error: &toml::de::Error) -> Self {
        let line = error.span().map(|span| line_at_offset(text, span.start));
        let reason = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        Self::new(line, reason)
    }
}

/// Returns the line number, from 1, of a byte offset in a text.
pub(crate) fn line_at_offset(text: &str, offset: usize) -> usize {
    1 + text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count()
}

/// Formats a count: `1 job`, `2 jobs`.
pub(crate) fn count_text(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Sanitises untrusted text for display: truncates it to `chars_max` characters and replaces
/// control characters, including line breaks, by `?`.
pub(crate) fn sanitised(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).map(|c| if c.is_control() { '?' } else { c }).collect()
}
