//! What a server is told of metrics, logs, privileges, and the rules that this must keep.

use super::ConfigError;

/// Options for metrics, logs, privileges.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OperationConfig {}

impl OperationConfig {
    /// Finds the first rule that the options break.
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "skeleton")]
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        Ok(())
    }
}
