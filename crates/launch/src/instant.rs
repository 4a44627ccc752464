//! Instants on the two timescales by which a program can be started, and their formatting.

use std::fmt::{self, Display, Formatter};

use horolog_sys::adjtimex::kernel_clock;
use horolog_sys::alarm_clock::SleepClock;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// One second, in ns.
pub(crate) const SECOND_NS: i64 = 1_000_000_000;

/// Timescale by which a program can be started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InstantTimescale {
    /// UTC, as shown by `CLOCK_REALTIME`.
    Utc,
    /// TAI, as shown by `CLOCK_TAI`.
    Tai,
}

impl InstantTimescale {
    /// Returns the clock that shows this timescale.
    #[must_use]
    pub const fn clock(self) -> SleepClock {
        match self {
            Self::Utc => SleepClock::Realtime,
            Self::Tai => SleepClock::Tai,
        }
    }
}

/// Returns the kernel's TAI minus UTC in seconds; `None` if it is not set.
#[must_use]
pub fn kernel_tai_minus_utc_s() -> Option<i32> {
    let offset_s = kernel_clock().ok()?.tai_offset_s;
    (offset_s != 0).then_some(offset_s)
}

/// Instant in UTC or TAI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimescaleInstant {
    /// Timescale on which `ns` counts.
    pub scale: InstantTimescale,
    /// Nanoseconds since 1970 in that timescale.
    pub ns: i64,
}

impl TimescaleInstant {
    /// Formats the instant as a notation that parses to the same instant:
    /// `@1700000000.000000000 UTC`.
    #[must_use]
    pub fn to_notation(self) -> String {
        let (seconds, ns) = (self.ns.div_euclid(SECOND_NS), self.ns.rem_euclid(SECOND_NS));
        let scale = if self.scale == InstantTimescale::Utc { "UTC" } else { "TAI" };
        format!("@{seconds}.{ns:09} {scale}")
    }

    /// Formats the instant in a time zone, for display; `None` for TAI, which has no zones.
    #[must_use]
    pub fn format_local(self, zone: &TimeZone) -> Option<String> {
        let time = self.scale == InstantTimescale::Utc;
        let time = time.then(|| Timestamp::from_nanosecond(self.ns.into()).ok()).flatten()?;
        Some(time.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string())
    }
}

/// RFC 3339 in UTC; `2026-01-02T03:04:05 TAI` in TAI.
impl Display for TimescaleInstant {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Ok(time) = Timestamp::from_nanosecond(self.ns.into()) else {
            return f.write_str(&self.to_notation());
        };
        match self.scale {
            InstantTimescale::Utc => write!(f, "{time}"),
            InstantTimescale::Tai => write!(f, "{} TAI", time.to_zoned(TimeZone::UTC).datetime()),
        }
    }
}
