//! Slew rate of the system clock by chronyd, estimated from two consecutive values of its remaining
//! correction. Pure.
//!
//! A correction is true time minus the system clock. chronyd slews the clock by changing the rate
//! of `CLOCK_MONOTONIC` too, so the decrease of the correction in each second of that clock is the
//! slew rate, and the slew ends when the correction is 0.

use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp};

use crate::{ClockReadings, REPORT_AGE_MAX, Slew};

/// Largest slew rate of a Linux clock in parts per billion: the kernel accepts ticks up to 10 % too
/// long or too short (adjtimex(2)).
const SLEW_MAX_PPB: u64 = 110_000_000;
/// Largest drift of a clock that is not slewed, in parts per billion: MAXFREQ of RFC 5905, appendix
/// A.1.1.
const DRIFT_MAX_PPB: u64 = 500_000;

/// Estimator of the slew rate from consecutive corrections; holds the last one.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SlewRateEstimator {
    /// Instant of the last reply, and true time minus the monotonic clock. A step of the system
    /// clock changes the correction, but not this value.
    last: Option<(Timestamp<Monotonic>, Span)>,
}

impl SlewRateEstimator {
    /// Returns the slew from now on by the next correction, and the error bound of the correction.
    pub(super) fn update(&mut self, readings: &ClockReadings, correction: Span) -> (Slew, Span) {
        let now = readings.monotonic;
        let utc_minus_monotonic = correction + readings.realtime_minus_monotonic;
        let last = self.last.replace((now, utc_minus_monotonic));
        let difference = last.map(|(when, before)| (now - when, utc_minus_monotonic - before));
        let known =
            difference.filter(|(elapsed, _)| *elapsed > Span::ZERO && *elapsed <= REPORT_AGE_MAX);
        let remaining_ns = correction.as_ns().unsigned_abs();
        // A first reply does not show whether the correction is in progress.
        let Some((elapsed, change)) = known else {
            return (Slew::default(), span_from_ns(remaining_ns));
        };
        let rate = i128::from(change.as_ns()) * i128::from(NS_PER_S) / i128::from(elapsed.as_ns());
        let rate_ppb = rate.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
        let (changed, error_bound_ppb) = (change.as_ns().unsigned_abs(), rate_ppb.saturating_abs());
        let no_slew = Slew { error_bound_ppb, ..Slew::default() };
        let is_decreasing = rate_ppb.signum() * correction.as_ns().signum() < 0;
        if is_decreasing && rate_ppb.unsigned_abs() <= SLEW_MAX_PPB {
            let duration =
                u128::from(remaining_ns) * NS_PER_S as u128 / u128::from(rate_ppb.unsigned_abs());
            let duration = span_from_ns(u64::try_from(duration).unwrap_or(u64::MAX));
            (Slew { rate_ppb, duration, error_bound_ppb }, span_from_ns(changed))
        } else if rate_ppb.unsigned_abs() <= DRIFT_MAX_PPB {
            (no_slew, span_from_ns(changed))
        } else {
            // The daemon has measured the offset anew; the next reply shows the rate.
            (no_slew, span_from_ns(changed.max(remaining_ns)))
        }
    }
}

