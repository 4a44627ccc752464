//! Gregorian dates of UTC instants: formatted (`2016-12-31`), and made from year, month and day.

use core::fmt;
use core::ops::RangeInclusive;

use super::NS_PER_DAY;
use crate::{Timestamp, Utc};

/// Day of a UTC instant in the Gregorian calendar, for display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Date(pub Timestamp<Utc>);

/// Years of which every day can be represented as a [`Timestamp`].
const YEARS: RangeInclusive<i64> = 1678..=2261;

const fn is_leap_year(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

const fn days_in(year: i64, month: usize) -> i64 {
    const DAYS: [i64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    DAYS[month] + if month == 1 && is_leap_year(year) { 1 } else { 0 }
}

impl Date {
    /// Returns midnight at the start of this day of the Gregorian calendar, with months and days
    /// from 1. `None` if there is no such day, or if it is out of range.
    #[must_use]
    pub fn from_calendar(year: i64, month: usize, day: i64) -> Option<Self> {
        let is_day = (1..=12).contains(&month)
            && YEARS.contains(&year)
            && (1..=days_in(year, month - 1)).contains(&day);
        if !is_day {
            return None;
        }
        let leap_days = |year: i64| year / 4 - year / 100 + year / 400;
        let before: i64 = (0..month - 1).map(|month| days_in(year, month)).sum();
        let days = 365 * (year - 1970) + leap_days(year - 1) - leap_days(1969) + before + day - 1;
        Some(Self(Timestamp::from_ns(days * NS_PER_DAY)))
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A timestamp is in the years 1677 to 2262, so counting years takes at most 300 iterations.
        let (mut day, mut year) = (self.0.as_ns().div_euclid(NS_PER_DAY), 1970);
        while day < 0 {
            year -= 1;
            day += if is_leap_year(year) { 366 } else { 365 };
        }
        while day >= if is_leap_year(year) { 366 } else { 365 } {
            day -= if is_leap_year(year) { 366 } else { 365 };
            year += 1;
        }
        let mut month = 0;
        while day >= days_in(year, month) {
            day -= days_in(year, month);
            month += 1;
        }
        write!(f, "{year}-{:02}-{:02}", month + 1, day + 1)
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
            ((i64::MAX, 1, 1), None),
            ((i64::MIN, usize::MAX, i64::MAX), None),
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
