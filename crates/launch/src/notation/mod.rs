//! How an instant is written: `at`'s own notations, dates as ISO 8601 and RFC 3339 have them, and
//! seconds since 1970. What is read is a value that can be written again; when that is, says
//! `resolve`. Pure: no clock is read here and no time zone looked up.

mod error;
mod parse;
mod resolve;
mod write;

#[cfg(test)]
mod tests;

use jiff::civil::{Date, Time, Weekday};

pub use error::NotationError;
pub use resolve::{Now, ResolveError};

/// An instant as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notation {
    /// The time of day or what stands in its place.
    pub(crate) time: TimeWord,
    /// The day; without one it is today, or tomorrow once the time has passed.
    pub(crate) date: Option<DateWord>,
    /// What the time of day is counted by.
    pub(crate) zone: Option<Zone>,
    /// What is added, in the order in which it was written.
    pub(crate) shifts: Vec<Shift>,
}

/// The time of day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimeWord {
    /// The present one, to the nanosecond: `now`, or only a day was given.
    Now,
    /// One of the clock's.
    Clock(Time),
    /// No time of day, but nanoseconds since 1970: `@1700000000.5`.
    Epoch(i64),
}

/// The day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DateWord {
    Today,
    Tomorrow,
    /// The first such day from today on, or from tomorrow on with `next`.
    Weekday {
        day: Weekday,
        next: bool,
    },
    /// This year's, or next year's once it has passed.
    MonthDay {
        month: i8,
        day: i8,
    },
    Date(Date),
}

/// What a time of day is counted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zone {
    /// This machine's time zone.
    Local,
    /// Coordinated Universal Time.
    Utc,
    /// International Atomic Time.
    Tai,
    /// So many seconds ahead of UTC.
    Offset(i32),
}

/// A part of what is added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shift {
    pub(crate) back: bool,
    pub(crate) amount: u32,
    pub(crate) unit: Unit,
}

/// What is added in: the first four are spans of time, the others go by the calendar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Unit {
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

    /// The names that it is read by; the first is the one that it is written by.
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

    /// Its length in ns, where it has one.
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
