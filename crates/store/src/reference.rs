//! Reference to a stored run: its number, its key or a prefix of the key, its assigned name, or its
//! position from the end.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Smallest length of a key prefix, in hexadecimal digits. A run whose number consists of the same
/// digits takes precedence.
const KEY_DIGITS_MIN: usize = 4;
const KEY_DIGITS_MAX: usize = 16;
const NAME_LENGTH_MAX: usize = 64;

/// Reference to a stored run, as written by the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunReference {
    /// The last stored run, or the run N before it: `last`, `last~1`.
    Last(u32),
    /// Number, key or name, which the store distinguishes.
    Named(String),
}

/// Error for a text that cannot refer to a run.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "invalid run '{0}'; write its number, its key, its name, 'last', or 'last~1' for the one \
     before that"
)]
pub struct RunReferenceError(String);

impl RunReference {
    /// Returns true if this can be a run's name: 1 to 64 letters, digits, `-`, `_` and `.`,
    /// starting with a letter, and neither `last` nor a text that could be a key.
    #[must_use]
    pub fn is_valid_name(text: &str) -> bool {
        let is_well_formed = text.len() <= NAME_LENGTH_MAX
            && text.starts_with(|first: char| first.is_ascii_alphabetic())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        is_well_formed && text != "last" && !is_key(text)
    }
}

/// Returns true if the text can be a key or a prefix of one: 4 to 16 lower-case hexadecimal digits.
pub(crate) fn is_key(text: &str) -> bool {
    (KEY_DIGITS_MIN..=KEY_DIGITS_MAX).contains(&text.len())
        && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
}

impl FromStr for RunReference {
    type Err = RunReferenceError;

    fn from_str(text: &str) -> Result<Self, RunReferenceError> {
        let invalid = || RunReferenceError(text.to_owned());
        if let Some(distance) = text.strip_prefix("last") {
            let distance = match distance.strip_prefix('~') {
                Some(back) => back.parse().map_err(|_| invalid())?,
                None if distance.is_empty() => 0,
                None if Self::is_valid_name(text) => return Ok(Self::Named(text.to_owned())),
                None => return Err(invalid()),
            };
            return Ok(Self::Last(distance));
        }
        let is_number = text.parse::<i64>().is_ok_and(|number| number > 0);
        if is_number || is_key(text) || Self::is_valid_name(text) {
            Ok(Self::Named(text.to_owned()))
        } else {
            Err(invalid())
        }
    }
}

impl fmt::Display for RunReference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Last(0) => formatter.write_str("last"),
            Self::Last(back) => write!(formatter, "last~{back}"),
            Self::Named(name) => formatter.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_named_in_several_ways() {
        for text in ["last", "last~1", "7", "00ff00ff", "main", "lastly", "v1.2-rc_3"] {
            let reference: RunReference = text.parse().unwrap();
            assert_eq!(reference.to_string(), text);
        }
        for text in ["", "0", "-1", "last~", "last~x", "a b", "'", "dead beef", "1a"] {
            assert!(text.parse::<RunReference>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_means_nothing_else() {
        for text in ["last", "7", "beef", "deadbeef", "", "-x", "a/b"] {
            assert!(!RunReference::is_valid_name(text), "{text}");
        }
        assert!(RunReference::is_valid_name("main") && RunReference::is_valid_name("bee"));
    }
}
