//! Build date of this program: a lower limit of the present time, by which a wrong clock is
//! detected. It is taken from `SOURCE_DATE_EPOCH`, so that builds are reproducible.

use horolog_source::PlausibilityRuleParameters;
use horolog_time::{Timestamp, Utc};

/// `SOURCE_DATE_EPOCH` of this build, or [`PlausibilityRuleParameters::BUILD_MIN`] if that variable
/// is unset, invalid or earlier.
pub(crate) const BUILD_DATE: Timestamp<Utc> = build_date(option_env!("SOURCE_DATE_EPOCH"));

const fn build_date(epoch: Option<&str>) -> Timestamp<Utc> {
    let date_min = PlausibilityRuleParameters::BUILD_MIN;
    let Some(epoch) = epoch else { return date_min };
    match i64::from_str_radix(epoch, 10) {
        Ok(seconds) if Timestamp::<Utc>::from_timespec(seconds, 0).as_ns() > date_min.as_ns() => {
            Timestamp::from_timespec(seconds, 0)
        }
        // Invalid, or a placeholder: some build systems set it to the start of 1970 or 1980.
        _ => date_min,
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
            assert_eq!(build_date(none), PlausibilityRuleParameters::BUILD_MIN, "{none:?}");
        }
    }
}
