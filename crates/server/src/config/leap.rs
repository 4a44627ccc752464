//! What a server is told of leap seconds, stepped or smeared, and the rules that this must keep.

use super::ConfigError;

/// Options for leap seconds, stepped or smeared.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeapConfig {}

impl LeapConfig {
    /// Finds the first rule that the options break.
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "skeleton")]
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        Ok(())
    }
}
