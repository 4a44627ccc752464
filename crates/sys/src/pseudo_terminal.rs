//! Pseudo-terminals (pty(7)): serial lines whose master side belongs to this process, for simulated
//! devices such as a receiver in tests.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use crate::descriptor::check;

/// Master side of a pseudo-terminal; dropping it closes the line.
#[derive(Debug)]
pub struct PseudoTerminal {
    file: File,
    number: u32,
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
        let (mut number, unlocked) = (0_u32, 0_i32);
        // SAFETY: each request reads or writes one number, which outlives the call.
        unsafe {
            check(libc::ioctl(file.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked))?;
            check(libc::ioctl(file.as_raw_fd(), libc::TIOCGPTN, &raw mut number))?;
        }
        Ok(Self { file, number })
    }

    /// Returns the path of the slave device.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        format!("/dev/pts/{}", self.number).into()
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
