//! Options for metrics and privileges, and their rules.

use std::net::SocketAddr;
use std::path::PathBuf;

use horolog_http::AccessPolicy;

use super::ConfigError;

/// Options for metrics and privileges.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OperationConfig {
    /// Address at which to answer `GET /metrics` and `GET /healthz`; none by default.
    pub metrics: Option<SocketAddr>,
    /// Live page, its data and the metrics; off by default.
    pub web: Option<WebConfig>,
    /// Privileges to drop once the sockets are open, for the whole process.
    pub sandbox: Sandbox,
    /// User to switch to once the sockets are open; needs root.
    pub user: Option<String>,
    /// Files that are read again at a reload, in addition to those in the system's usual
    /// directories.
    pub files: Vec<PathBuf>,
}

/// Live page, accessible from this host only or with the token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebConfig {
    /// Listen address: loopback unless there is a token.
    pub address: SocketAddr,
    /// File with the token, read at start.
    pub token_file: Option<PathBuf>,
    /// HTML page, which requests the data.
    pub page: String,
}

/// Degree of sandboxing of a process.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Sandbox {
    /// No sandbox.
    #[default]
    Off,
    /// Everything that the kernel supports; the status reports which parts are in force.
    BestEffort,
    /// Complete sandbox, required to start.
    Required,
}

impl OperationConfig {
    /// Returns the first rule that the options break.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if let Some(address) = self.metrics.filter(|address| address.ip().is_multicast()) {
            return Err(ConfigError::MetricsAddress(address));
        }
        let Some(WebConfig { address, token_file, .. }) = &self.web else { return Ok(()) };
        if address.ip().is_multicast() {
            return Err(ConfigError::WebAddress(*address));
        }
        if token_file.is_none() && !AccessPolicy::default().allows_address(*address) {
            return Err(ConfigError::WebToken(*address));
        }
        Ok(())
    }
}
