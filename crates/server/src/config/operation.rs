//! What a server is told of metrics and privileges, and the rules that this must keep.

use std::net::SocketAddr;
use std::path::PathBuf;

use horolog_http::Guard;

use super::ConfigError;

/// Options for metrics and privileges.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OperationConfig {
    /// Where to answer `GET /metrics` and `GET /healthz`; nowhere when not given.
    pub metrics: Option<SocketAddr>,
    /// Where to answer a live page, its figures and the metrics; nowhere when not given.
    pub web: Option<WebConfig>,
    /// What the server gives up once its sockets are open. It holds for the whole process.
    pub sandbox: Sandbox,
    /// The user to become once the sockets are open; needs root.
    pub user: Option<String>,
    /// Files that are read again at a reload, beside those that the system keeps in its usual
    /// places.
    pub files: Vec<PathBuf>,
}

/// A live page, for those of this machine alone or for who shows the token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebConfig {
    /// Where it is answered: on loopback unless there is a token.
    pub address: SocketAddr,
    /// The file with the token. It is read at the start.
    pub token_file: Option<PathBuf>,
    /// The page itself, which asks for the rest.
    pub page: String,
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
        if let Some(address) = self.metrics.filter(|address| address.ip().is_multicast()) {
            return Err(ConfigError::MetricsAddress(address));
        }
        let Some(WebConfig { address, token_file, .. }) = &self.web else { return Ok(()) };
        if address.ip().is_multicast() {
            return Err(ConfigError::WebAddress(*address));
        }
        if token_file.is_none() && !Guard::default().permits(*address) {
            return Err(ConfigError::WebToken(*address));
        }
        Ok(())
    }
}
