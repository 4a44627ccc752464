//! Leap seconds reported by a receiver: accepted after several equal reports, and only where the
//! server's list does not decide. Pure.

use horolog_time::leap::{Date, LeapKind, LeapSecond};
use horolog_time::{NS_PER_S, Span, Timestamp, Utc};

use crate::{NextLeap, ReceiverLeapReport, ServerLeapSeconds};

/// Consecutive equal reports that confirm a value. Each satellite sends the next leap second once
/// in 12.5 minutes.
const CONFIRMATIONS_MIN: u32 = 10;

/// Value that is accepted after [`CONFIRMATIONS_MIN`] equal reports in a row.
#[derive(Clone, Copy, Debug)]
struct ConfirmedValue<T> {
    candidate: Option<(T, u32)>,
    confirmed: Option<T>,
}

impl<T> Default for ConfirmedValue<T> {
    fn default() -> Self {
        Self { candidate: None, confirmed: None }
    }
}

impl<T: Copy + PartialEq> ConfirmedValue<T> {
    fn record(&mut self, reported: T) {
        let before = self.candidate.filter(|(candidate, _)| *candidate == reported);
        let count = before.map_or(0, |(_, times)| times) + 1;
        self.candidate = Some((reported, count.min(CONFIRMATIONS_MIN)));
        if count >= CONFIRMATIONS_MIN {
            self.confirmed = Some(reported);
        }
    }
}

/// Time after a leap second in which reports may still contain the previous TAI minus UTC: gpsd
/// compares whole weeks, and satellites send the page once in 12.5 minutes.
const OLD_OFFSET_TIME: Span = Span::from_ns(8 * 86_400 * NS_PER_S);

/// Confirmed values of the receiver's reports.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ReceiverLeapSeconds {
    tai_minus_utc_s: ConfirmedValue<i32>,
    next: ConfirmedValue<NextLeap>,
    /// TAI minus UTC in seconds before the last leap second, and that leap second; `None` if none
    /// has passed, or that value was not confirmed.
    previous: Option<(i32, LeapSecond)>,
}

impl ReceiverLeapSeconds {
    /// Processes a report at `now`. A report of a next leap second was decoded with the time of the
    /// system clock, so all of it is ignored unless the clock is correct (`is_clock_right`).
    pub(super) fn apply_report(
        &mut self,
        report: &ReceiverLeapReport,
        now: Timestamp<Utc>,
        is_clock_right: bool,
    ) {
        if report.next.is_some() && !is_clock_right {
            return;
        }
        let is_previous = self.previous.is_some_and(|(before_s, leap)| {
            before_s == report.tai_minus_utc_s && now - leap.midnight < OLD_OFFSET_TIME
        });
        if !is_previous {
            self.tai_minus_utc_s.record(report.tai_minus_utc_s);
        }
        if let Some(next) = report.next {
            self.next.record(next);
        }
    }

    /// Records that a leap second has passed, and applies it to TAI minus UTC.
    pub(super) fn leap_completed(&mut self, leap: LeapSecond) {
        let step_s = (leap.step().as_ns() / NS_PER_S) as i32;
        self.previous = self.tai_minus_utc_s.confirmed.map(|before_s| (before_s, leap));
        self.tai_minus_utc_s.confirmed = self.tai_minus_utc_s.confirmed.map(|s| s - step_s);
        self.tai_minus_utc_s.candidate = None;
        self.next = ConfirmedValue::default();
    }

    /// Returns TAI minus UTC in seconds; `None` if it is not confirmed or the server uses another
    /// value.
    pub(super) fn tai_minus_utc_s(&self, known: &ServerLeapSeconds) -> Option<i32> {
        let reported_s = self.tai_minus_utc_s.confirmed?;
        known.tai_minus_utc_s.is_none_or(|known_s| known_s == reported_s).then_some(reported_s)
    }

    /// Returns the report of the next leap second; `None` if none is confirmed, if the server's
    /// list decides, or if the receiver's TAI minus UTC contradicts the server's.
    pub(super) fn next(&self, known: &ServerLeapSeconds) -> Option<NextLeap> {
        let is_used = !known.has_list && self.rejection(known).is_none();
        self.next.confirmed.filter(|_| is_used)
    }

