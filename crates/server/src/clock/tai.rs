//! TAI minus UTC of a running server: from its configuration, the list of leap seconds, the
//! selected source, or the kernel, in this order. Pure. It tracks values whose sources update them
//! late after a leap second, or never.

use horolog_time::leap::{LeapList, LeapSecond};
use horolog_time::{Timestamp, Utc};

/// Inputs for determining TAI minus UTC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaiInputs<'a> {
    /// Configured value at the start, in seconds.
    pub(crate) configured_s: Option<i16>,
    /// List of leap seconds, if it has not expired.
    pub(crate) list: Option<&'a LeapList>,
    /// Value of the selected source, if available, in seconds.
    pub(crate) source_s: Option<i32>,
    /// Value of the kernel, in seconds; 0 if it was never set.
    pub(crate) kernel_s: i32,
    /// Served time; during a leap transition, on the timescale before the leap.
    pub(crate) utc: Timestamp<Utc>,
    /// Leap second in transition.
    pub(crate) active_leap: Option<LeapSecond>,
    /// Number of leap seconds since the start whose transition has ended, in seconds; deleted ones
    /// count negative.
    pub(crate) passed_leaps_s: i32,
}

/// Value, with the number of leap seconds since the start when it was recorded.
#[derive(Clone, Copy, Debug)]
struct RecordedTaiOffset {
    offset_s: i32,
    passed_leaps_s: i32,
}

impl RecordedTaiOffset {
    /// Returns the value after the leap seconds since it was recorded, in seconds.
    const fn current_s(self, inputs: &TaiInputs<'_>) -> i32 {
        self.offset_s + inputs.passed_leaps_s - self.passed_leaps_s
    }
}

/// Value from a source that may update it late after a leap second, or never.
#[derive(Clone, Copy, Default, Debug)]
struct TrackedTaiOffset(Option<RecordedTaiOffset>);

impl TrackedTaiOffset {
    fn update(&mut self, reported_s: Option<i32>, inputs: &TaiInputs<'_>) -> Option<i32> {
        // During a transition it is unknown if a value is that before or after the leap second. A
        // value that was correct before is a second behind until its source updates it.
        let is_new = |reported_s: &i32| {
            self.0.is_none_or(|noted| {
                let known = [noted.offset_s, noted.current_s(inputs)];
                inputs.active_leap.is_none() && !known.contains(reported_s)
            })
        };
        if let Some(offset_s) = reported_s.filter(is_new) {
            self.0 = Some(RecordedTaiOffset { offset_s, passed_leaps_s: inputs.passed_leaps_s });
        }
        self.0.map(|noted| noted.current_s(inputs))
    }
}

/// Tracker of TAI minus UTC over leap seconds, for each of its sources.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct TaiOffsetTracker {
    kernel: TrackedTaiOffset,
    source: TrackedTaiOffset,
    /// Value of the list, which stays in use after the list has expired, because it is correct for
    /// the past.
    listed: Option<RecordedTaiOffset>,
    /// Current value from the configuration or the list, in seconds.
    known_s: Option<i32>,
}

impl TaiOffsetTracker {
    /// Returns TAI minus UTC before the step of a leap second in transition, in seconds; `None` if
    /// unknown.
    pub(crate) fn update(&mut self, inputs: &TaiInputs<'_>) -> Option<i16> {
        let kernel_s = self.kernel.update(Some(inputs.kernel_s).filter(|s| *s != 0), inputs);
        let source_s = self.source.update(inputs.source_s, inputs);
        let configured_s =
            inputs.configured_s.map(|configured_s| i32::from(configured_s) + inputs.passed_leaps_s);
        if let Some(list) = inputs.list {
            let offset_s = list.tai_minus_utc_s(inputs.utc, inputs.active_leap);
            self.listed =
                Some(RecordedTaiOffset { offset_s, passed_leaps_s: inputs.passed_leaps_s });
        }
        self.known_s = configured_s.or(self.listed.map(|noted| noted.current_s(inputs)));
        let offset_s = self.known_s.or(source_s).or(kernel_s);
        offset_s.and_then(|offset_s| offset_s.try_into().ok())
    }

