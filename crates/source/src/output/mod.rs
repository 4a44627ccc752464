//! What is known of the time, given on to other programs: by shared memory as ntpd's driver SHM
//! reads it, and by datagrams as chronyd's driver SOCK takes them. Nobody answers, so nobody is
//! waited for.

mod shm;
mod sock;

use std::path::PathBuf;

use horolog_time::{Span, Timestamp, Utc};
use horolog_wire::ntp::Leap;

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

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    shm: Vec<ShmOutput>,
    sock: Vec<SockOutput>,
}

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
        Ok(Self {
            shm: units.iter().map(shm).collect::<Result<_, _>>()?,
            sock: paths.iter().map(sock).collect::<Result<_, _>>()?,
        })
    }

    /// Gives a sample to all.
    pub(crate) fn write(&self, sample: &OutputSample) {
        self.shm.iter().for_each(|output| output.write(sample));
        for output in &self.sock {
            // Who is not there misses it.
            let _ = output.write(sample);
        }
    }
}
