//! Bearer token that authorises requests: one line of a file that other users may not read. It is
//! wiped on drop and never printed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use horolog_sys::private_file::{self, PrivateFileError};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Smallest length of a token, in bytes; a shorter one could be guessed.
const LEN_MIN: usize = 16;
const LEN_MAX: usize = 1_024;

/// Secret token that authorises requests; 16 to 1,024 printable ASCII characters without spaces.
#[derive(Clone)]
pub struct BearerToken {
    text: Zeroizing<String>,
    /// Digest that is compared instead of the text, so that the time of a comparison does not
    /// reveal the length of the token.
    digest: Zeroizing<[u8; 32]>,
}

/// Reason for which a token could not be loaded, as one line of text.
#[derive(Debug, thiserror::Error)]
pub enum BearerTokenError {
    /// The file cannot be read, or other users may read it.
    #[error("the token file {0} {1}")]
    File(PathBuf, #[source] PrivateFileError),
    /// The content is not a valid token.
    #[error(
        "the token file {0} must contain one line of {LEN_MIN} to {LEN_MAX} printable characters \
         without spaces; create one with `openssl rand -hex 32`"
    )]
    InvalidForm(PathBuf),
}

impl BearerToken {
    /// Reads the token from a file that other users may not read; white space around the token is
    /// ignored.
    pub fn load(path: &Path) -> Result<Self, BearerTokenError> {
        let invalid_form = || BearerTokenError::InvalidForm(path.to_owned());
        let text = private_file::read(path, 2 * LEN_MAX as u64).map(Zeroizing::new);
        let text = text.map_err(|error| match error {
            PrivateFileError::TooLong(_) => invalid_form(),
            PrivateFileError::Unreadable(error) if error.kind() == io::ErrorKind::InvalidData => {
                invalid_form()
            }
            error => BearerTokenError::File(path.to_owned(), error),
        })?;
        Self::parse(&text).ok_or_else(invalid_form)
    }

    /// Parses a token, with optional white space around it; `None` unless it has 16 to 1,024
    /// printable ASCII characters without spaces.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let is_valid = (LEN_MIN..=LEN_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_valid.then(|| Self {
            text: Zeroizing::new(text.to_owned()),
            digest: Zeroizing::new(Sha256::digest(text).into()),
        })
    }

    /// Returns true if `presented` is the token. The duration reveals neither how much of it is
    /// correct nor the length of the token.
    #[must_use]
    pub fn matches(&self, presented: &[u8]) -> bool {
        self.digest.ct_eq(&Sha256::digest(presented)).into()
    }

    /// Returns the secret text, to be sent.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    const TEXT: &str = "0123456789abcdef";

    fn load(text: &[u8], mode: u32) -> Result<BearerToken, BearerTokenError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        BearerToken::load(&path)
    }

    #[test]
    fn a_file_holds_one_token() {
        let token = load(b" 0123456789abcdef\n", 0o600).unwrap();
        assert!(
            token.matches(TEXT.as_bytes())
                && !token.matches(b"")
                && !token.matches(&TEXT.as_bytes()[..15])
        );
        assert!(!token.matches(b"0123456789abcdeg") && !token.matches(b"0123456789abcdef0"));
        assert!(!format!("{token:?}").contains("0123"));
        assert!(load(TEXT.as_bytes(), 0o640).is_ok());
    }

    #[test]
    fn a_file_that_is_none_is_refused_without_repeating_it() {
        for (text, mode, expected) in [
            (&b"0123456789abcde"[..], 0o600, "16 to 1024"),
            (b"0123456789 abcdef", 0o600, "16 to 1024"),
            (b"0123456789abcdef\n0123456789abcdef", 0o600, "16 to 1024"),
            (b"\xff\xff0123456789abcdef", 0o600, "16 to 1024"),
            (&[b'a'; 3_000], 0o600, "16 to 1024"),
            (TEXT.as_bytes(), 0o644, "mode 644"),
            (TEXT.as_bytes(), 0o602, "chmod o="),
        ] {
            let message = load(text, mode).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains("0123"), "{message}");
        }
        let directory = BearerToken::load(Path::new("/")).unwrap_err().to_string();
        assert!(directory.contains("not a regular file"), "{directory}");
    }

    #[test]
    fn fifo_without_a_writer_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (sender, message) = mpsc::channel();
        thread::spawn(move || sender.send(BearerToken::load(&path).unwrap_err().to_string()));
        let message = message.recv_timeout(Duration::from_secs(20)).expect("an answer");
        assert!(message.contains("not a regular file"), "{message}");
    }
}
