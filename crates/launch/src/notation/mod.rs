//! Notation of an instant: the notations of `at`, dates as in ISO 8601 and RFC 3339, and seconds
//! since 1970. A parsed notation can be formatted again; `resolve` computes its instant. Pure: no
//! clock is read and no time zone looked up.

mod error;
mod parse;
mod resolve;

#[cfg(test)]
mod tests;

use std::fmt::{self, Display, Formatter};

use jiff::civil::{Date, Time, Weekday};

pub use error::TimeNotationError;
pub use resolve::{InstantResolveError, PresentTime};

/// Parsed text of an instant, such as `21:00 tomorrow`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimeNotation {
    /// Time of day, `now`, or seconds since 1970.
    pub(crate) time: TimeOfDaySpec,
    /// Day; by default today, or tomorrow once the time has passed.
    pub(crate) date: Option<DaySpec>,
    /// Time zone or timescale of the time of day.
    pub(crate) zone: Option<ZoneOrTimescale>,
    /// Increments such as `+ 2 minutes`, in their written order.
    pub(crate) increments: Vec<TimeIncrement>,
}

/// Time of day, or what stands in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimeOfDaySpec {
    /// Present time, to the nanosecond: `now`, or only a day was specified.
    Now,
    /// Wall-clock time, such as `21:00`.
    Clock(Time),
    /// Nanoseconds since 1970 instead of a time of day: `@1700000000.5`.
    Epoch(i64),
}

/// Day as a notation states it, still relative to the present day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DaySpec {
    Today,
    Tomorrow,
    /// First such weekday from today on, but a week later if its time has passed; with `next`, from
    /// tomorrow on.
    Weekday {
        day: Weekday,
        next: bool,
    },
    /// Day of the first year that has it and in which its time has not passed.
    MonthDay {
        month: i8,
        day: i8,
    },
    Date(Date),
}

/// Time zone or timescale of a time of day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneOrTimescale {
    /// Local time zone of this host.
    Local,
    /// Coordinated Universal Time.
    Utc,
    /// International Atomic Time.
    Tai,
    /// Fixed offset: seconds ahead of UTC, negative if behind.
    Offset(i32),
}

/// Increment of a notation, such as `+ 2 minutes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimeIncrement {
    pub(crate) is_negative: bool,
    pub(crate) amount: u32,
    pub(crate) unit: IncrementUnit,
}

/// Unit of an increment: the first four have a fixed length, the others follow the calendar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IncrementUnit {
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl IncrementUnit {
    pub(crate) const ALL: [Self; 8] = [
        Self::Millisecond,
        Self::Second,
        Self::Minute,
        Self::Hour,
        Self::Day,
        Self::Week,
        Self::Month,
        Self::Year,
    ];

    /// Returns the accepted names; the first one is used for formatting.
    pub(crate) const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Millisecond => &["milliseconds", "millisecond", "msec", "ms"],
            Self::Second => &["seconds", "second", "secs", "sec", "s"],
            Self::Minute => &["minutes", "minute", "mins", "min"],
            Self::Hour => &["hours", "hour", "h"],
            Self::Day => &["days", "day", "d"],
            Self::Week => &["weeks", "week", "w"],
            Self::Month => &["months", "month"],
            Self::Year => &["years", "year"],
        }
    }

    /// Returns the length in ns, if it is fixed.
    pub(crate) const fn length_ns(self) -> Option<i64> {
        match self {
            Self::Millisecond => Some(1_000_000),
            Self::Second => Some(1_000_000_000),
            Self::Minute => Some(60_000_000_000),
            Self::Hour => Some(3_600_000_000_000),
            Self::Day | Self::Week | Self::Month | Self::Year => None,
        }
    }
}

pub(crate) const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

pub(crate) const WEEKDAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

impl Display for TimeNotation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.time {
            TimeOfDaySpec::Now => f.write_str("now")?,
            TimeOfDaySpec::Clock(time) => write!(f, "{time}")?,
            TimeOfDaySpec::Epoch(ns) => {
                let sign = if ns < 0 { "-" } else { "" };
                let ns = ns.unsigned_abs();
                write!(f, "@{sign}{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)?;
            }
        }
        if let Some(date) = self.date {
            write!(f, " {date}")?;
        }
        match self.zone {
            None => {}
            Some(zone) => write!(f, " {zone}")?,
        }
        self.increments.iter().try_for_each(|increment| write!(f, " {increment}"))
    }
}

impl Display for DaySpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Today => f.write_str("today"),
            Self::Tomorrow => f.write_str("tomorrow"),
            Self::Weekday { day, next } => {
                let name = WEEKDAYS.iter().find(|(_, known)| *known == day);
                let next = if next { "next " } else { "" };
                write!(f, "{next}{}", name.map_or("", |(name, _)| name))
            }
            Self::MonthDay { month, day } => {
                let name = usize::try_from(month - 1).ok().and_then(|index| MONTHS.get(index));
                write!(f, "{} {day}", name.unwrap_or(&""))
            }
            Self::Date(date) => write!(f, "{date}"),
        }
    }
}

impl Display for ZoneOrTimescale {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Local => f.write_str("local"),
            Self::Utc => f.write_str("UTC"),
            Self::Tai => f.write_str("TAI"),
            Self::Offset(seconds) => {
                let sign = if seconds < 0 { '-' } else { '+' };
                let minutes = seconds.unsigned_abs() / 60;
                write!(f, "UTC{sign}{:02}:{:02}", minutes / 60, minutes % 60)
            }
        }
    }
}

impl Display for TimeIncrement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let sign = if self.is_negative { '-' } else { '+' };
        write!(f, "{sign} {} {}", self.amount, self.unit.names()[0])
    }
}