    /// Describes the receiver's report that is rejected, in one line; `None` if none is.
    pub(super) fn rejection(&self, known: &ServerLeapSeconds) -> Option<String> {
        let reported_s = self.tai_minus_utc_s.confirmed?;
        if let Some(known_s) = known.tai_minus_utc_s.filter(|known_s| *known_s != reported_s) {
            return Some(format!(
                "the receiver reports TAI minus UTC = {reported_s} s, the server uses {known_s} s"
            ));
        }
        let announced = self.next.confirmed?.leap()?;
        (known.has_list && Some(announced) != known.next).then(|| {
            let announced = describe(&announced);
            format!(
                "the receiver announces a leap second ({announced}) that is not in the leap second \
                 list; the list is used"
            )
        })
    }
}

/// Describes a leap second: the operation, and the day at whose end it happens.
pub(super) fn describe(leap: &LeapSecond) -> String {
    let operation = match leap.kind {
        LeapKind::Insert => "insert",
        LeapKind::Delete => "delete",
    };
    format!("{operation} {}", Date(leap.midnight - Span::from_ns(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAP: LeapSecond = LeapSecond {
        midnight: Timestamp::from_ns(1_483_228_800 * NS_PER_S),
        kind: LeapKind::Insert,
    };

    const BEFORE: Timestamp<Utc> = Timestamp::from_ns(LEAP.midnight.as_ns() - 1);

    fn report(tai_minus_utc_s: i32, next: Option<NextLeap>) -> ReceiverLeapReport {
        ReceiverLeapReport { tai_minus_utc_s, next }
    }

    fn receiver_leaps(reports: &[(u32, ReceiverLeapReport)]) -> ReceiverLeapSeconds {
        let mut leaps = ReceiverLeapSeconds::default();
        for (times, report) in reports {
            (0..*times).for_each(|_| leaps.apply_report(report, BEFORE, true));
        }
        leaps
    }

    #[test]
    fn ten_in_a_row_decide_and_fewer_change_nothing() {
        let unknown = ServerLeapSeconds::default();
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
        let unknown = ServerLeapSeconds::default();
        assert_eq!(leaps.next(&unknown), Some(NextLeap::At(LEAP)));
        assert_eq!(leaps.rejection(&unknown), None);
        let list =
            ServerLeapSeconds { tai_minus_utc_s: Some(37), has_list: true, next: Some(LEAP) };
        assert_eq!((leaps.tai_minus_utc_s(&list), leaps.rejection(&list)), (Some(37), None));
        let without = ServerLeapSeconds { next: None, ..list };
        assert_eq!((leaps.next(&without), leaps.tai_minus_utc_s(&without)), (None, Some(37)));
        let rejection = leaps.rejection(&without).unwrap();
        assert!(
            rejection.contains("insert 2016-12-31") && !rejection.contains('\n'),
            "{rejection}"
        );
        let other = ServerLeapSeconds { tai_minus_utc_s: Some(36), ..unknown };
        assert_eq!((leaps.tai_minus_utc_s(&other), leaps.next(&other)), (None, None));
        assert!(leaps.rejection(&other).unwrap().contains("37 s"));
    }

    #[test]
    fn the_number_follows_a_leap_at_once() {
        let mut leaps = receiver_leaps(&[(10, report(36, Some(NextLeap::At(LEAP))))]);
        leaps.leap_completed(LEAP);
        let unknown = ServerLeapSeconds::default();
        assert_eq!((leaps.tai_minus_utc_s(&unknown), leaps.next(&unknown)), (Some(37), None));
    }

    #[test]
    fn the_previous_number_is_ignored_for_a_week_after_the_leap() {
        let mut leaps = receiver_leaps(&[(10, report(36, None))]);
        leaps.leap_completed(LEAP);
        let unknown = ServerLeapSeconds::default();
        let mut number_after = |tai_s, days: i64| {
            let now = LEAP.midnight + Span::from_ns(days * 86_400 * NS_PER_S);
            (0..20).for_each(|_| leaps.apply_report(&report(tai_s, None), now, true));
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
        let mut leaps = ReceiverLeapSeconds::default();
        let leap_report = report(36, Some(NextLeap::At(LEAP)));
        (0..20).for_each(|_| leaps.apply_report(&leap_report, BEFORE, false));
        let unknown = ServerLeapSeconds::default();
        assert_eq!((leaps.next(&unknown), leaps.tai_minus_utc_s(&unknown)), (None, None));
    }
}
