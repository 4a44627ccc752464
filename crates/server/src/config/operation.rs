//! Options for metrics, the live page and privileges, and their rules.

use std::net::SocketAddr;
use std::path::PathBuf;

use horolog_http::AccessPolicy;

use super::ConfigError;

/// Options for the metrics endpoint, the live page, the sandbox and the user.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MetricsAndPrivilegesConfig {
    /// Address at which to answer `GET /metrics` and `GET /healthz`; none by default.
    pub metrics: Option<SocketAddr>,
    /// Live page, its data and the metrics; off by default.
    pub web: Option<ServerLivePageConfig>,
    /// Sandboxing of the process once the sockets are open.
    pub sandbox: SandboxMode,
    /// User to switch to once the sockets are open; requires root.
    pub user: Option<String>,
    /// Files that a reload reads again, so that they stay readable in the sandbox, in addition to
    /// those in system directories.
    pub files: Vec<PathBuf>,
}

/// Live page, accessible without a token from this host only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerLivePageConfig {
    /// Listen address: a loopback address unless there is a token.
    pub address: SocketAddr,
    /// File with the token, read at start.
    pub token_file: Option<PathBuf>,
    /// Content of the HTML page, which requests its data from the server.
    pub page: String,
}

/// Restriction of the files and system calls of a process, and of its capabilities.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SandboxMode {
    /// No restriction, except that a switch of the user drops capabilities.
    #[default]
    Off,
    /// All parts that the kernel supports; the status reports those in force.
    BestEffort,
    /// All parts; the server does not start without them.
    Required,
}

impl MetricsAndPrivilegesConfig {
    /// Returns the first rule that the options break.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if let Some(address) = self.metrics.filter(|address| address.ip().is_multicast()) {
            return Err(ConfigError::MetricsAddress(address));
        }
        let Some(ServerLivePageConfig { address, token_file, .. }) = &self.web else {
            return Ok(());
        };
        if address.ip().is_multicast() {
            return Err(ConfigError::WebAddress(*address));
        }
        if token_file.is_none() && !AccessPolicy::default().allows_address(*address) {
            return Err(ConfigError::WebToken(*address));
        }
        Ok(())
    }
}
