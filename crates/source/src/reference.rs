//! What the sources share that are clocks themselves, and no daemons with a word of their own: what
//! to claim of them, and the way from their samples to a report.

use horolog_time::{Monotonic, Span, Timestamp, Utc};
use horolog_wire::ntp::Leap;

use crate::filter::{Filter, Sample};
use crate::{Look, Report, STALE, Slew};

/// A sample that may be wrong by more than this is of no use.
const UNCERTAINTY_MAX: Span = Span::from_ms(1_000);
/// How far in the future a sample's instant may lie: two clock readings apart.
const AHEAD_MAX: Span = Span::from_ms(10);

/// What to say of a reference clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    /// The stratum of a server that follows it.
    pub(crate) stratum: u8,
    /// Its identifier.
    pub(crate) reference_id: [u8; 4],
    /// Added to what it says.
    pub(crate) offset: Span,
    /// How far it may be wrong beside what its samples show.
    pub(crate) uncertainty: Span,
}

/// The samples of a reference clock and what it claims.
#[derive(Clone, Debug)]
pub(crate) struct ReferenceClock {
    claim: Claim,
    filter: Filter,
    leap: Leap,
    fresh: bool,
    refused: Option<&'static str>,
}

impl ReferenceClock {
    pub(crate) fn new(claim: Claim) -> Self {
        let filter = Filter::default();
        Self { claim, filter, leap: Leap::None, fresh: false, refused: None }
    }

    /// Takes a sample: the true time that it was when the system clock showed `system`, and how far
    /// that may be wrong.
    pub(crate) fn take(
        &mut self,
        look: &Look,
        system: Timestamp<Utc>,
        truth: Timestamp<Utc>,
        uncertainty: Span,
    ) {
        let age = look.realtime() - system;
        if age > STALE || age < -AHEAD_MAX {
            self.refused = Some("its samples are not of now, or the system clock has been set");
            return;
        }
        if !(Span::ZERO..=UNCERTAINTY_MAX).contains(&uncertainty) {
            self.refused = Some("its samples may be wrong by more than a second");
            return;
        }
        let sample = Sample {
            at: look.monotonic - age,
            ahead: (truth - system) + look.realtime_minus_monotonic + self.claim.offset,
            uncertainty,
        };
        self.refused = if self.filter.take(sample) {
            self.fresh = true;
            None
        } else {
            Some("its last samples contradict those before them")
        };
    }

    /// What it says of leap seconds from here on.
    pub(crate) fn set_leap(&mut self, leap: Leap) {
        self.leap = leap;
    }

    /// Why the last sample was refused, if it was.
    pub(crate) fn refused(&self) -> Option<&'static str> {
        self.refused
    }

    /// What it says now, if samples have come since the last time.
    pub(crate) fn report(&mut self, look: &Look) -> Option<Report> {
        if !std::mem::take(&mut self.fresh) {
            return None;
        }
        let estimate = self.filter.estimate(look.monotonic)?;
        Some(Report {
            at: look.monotonic,
            offset: estimate.ahead - look.realtime_minus_monotonic,
            frequency_ppb: estimate.rate_ppb,
            slew: Slew::default(),
            uncertainty: estimate.uncertainty,
            leap: self.leap,
            tai_minus_utc_s: None,
            next_leap: None,
            stratum: self.claim.stratum,
            reference_id: self.claim.reference_id,
            reference: served(look.monotonic, estimate.ahead),
            root_delay: Span::ZERO,
            root_dispersion: self.claim.uncertainty,
        })
    }
}

/// The instant on the timescale that is `ahead` of the monotonic clock.
fn served(now: Timestamp<Monotonic>, ahead: Span) -> Timestamp<Utc> {
    Timestamp::from_ns(now.as_ns().saturating_add(ahead.as_ns()))
}

/// The span of 2 to the power of `precision` seconds, as NTP states precisions; at most an hour.
pub(crate) fn precision_span(precision: i32) -> Span {
    let seconds = f64::from(precision.clamp(-30, 11)).exp2();
    Span::from_ns((seconds * 1e9).ceil() as i64)
}

#[cfg(test)]
pub(crate) mod tests {
    use horolog_sys::adjtimex::{KernelClock, PendingLeap};
    use horolog_time::NS_PER_S;

    use super::*;

    pub(crate) const CLAIM: Claim = Claim {
        stratum: 1,
        reference_id: *b"TEST",
        offset: Span::from_ns(500),
        uncertainty: Span::from_ns(3),
    };
    pub(crate) const REALTIME_AHEAD: Span = Span::from_ns(1_700_000_000 * NS_PER_S);

    /// A kernel that says so much of TAI.
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

    pub(crate) fn look(ms: i64) -> Look {
        Look {
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
        let now = look(10_000);
        let system = now.realtime() - Span::from_ms(100);
        clock.take(&now, system, system + Span::from_ms(7), Span::from_ns(40));
        let report = clock.report(&now).unwrap();
        assert_eq!(report.offset, Span::from_ns(7_000_500));
        assert_eq!(
            (report.uncertainty, report.root_dispersion),
            (Span::from_ns(40), CLAIM.uncertainty)
        );
        assert_eq!(report.reference, now.realtime() + report.offset);
        assert_eq!(clock.report(&look(11_000)), None, "nothing new");
    }

    #[test]
    fn what_cannot_be_a_sample_of_now_is_refused() {
        let mut clock = ReferenceClock::new(CLAIM);
        let now = look(10_000);
        for (age_ms, uncertainty_ns) in [(8_001, 1), (-11, 1), (1, -1), (1, 1_000_000_001)] {
            let system = now.realtime() - Span::from_ms(age_ms);
            clock.take(&now, system, system, Span::from_ns(uncertainty_ns));
            assert!(clock.refused().is_some(), "{age_ms} {uncertainty_ns}");
            assert_eq!(clock.report(&now), None);
        }
    }

    #[test]
    fn precisions() {
        assert_eq!(precision_span(-20), Span::from_ns(954));
        assert_eq!(precision_span(-1), Span::from_ms(500));
        assert_eq!(precision_span(i32::MIN), Span::from_ns(1));
        assert!(precision_span(i32::MAX) > UNCERTAINTY_MAX);
    }
}
