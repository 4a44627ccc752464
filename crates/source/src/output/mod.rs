//! What is known of the time, given on to other programs: by shared memory as ntpd's driver SHM
//! reads it, and by datagrams as chronyd's driver SOCK takes them. Nobody answers, so nobody is
//! waited for.

mod shm;
mod sock;

use std::path::PathBuf;

use horolog_time::{Span, Timestamp, Utc};
use horolog_wire::ntp::Leap;
use serde::Serialize;

use crate::Fault;

pub use shm::ShmOutput;
pub use sock::SockOutput;

/// A sample for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutputSample {
    /// What the system clock showed.
    pub system: Timestamp<Utc>,
    /// True time minus the system clock.
    pub offset: Span,
    /// How far that may be wrong.
    pub uncertainty: Span,
    /// Leap indicator.
    pub leap: Leap,
}

/// An output as `horolog status` shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct OutputStatus {
    /// `shm:UNIT` or `sock:PATH`.
    pub name: String,
    /// Samples that were written to shared memory, or that a socket's owner took.
    pub given: u64,
    /// Samples that nobody took.
    pub missed: u64,
    /// Why nothing is given at present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A place that samples go to.
#[derive(Debug)]
enum Place {
    Shm(ShmOutput),
    Sock(SockOutput),
}

/// One output, and what became of its samples.
#[derive(Debug)]
struct Output {
    place: Place,
    status: OutputStatus,
}

impl Output {
    const fn new(place: Place, name: String) -> Self {
        Self { place, status: OutputStatus { name, given: 0, missed: 0, reason: None } }
    }

    /// Gives a sample; returns what the user is to be told of it, which is only what has changed.
    fn write(&mut self, sample: &OutputSample) -> Option<String> {
        let written = match &self.place {
            Place::Shm(output) => {
                output.write(sample);
                Ok(())
            }
            Place::Sock(output) => output.write(sample),
        };
        let status = &mut self.status;
        let name = &status.name;
        match written {
            Ok(()) => {
                status.given += 1;
                status.reason.take().map(|_| format!("the time is given to {name} again"))
            }
            Err(error) => {
                status.missed += 1;
                let is_news = status.reason.is_none();
                let notice = format!(
                    "nobody takes the time at {name}: {error}; it is tried again with each sample"
                );
                status.reason = Some(error.to_string());
                is_news.then_some(notice)
            }
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Outputs(Vec<Output>);

impl Outputs {
    /// Opens these units and prepares to send to these sockets.
    pub(crate) fn open(units: &[u8], paths: &[PathBuf]) -> Result<Self, Fault> {
        let shm = |unit: &u8| {
            ShmOutput::open(*unit).map_err(|error| {
                Fault::Unusable(format!(
                    "unit {unit} of shared memory cannot be attached: {error}; choose another with \
                     --shm-output"
                ))
            })
        };
        let sock = |path: &PathBuf| {
            SockOutput::new(path).map_err(|error| {
                Fault::Unusable(format!("no socket for {}: {error}", path.display()))
            })
        };
        let mut all = Vec::new();
        for unit in units {
            all.push(Output::new(Place::Shm(shm(unit)?), format!("shm:{unit}")));
        }
        for path in paths {
            all.push(Output::new(Place::Sock(sock(path)?), format!("sock:{}", path.display())));
        }
        Ok(Self(all))
    }

    /// Whether there is none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives a sample to all; returns what the user is to be told, each in one line. Who is not
    /// there misses it.
    pub(crate) fn write(&mut self, sample: &OutputSample) -> Vec<String> {
        self.0.iter_mut().filter_map(|output| output.write(sample)).collect()
    }

    /// Notes why nothing is given to any of them.
    pub(crate) fn hold_back(&mut self, reason: &str) {
        self.0.iter_mut().for_each(|output| output.status.reason = Some(reason.to_owned()));
    }

    /// For the status.
    pub(crate) fn status(&self) -> Vec<OutputStatus> {
        self.0.iter().map(|output| output.status.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn a_socket_that_nobody_has_made_is_told_of_once_and_when_it_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("chrony.sock");
        let mut outputs = Outputs::open(&[], std::slice::from_ref(&path)).unwrap();
        let sample = OutputSample {
            system: Timestamp::from_ns(0),
            offset: Span::ZERO,
            uncertainty: Span::ZERO,
            leap: Leap::None,
        };
        let told = outputs.write(&sample);
        assert!(told[0].starts_with(&format!("nobody takes the time at sock:{}", path.display())));
        assert_eq!(outputs.write(&sample), [""; 0], "it is known");
        let status = &outputs.status()[0];
        assert_eq!((status.given, status.missed, status.reason.is_some()), (0, 2, true));
        let _reader = UnixDatagram::bind(&path).unwrap();
        assert_eq!(outputs.write(&sample).len(), 1, "it is there now");
        assert_eq!(outputs.write(&sample), [""; 0]);
        let status = &outputs.status()[0];
        assert_eq!((status.given, status.missed, &status.reason), (2, 2, &None));
    }
}
