//! A UTC instant as a date, for messages: `2016-12-31`. It is written, never read.

use core::fmt;

use super::NS_PER_DAY;
use crate::{Timestamp, Utc};

/// Shows the day of a UTC instant in the Gregorian calendar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Date(pub Timestamp<Utc>);

const fn is_leap_year(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

const fn days_in(year: i64, month: usize) -> i64 {
    const DAYS: [i64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    DAYS[month] + if month == 1 && is_leap_year(year) { 1 } else { 0 }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An instant reaches from 1677 to 2262, so counting years takes 300 turns at most.
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
        assert_eq!(Date(Timestamp::from_ns(i64::MAX)).to_string(), "2262-04-11");
        assert_eq!(Date(Timestamp::from_ns(i64::MIN)).to_string(), "1677-09-21");
    }
}