    /// Returns the value of the last call of [`Self::update`], if it was from the configuration or
    /// the list.
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
            active_leap: None,
            passed_leaps_s: 0,
        }
    }

    fn leap() -> LeapSecond {
        LeapSecond::at_end_of_day(Timestamp::from_ns(0), LeapKind::Insert)
    }

    #[test]
    fn without_a_source_there_is_no_offset() {
        let mut tai = TaiOffsetTracker::default();
        assert_eq!(tai.update(&terms()), None);
        assert_eq!(tai.update(&TaiInputs { configured_s: Some(37), ..terms() }), Some(37));
        assert_eq!(tai.update(&TaiInputs { kernel_s: 36, ..terms() }), Some(36), "told late");
    }

    #[test]
    fn a_configured_offset_precedes_the_kernel_and_follows_the_leaps() {
        let mut tai = TaiOffsetTracker::default();
        let configured = TaiInputs { configured_s: Some(37), kernel_s: 35, ..terms() };
        assert_eq!(tai.update(&configured), Some(37));
        assert_eq!(tai.update(&TaiInputs { passed_leaps_s: 1, ..configured }), Some(38));
    }

    #[test]
    fn the_kernel_counts_whether_or_not_it_has_the_leap() {
        for after_s in [37, 38] {
            let mut tai = TaiOffsetTracker::default();
            let before = TaiInputs { kernel_s: 37, ..terms() };
            assert_eq!(tai.update(&before), Some(37));
            let passing = TaiInputs { active_leap: Some(leap()), kernel_s: after_s, ..before };
            assert_eq!(tai.update(&passing), Some(37), "its step is on the page");
            let after = TaiInputs { passed_leaps_s: 1, kernel_s: after_s, ..before };
            assert_eq!(tai.update(&after), Some(38), "{after_s}");
        }
    }

    #[test]
    fn a_receiver_goes_before_the_kernel_and_behind_the_rest() {
        let mut tai = TaiOffsetTracker::default();
        let received = TaiInputs { source_s: Some(37), kernel_s: 35, ..terms() };
        assert_eq!((tai.update(&received), tai.known_s()), (Some(37), None));
        assert_eq!(
            tai.update(&TaiInputs { source_s: None, ..received }),
            Some(37),
            "another is followed"
        );
        for source_s in [Some(37), Some(38)] {
            let after = TaiInputs { source_s, passed_leaps_s: 1, ..received };
            assert_eq!(tai.update(&after), Some(38), "told of the leap late");
        }
        let configured = TaiInputs { configured_s: Some(36), ..received };
        let mut tai = TaiOffsetTracker::default();
        assert_eq!((tai.update(&configured), tai.known_s()), (Some(36), Some(36)));
        let listed = Some(RecordedTaiOffset { offset_s: 36, passed_leaps_s: 0 });
        let mut tai = TaiOffsetTracker { listed, ..TaiOffsetTracker::default() };
        assert_eq!(tai.update(&received), Some(36));
    }

    #[test]
    fn a_list_that_expires_was_right() {
        let listed = Some(RecordedTaiOffset { offset_s: 37, passed_leaps_s: 0 });
        let mut tai = TaiOffsetTracker { listed, ..TaiOffsetTracker::default() };
        assert_eq!(tai.update(&TaiInputs { kernel_s: 35, ..terms() }), Some(37));
        assert_eq!(tai.update(&TaiInputs { passed_leaps_s: 1, ..terms() }), Some(38));
    }

    #[test]
    fn a_number_that_a_daemon_corrects_is_taken_over() {
        let mut tai = TaiOffsetTracker::default();
        for (kernel_s, expected) in [(35, 35), (37, 37), (0, 37)] {
            assert_eq!(tai.update(&TaiInputs { kernel_s, ..terms() }), Some(expected));
        }
    }
}
