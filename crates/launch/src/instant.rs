//! Instants on the two timescales that a program can be started by, and how they are shown.

use std::fmt::{self, Display, Formatter};

use horolog_sys::alarm_clock::AlarmClock;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A second, in ns.
pub(crate) const SECOND_NS: i64 = 1_000_000_000;

/// What an instant is counted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// UTC, as `CLOCK_REALTIME` shows it.
    Utc,
    /// TAI, as `CLOCK_TAI` shows it.
    Tai,
}

impl Scale {
    /// The clock that shows it.
    #[must_use]
    pub const fn clock(self) -> AlarmClock {
        match self {
            Self::Utc => AlarmClock::Realtime,
            Self::Tai => AlarmClock::Tai,
        }
    }
}

/// An instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instant {
    /// What it is counted by.
    pub scale: Scale,
    /// Nanoseconds since 1970 in that scale.
    pub ns: i64,
}

impl Instant {
    /// As a notation that is read as the same instant: `@1700000000.000000000 UTC`.
    #[must_use]
    pub fn notation(self) -> String {
        let (seconds, ns) = (self.ns.div_euclid(SECOND_NS), self.ns.rem_euclid(SECOND_NS));
        let scale = if self.scale == Scale::Utc { "UTC" } else { "TAI" };
        format!("@{seconds}.{ns:09} {scale}")
    }

    /// The same in a time zone, for reading; `None` for TAI, which has no zones.
    #[must_use]
    pub fn local(self, zone: &TimeZone) -> Option<String> {
        let time = self.scale == Scale::Utc;
        let time = time.then(|| Timestamp::from_nanosecond(self.ns.into()).ok()).flatten()?;
        Some(time.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string())
    }
}

/// RFC 3339 in UTC; `2026-01-02T03:04:05 TAI` in TAI.
impl Display for Instant {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Ok(time) = Timestamp::from_nanosecond(self.ns.into()) else {
            return f.write_str(&self.notation());
        };
        match self.scale {
            Scale::Utc => write!(f, "{time}"),
            Scale::Tai => write!(f, "{} TAI", time.to_zoned(TimeZone::UTC).datetime()),
        }
    }
}
