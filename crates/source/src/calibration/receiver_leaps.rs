//! Leap seconds reported by a receiver, as far as they are accepted: no single report decides, and
//! the server's list takes precedence. Pure.

use horolog_time::leap::{Date, LeapKind, LeapSecond};
use horolog_time::{NS_PER_S, Span, Timestamp, Utc};

use crate::{KnownLeaps, LeapReport, NextLeap};

/// Consecutive reports that must agree. Satellites send the next leap second once in 12.5 minutes,
/// each on its own.
const AGREE: u32 = 10;

/// Value that is accepted after this many equal reports in a row.
#[derive(Clone, Copy, Debug)]
struct Confirmed<T> {
    candidate: Option<(T, u32)>,
    believed: Option<T>,
}

impl<T> Default for Confirmed<T> {
    fn default() -> Self {
        Self { candidate: None, believed: None }
    }
}

impl<T: Copy + PartialEq> Confirmed<T> {
    fn take(&mut self, reported: T) {
        let before = self.candidate.filter(|(candidate, _)| *candidate == reported);
        let times = before.map_or(0, |(_, times)| times) + 1;
        self.candidate = Some((reported, times.min(AGREE)));
        if times >= AGREE {
            self.believed = Some(reported);
        }
    }
}

/// Time after a leap second for which a number may be the previous one: gpsd compares whole weeks,
/// and satellites send a page of their own once in 12.5 minutes.
const OLD_NUMBERS: Span = Span::from_ns(8 * 86_400 * NS_PER_S);

/// Reports of the receiver.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ReceiverLeaps {
    tai_minus_utc_s: Confirmed<i32>,
    next: Confirmed<NextLeap>,
    /// Number that held before the last leap second, and that leap second.
    before: Option<(i32, LeapSecond)>,
}

impl ReceiverLeaps {
    /// Takes a report at `now`. The satellites' report of the next leap second was decoded by the
    /// clock, which has to be right for that.
    pub(super) fn take(&mut self, report: &LeapReport, now: Timestamp<Utc>, is_clock_right: bool) {
        if report.next.is_some() && !is_clock_right {
            return;
        }
        let is_old = self.before.is_some_and(|(before_s, leap)| {
            before_s == report.tai_minus_utc_s && now - leap.midnight < OLD_NUMBERS
        });
        if !is_old {
            self.tai_minus_utc_s.take(report.tai_minus_utc_s);
        }
        if let Some(next) = report.next {
            self.next.take(next);
        }
    }

    /// Records that a leap second has passed, which the number must follow at once.
    pub(super) fn pass(&mut self, leap: LeapSecond) {
        let step_s = (leap.step().as_ns() / NS_PER_S) as i32;
        self.before = self.tai_minus_utc_s.believed.map(|before_s| (before_s, leap));
        self.tai_minus_utc_s.believed = self.tai_minus_utc_s.believed.map(|s| s - step_s);
        self.tai_minus_utc_s.candidate = None;
        self.next = Confirmed::default();
    }

    /// Returns TAI minus UTC, unless the server has another.
    pub(super) fn tai_minus_utc_s(&self, known: &KnownLeaps) -> Option<i32> {
        let reported_s = self.tai_minus_utc_s.believed?;
        known.tai_minus_utc_s.is_none_or(|known_s| known_s == reported_s).then_some(reported_s)
    }

    /// Returns the next leap second; `None` if the receiver does not report it, or is not used
    /// because a list decides or contradicts its number.
    pub(super) fn next(&self, known: &KnownLeaps) -> Option<NextLeap> {
        let is_used = !known.has_list && self.rejection(known).is_none();
        self.next.believed.filter(|_| is_used)
    }

    /// Returns the report that is rejected, in one line.
    pub(super) fn rejection(&self, known: &KnownLeaps) -> Option<String> {
        let reported_s = self.tai_minus_utc_s.believed?;
        if let Some(known_s) = known.tai_minus_utc_s.filter(|known_s| *known_s != reported_s) {
            return Some(format!(
                "the receiver reports TAI minus UTC = {reported_s} s, the server uses {known_s} s"
            ));
        }
        let announced = self.next.believed?.leap()?;
        (known.has_list && Some(announced) != known.next).then(|| {
            let announced = words(&announced);
            format!(
                "the receiver announces a leap second ({announced}) that is not in the leap second \
                 list; the list is used"
            )
        })
    }
}

