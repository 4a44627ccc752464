//! Pulses that mark the beginning of seconds: devices behind one trait, and the conversion of their
//! edges to pulses. A pulse does not identify its second.

mod condition;
mod devices;
#[cfg(test)]
pub(crate) mod replay;
mod spec;

use std::time::Duration;

use horolog_time::{Monotonic, Timestamp, Utc};

use crate::SourceError;

pub use condition::{PulseConditioner, PulseCounts};
pub use spec::PulseSpec;

/// Kind of an edge (RFC 2783).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum PulseEdgeKind {
    /// The signal became active, or rose.
    #[default]
    Assert,
    /// The signal became inactive, or fell.
    Clear,
}

impl PulseEdgeKind {
    /// Returns the other kind of edge.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Assert => Self::Clear,
            Self::Clear => Self::Assert,
        }
    }
}

/// Edge with the timestamp of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PulseEdge {
    /// `CLOCK_REALTIME` at the edge.
    pub realtime: Timestamp<Utc>,
    /// `CLOCK_MONOTONIC` at the edge.
    pub monotonic: Timestamp<Monotonic>,
    /// Count of the device's edges of this kind; a gap means lost edges.
    pub sequence: u32,
    /// Direction of the line's change.
    pub edge: PulseEdgeKind,
}

/// Device that timestamps edges.
pub trait PulseSource: Send {
    /// Waits up to `wait` for the next edge, in order of arrival; `None` after that. An edge that
    /// a device timestamps but was not requested may come as well.
    fn wait(&mut self, wait: Duration) -> Result<Option<PulseEdge>, SourceError>;
}
