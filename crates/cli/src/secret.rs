//! Secrets on the command line: removed from error messages and from the command line that a result
//! records.

use std::convert::Infallible;
use std::fmt;

use horolog_load::nts::ImportedSession;
use zeroize::Zeroizing;

use crate::failure::CommandFailure;

/// Replacement text of a secret.
const HIDDEN: &str = "(hidden)";

/// Secret value of an option. It is zeroed on drop, and its `Debug` output does not contain it.
#[derive(Clone)]
pub(crate) struct SecretText(Zeroizing<String>);

impl SecretText {
    /// Value parser for clap. It accepts any text, because clap's error would quote a rejected one.
    #[allow(clippy::unnecessary_wraps, reason = "a value parser returns a result")]
    pub(crate) fn read(text: &str) -> Result<Self, Infallible> {
        Ok(Self(Zeroizing::new(text.to_owned())))
    }

    /// Parses the secret as an NTS session; `option` names the option in the error message.
    pub(crate) fn parse_session(&self, option: &str) -> Result<ImportedSession, CommandFailure> {
        let failed = |error| CommandFailure::usage(format!("{option}: {error}"));
        ImportedSession::parse(&self.0).map_err(failed)
    }

    /// Replaces each occurrence of the secret in the arguments of a command by [`HIDDEN`].
    pub(crate) fn redact_command(&self, command: Vec<String>) -> Vec<String> {
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
        let shown = secret.redact_command(command.map(str::to_owned).to_vec());
        assert_eq!(shown, ["ntpperf", "-B", "-S(hidden)", "--x=(hidden)", "(hidden)"]);
        assert!(!format!("{secret:?}").contains("aabb"));
        let complaint = secret.parse_session("-S").unwrap_err().to_string();
        assert!(complaint.starts_with("-S: ") && !complaint.contains("aabb"), "{complaint}");
        let none = SecretText::read("").unwrap();
        assert_eq!(none.redact_command(vec!["a".to_owned()]), ["a"]);
    }
}
