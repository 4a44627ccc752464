//! Scenarios of metrics, logs and the live view.

use libtest_mimic::Trial;

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    Vec::new()
}
