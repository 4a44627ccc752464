//! Count of seconds: the second that a pulse marks, carried on from pulse to pulse by the monotonic
//! clock, past announced leap seconds.

use horolog_time::leap::{LeapKind, LeapSecond};
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp};

/// Number of a second and the instant of its pulse, from which other seconds are counted. Seconds
/// are UTC up to an announced leap second and continue uncorrected beyond it, until the count is
/// rebased.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SecondCountAnchor {
    pub(super) second: i64,
    pub(super) at: Timestamp<Monotonic>,
}

impl SecondCountAnchor {
    /// Returns the count at `at`, to the nearest second, and the distance of `at` from the start of
    /// that second.
    pub(super) fn nearest_count(&self, at: Timestamp<Monotonic>) -> (Self, Span) {
        let elapsed = (at - self.at).as_ns();
        let seconds = (elapsed + NS_PER_S / 2).div_euclid(NS_PER_S);
        let distance = Span::from_ns(elapsed - seconds * NS_PER_S);
        (Self { second: self.second + seconds, at }, distance)
    }

    /// Returns the second that has begun at `at`, and the time since its start.
    pub(super) fn second_at(&self, at: Timestamp<Monotonic>) -> (i64, Span) {
        let elapsed = (at - self.at).as_ns();
        let seconds = elapsed.div_euclid(NS_PER_S);
        (self.second + seconds, Span::from_ns(elapsed - seconds * NS_PER_S))
    }
}

/// Converts a count to UTC across an announced leap second; `None` for second 60, which has no
/// POSIX time of its own.
pub(super) fn utc_of(second: i64, leap: Option<LeapSecond>) -> Option<i64> {
    let Some(leap) = leap else { return Some(second) };
    let instant = leap.step_instant().as_ns().div_euclid(NS_PER_S);
    match leap.kind {
        _ if second < instant => Some(second),
        LeapKind::Insert if second == instant => None,
        LeapKind::Insert => Some(second - 1),
        LeapKind::Delete => Some(second + 1),
    }
}

/// Returns true if a count is past the leap, so that it can be counted in UTC from now on.
pub(super) fn is_past_leap(second: i64, leap: LeapSecond) -> bool {
    second > leap.step_instant().as_ns().div_euclid(NS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2017-01-01T00:00:00Z
    const MIDNIGHT: i64 = 1_483_228_800;

    fn leap(kind: LeapKind) -> LeapSecond {
        LeapSecond { midnight: Timestamp::from_timespec(MIDNIGHT, 0), kind }
    }

    #[test]
    fn an_inserted_second_has_no_name_and_those_behind_it_are_one_less() {
        let utc = |second| utc_of(MIDNIGHT + second, Some(leap(LeapKind::Insert)));
        assert_eq!(utc(-1), Some(MIDNIGHT - 1));
        assert_eq!(utc(0), None);
        assert_eq!(utc(1), Some(MIDNIGHT));
        assert_eq!(utc_of(MIDNIGHT, None), Some(MIDNIGHT));
    }

    #[test]
    fn a_deleted_second_is_passed_over() {
        let utc = |second| utc_of(MIDNIGHT + second, Some(leap(LeapKind::Delete)));
        assert_eq!([utc(-2), utc(-1)], [Some(MIDNIGHT - 2), Some(MIDNIGHT)]);
    }

    #[test]
    fn seconds_are_counted_either_way() {
        let count = SecondCountAnchor { second: 100, at: Timestamp::from_ns(5 * NS_PER_S) };
        let (next, distance) = count.nearest_count(Timestamp::from_ns(7_999_000_000));
        assert_eq!((next.second, distance), (103, Span::from_ms(-1)));
        let (before, distance) = count.nearest_count(Timestamp::from_ns(4_001_000_000));
        assert_eq!((before.second, distance), (99, Span::from_ms(1)));
        assert_eq!(count.second_at(Timestamp::from_ns(7_900_000_000)), (102, Span::from_ms(900)));
    }
}
