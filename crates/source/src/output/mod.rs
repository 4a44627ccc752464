//! Output of samples to other programs: in shared memory for the SHM driver of ntpd, and as
//! datagrams for the SOCK driver of chronyd. Writing never blocks.

mod shm;

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use horolog_time::{Span, Timestamp, Utc};
use horolog_wire::ntp::LeapIndicator;
use serde::{Deserialize, Serialize};

use crate::{SockSample, SourceError};

pub use shm::ShmOutput;

/// Sample for other programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutputSample {
    /// Reading of the system clock.
    pub system: Timestamp<Utc>,
    /// True time minus the system clock.
    pub offset: Span,
    /// Error bound of `offset`.
    pub uncertainty: Span,
    /// Leap indicator.
    pub leap: LeapIndicator,
}

/// Status of one output, in the output of `horolog status`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SampleOutputStatus {
    /// `shm:UNIT` or `sock:PATH`.
    pub name: String,
    /// Samples written to shared memory, or accepted by the socket of the receiver.
    pub delivered: u64,
    /// Samples that no program received.
    pub missed: u64,
    /// Reason why the output is suspended or fails; absent while it works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Destination of samples.
#[derive(Debug)]
enum SampleOutputSink {
    Shm(ShmOutput),
    Sock(SockOutput),
}

/// Output of samples to one destination, with its status.
#[derive(Debug)]
struct SampleOutput {
    sink: SampleOutputSink,
    status: SampleOutputStatus,
}

impl SampleOutput {
    const fn new(sink: SampleOutputSink, name: String) -> Self {
        Self { sink, status: SampleOutputStatus { name, delivered: 0, missed: 0, reason: None } }
    }

    /// Writes a sample; returns a notice when writing begins to fail or to work again, otherwise
    /// `None`.
    fn write(&mut self, sample: &OutputSample) -> Option<String> {
        let written = match &self.sink {
            SampleOutputSink::Shm(output) => {
                output.write(sample);
                Ok(())
            }
            SampleOutputSink::Sock(output) => output.write(sample),
        };
        let status = &mut self.status;
        let name = &status.name;
        match written {
            Ok(()) => {
                status.delivered += 1;
                status.reason.take().map(|_| format!("writing samples to {name} again"))
            }
            Err(error) => {
                status.missed += 1;
                let is_first_failure = status.reason.is_none();
                let notice =
                    format!("cannot write samples to {name}: {error}; retrying with each sample");
                status.reason = Some(error.to_string());
                is_first_failure.then_some(notice)
            }
        }
    }
}

/// All outputs of samples to other programs.
#[derive(Debug, Default)]
pub(crate) struct SampleOutputs(Vec<SampleOutput>);

impl SampleOutputs {
    /// Opens the SHM outputs of `units` and the SOCK outputs of `paths`.
    pub(crate) fn open(units: &[u8], paths: &[PathBuf]) -> Result<Self, SourceError> {
        let shm = |unit: &u8| {
            ShmOutput::open(*unit).map_err(|error| {
                SourceError::Unusable(format!(
                    "cannot attach shared memory unit {unit}: {error}; choose another with \
                     --shm-output"
                ))
            })
        };
        let sock = |path: &PathBuf| {
            SockOutput::new(path).map_err(|error| {
                SourceError::Unusable(format!("no socket for {}: {error}", path.display()))
            })
        };
        let mut all = Vec::new();
        for unit in units {
            all.push(SampleOutput::new(SampleOutputSink::Shm(shm(unit)?), format!("shm:{unit}")));
        }
        for path in paths {
            all.push(SampleOutput::new(
                SampleOutputSink::Sock(sock(path)?),
                format!("sock:{}", path.display()),
            ));
        }
        Ok(Self(all))
    }

    /// Returns true if there are no outputs.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes a sample to all outputs; returns notices, one line each.
    pub(crate) fn write(&mut self, sample: &OutputSample) -> Vec<String> {
        self.0.iter_mut().filter_map(|output| output.write(sample)).collect()
    }

    /// Records in the status of all outputs the reason for which they are suspended.
    pub(crate) fn set_suspended(&mut self, reason: &str) {
        self.0.iter_mut().for_each(|output| output.status.reason = Some(reason.to_owned()));
    }

    /// Returns the status of each output.
    pub(crate) fn status(&self) -> Vec<SampleOutputStatus> {
        self.0.iter().map(|output| output.status.clone()).collect()
    }
}

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

    /// Sends a sample; its reading of the system clock is truncated to 1 µs.
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
    use std::os::unix::net::UnixDatagram;

    use horolog_time::{NS_PER_S, Span, Timestamp};
    use horolog_wire::ntp::LeapIndicator;

    use super::*;
    use crate::SOCK_SAMPLE_LEN;

    #[test]
    fn a_missing_socket_is_reported_once_and_again_when_it_exists() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("chrony.sock");
        let mut outputs = SampleOutputs::open(&[], std::slice::from_ref(&path)).unwrap();
        let sample = OutputSample {
            system: Timestamp::from_ns(0),
            offset: Span::ZERO,
            uncertainty: Span::ZERO,
            leap: LeapIndicator::None,
        };
        let notices = outputs.write(&sample);
        assert!(
            notices[0].starts_with(&format!("cannot write samples to sock:{}", path.display()))
        );
        assert_eq!(outputs.write(&sample), [""; 0], "it is known");
        let status = &outputs.status()[0];
        assert_eq!((status.delivered, status.missed, status.reason.is_some()), (0, 2, true));
        let _reader = UnixDatagram::bind(&path).unwrap();
        assert_eq!(outputs.write(&sample).len(), 1, "it is there now");
        assert_eq!(outputs.write(&sample), [""; 0]);
        let status = &outputs.status()[0];
        assert_eq!((status.delivered, status.missed, &status.reason), (2, 2, &None));
    }

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
