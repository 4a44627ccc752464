//! Format of start times in results: RFC 3339.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the current UTC time of this host in RFC 3339 format with milliseconds.
#[must_use]
pub fn rfc3339_now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

/// Parses an RFC 3339 time in UTC into microseconds since 1970; `None` if the text has another
/// format or the time is before 1970.
#[must_use]
pub fn rfc3339_micros(text: &str) -> Option<i64> {
    let instant = humantime::parse_rfc3339(text).ok()?;
    instant.duration_since(UNIX_EPOCH).ok()?.as_micros().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_read_as_it_is_written() {
        assert_eq!(rfc3339_micros("1970-01-01T00:00:01.002Z"), Some(1_002_000));
        assert!(rfc3339_micros(&rfc3339_now()).is_some());
        assert_eq!(rfc3339_micros("today"), None);
    }
}
