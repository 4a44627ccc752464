//! TAI minus UTC of a running server: from its configuration, the list of leap seconds, a
//! receiver's satellites, or the kernel, in this order. Pure; it stores the values of others, which
//! may change them late after a leap second, or never.

use horolog_time::leap::{LeapList, LeapSecond};
use horolog_time::{Timestamp, Utc};

/// Inputs of the lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaiInputs<'a> {
    /// Configured offset, valid at the start, in seconds.
    pub(crate) configured_s: Option<i16>,
    /// List of leap seconds, if it has not expired.
    pub(crate) list: Option<&'a LeapList>,
    /// Value of the selected source, if it has one.
    pub(crate) source_s: Option<i32>,
    /// Value of the kernel; 0 if it was never set.
    pub(crate) kernel_s: i32,
    /// Served time, on the scale before a leap in transition.
    pub(crate) utc: Timestamp<Utc>,
    /// Leap in transition.
    pub(crate) passing: Option<LeapSecond>,
    /// Leap seconds whose transition has ended since the start, deleted ones negative.
    pub(crate) passed_s: i32,
}

/// Value, with the number of leaps passed when it was recorded.
#[derive(Clone, Copy, Debug)]
struct RecordedOffset {
    offset_s: i32,
    passed_s: i32,
}

impl RecordedOffset {
    /// Returns its present value, after the leaps since.
    const fn now_s(self, terms: &TaiInputs<'_>) -> i32 {
        self.offset_s + terms.passed_s - self.passed_s
    }
}

/// Value of a source that learns of leaps late, or never.
#[derive(Clone, Copy, Default, Debug)]
struct FollowedOffset(Option<RecordedOffset>);

impl FollowedOffset {
    fn at(&mut self, reported_s: Option<i32>, terms: &TaiInputs<'_>) -> Option<i32> {
        // Around a leap it is unknown if a value is that before or after it, and one that was
        // correct before is a leap behind until its source is updated.
        let is_new = |reported_s: &i32| {
            self.0.is_none_or(|noted| {
                let known = [noted.offset_s, noted.now_s(terms)];
                terms.passing.is_none() && !known.contains(reported_s)
            })
        };
        if let Some(offset_s) = reported_s.filter(is_new) {
            self.0 = Some(RecordedOffset { offset_s, passed_s: terms.passed_s });
        }
        self.0.map(|noted| noted.now_s(terms))
    }
}

/// Tracker of the offset.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct TaiMinusUtc {
    kernel: FollowedOffset,
    source: FollowedOffset,
    /// Value of the list, which remains in use after the list has expired: it is correct for the
    /// past.
    listed: Option<RecordedOffset>,
    /// Present value from the configuration or the list.
    known_s: Option<i32>,
}

impl TaiMinusUtc {
    /// Returns the offset before the step of a leap in transition, in seconds; `None` if unknown.
    pub(crate) fn at(&mut self, terms: &TaiInputs<'_>) -> Option<i16> {
        let kernel_s = self.kernel.at(Some(terms.kernel_s).filter(|s| *s != 0), terms);
        let source_s = self.source.at(terms.source_s, terms);
        let configured_s =
            terms.configured_s.map(|configured_s| i32::from(configured_s) + terms.passed_s);
        if let Some(list) = terms.list {
            let offset_s = list.tai_minus_utc_s(terms.utc, terms.passing);
            self.listed = Some(RecordedOffset { offset_s, passed_s: terms.passed_s });
        }
        self.known_s = configured_s.or(self.listed.map(|noted| noted.now_s(terms)));
        let offset_s = self.known_s.or(source_s).or(kernel_s);
        offset_s.and_then(|offset_s| offset_s.try_into().ok())
    }

    /// Returns the offset at the last call, from the configuration or the list; `None` if it is
    /// from elsewhere.
    pub(crate) const fn known_s(&self) -> Option<i32> {
        self.known_s
    }
}

