//! What a server is told of Network Time Security and symmetric keys, and the rules that this must keep.

use super::ConfigError;

/// Options for Network Time Security and symmetric keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NtsConfig {}

impl NtsConfig {
    /// Finds the first rule that the options break.
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "skeleton")]
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        Ok(())
    }
}
