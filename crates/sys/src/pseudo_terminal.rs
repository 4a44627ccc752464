//! Pseudo-terminals (pty(7)): a line whose far end belongs to this process, for simulated devices,
//! such as a receiver in tests.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use crate::descriptor::check;

/// Far end of a line; the line ends with it.
#[derive(Debug)]
pub struct PseudoTerminal {
    file: File,
    number: u32,
}

impl PseudoTerminal {
    /// Creates a new one.
    ///
    /// # Errors
    ///
    /// If the system has no more of them, or no `/dev/pts`.
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

    /// Returns the device that is opened at the near end.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        format!("/dev/pts/{}", self.number).into()
    }
}

impl Read for PseudoTerminal {
    /// Reads the data written at the near end, without waiting. Once that end was opened and has
    /// been closed by all, this is an error.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.file.read(bytes)
    }
}

impl Write for PseudoTerminal {
    /// Writes as much as the line has room for.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
