//! What a server is told of interleaved mode, and the rules that this must keep.

use super::ConfigError;
use super::limits::CLIENTS_MAX;

/// Which body answers requests of interleaved mode where XDP answers the others.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum InterleavedBody {
    /// The sockets on interfaces whose hardware takes transmit timestamps, otherwise XDP.
    #[default]
    Auto,
    /// XDP.
    Xdp,
    /// The sockets.
    Socket,
}

/// Options for interleaved mode and transmit timestamps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterleavedConfig {
    /// How many clients are remembered, rounded up to a power of two; 16 bytes each, once for XDP
    /// and once for the sockets. 0 turns interleaved mode off.
    pub clients: usize,
    /// Who answers.
    pub body: InterleavedBody,
}

impl Default for InterleavedConfig {
    /// A million clients, the better body.
    fn default() -> Self {
        Self { clients: 1 << 20, body: InterleavedBody::default() }
    }
}

impl InterleavedConfig {
    /// Finds the first rule that the options break.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.clients > CLIENTS_MAX {
            return Err(ConfigError::InterleavedClients(self.clients));
        }
        Ok(())
    }
}