#[cfg(test)]
mod tests {
    use horolog_time::leap::LeapKind;

    use super::*;

    fn terms() -> TaiInputs<'static> {
        TaiInputs {
            configured_s: None,
            list: None,
            source_s: None,
            kernel_s: 0,
            utc: Timestamp::from_ns(0),
            passing: None,
            passed_s: 0,
        }
    }

    fn leap() -> LeapSecond {
        LeapSecond::at_end_of_day(Timestamp::from_ns(0), LeapKind::Insert)
    }

    #[test]
    fn without_a_source_there_is_no_offset() {
        let mut tai = TaiMinusUtc::default();
        assert_eq!(tai.at(&terms()), None);
        assert_eq!(tai.at(&TaiInputs { configured_s: Some(37), ..terms() }), Some(37));
        assert_eq!(tai.at(&TaiInputs { kernel_s: 36, ..terms() }), Some(36), "told late");
    }

    #[test]
    fn a_configured_offset_precedes_the_kernel_and_follows_the_leaps() {
        let mut tai = TaiMinusUtc::default();
        let configured = TaiInputs { configured_s: Some(37), kernel_s: 35, ..terms() };
        assert_eq!(tai.at(&configured), Some(37));
        assert_eq!(tai.at(&TaiInputs { passed_s: 1, ..configured }), Some(38));
    }

    #[test]
    fn the_kernel_counts_whether_or_not_it_has_the_leap() {
        for after_s in [37, 38] {
            let mut tai = TaiMinusUtc::default();
            let before = TaiInputs { kernel_s: 37, ..terms() };
            assert_eq!(tai.at(&before), Some(37));
            let passing = TaiInputs { passing: Some(leap()), kernel_s: after_s, ..before };
            assert_eq!(tai.at(&passing), Some(37), "its step is on the page");
            let after = TaiInputs { passed_s: 1, kernel_s: after_s, ..before };
            assert_eq!(tai.at(&after), Some(38), "{after_s}");
        }
    }

    #[test]
    fn a_receiver_goes_before_the_kernel_and_behind_the_rest() {
        let mut tai = TaiMinusUtc::default();
        let received = TaiInputs { source_s: Some(37), kernel_s: 35, ..terms() };
        assert_eq!((tai.at(&received), tai.known_s()), (Some(37), None));
        assert_eq!(
            tai.at(&TaiInputs { source_s: None, ..received }),
            Some(37),
            "another is followed"
        );
        for source_s in [Some(37), Some(38)] {
            let after = TaiInputs { source_s, passed_s: 1, ..received };
            assert_eq!(tai.at(&after), Some(38), "told of the leap late");
        }
        let configured = TaiInputs { configured_s: Some(36), ..received };
        let mut tai = TaiMinusUtc::default();
        assert_eq!((tai.at(&configured), tai.known_s()), (Some(36), Some(36)));
        let listed = Some(RecordedOffset { offset_s: 36, passed_s: 0 });
        let mut tai = TaiMinusUtc { listed, ..TaiMinusUtc::default() };
        assert_eq!(tai.at(&received), Some(36));
    }

    #[test]
    fn a_list_that_expires_was_right() {
        let listed = Some(RecordedOffset { offset_s: 37, passed_s: 0 });
        let mut tai = TaiMinusUtc { listed, ..TaiMinusUtc::default() };
        assert_eq!(tai.at(&TaiInputs { kernel_s: 35, ..terms() }), Some(37));
        assert_eq!(tai.at(&TaiInputs { passed_s: 1, ..terms() }), Some(38));
    }

    #[test]
    fn a_number_that_a_daemon_corrects_is_taken_over() {
        let mut tai = TaiMinusUtc::default();
        for (kernel_s, expected) in [(35, 35), (37, 37), (0, 37)] {
            assert_eq!(tai.at(&TaiInputs { kernel_s, ..terms() }), Some(expected));
        }
    }
}
