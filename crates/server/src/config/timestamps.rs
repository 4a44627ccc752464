//! Options for the timestamps that a server's sockets take of requests and replies, and for
//! interleaved mode, which sends them; with their rules.

use super::ConfigError;
use super::limits::CLIENTS_MAX;

/// Timestamps that the sockets take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimestampsConfig {
    /// True if transmit timestamps of replies in interleaved mode are taken at all.
    pub transmit: bool,
    /// Interfaces with hardware timestamps; the kernel takes those of the others.
    pub hardware: Vec<String>,
}

impl Default for TimestampsConfig {
    /// Uses the kernel's timestamps.
    fn default() -> Self {
        Self { transmit: true, hardware: Vec::new() }
    }
}

/// Broken rule of the timestamp options; its text is one line for the user.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TimestampsConfigError {
    /// No transmit timestamps, but hardware interfaces.
    #[error("--timestamps none and --timestamps {0}=hardware contradict each other; omit one")]
    Contradiction(String),
    /// Duplicate interface.
    #[error("interface '{0}' is specified twice; specify each --timestamps {0}=hardware once")]
    Twice(String),
}

impl TimestampsConfig {
    /// Returns the first rule that the options break.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if let (false, Some(interface)) = (self.transmit, self.hardware.first()) {
            return Err(TimestampsConfigError::Contradiction(interface.clone()).into());
        }
        for (index, interface) in self.hardware.iter().enumerate() {
            if self.hardware[..index].contains(interface) {
                return Err(TimestampsConfigError::Twice(interface.clone()).into());
            }
        }
        Ok(())
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_contradicts_itself_is_refused() {
        let check = |transmit, hardware: &[&str]| {
            let hardware = hardware.iter().map(ToString::to_string).collect();
            TimestampsConfig { transmit, hardware }.check()
        };
        assert_eq!(TimestampsConfig::default().check(), Ok(()));
        assert_eq!((check(false, &[]), check(true, &["a", "b"])), (Ok(()), Ok(())));
        assert!(check(false, &["a"]).is_err() && check(true, &["a", "b", "a"]).is_err());
    }
}
