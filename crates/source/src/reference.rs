//! Reference clocks: sources that deliver samples of a clock, unlike daemons that report estimates
//! of their own. Configured properties, and conversion of samples to a source estimate.

use horolog_discipline::{
    PlausibilityEvidence, PlausibilityJudge, PlausibilityReason, PlausibilityRuleParameters,
    SentenceOnlyTime,
};
use horolog_time::{Monotonic, Span, Timestamp, Utc};
use horolog_wire::ntp::LeapIndicator;

use crate::filter::{ClockFilter, OffsetSample};
use crate::{ClockReadings, REPORT_AGE_MAX, Slew, SourceEstimate};

/// Largest error bound of a usable sample.
const UNCERTAINTY_MAX: Span = Span::from_ms(1_000);
/// Largest distance of a sample into the future; covers the time between two clock readings.
const FUTURE_MAX: Span = Span::from_ms(10);

/// Configured properties of a reference clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReferenceClockSettings {
    /// Stratum of a server that is synchronised to this clock.
    pub(crate) stratum: u8,
    /// Reference identifier.
    pub(crate) reference_id: [u8; 4],
    /// Offset that is added to the time of the clock.
    pub(crate) offset: Span,
    /// Error bound that is added to that of the samples.
    pub(crate) uncertainty: Span,
}

/// Lag of a receiver's sentences after the instants that they name, without a pulse: a middle
/// value, and the largest deviation from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SentenceLag {
    pub(crate) middle: Span,
    pub(crate) bound: Span,
}

impl SentenceLag {
    /// Returns the general lag of receivers without a pulse, with a middle of 0 if the offset is
    /// configured; both are 0 if the uncertainty is configured.
    pub(crate) fn from_claim(claim: &ReferenceClockSettings) -> Self {
        if claim.uncertainty > Span::ZERO {
            return Self { middle: Span::ZERO, bound: Span::ZERO };
        }
        let middle =
            if claim.offset == Span::ZERO { SentenceOnlyTime::LAG_MIDDLE } else { Span::ZERO };
        Self { middle, bound: SentenceOnlyTime::LAG_DEVIATION_MAX }
    }
}

/// Samples of a reference clock with its configured properties.
#[derive(Clone, Debug)]
pub(crate) struct ReferenceClock {
    claim: ReferenceClockSettings,
    filter: ClockFilter,
    leap: LeapIndicator,
    has_new_sample: bool,
    refusal: Option<&'static str>,
    judge: Option<PlausibilityJudge>,
    /// Instant of the last plausible sample; `is_plausible` is true if the samples in the filter
    /// are.
    last_plausible: Option<Timestamp<Monotonic>>,
    is_plausible: bool,
}

impl ReferenceClock {
    pub(crate) fn new(claim: ReferenceClockSettings) -> Self {
        Self {
            claim,
            filter: ClockFilter::default(),
            leap: LeapIndicator::None,
            has_new_sample: false,
            refusal: None,
            judge: None,
            last_plausible: None,
            is_plausible: true,
        }
    }

    /// Sets the limits of plausible times for samples from now on: of several receivers behind one
    /// source, one may have a wrong date.
    pub(crate) fn judge_by(&mut self, basis: PlausibilityRuleParameters) {
        self.judge = Some(PlausibilityJudge::new(basis));
    }

    /// Records that the time of this clock was found plausible by all evidence.
    pub(crate) fn vouch(&mut self, ahead: Span, support: PlausibilityReason) {
        self.judge.iter_mut().for_each(|judge| judge.accept_judged_time(ahead, support));
    }

    /// Returns true if a sample enters the filter. An implausible sample does so only if no
    /// plausible one is recent, so that the error is reported, or confirmed by other sources.
    fn is_admissible(&mut self, readings: &ClockReadings, utc_minus_monotonic: Span) -> bool {
        let Some(judge) = &self.judge else { return true };
        let (now, system) = (readings.monotonic, Some(readings.realtime_minus_monotonic));
        let is_plausible = judge
            .judge_without_record(
                &PlausibilityEvidence { now, system, others: &[] },
                utc_minus_monotonic,
            )
            .is_ok();
        if is_plausible {
            self.last_plausible = Some(now);
        } else if self.last_plausible.is_some_and(|when| now - when <= REPORT_AGE_MAX) {
            return false;
        }
        if std::mem::replace(&mut self.is_plausible, is_plausible) != is_plausible {
            self.filter = ClockFilter::default();
        }
        true
    }

