//! Options for interleaved mode, and their rules.

use super::ConfigError;
use super::limits::CLIENTS_MAX;

/// Engine that answers requests of interleaved mode if XDP answers the others.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum InterleavedEngine {
    /// Sockets on interfaces with hardware transmit timestamps, otherwise XDP.
    #[default]
    Auto,
    /// XDP engine.
    Xdp,
    /// Socket engine.
    Socket,
}

/// Options for interleaved mode and transmit timestamps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterleavedConfig {
    /// Number of clients to store, rounded up to a power of two; 16 bytes each, once for XDP and
    /// once for the sockets. 0 turns interleaved mode off.
    pub clients: usize,
    /// Engine that answers.
    pub engine: InterleavedEngine,
}

impl Default for InterleavedConfig {
    /// Stores a million clients and uses the better engine.
    fn default() -> Self {
        Self { clients: 1 << 20, engine: InterleavedEngine::default() }
    }
}

impl InterleavedConfig {
    /// Returns the first rule that the options break.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.clients > CLIENTS_MAX {
            return Err(ConfigError::InterleavedClients(self.clients));
        }
        Ok(())
    }
}
