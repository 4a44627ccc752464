//! What a server is told of where the time comes from, and the rules that this must keep.

use super::ConfigError;

/// Options for where the time comes from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceConfig {}

impl SourceConfig {
    /// Finds the first rule that the options break.
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "skeleton")]
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        Ok(())
    }
}
