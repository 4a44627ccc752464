//! Leap seconds: the next one, from a published list or from the kernel ([`LeapOutlook`]), and its
//! smear ([`Smear`]). Pure: no file is opened and no clock is read here.
//!
//! UTC instants are counted as in POSIX, so an inserted leap second has no value of its own:
//! 23:59:59 is counted twice. To count through a leap second without a jump, most functions here
//! take an instant on the timescale *before the leap*: UTC until the leap second, and beyond it UTC
//! without it.

mod date;
mod list;
mod outlook;
mod smear;

pub use date::Date;
pub use list::{LIST_BYTES_MAX, LeapList, LeapListError, LeapListErrorKind, LeapListValidity};
pub use outlook::{ANNOUNCEMENT_LEAD, LeapDisagreement, LeapOutlook, LeapSources};
pub use smear::{SMEAR_DEFAULT, Smear, SmearReading};

use crate::{NS_PER_S, Span, Timestamp, Utc};

/// Nanoseconds in a UTC day without a leap second.
pub(crate) const NS_PER_DAY: i64 = 86_400 * NS_PER_S;

/// Representation of leap seconds in the served UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum LeapSecondRepresentation {
    /// UTC as defined: time steps by a second at the leap, which is announced.
    #[default]
    Stepped = 0,
    /// Smeared UTC: the second is spread over hours, and no leap is announced.
    Smeared = 1,
}

impl LeapSecondRepresentation {
    /// All representations, each at the index of its discriminant.
    pub const ALL: [Self; 2] = [Self::Stepped, Self::Smeared];
}

/// Change of the last minute of a UTC day by a leap second (ITU-R TF.460-6, annex 1, section 2.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LeapKind {
    /// Minute of 61 seconds; a POSIX clock repeats the last one.
    Insert,
    /// Minute of 59 seconds; a POSIX clock skips the last one.
    Delete,
}

/// Leap second at the end of a UTC day.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LeapSecond {
    /// Midnight at the end of that day.
    pub midnight: Timestamp<Utc>,
    /// Insertion or deletion of a second.
    pub kind: LeapKind,
}

impl LeapSecond {
    /// Creates a leap second at the end of the UTC day that contains `instant`.
    #[must_use]
    pub const fn at_end_of_day(instant: Timestamp<Utc>, kind: LeapKind) -> Self {
        let day = instant.as_ns().div_euclid(NS_PER_DAY);
        let midnight = (day as i128 + 1) * NS_PER_DAY as i128;
        // The midnight after the last day of the range is out of range.
        let midnight = if midnight > i64::MAX as i128 { i64::MAX } else { midnight as i64 };
        Self { midnight: Timestamp::from_ns(midnight), kind }
    }

    /// Returns the step of a UTC clock at this leap second: -1 s for an inserted one, +1 s for a
    /// deleted one.
    #[must_use]
    pub const fn step(&self) -> Span {
        match self.kind {
            LeapKind::Insert => Span::from_ns(-NS_PER_S),
            LeapKind::Delete => Span::from_ns(NS_PER_S),
        }
    }

    /// Returns the instant of the step on the timescale before the leap: midnight for an inserted
    /// second, when 23:59:59 is repeated; 23:59:59 for a deleted one, which is skipped.
    #[must_use]
    pub fn step_instant(&self) -> Timestamp<Utc> {
        match self.kind {
            LeapKind::Insert => self.midnight,
            LeapKind::Delete => self.midnight - self.step(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// 2017-01-01T00:00:00Z, before which the latest leap second was inserted.
    pub(crate) const MIDNIGHT_2017: i64 = 1_483_228_800 * NS_PER_S;

    #[test]
    fn a_day_ends_at_midnight() {
        for before_ns in [1, NS_PER_S, NS_PER_DAY] {
            let instant = Timestamp::from_ns(MIDNIGHT_2017 - before_ns);
            let leap = LeapSecond::at_end_of_day(instant, LeapKind::Insert);
            assert_eq!(leap.midnight.as_ns(), MIDNIGHT_2017);
        }
        let last = LeapSecond::at_end_of_day(Timestamp::from_ns(i64::MAX), LeapKind::Insert);
        assert_eq!(last.midnight.as_ns(), i64::MAX);
    }

    #[test]
    fn an_inserted_second_repeats_and_a_deleted_one_is_skipped() {
        let insert =
            LeapSecond { midnight: Timestamp::from_ns(MIDNIGHT_2017), kind: LeapKind::Insert };
        assert_eq!((insert.step_instant() + insert.step()).as_ns(), MIDNIGHT_2017 - NS_PER_S);
        let delete = LeapSecond { kind: LeapKind::Delete, ..insert };
        assert_eq!(delete.step_instant().as_ns(), MIDNIGHT_2017 - NS_PER_S);
        assert_eq!((delete.step_instant() + delete.step()).as_ns(), MIDNIGHT_2017);
    }
}
