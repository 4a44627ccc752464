//! Slew rate of the system clock by chronyd, estimated from its remaining corrections: two
//! consecutive ones give the rate, and so the time between two replies. Pure.
//!
//! A correction is true time minus the system clock, and chronyd slews the clock by changing the
//! rate of `CLOCK_MONOTONIC` too. So the decrease of a correction in each second of that clock is
//! the rate to add to it, and the slew ends when nothing is left to correct.

use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp};

use crate::{ClockReadings, STALE, Slew};

/// Maximum slew rate of a Linux clock, in parts per billion: the kernel takes ticks that are up to
/// a tenth too long or too short (adjtimex(2)).
const SLEW_MAX_PPB: u64 = 110_000_000;
/// Maximum drift of a clock without slew, in parts per billion: MAXFREQ of RFC 5905, appendix
/// A.1.1.
const DRIFT_MAX_PPB: u64 = 500_000;

/// Last correction and its rate.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SlewEstimate {
    /// Instant of the last reply, and true time minus the monotonic clock. A step of the system
    /// clock, for which a correction compensates, does not appear in this.
    last: Option<(Timestamp<Monotonic>, Span)>,
}

impl SlewEstimate {
    /// Takes the next correction; returns its slew from now on, and the maximum error of that.
    pub(super) fn next(&mut self, readings: &ClockReadings, correction: Span) -> (Slew, Span) {
        let now = readings.monotonic;
        let ahead = correction + readings.realtime_minus_monotonic;
        let last = self.last.replace((now, ahead));
        let known = last.map(|(when, before)| (now - when, ahead - before));
        let known = known.filter(|(elapsed, _)| *elapsed > Span::ZERO && *elapsed <= STALE);
        let left = correction.as_ns().unsigned_abs();
        // Nothing is known after a first reply, not even if the correction is in progress.
        let Some((elapsed, change)) = known else { return (Slew::default(), span(left)) };
        let rate = i128::from(change.as_ns()) * i128::from(NS_PER_S) / i128::from(elapsed.as_ns());
        let rate_ppb = rate.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
        let (changed, error_bound_ppb) = (change.as_ns().unsigned_abs(), rate_ppb.saturating_abs());
        let still = Slew { error_bound_ppb, ..Slew::default() };
        let shrinks = rate_ppb.signum() * correction.as_ns().signum() < 0;
        if shrinks && rate_ppb.unsigned_abs() <= SLEW_MAX_PPB {
            let lasts = u128::from(left) * NS_PER_S as u128 / u128::from(rate_ppb.unsigned_abs());
            let lasts = span(u64::try_from(lasts).unwrap_or(u64::MAX));
            (Slew { rate_ppb, lasts, error_bound_ppb }, span(changed))
        } else if rate_ppb.unsigned_abs() <= DRIFT_MAX_PPB {
            (still, span(changed))
        } else {
            // It has been measured anew. The next reply shows its rate.
            (still, span(changed.max(left)))
        }
    }
}

fn span(ns: u64) -> Span {
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
            leaps: crate::KnownLeaps::default(),
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
        let carried = part(age.min(slew.lasts), slew.rate_ppb) as i64;
        let served = left(of, at_ms) + Span::from_ns(carried);
        let bound = uncertainty + Span::from_ns(part(age, slew.error_bound_ppb) as i64);
        ((served - left(of, ms)).as_ns().unsigned_abs(), bound.as_ns().unsigned_abs())
    }

    #[test]
    fn a_fast_slew_is_followed_between_the_answers_and_to_its_end() {
        for of in [Span::from_ms(400), Span::from_ms(-400)] {
            let mut corrections = SlewEstimate::default();
            corrections.next(&readings(0, Span::ZERO), of);
            for second in 1..=8 {
                let at_ms = second * 1_000;
                let answer = corrections.next(&readings(at_ms, Span::ZERO), left(of, at_ms));
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
            let mut corrections = SlewEstimate::default();
            corrections.next(&readings(0, Span::ZERO), Span::ZERO);
            let at_ms = 1_000 - measured_ms;
            let answer = corrections.next(&readings(1_000, Span::ZERO), left(of, at_ms));
            for ms in (at_ms..at_ms + 8_000).step_by(100) {
                let (error, bound) = served(answer, of, at_ms, ms);
                assert!(error <= bound, "{measured_ms} {ms}: {error} of {bound}");
            }
        }
        // As much as was slewed is measured anew, so that the corrections are nearly the same.
        let mut corrections = SlewEstimate::default();
        corrections.next(&readings(0, Span::ZERO), of - Span::from_ms(1));
        let (error, bound) =
            served(corrections.next(&readings(1_000, Span::ZERO), of), of, 0, 3_000);
        assert!(error > 0 && error <= bound, "{error} of {bound}");
        let answer = SlewEstimate::default().next(&readings(0, Span::ZERO), of);
        let (error, bound) = served(answer, of, 0, 4_000);
        assert!(error > 0 && error <= bound, "{error} of {bound}");
    }

    #[test]
    fn a_step_that_a_correction_makes_up_for_is_no_slew() {
        let (mut corrections, step) = (SlewEstimate::default(), Span::from_ms(700));
        corrections.next(&readings(0, Span::ZERO), step);
        let answer = corrections.next(&readings(1_000, step), Span::ZERO);
        assert_eq!(answer, (Slew::default(), Span::ZERO));
    }

    #[test]
    fn the_error_bound_of_an_unapplied_correction_grows_by_its_drift_alone() {
        let mut corrections = SlewEstimate::default();
        corrections.next(&readings(0, Span::ZERO), Span::from_ms(20));
        let grown = Span::from_ms(20) + Span::from_ns(30_000);
        let (slew, uncertainty) = corrections.next(&readings(1_000, Span::ZERO), grown);
        assert_eq!((slew.rate_ppb, slew.error_bound_ppb), (0, 30_000));
        assert_eq!(uncertainty, Span::from_ns(30_000));
    }

    #[test]
    fn a_reply_after_a_long_gap_does_not_determine_the_rate() {
        let mut corrections = SlewEstimate::default();
        corrections.next(&readings(0, Span::ZERO), Span::from_ms(50));
        let after = corrections.next(&readings(9_000, Span::ZERO), Span::from_ms(10));
        assert_eq!(after, (Slew::default(), Span::from_ms(10)));
    }
}
