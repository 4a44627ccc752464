//! Reasons for which a measurement of this host cannot start.

use horolog_sys::explain::explain;
use std::io;

use thiserror::Error;

/// Reason for which a measurement of this host cannot start.
#[derive(Debug, Error)]
pub enum HostError {
    /// Core that this process may not run on.
    #[error("core {core} is not available: this process may run on {allowed}; choose one of these")]
    NoSuchCore {
        /// Core number.
        core: usize,
        /// List of the allowed cores.
        allowed: String,
    },
    /// Thread that could not be started or pinned to its core.
    #[error("cannot start a measuring thread on core {core}: {why}", why = explain(.error))]
    Thread {
        /// Core number.
        core: usize,
        /// Error of the system.
        error: io::Error,
    },
    /// Failure to read the cores that this process may run on.
    #[error("cannot read which cores this process may run on: {why}", why = explain(.0))]
    Cores(io::Error),
}

impl HostError {
    /// Returns true if the request was invalid, as opposed to a feature that the host lacks.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::NoSuchCore { .. })
    }
}
