//! Scenarios of the configuration file, checking and reloading.

use libtest_mimic::Trial;

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    Vec::new()
}
