//! Formatting of a notation as text that parses to the same notation.

use std::fmt::{self, Display, Formatter};

use super::{DaySpec, MONTHS, Notation, TimeIncrement, TimeOfDay, WEEKDAYS, Zone};

impl Display for Notation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.time {
            TimeOfDay::Now => f.write_str("now")?,
            TimeOfDay::Clock(time) => write!(f, "{time}")?,
            TimeOfDay::Epoch(ns) => {
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

impl Display for Zone {
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
