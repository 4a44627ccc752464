//! What a server is told of interleaved mode and transmit timestamps, and the rules that this must keep.

use super::ConfigError;

/// Options for interleaved mode and transmit timestamps.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InterleavedConfig {}

impl InterleavedConfig {
    /// Finds the first rule that the options break.
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "skeleton")]
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        Ok(())
    }
}
