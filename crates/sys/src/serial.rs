//! Serial lines (termios(3)): 8 data bits, no parity, one stop bit, raw input.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::termios::{
    ControlModes, OptionalActions, QueueSelector, tcflush, tcgetattr, tcsetattr,
};

use crate::descriptor::wait_for;

/// Supported speeds in bits per second.
const SPEEDS: [u32; 9] = [4_800, 9_600, 19_200, 38_400, 57_600, 115_200, 230_400, 460_800, 921_600];

/// Returns true if this speed is supported, in bits per second.
#[must_use]
pub fn is_supported_speed(bits_per_second: u32) -> bool {
    SPEEDS.contains(&bits_per_second)
}

/// Returns the supported speeds, in bits per second.
#[must_use]
pub const fn speeds() -> [u32; SPEEDS.len()] {
    SPEEDS
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
        if !is_supported_speed(bits_per_second) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // Neither waits for the carrier nor makes the line the controlling terminal.
        let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let mut settings = tcgetattr(&file)?;
        settings.make_raw();
        settings.set_speed(bits_per_second)?;
        // Eight bits without parity come from make_raw.
        settings.control_modes.remove(ControlModes::CSTOPB | ControlModes::CRTSCTS);
        settings.control_modes.insert(ControlModes::CLOCAL | ControlModes::CREAD);
        tcsetattr(&file, OptionalActions::Now, &settings)?;
        tcflush(&file, QueueSelector::IFlush)?;
        Ok(Self { file })
    }

    /// Waits up to `wait` for characters and reads the available ones; `None` at the timeout or
    /// after a signal.
    ///
    /// # Errors
    ///
    /// If the line is gone.
    pub fn read(&mut self, buffer: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        if !wait_for(self.file.as_fd(), PollFlags::IN, wait)? {
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