/// Returns a leap second in words: the operation, and the day at whose end it happens.
pub(super) fn words(leap: &LeapSecond) -> String {
    let what = match leap.kind {
        LeapKind::Insert => "insert",
        LeapKind::Delete => "delete",
    };
    format!("{what} {}", Date(leap.midnight - Span::from_ns(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAP: LeapSecond = LeapSecond {
        midnight: Timestamp::from_ns(1_483_228_800 * NS_PER_S),
        kind: LeapKind::Insert,
    };

    const BEFORE: Timestamp<Utc> = Timestamp::from_ns(LEAP.midnight.as_ns() - 1);

    fn report(tai_minus_utc_s: i32, next: Option<NextLeap>) -> LeapReport {
        LeapReport { tai_minus_utc_s, next }
    }

    fn receiver_leaps(reports: &[(u32, LeapReport)]) -> ReceiverLeaps {
        let mut leaps = ReceiverLeaps::default();
        for (times, report) in reports {
            (0..*times).for_each(|_| leaps.take(report, BEFORE, true));
        }
        leaps
    }

    #[test]
    fn ten_in_a_row_decide_and_fewer_change_nothing() {
        let unknown = KnownLeaps::default();
        let number = |reports: &[_]| receiver_leaps(reports).tai_minus_utc_s(&unknown);
        let (right, wrong) = (report(37, None), report(38, None));
        assert_eq!(number(&[(9, right)]), None);
        assert_eq!(number(&[(9, right), (1, wrong), (9, right)]), None);
        assert_eq!(number(&[(10, right)]), Some(37));
        assert_eq!(number(&[(10, right), (9, wrong), (1, right), (9, wrong)]), Some(37));
        assert_eq!(number(&[(10, right), (10, wrong)]), Some(38));
    }

    #[test]
    fn a_list_goes_before_the_receiver_and_a_contradiction_is_named() {
        let leaps = receiver_leaps(&[(10, report(37, Some(NextLeap::At(LEAP))))]);
        let unknown = KnownLeaps::default();
        assert_eq!(leaps.next(&unknown), Some(NextLeap::At(LEAP)));
        assert_eq!(leaps.rejection(&unknown), None);
        let list = KnownLeaps { tai_minus_utc_s: Some(37), has_list: true, next: Some(LEAP) };
        assert_eq!((leaps.tai_minus_utc_s(&list), leaps.rejection(&list)), (Some(37), None));
        let without = KnownLeaps { next: None, ..list };
        assert_eq!((leaps.next(&without), leaps.tai_minus_utc_s(&without)), (None, Some(37)));
        let rejection = leaps.rejection(&without).unwrap();
        assert!(
            rejection.contains("insert 2016-12-31") && !rejection.contains('\n'),
            "{rejection}"
        );
        let other = KnownLeaps { tai_minus_utc_s: Some(36), ..unknown };
        assert_eq!((leaps.tai_minus_utc_s(&other), leaps.next(&other)), (None, None));
        assert!(leaps.rejection(&other).unwrap().contains("37 s"));
    }

    #[test]
    fn the_number_follows_a_leap_at_once() {
        let mut leaps = receiver_leaps(&[(10, report(36, Some(NextLeap::At(LEAP))))]);
        leaps.pass(LEAP);
        let unknown = KnownLeaps::default();
        assert_eq!((leaps.tai_minus_utc_s(&unknown), leaps.next(&unknown)), (Some(37), None));
    }

    #[test]
    fn the_previous_number_is_ignored_for_a_week_after_the_leap() {
        let mut leaps = receiver_leaps(&[(10, report(36, None))]);
        leaps.pass(LEAP);
        let unknown = KnownLeaps::default();
        let mut number_after = |tai_s, days: i64| {
            let now = LEAP.midnight + Span::from_ns(days * 86_400 * NS_PER_S);
            (0..20).for_each(|_| leaps.take(&report(tai_s, None), now, true));
            leaps.tai_minus_utc_s(&unknown)
        };
        assert_eq!(
            [(36, 0), (37, 1), (36, 7)].map(|(s, days)| number_after(s, days)),
            [Some(37); 3]
        );
        assert_eq!(number_after(36, 9), Some(36), "there was none");
    }

    #[test]
    fn a_clock_that_may_be_wrong_names_no_day_and_no_number_by_it() {
        let mut leaps = ReceiverLeaps::default();
        let leap_report = report(36, Some(NextLeap::At(LEAP)));
        (0..20).for_each(|_| leaps.take(&leap_report, BEFORE, false));
        let unknown = KnownLeaps::default();
        assert_eq!((leaps.next(&unknown), leaps.tai_minus_utc_s(&unknown)), (None, None));
    }
}
