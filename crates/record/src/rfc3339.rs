//! The one way in which a result states when it began.

use std::time::SystemTime;

/// The present time by this machine's clock, in UTC, in the form of RFC 3339 with milliseconds.
#[must_use]
pub fn rfc3339_now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}
