//! Why a measurement of this host cannot begin.

use std::io;

use thiserror::Error;

/// Why a measurement of this host cannot begin.
#[derive(Debug, Error)]
pub enum HostError {
    /// A core that this process may not run on.
    #[error("core {core} is not to be had; this process may run on {allowed}")]
    NoSuchCore {
        /// The core.
        core: usize,
        /// Those that are, as a list.
        allowed: String,
    },
    /// A thread could not be started or tied to its core.
    #[error("cannot start a measuring thread on core {core}: {error}")]
    Thread {
        /// The core.
        core: usize,
        /// What the system says.
        error: io::Error,
    },
    /// The cores that this process may run on could not be read.
    #[error("cannot read which cores this process may run on: {0}")]
    Cores(io::Error),
}

impl HostError {
    /// Whether something was asked for that cannot be, rather than that the machine lacks it.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::NoSuchCore { .. })
    }
}
