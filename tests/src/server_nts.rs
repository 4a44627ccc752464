//! Scenarios of NTS and symmetric keys.

use libtest_mimic::Trial;

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    Vec::new()
}
