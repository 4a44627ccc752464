//! Pulses that mark the beginning of seconds: devices behind one trait, and what is made of their
//! edges. A pulse says when a second began, never which.

mod condition;
mod devices;
#[cfg(test)]
pub(crate) mod replay;
mod spec;

use std::time::Duration;

use horolog_time::{Monotonic, Timestamp, Utc};

use crate::Fault;

pub use condition::{Conditioner, PulseCounts};
pub use spec::PulseSpec;

/// Which way a line went.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Edge {
    /// It became active, or rose.
    #[default]
    Assert,
    /// It became inactive, or fell.
    Clear,
}

impl Edge {
    /// The other way.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Assert => Self::Clear,
            Self::Clear => Self::Assert,
        }
    }
}

/// An edge with the time that a device took of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PulseEdge {
    /// `CLOCK_REALTIME` when it came.
    pub realtime: Timestamp<Utc>,
    /// `CLOCK_MONOTONIC` when it came.
    pub monotonic: Timestamp<Monotonic>,
    /// Counts the device's edges of this kind; a gap is edges that were lost.
    pub sequence: u32,
    /// Which way the line went.
    pub edge: Edge,
}

/// A device that takes the time of edges.
pub trait PulseSource: Send {
    /// Waits up to `wait` for the next edge, in the order in which they came; `None` where none
    /// came. An edge that a device takes but was not asked for may come as well.
    fn wait(&mut self, wait: Duration) -> Result<Option<PulseEdge>, Fault>;
}
