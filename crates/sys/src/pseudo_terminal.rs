//! Pseudo-terminals (pty(7)): serial lines whose master side belongs to this process, for simulated
//! devices such as a receiver in tests.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::pty::{ptsname, unlockpt};

/// Master side of a pseudo-terminal; dropping it closes the line.
#[derive(Debug)]
pub struct PseudoTerminal {
    file: File,
    path: PathBuf,
}

impl PseudoTerminal {
    /// Creates a pseudo-terminal.
    ///
    /// # Errors
    ///
    /// If the limit of pseudo-terminals is reached, or `/dev/pts` is missing.
    pub fn open() -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true);
        let file = options.custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK).open("/dev/ptmx")?;
        unlockpt(&file)?;
        let path = OsString::from_vec(ptsname(&file, [])?.into_bytes()).into();
        Ok(Self { file, path })
    }

    /// Returns the path of the slave device.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }
}

impl Read for PseudoTerminal {
    /// Reads data written to the slave, without blocking. An error if the slave was opened and has
    /// been closed by all.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.file.read(bytes)
    }
}

impl Write for PseudoTerminal {
    /// Writes as many bytes as there is room for.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
