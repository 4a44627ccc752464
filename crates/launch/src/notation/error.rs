//! Reasons why a notation is invalid, each in one line that suggests what to write instead.

use super::MONTHS;

/// Reason why a notation is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TimeNotationError {
    /// The notation is empty.
    #[error(
        "no time specified; write one such as 21:00, 'now + 2 minutes' or \
             2018-10-22T21:00:00Z"
    )]
    Empty,
    /// A word is unknown or not allowed at its position.
    #[error(
        "cannot parse '{0}' as a time; write one such as 21:00, 9pm tomorrow, noon, teatime, 'now \
         + 2 minutes', 2018/10/22 or 2018-10-22T21:00:00Z"
    )]
    Unknown(String),
    /// An element occurs twice.
    #[error("'{word}' is a second {what}; specify only one")]
    Repeated {
        /// Kind of the repeated element.
        what: &'static str,
        /// Word of the second occurrence.
        word: String,
    },
    /// The hour does not exist.
    #[error("'{0}' has an invalid hour; hours are 0 to 23, or 1 to 12 with am and pm")]
    InvalidHour(String),
    /// The minute or second does not exist.
    #[error("'{0}' has an invalid minute or second; they are 00 to 59")]
    InvalidMinute(String),
    /// The second is 60, in a minute that a leap second may end.
    #[error(
        "'{0}' may be a leap second, which the system clock does not represent; write the instant \
         in TAI, such as '2017-01-01T00:00:36 TAI'"
    )]
    LeapSecond(String),
    /// The day does not exist.
    #[error("{} does not exist; check the date", date(*.day, *.month, *.year))]
    NoSuchDay {
        /// Year, if specified.
        year: Option<i16>,
        /// Month, from 1.
        month: i8,
        /// Day of the month.
        day: i8,
    },
    /// The text after a sign is not an increment.
    #[error(
        "'{0}' is not a valid increment; write a whole number up to 4294967295 and ms, seconds, \
         minutes, hours, days, weeks, months or years, as in 'now + 2 minutes' or 'now + 500ms'"
    )]
    InvalidIncrement(String),
    /// A month is not followed by a day.
    #[error("'{0}' lacks a day, as in 'Oct 22'")]
    MonthWithoutDay(String),
    /// Seconds since 1970 are combined with a day, or with a zone other than UTC and TAI.
    #[error("'{0}' is a complete instant and excludes any time, day or zone")]
    CompleteInstant(String),
}

fn date(day: i8, month: i8, year: Option<i16>) -> String {
    let year = year.map_or_else(String::new, |year| format!(" {year}"));
    match usize::try_from(month - 1).ok().and_then(|index| MONTHS.get(index)) {
        Some(name) => {
            let (first, rest) = name.split_at(1);
            format!("{day} {}{rest}{year}", first.to_uppercase())
        }
        None => format!("month {month}"),
    }
}
