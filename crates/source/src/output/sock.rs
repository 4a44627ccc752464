//! Samples for the socket of another program, in the format of the SOCK driver of chronyd. The path
//! is resolved for each sample, so a program that starts or restarts later receives the samples
//! from then on.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use super::OutputSample;
use crate::SockSample;

/// Socket that sends samples to a path.
#[derive(Debug)]
pub struct SockOutput {
    path: PathBuf,
    socket: UnixDatagram,
}

impl SockOutput {
    /// Prepares to send to `path`, at which no socket need exist yet.
    ///
    /// # Errors
    ///
    /// The limit of open descriptors of this process.
    pub fn new(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        // A stopped reader must not block the writer.
        socket.set_nonblocking(true)?;
        Ok(Self { path: path.to_owned(), socket })
    }

    /// Sends a sample. The driver expects the offset at the clock's reading to a microsecond, so
    /// the reading is passed as such.
    ///
    /// # Errors
    ///
    /// If no program received it.
    pub fn write(&self, sample: &OutputSample) -> io::Result<()> {
        let sample = SockSample {
            system: sample.system,
            offset: sample.offset,
            pulse: false,
            leap: sample.leap,
        };
        self.socket.send_to(&sample.emit(), &self.path).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use horolog_time::{NS_PER_S, Span, Timestamp};
    use horolog_wire::ntp::LeapIndicator;

    use super::*;
    use crate::SOCK_SAMPLE_LEN;

    #[test]
    fn a_reader_that_comes_later_or_again_gets_samples() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("chrony.sock");
        let output = SockOutput::new(&path).unwrap();
        let sample = OutputSample {
            system: Timestamp::from_ns(1_700_000_000 * NS_PER_S),
            offset: Span::from_ns(-77),
            uncertainty: Span::ZERO,
            leap: LeapIndicator::Delete,
        };
        assert!(output.write(&sample).is_err(), "nobody is there");
        for _ in 0..2 {
            let reader = UnixDatagram::bind(&path).unwrap();
            output.write(&sample).unwrap();
            let mut bytes = [0; SOCK_SAMPLE_LEN + 1];
            let length = reader.recv(&mut bytes).unwrap();
            let read = SockSample::parse(&bytes[..length]).unwrap();
            assert_eq!(
                (read.system, read.offset, read.leap),
                (sample.system, sample.offset, sample.leap)
            );
            assert!(!read.pulse);
            drop(reader);
            assert!(output.write(&sample).is_err(), "the reader has gone");
            std::fs::remove_file(&path).unwrap();
        }
    }
}
