//! Gregorian dates of UTC instants: formatted (`2016-12-31`), and made from year, month and day.

use core::fmt;

use jiff::civil;
use jiff::tz::Offset;

use crate::{Timestamp, Utc};

/// Day of a UTC instant in the Gregorian calendar, for display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Date(pub Timestamp<Utc>);

impl Date {
    /// Returns midnight at the start of this day of the Gregorian calendar, with months and days
    /// from 1. `None` if there is no such day, or if it is out of range.
    #[must_use]
    pub fn from_calendar(year: i64, month: i64, day: i64) -> Option<Self> {
        let (month, day) = (month.try_into().ok()?, day.try_into().ok()?);
        let date = civil::Date::new(year.try_into().ok()?, month, day).ok()?;
        let midnight = Offset::UTC.to_timestamp(date.at(0, 0, 0, 0)).ok()?;
        let ns = midnight.as_nanosecond().try_into().ok()?;
        Some(Self(Timestamp::from_ns(ns)))
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instant = jiff::Timestamp::from_nanosecond(self.0.as_ns().into());
        let date = Offset::UTC.to_datetime(instant.map_err(|_| fmt::Error)?).date();
        write!(f, "{date}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dates as GNU date prints them.
    #[test]
    fn known_dates() {
        for (seconds, date) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (951_782_400, "2000-02-29"),
            (1_483_228_799, "2016-12-31"),
            (1_483_228_800, "2017-01-01"),
            (4_107_542_400, "2100-03-01"),
            (-5_364_662_400, "1800-01-01"),
        ] {
            assert_eq!(Date(Timestamp::from_timespec(seconds, 0)).to_string(), date);
        }
        for (date, seconds) in [
            ((1970, 1, 1), Some(0)),
            ((2000, 2, 29), Some(951_782_400)),
            ((2016, 12, 31), Some(1_483_142_400)),
            ((2100, 3, 1), Some(4_107_542_400)),
            ((1800, 1, 1), Some(-5_364_662_400)),
            ((2026, 2, 29), None),
            ((2026, 0, 1), None),
            ((2026, 13, 1), None),
            ((2026, 4, 31), None),
            ((2026, 1, 0), None),
            ((1677, 9, 21), None),
            ((2262, 4, 12), None),
            ((i64::MAX, 1, 1), None),
            ((i64::MIN, i64::MAX, i64::MAX), None),
        ] {
            let (year, month, day) = date;
            let instant = Date::from_calendar(year, month, day);
            let expected = seconds.map(|seconds| Date(Timestamp::from_timespec(seconds, 0)));
            assert_eq!(instant, expected, "{date:?}");
        }
        assert_eq!(Date(Timestamp::from_ns(i64::MAX)).to_string(), "2262-04-11");
        assert_eq!(Date(Timestamp::from_ns(i64::MIN)).to_string(), "1677-09-21");
    }
}
