//! What a server is told of metrics and privileges, and the rules that this must keep.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::ConfigError;

/// Options for metrics and privileges.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OperationConfig {
    /// Where to answer `GET /metrics` and `GET /healthz`; nowhere when not given.
    pub metrics: Option<SocketAddr>,
    /// What the server gives up once its sockets are open. It holds for the whole process.
    pub sandbox: Sandbox,
    /// The user to become once the sockets are open; needs root.
    pub user: Option<String>,
    /// Files that are read again at a reload, beside those that the system keeps in its usual
    /// places.
    pub files: Vec<PathBuf>,
}

/// How far a process confines itself.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Sandbox {
    /// Not at all.
    #[default]
    Off,
    /// As far as the kernel can; the state says what is in force.
    BestEffort,
    /// Wholly, or no start.
    Required,
}

impl OperationConfig {
    /// Finds the first rule that the options break.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        match self.metrics {
            Some(address) if address.ip().is_multicast() => {
                Err(ConfigError::MetricsAddress(address))
            }
            _ => Ok(()),
        }
    }
}