    /// Adds a sample: `true_time` at the reading `system` of the system clock, with its error
    /// bound.
    pub(crate) fn push_sample(
        &mut self,
        readings: &ClockReadings,
        system: Timestamp<Utc>,
        true_time: Timestamp<Utc>,
        uncertainty: Span,
    ) {
        let age = readings.realtime() - system;
        if age > REPORT_AGE_MAX || age < -FUTURE_MAX {
            self.refusal = Some("its samples are out of date, or the system clock was stepped");
            return;
        }
        if !(Span::ZERO..=UNCERTAINTY_MAX).contains(&uncertainty) {
            self.refusal = Some("its samples have an error bound above a second");
            return;
        }
        let sample = OffsetSample {
            at: readings.monotonic - age,
            utc_minus_monotonic: (true_time - system)
                + readings.realtime_minus_monotonic
                + self.claim.offset,
            uncertainty,
        };
        if !self.is_admissible(readings, sample.utc_minus_monotonic) {
            return;
        }
        self.refusal = if self.filter.push_sample(sample) {
            self.has_new_sample = true;
            None
        } else {
            Some("its latest samples contradict earlier ones")
        };
    }

    /// Sets the leap indicator of later estimates.
    pub(crate) fn set_leap(&mut self, leap: LeapIndicator) {
        self.leap = leap;
    }

    /// Returns the reason why the last sample was refused; `None` if it was accepted. An
    /// implausible sample that is ignored leaves the reason unchanged.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        self.refusal
    }

    /// Returns the estimate at `readings`; `None` if no sample has entered the filter since the
    /// last call, or none is recent.
    pub(crate) fn report(&mut self, readings: &ClockReadings) -> Option<SourceEstimate> {
        if !std::mem::take(&mut self.has_new_sample) {
            return None;
        }
        let estimate = self.filter.estimate(readings.monotonic)?;
        Some(SourceEstimate {
            at: readings.monotonic,
            offset: estimate.utc_minus_monotonic - readings.realtime_minus_monotonic,
            frequency_ppb: estimate.rate_ppb,
            slew: Slew::default(),
            uncertainty: estimate.uncertainty,
            leap: self.leap,
            tai_minus_utc_s: None,
            next_leap: None,
            stratum: self.claim.stratum,
            reference_id: self.claim.reference_id,
            reference: utc_at(readings.monotonic, estimate.utc_minus_monotonic),
            root_delay: Span::ZERO,
            root_dispersion: self.claim.uncertainty,
            is_unconfirmed: false,
            host_clock: None,
        })
    }
}

/// Returns UTC at a monotonic instant.
fn utc_at(now: Timestamp<Monotonic>, ahead: Span) -> Timestamp<Utc> {
    Timestamp::from_ns(now.as_ns().saturating_add(ahead.as_ns()))
}

/// Converts an NTP precision (log2 of seconds) to a span, at most about half an hour.
pub(crate) fn precision_span(precision: i32) -> Span {
    let seconds = f64::from(precision.clamp(-30, 11)).exp2();
    Span::from_ns((seconds * 1e9).ceil() as i64)
}

#[cfg(test)]
pub(crate) mod tests {
    use horolog_sys::adjtimex::{KernelClockStatus, PendingLeap};
    use horolog_time::NS_PER_S;

    use super::*;

    pub(crate) const CLAIM: ReferenceClockSettings = ReferenceClockSettings {
        stratum: 1,
        reference_id: *b"TEST",
        offset: Span::from_ns(500),
        uncertainty: Span::from_ns(3),
    };
    pub(crate) const REALTIME_AHEAD: Span = Span::from_ns(1_700_000_000 * NS_PER_S);

    /// State of a kernel with this TAI offset.
    pub(crate) fn kernel(tai_offset_s: i32) -> KernelClockStatus {
        KernelClockStatus {
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
            leaps: crate::ServerLeapSeconds::default(),
        }
    }

    #[test]
    fn samples_become_a_report_once() {
        let mut clock = ReferenceClock::new(CLAIM);
        let now = readings(10_000);
        let system = now.realtime() - Span::from_ms(100);
        clock.push_sample(&now, system, system + Span::from_ms(7), Span::from_ns(40));
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
            clock.push_sample(&now, system, system, Span::from_ns(uncertainty_ns));
            assert!(clock.refusal().is_some(), "{age_ms} {uncertainty_ns}");
            assert_eq!(clock.report(&now), None);
        }
    }

    #[test]
    fn an_implausible_sample_is_ignored_among_plausible_ones() {
        let mut clock = ReferenceClock::new(CLAIM);
        let build = Timestamp::from_ns(REALTIME_AHEAD.as_ns());
        clock.judge_by(PlausibilityRuleParameters {
            build,
            ..PlausibilityRuleParameters::default()
        });
        let years = Span::from_ns(9 * 31_556_952 * NS_PER_S);
        let mut take_sample = |second: i64, wrong: bool| {
            let now = readings(second * 1_000);
            let off = if wrong { years } else { Span::ZERO };
            clock.push_sample(&now, now.realtime(), now.realtime() + off, Span::from_ns(40));
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
            let lag =
                SentenceLag::from_claim(&ReferenceClockSettings { offset, uncertainty, ..CLAIM });
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
