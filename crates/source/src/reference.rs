//! Common part of the sources that are clocks themselves, and no daemons with estimates of their
//! own: the claims about them, and the conversion of their samples to a report.

use horolog_discipline::{CoarseTime, Plausibility, Support, TimeEvidence, TimeJudge};
use horolog_time::{Monotonic, Span, Timestamp, Utc};
use horolog_wire::ntp::LeapIndicator;

use crate::filter::{ClockFilter, OffsetSample};
use crate::{ClockReadings, STALE, Slew, SourceEstimate};

/// Maximum error of a usable sample.
const UNCERTAINTY_MAX: Span = Span::from_ms(1_000);
/// Maximum distance of a sample's instant into the future: two clock readings apart.
const AHEAD_MAX: Span = Span::from_ms(10);

/// Claims about a reference clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReferenceClaim {
    /// Stratum of a server that follows it.
    pub(crate) stratum: u8,
    /// Its identifier.
    pub(crate) reference_id: [u8; 4],
    /// Offset added to its time.
    pub(crate) offset: Span,
    /// Error bound in addition to that of its samples.
    pub(crate) uncertainty: Span,
}

/// Lag of a receiver's sentences after the instants that they name, if no pulse shows it: a middle,
/// and the maximum deviation from that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SentenceLag {
    pub(crate) middle: Span,
    pub(crate) bound: Span,
}

impl SentenceLag {
    /// Returns the lag as configured, otherwise that of every receiver without a pulse.
    pub(crate) fn of(claim: &ReferenceClaim) -> Self {
        if claim.uncertainty > Span::ZERO {
            return Self { middle: Span::ZERO, bound: Span::ZERO };
        }
        let middle = if claim.offset == Span::ZERO { CoarseTime::LAG } else { Span::ZERO };
        Self { middle, bound: CoarseTime::BOUND }
    }
}

/// Samples of a reference clock and its claims.
#[derive(Clone, Debug)]
pub(crate) struct ReferenceClock {
    claim: ReferenceClaim,
    filter: ClockFilter,
    leap: LeapIndicator,
    fresh: bool,
    refused: Option<&'static str>,
    judge: Option<TimeJudge>,
    /// Instant of the last plausible sample, and true if those in the filter are plausible.
    plausible: Option<Timestamp<Monotonic>>,
    is_plausible: bool,
}

impl ReferenceClock {
    pub(crate) fn new(claim: ReferenceClaim) -> Self {
        Self {
            claim,
            filter: ClockFilter::default(),
            leap: LeapIndicator::None,
            fresh: false,
            refused: None,
            judge: None,
            plausible: None,
            is_plausible: true,
        }
    }

    /// Judges samples by these facts from here on: of several receivers, whose samples come as
    /// those of one clock, one may have a wrong date.
    pub(crate) fn judge_by(&mut self, basis: Plausibility) {
        self.judge = Some(TimeJudge::new(basis));
    }

    /// Records that its time was found plausible by all evidence.
    pub(crate) fn vouch(&mut self, ahead: Span, support: Support) {
        self.judge.iter_mut().for_each(|judge| judge.vouch(ahead, support));
    }

    /// Returns true if a sample is to be filtered: an implausible one is if no other comes, so that
    /// the error is reported, or confirmed by others.
    fn admits(&mut self, readings: &ClockReadings, ahead: Span) -> bool {
        let Some(judge) = &self.judge else { return true };
        let (now, system) = (readings.monotonic, Some(readings.realtime_minus_monotonic));
        let is_plausible =
            judge.consider(&TimeEvidence { now, system, others: &[] }, ahead).is_ok();
        if is_plausible {
            self.plausible = Some(now);
        } else if self.plausible.is_some_and(|when| now - when <= STALE) {
            return false;
        }
        if std::mem::replace(&mut self.is_plausible, is_plausible) != is_plausible {
            self.filter = ClockFilter::default();
        }
        true
    }

