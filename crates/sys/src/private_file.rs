//! Files with secrets: read only if they are regular files that other users of the machine may
//! neither read nor change. Owner and group are up to the administrator.

use crate::explain::explain;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Flags by which a file is opened at once, regardless of its kind, and refused if it is a link
/// (`open(2)`, `O_NONBLOCK` and `O_NOFOLLOW`).
pub const AT_ONCE_AND_NO_LINK: i32 = libc::O_NONBLOCK | libc::O_NOFOLLOW;

/// Permissions of others, who may neither read nor write it, nor run it.
const FOR_OTHERS: u32 = 0o007;

/// Reason for which a file is not read; it follows the file's name in a message.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    /// It cannot be read.
    #[error("cannot be read: {why}; check the path and its permissions", why = explain(.0))]
    Unreadable(#[from] io::Error),
    /// Anyone on the machine may read or change it.
    #[error("is accessible to every user (mode {0:o}); run 'chmod o=' on it")]
    Open(u32),
    /// It is longer than anything of its kind.
    #[error("exceeds {0} bytes and cannot be such a file")]
    TooLong(u64),
}

/// Reads a secret file of at most `len_max` bytes as text, which exists once in memory, for the
/// caller to wipe.
pub fn read(path: &Path, len_max: u64) -> Result<String, PrivateFileError> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "not text (UTF-8)").into();
    String::from_utf8(read_bytes(path, len_max)?).map_err(not_text)
}

/// Reads a secret file whose content need not be text.
pub fn read_bytes(path: &Path, len_max: u64) -> Result<Vec<u8>, PrivateFileError> {
    // Opening must not block: a FIFO is otherwise opened only when another process writes to it
    // (fifo(7)).
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    // Of the opened file, not of another that may have its name now.
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Err(io::Error::other("not a regular file").into());
    }
    if facts.mode() & FOR_OTHERS != 0 {
        return Err(PrivateFileError::Open(facts.mode() & 0o7777));
    }
    if facts.len() > len_max {
        return Err(PrivateFileError::TooLong(len_max));
    }
    // One more than fits, so that it never grows and leaves a copy.
    let mut bytes = Vec::with_capacity(facts.len() as usize + 1);
    Read::by_ref(&mut file).take(facts.len()).read_to_end(&mut bytes)?;
    Ok(bytes)
}
