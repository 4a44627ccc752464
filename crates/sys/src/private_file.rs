//! Files with secrets: read only if they are regular files that other users of the host can neither
//! read nor write. Owner and group are not checked.

use crate::explain::explain;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Open flags that neither block, whatever kind of file it is, nor follow a symbolic link
/// (`O_NONBLOCK`, `O_NOFOLLOW` in open(2)).
pub const NONBLOCK_NOFOLLOW: i32 = libc::O_NONBLOCK | libc::O_NOFOLLOW;

/// Permission bits of other users, which must be clear.
const OTHER_BITS: u32 = 0o007;

/// Reason why a file is not read; a message starts with the file's name.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    /// The file cannot be read.
    #[error("cannot be read: {why}; check the path and its permissions", why = explain(.0))]
    Unreadable(#[from] io::Error),
    /// Other users can access the file; its mode.
    #[error("is accessible to every user (mode {0:o}); run 'chmod o=' on it")]
    NotPrivate(u32),
    /// The file is longer than this limit, in bytes.
    #[error("exceeds {0} bytes and cannot be such a file")]
    TooLong(u64),
}

/// Reads a secret file of at most `len_max` bytes as text. Only one copy exists in memory, for the
/// caller to wipe.
pub fn read(path: &Path, len_max: u64) -> Result<String, PrivateFileError> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "not text (UTF-8)").into();
    String::from_utf8(read_bytes(path, len_max)?).map_err(not_text)
}

/// Reads a secret file of at most `len_max` bytes, which need not be text.
pub fn read_bytes(path: &Path, len_max: u64) -> Result<Vec<u8>, PrivateFileError> {
    // Opening must not block: a FIFO is otherwise opened only when another process writes to it
    // (fifo(7)).
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    // Metadata of the opened file, not of one that may have replaced it.
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Err(io::Error::other("not a regular file").into());
    }
    if facts.mode() & OTHER_BITS != 0 {
        return Err(PrivateFileError::NotPrivate(facts.mode() & 0o7777));
    }
    if facts.len() > len_max {
        return Err(PrivateFileError::TooLong(len_max));
    }
    // One byte more than the file, so that the buffer never grows and leaves a copy behind.
    let mut bytes = Vec::with_capacity(facts.len() as usize + 1);
    Read::by_ref(&mut file).take(facts.len()).read_to_end(&mut bytes)?;
    Ok(bytes)
}
