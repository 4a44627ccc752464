//! Serial lines (termios(3)): 8 data bits, no parity, one stop bit, raw input.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use crate::descriptor::{check, wait_for};

/// Supported speeds in bits per second, with their termios constants.
const SPEEDS: [(u32, libc::speed_t); 9] = [
    (4_800, libc::B4800),
    (9_600, libc::B9600),
    (19_200, libc::B19200),
    (38_400, libc::B38400),
    (57_600, libc::B57600),
    (115_200, libc::B115200),
    (230_400, libc::B230400),
    (460_800, libc::B460800),
    (921_600, libc::B921600),
];

/// Returns true if this speed is supported, in bits per second.
#[must_use]
pub fn is_supported_speed(bits_per_second: u32) -> bool {
    SPEEDS.iter().any(|(speed, _)| *speed == bits_per_second)
}

/// Returns the supported speeds, in bits per second.
#[must_use]
pub fn speeds() -> [u32; SPEEDS.len()] {
    SPEEDS.map(|(speed, _)| speed)
}

/// Open serial line or pseudo-terminal.
#[derive(Debug)]
pub struct SerialLine {
    file: File,
}

impl SerialLine {
    /// Opens a serial line and sets its speed; discards input that arrived earlier.
    ///
    /// # Errors
    ///
    /// If there is no such device, it is not readable, it is no terminal (`ENOTTY`), or it does not
    /// support the speed.
    pub fn open(path: &Path, bits_per_second: u32) -> io::Result<Self> {
        let speed = SPEEDS.iter().find(|(speed, _)| *speed == bits_per_second);
        let (_, speed) = speed.ok_or(io::ErrorKind::InvalidInput)?;
        // Neither waits for the carrier nor makes the line the controlling terminal.
        let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let mut settings = MaybeUninit::<libc::termios>::uninit();
        // SAFETY: the kernel fills the structure, which is read only where it did.
        check(unsafe { libc::tcgetattr(file.as_raw_fd(), settings.as_mut_ptr()) })?;
        // SAFETY: tcgetattr filled it.
        let mut settings = unsafe { settings.assume_init() };
        // SAFETY: the structure is alive and whole; the calls change nothing but it.
        check(unsafe {
            libc::cfmakeraw(&raw mut settings);
            libc::cfsetspeed(&raw mut settings, *speed)
        })?;
        // Eight bits without parity come from cfmakeraw.
        settings.c_cflag &= !(libc::CSTOPB | libc::CRTSCTS);
        settings.c_cflag |= libc::CLOCAL | libc::CREAD;
        // SAFETY: the structure is alive and whole; the kernel only reads it.
        check(unsafe { libc::tcsetattr(file.as_raw_fd(), libc::TCSANOW, &raw const settings) })?;
        // SAFETY: takes a descriptor and a number.
        check(unsafe { libc::tcflush(file.as_raw_fd(), libc::TCIFLUSH) })?;
        Ok(Self { file })
    }

    /// Waits up to `wait` for characters and reads the available ones; `None` at the timeout or
    /// after a signal.
    ///
    /// # Errors
    ///
    /// If the line is gone.
    pub fn read(&mut self, buffer: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        if !wait_for(self.file.as_fd(), libc::POLLIN, wait)? {
            return Ok(None);
        }
        match self.file.read(buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pseudo_terminal::PseudoTerminal;
    use std::io::Write;

    #[test]
    fn every_byte_comes_as_it_was_sent_until_the_line_ends() {
        let mut far = PseudoTerminal::open().unwrap();
        let mut line = SerialLine::open(&far.path(), 115_200).unwrap();
        let mut buffer = [0; 600];
        assert_eq!(line.read(&mut buffer, Duration::ZERO).unwrap(), None);
        let all: Vec<u8> = (0..=255).collect();
        far.write_all(&all).unwrap();
        let mut read = Vec::new();
        while read.len() < all.len() {
            let length = line.read(&mut buffer, Duration::from_secs(5)).unwrap().unwrap();
            read.extend_from_slice(&buffer[..length]);
        }
        assert_eq!(read, all);
        drop(far);
        assert!(line.read(&mut buffer, Duration::from_secs(5)).is_err());
    }

    #[test]
    fn what_is_no_line_is_refused() {
        let far = PseudoTerminal::open().unwrap();
        assert_eq!(
            SerialLine::open(&far.path(), 1_234).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        let none = SerialLine::open(Path::new("/dev/null"), 9_600).unwrap_err();
        assert_eq!(none.raw_os_error(), Some(libc::ENOTTY));
        assert!(SerialLine::open(Path::new("/dev/no-such-line"), 9_600).is_err());
        assert!(speeds().into_iter().all(is_supported_speed));
    }
}