    /// Takes a sample: the true time at the system clock's reading `system`, and its maximum error.
    pub(crate) fn take(
        &mut self,
        readings: &ClockReadings,
        system: Timestamp<Utc>,
        truth: Timestamp<Utc>,
        uncertainty: Span,
    ) {
        let age = readings.realtime() - system;
        if age > STALE || age < -AHEAD_MAX {
            self.refused = Some("its samples are out of date, or the system clock was stepped");
            return;
        }
        if !(Span::ZERO..=UNCERTAINTY_MAX).contains(&uncertainty) {
            self.refused = Some("its samples have an error bound above a second");
            return;
        }
        let sample = OffsetSample {
            at: readings.monotonic - age,
            ahead: (truth - system) + readings.realtime_minus_monotonic + self.claim.offset,
            uncertainty,
        };
        if !self.admits(readings, sample.ahead) {
            return;
        }
        self.refused = if self.filter.take(sample) {
            self.fresh = true;
            None
        } else {
            Some("its latest samples contradict earlier ones")
        };
    }

    /// Sets its leap indicator from here on.
    pub(crate) fn set_leap(&mut self, leap: LeapIndicator) {
        self.leap = leap;
    }

    /// Returns the reason for which the last sample was refused, if it was.
    pub(crate) fn refused(&self) -> Option<&'static str> {
        self.refused
    }

    /// Returns the present report, if samples have come since the last one.
    pub(crate) fn report(&mut self, readings: &ClockReadings) -> Option<SourceEstimate> {
        if !std::mem::take(&mut self.fresh) {
            return None;
        }
        let estimate = self.filter.estimate(readings.monotonic)?;
        Some(SourceEstimate {
            at: readings.monotonic,
            offset: estimate.ahead - readings.realtime_minus_monotonic,
            frequency_ppb: estimate.rate_ppb,
            slew: Slew::default(),
            uncertainty: estimate.uncertainty,
            leap: self.leap,
            tai_minus_utc_s: None,
            next_leap: None,
            stratum: self.claim.stratum,
            reference_id: self.claim.reference_id,
            reference: served(readings.monotonic, estimate.ahead),
            root_delay: Span::ZERO,
            root_dispersion: self.claim.uncertainty,
            is_unconfirmed: false,
            host_clock: None,
        })
    }
}

/// Returns the instant on the timescale that is `ahead` of the monotonic clock.
fn served(now: Timestamp<Monotonic>, ahead: Span) -> Timestamp<Utc> {
    Timestamp::from_ns(now.as_ns().saturating_add(ahead.as_ns()))
}

/// Returns the span of 2 to the power of `precision` seconds, as NTP states precisions; at most an
/// hour.
pub(crate) fn precision_span(precision: i32) -> Span {
    let seconds = f64::from(precision.clamp(-30, 11)).exp2();
    Span::from_ns((seconds * 1e9).ceil() as i64)
}

#[cfg(test)]
pub(crate) mod tests {
    use horolog_sys::adjtimex::{KernelClock, PendingLeap};
    use horolog_time::NS_PER_S;

    use super::*;

    pub(crate) const CLAIM: ReferenceClaim = ReferenceClaim {
        stratum: 1,
        reference_id: *b"TEST",
        offset: Span::from_ns(500),
        uncertainty: Span::from_ns(3),
    };
    pub(crate) const REALTIME_AHEAD: Span = Span::from_ns(1_700_000_000 * NS_PER_S);

    /// State of a kernel with this TAI offset.
    pub(crate) fn kernel(tai_offset_s: i32) -> KernelClock {
        KernelClock {
            is_leap_second: false,
            synchronised: true,
            leap: PendingLeap::None,
            maximum_error: Span::ZERO,
            estimated_error: Span::ZERO,
            tai_offset_s,
            frequency_ppb: 0.0,
        }
    }

