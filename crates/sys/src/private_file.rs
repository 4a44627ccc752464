//! Files that hold a secret: read only where they are regular files that other users of the machine
//! may neither read nor change. Owner and group are up to whoever installs them.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Flags by which a file is opened at once, whatever it is, and not where a link stands in its
/// place (`open(2)`, `O_NONBLOCK` and `O_NOFOLLOW`).
pub const AT_ONCE_AND_NO_LINK: i32 = libc::O_NONBLOCK | libc::O_NOFOLLOW;

/// Others may neither read nor write it, nor run it.
const FOR_OTHERS: u32 = 0o007;

/// Why a file is not read; what stands behind its name in a message.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    /// It cannot be read.
    #[error("cannot be read: {0}; check the path and its permissions")]
    Unreadable(#[from] io::Error),
    /// Anyone on the machine may read or change it.
    #[error("is open to every user (mode {0:o}); run 'chmod o=' on it")]
    Open(u32),
    /// It is longer than anything of its kind.
    #[error("is longer than {0} bytes and so no such file")]
    TooLong(u64),
}

/// Reads a secret file of at most `len_max` bytes. The text is in one place of memory, for the
/// caller to wipe.
pub fn read(path: &Path, len_max: u64) -> Result<String, PrivateFileError> {
    // Nobody is waited for: a FIFO is else opened only when somebody writes to it (fifo(7)).
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    // Of what was opened, not of what may have taken its name since.
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Err(io::Error::other("it is not a regular file").into());
    }
    if facts.mode() & FOR_OTHERS != 0 {
        return Err(PrivateFileError::Open(facts.mode() & 0o7777));
    }
    if facts.len() > len_max {
        return Err(PrivateFileError::TooLong(len_max));
    }
    // One more than fits, so that it never grows and leaves a copy behind.
    let mut text = String::with_capacity(facts.len() as usize + 1);
    Read::by_ref(&mut file).take(facts.len()).read_to_string(&mut text)?;
    Ok(text)
}
