//! Secrets on the command line: read without being shown in an error, and removed from the recorded
//! command.

use std::convert::Infallible;
use std::fmt;

use horolog_load::nts::ImportedSession;
use zeroize::Zeroizing;

use crate::failure::CommandFailure;

/// Replacement text of a secret.
const HIDDEN: &str = "(hidden)";

/// A secret argument. Its text is wiped on drop, and nothing prints it.
#[derive(Clone)]
pub(crate) struct SecretText(Zeroizing<String>);

impl SecretText {
    /// Accepts any text: a parser's error would show the rejected text.
    #[allow(clippy::unnecessary_wraps, reason = "a value parser returns a result")]
    pub(crate) fn read(text: &str) -> Result<Self, Infallible> {
        Ok(Self(Zeroizing::new(text.to_owned())))
    }

    /// Reads it as an NTS session; `option` is the name of its option.
    pub(crate) fn session(&self, option: &str) -> Result<ImportedSession, CommandFailure> {
        let failed = |error| CommandFailure::usage(format!("{option}: {error}"));
        ImportedSession::parse(&self.0).map_err(failed)
    }

    /// The arguments of a command without the secret.
    pub(crate) fn hide(&self, command: Vec<String>) -> Vec<String> {
        if self.0.is_empty() {
            return command;
        }
        command.into_iter().map(|argument| argument.replace(&*self.0, HIDDEN)).collect()
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_taken_out_however_it_was_written() {
        let secret = SecretText::read("aabb,ccdd").unwrap();
        let command = ["ntpperf", "-B", "-Saabb,ccdd", "--x=aabb,ccdd", "aabb,ccdd"];
        let shown = secret.hide(command.map(str::to_owned).to_vec());
        assert_eq!(shown, ["ntpperf", "-B", "-S(hidden)", "--x=(hidden)", "(hidden)"]);
        assert!(!format!("{secret:?}").contains("aabb"));
        let complaint = secret.session("-S").unwrap_err().to_string();
        assert!(complaint.starts_with("-S: ") && !complaint.contains("aabb"), "{complaint}");
        let none = SecretText::read("").unwrap();
        assert_eq!(none.hide(vec!["a".to_owned()]), ["a"]);
    }
}