    pub(crate) fn readings(ms: i64) -> ClockReadings {
        ClockReadings {
            monotonic: Timestamp::from_ns(ms * 1_000_000),
            realtime_minus_monotonic: REALTIME_AHEAD,
            kernel: None,
            leaps_s: 0,
            leaps: crate::KnownLeaps::default(),
        }
    }

    #[test]
    fn samples_become_a_report_once() {
        let mut clock = ReferenceClock::new(CLAIM);
        let now = readings(10_000);
        let system = now.realtime() - Span::from_ms(100);
        clock.take(&now, system, system + Span::from_ms(7), Span::from_ns(40));
        let report = clock.report(&now).unwrap();
        assert_eq!(report.offset, Span::from_ns(7_000_500));
        assert_eq!(
            (report.uncertainty, report.root_dispersion),
            (Span::from_ns(40), CLAIM.uncertainty)
        );
        assert_eq!(report.reference, now.realtime() + report.offset);
        assert_eq!(clock.report(&readings(11_000)), None, "nothing new");
    }

    #[test]
    fn what_cannot_be_a_sample_of_now_is_refused() {
        let mut clock = ReferenceClock::new(CLAIM);
        let now = readings(10_000);
        for (age_ms, uncertainty_ns) in [(8_001, 1), (-11, 1), (1, -1), (1, 1_000_000_001)] {
            let system = now.realtime() - Span::from_ms(age_ms);
            clock.take(&now, system, system, Span::from_ns(uncertainty_ns));
            assert!(clock.refused().is_some(), "{age_ms} {uncertainty_ns}");
            assert_eq!(clock.report(&now), None);
        }
    }

    #[test]
    fn an_implausible_sample_is_ignored_among_plausible_ones() {
        let mut clock = ReferenceClock::new(CLAIM);
        let build = Timestamp::from_ns(REALTIME_AHEAD.as_ns());
        clock.judge_by(Plausibility { build, ..Plausibility::default() });
        let years = Span::from_ns(9 * 31_556_952 * NS_PER_S);
        let mut take_sample = |second: i64, wrong: bool| {
            let now = readings(second * 1_000);
            let off = if wrong { years } else { Span::ZERO };
            clock.take(&now, now.realtime(), now.realtime() + off, Span::from_ns(40));
            clock.report(&now).map(|report| report.offset > Span::from_ns(NS_PER_S))
        };
        assert_eq!(take_sample(1, true), Some(true), "alone, it is judged beside other sources");
        assert_eq!(take_sample(2, false), Some(false), "at once");
        for second in 3..20 {
            let is_wrong = second % 3 != 0;
            assert_eq!(take_sample(second, is_wrong), (!is_wrong).then_some(false), "{second}");
        }
        assert_eq!(
            (20..28).find_map(|second| take_sample(second, true)),
            Some(true),
            "the only one left"
        );
    }

    #[test]
    fn the_sentence_lag_is_as_configured_or_up_to_a_second_and_a_half() {
        let lag = |offset_ms, uncertainty_ms| {
            let (offset, uncertainty) = (Span::from_ms(offset_ms), Span::from_ms(uncertainty_ms));
            let lag = SentenceLag::of(&ReferenceClaim { offset, uncertainty, ..CLAIM });
            (lag.middle.as_ns() / 1_000_000, lag.bound.as_ns() / 1_000_000)
        };
        assert_eq!(lag(0, 0), (500, 1_000));
        assert_eq!(lag(120, 0), (0, 1_000));
        assert_eq!([lag(120, 30), lag(0, 30)], [(0, 0); 2], "the user knows");
    }

    #[test]
    fn precisions() {
        assert_eq!(precision_span(-20), Span::from_ns(954));
        assert_eq!(precision_span(-1), Span::from_ms(500));
        assert_eq!(precision_span(i32::MIN), Span::from_ns(1));
        assert!(precision_span(i32::MAX) > UNCERTAINTY_MAX);
    }
}
