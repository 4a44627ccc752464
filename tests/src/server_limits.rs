//! Scenarios of rate limits and lists.

use libtest_mimic::Trial;

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    Vec::new()
}
