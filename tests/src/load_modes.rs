//! Scenarios of the generator's modes.

use libtest_mimic::Trial;

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    Vec::new()
}
