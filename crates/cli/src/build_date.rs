//! Date of this build, before which no time is right. It is `SOURCE_DATE_EPOCH`, so that the same
//! source yields the same binary; a build without it uses a date before the first build.

use horolog_server::PlausibilityRules;
use horolog_time::{Timestamp, Utc};

/// Date of this build.
pub(crate) const BUILD: Timestamp<Utc> = build_date(option_env!("SOURCE_DATE_EPOCH"));

const fn build_date(epoch: Option<&str>) -> Timestamp<Utc> {
    let least = PlausibilityRules::BUILD_MIN;
    let Some(epoch) = epoch else { return least };
    match i64::from_str_radix(epoch, 10) {
        Ok(seconds) if Timestamp::<Utc>::from_timespec(seconds, 0).as_ns() > least.as_ns() => {
            Timestamp::from_timespec(seconds, 0)
        }
        // Some builders set all times to the beginning of an epoch.
        _ => least,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_that_of_the_source_where_it_can_be() {
        let known = Timestamp::from_timespec(1_795_651_200, 0);
        assert_eq!(build_date(Some("1795651200")), known);
        for none in [None, Some(""), Some("1"), Some("yesterday"), Some("315532800")] {
            assert_eq!(build_date(none), PlausibilityRules::BUILD_MIN, "{none:?}");
        }
    }
}
