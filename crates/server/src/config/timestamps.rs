//! Options for receive and transmit timestamps of the server's sockets, and for interleaved mode,
//! which sends transmit timestamps; with their rules.

use super::ConfigError;
use super::limits::CLIENTS_MAX;

/// Timestamps that the sockets take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimestampsConfig {
    /// True if the sockets take transmit timestamps of replies in interleaved mode.
    pub transmit: bool,
    /// Interfaces whose PHC takes timestamps; on the others the kernel does.
    pub hardware: Vec<String>,
}

impl Default for TimestampsConfig {
    /// Uses the kernel's receive and transmit timestamps on all interfaces.
    fn default() -> Self {
        Self { transmit: true, hardware: Vec::new() }
    }
}

/// Violation of a rule of the timestamp options; its text is one line for the user.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TimestampsConfigError {
    /// Hardware timestamps on an interface, although transmit timestamps are disabled.
    #[error("--timestamps none and --timestamps {0}=hardware contradict each other; omit one")]
    Contradiction(String),
    /// Duplicate interface.
    #[error("interface '{0}' is specified twice; specify each --timestamps {0}=hardware once")]
    DuplicateInterface(String),
}

impl TimestampsConfig {
    /// Returns the first rule that the options break.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if let (false, Some(interface)) = (self.transmit, self.hardware.first()) {
            return Err(TimestampsConfigError::Contradiction(interface.clone()).into());
        }
        for (index, interface) in self.hardware.iter().enumerate() {
            if self.hardware[..index].contains(interface) {
                return Err(TimestampsConfigError::DuplicateInterface(interface.clone()).into());
            }
        }
        Ok(())
    }
}

/// Engine that answers requests in interleaved mode on interfaces where XDP answers the others.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum InterleavedEngineSelection {
    /// Sockets on interfaces with hardware transmit timestamps, otherwise XDP.
    #[default]
    Auto,
    /// XDP engine.
    Xdp,
    /// Socket engine.
    Socket,
}

/// Options for interleaved mode: number of stored clients and answering engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterleavedConfig {
    /// Number of clients to store, rounded up to a power of two; each takes 16 bytes for XDP and 16
    /// for the sockets. 0 disables interleaved mode.
    pub clients: usize,
    /// Engine that answers requests in interleaved mode.
    pub engine: InterleavedEngineSelection,
}

impl Default for InterleavedConfig {
    /// Stores a million clients and selects the engine by the kind of timestamps.
    fn default() -> Self {
        Self { clients: 1 << 20, engine: InterleavedEngineSelection::default() }
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
