//! Why a notation is none; each in one line that says what to write instead.

use super::MONTHS;

/// Why it is not understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotationError {
    /// There is nothing.
    #[error("no time is given; write one such as 21:00, 'now + 2 minutes' or 2018-10-22T21:00:00Z")]
    Empty,
    /// A word that nobody knows, or that cannot stand where it stands.
    #[error(
        "'{0}' is not understood as a time; write such as 21:00, 9pm tomorrow, noon, teatime, \
         'now + 2 minutes', 2018/10/22 or 2018-10-22T21:00:00Z"
    )]
    Unknown(String),
    /// Two of the same.
    #[error("'{word}' is a second {what}; give one")]
    Twice {
        /// What there are two of.
        what: &'static str,
        /// The second one.
        word: String,
    },
    /// No such hour.
    #[error("'{0}' has no hour of a day; hours go from 0 to 23, or from 1 to 12 with am and pm")]
    Hour(String),
    /// No such minute or second.
    #[error("'{0}' has no minute or second of a clock; they go from 00 to 59")]
    Minute(String),
    /// A leap second.
    #[error(
        "'{0}' may be a leap second, which the system clock does not show; write the instant in \
         TAI, such as '2017-01-01T00:00:36 TAI'"
    )]
    LeapSecond(String),
    /// No such day.
    #[error("there is no {}; look at the date", date(*.day, *.month, *.year))]
    Day {
        /// The year, where it was given.
        year: Option<i16>,
        /// The month.
        month: i8,
        /// The day.
        day: i8,
    },
    /// What stands behind a sign is no amount of time.
    #[error(
        "'{0}' is no amount of time to add; write a whole number up to 4294967295 and ms, seconds, \
         minutes, hours, days, weeks, months or years, as in 'now + 2 minutes' or 'now + 500ms'"
    )]
    Amount(String),
    /// A month without its day.
    #[error("'{0}' needs a day, as in 'Oct 22'")]
    MonthAlone(String),
    /// What has an instant by itself takes no day or zone.
    #[error("'{0}' is an instant by itself and takes no time, day or zone beside it")]
    Whole(String),
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