fn span_from_ns(ns: u64) -> Span {
    Span::from_ns(i64::try_from(ns).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLEW_PPB: i64 = 83_333_000;

    fn readings(ms: i64, stepped: Span) -> ClockReadings {
        ClockReadings {
            monotonic: Timestamp::from_ns(ms * 1_000_000),
            realtime_minus_monotonic: Span::from_ns(1_700_000_000 * NS_PER_S) + stepped,
            kernel: None,
            leaps_s: 0,
            leaps: crate::ServerLeapSeconds::default(),
        }
    }

    /// What is left to correct at an instant of the slewed clock.
    fn left(of: Span, ms: i64) -> Span {
        let made = Span::from_ns(ms * 1_000_000 * SLEW_PPB / NS_PER_S);
        if of > Span::ZERO { (of - made).max(Span::ZERO) } else { (of + made).min(Span::ZERO) }
    }

    /// The error of what is served at `ms`, and how far it may be wrong, by an answer at `at_ms`.
    fn served(answer: (Slew, Span), of: Span, at_ms: i64, ms: i64) -> (u64, u64) {
        let (slew, uncertainty) = answer;
        let age = Span::from_ms(ms - at_ms);
        let part =
            |span: Span, ppb: i64| i128::from(span.as_ns()) * i128::from(ppb) / 1_000_000_000;
        let carried = part(age.min(slew.duration), slew.rate_ppb) as i64;
        let served = left(of, at_ms) + Span::from_ns(carried);
        let bound = uncertainty + Span::from_ns(part(age, slew.error_bound_ppb) as i64);
        ((served - left(of, ms)).as_ns().unsigned_abs(), bound.as_ns().unsigned_abs())
    }

    #[test]
    fn a_fast_slew_is_followed_between_the_answers_and_to_its_end() {
        for of in [Span::from_ms(400), Span::from_ms(-400)] {
            let mut corrections = SlewRateEstimator::default();
            corrections.update(&readings(0, Span::ZERO), of);
            for second in 1..=8 {
                let at_ms = second * 1_000;
                let answer = corrections.update(&readings(at_ms, Span::ZERO), left(of, at_ms));
                // It may not reply afterwards for as long as its report is used.
                for ms in (at_ms..at_ms + 8_000).step_by(100) {
                    let (error, bound) = served(answer, of, at_ms, ms);
                    assert!(error < 1_000 && error <= bound, "{of:?} {at_ms} {ms}: {error}");
                }
            }
        }
    }

    #[test]
    fn an_error_is_within_the_uncertainty_when_the_slew_is_not_known_yet() {
        // 300 ms are measured between two answers, and slewed from then on.
        let of = Span::from_ms(300);
        for measured_ms in [0, 300, 999] {
            let mut corrections = SlewRateEstimator::default();
            corrections.update(&readings(0, Span::ZERO), Span::ZERO);
            let at_ms = 1_000 - measured_ms;
            let answer = corrections.update(&readings(1_000, Span::ZERO), left(of, at_ms));
            for ms in (at_ms..at_ms + 8_000).step_by(100) {
                let (error, bound) = served(answer, of, at_ms, ms);
                assert!(error <= bound, "{measured_ms} {ms}: {error} of {bound}");
            }
        }
        // As much as was slewed is measured anew, so that the corrections are nearly the same.
        let mut corrections = SlewRateEstimator::default();
        corrections.update(&readings(0, Span::ZERO), of - Span::from_ms(1));
        let (error, bound) =
            served(corrections.update(&readings(1_000, Span::ZERO), of), of, 0, 3_000);
        assert!(error > 0 && error <= bound, "{error} of {bound}");
        let answer = SlewRateEstimator::default().update(&readings(0, Span::ZERO), of);
        let (error, bound) = served(answer, of, 0, 4_000);
        assert!(error > 0 && error <= bound, "{error} of {bound}");
    }

    #[test]
    fn a_step_that_a_correction_makes_up_for_is_no_slew() {
        let (mut corrections, step) = (SlewRateEstimator::default(), Span::from_ms(700));
        corrections.update(&readings(0, Span::ZERO), step);
        let answer = corrections.update(&readings(1_000, step), Span::ZERO);
        assert_eq!(answer, (Slew::default(), Span::ZERO));
    }

    #[test]
    fn the_error_bound_of_an_unapplied_correction_grows_by_its_drift_alone() {
        let mut corrections = SlewRateEstimator::default();
        corrections.update(&readings(0, Span::ZERO), Span::from_ms(20));
        let grown = Span::from_ms(20) + Span::from_ns(30_000);
        let (slew, uncertainty) = corrections.update(&readings(1_000, Span::ZERO), grown);
        assert_eq!((slew.rate_ppb, slew.error_bound_ppb), (0, 30_000));
        assert_eq!(uncertainty, Span::from_ns(30_000));
    }

    #[test]
    fn a_reply_after_a_long_gap_does_not_determine_the_rate() {
        let mut corrections = SlewRateEstimator::default();
        corrections.update(&readings(0, Span::ZERO), Span::from_ms(50));
        let after = corrections.update(&readings(9_000, Span::ZERO), Span::from_ms(10));
        assert_eq!(after, (Slew::default(), Span::from_ms(10)));
    }
}
