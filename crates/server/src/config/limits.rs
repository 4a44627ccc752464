//! What a server is told of rate limits and lists of prefixes, and the rules that this must keep.

use super::ConfigError;

/// Options for rate limits and lists of prefixes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LimitsConfig {}

impl LimitsConfig {
    /// Finds the first rule that the options break.
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "skeleton")]
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        Ok(())
    }
}
