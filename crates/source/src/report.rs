//! Source estimate, common to every time source, and the trait by which sources are polled. A
//! source measures and reports; selection among sources happens elsewhere.

use horolog_discipline::{Plausibility, Support};
use horolog_sys::adjtimex::KernelClock;
use horolog_time::leap::LeapSecond;
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};
use horolog_wire::ntp::LeapIndicator;

use crate::SelectionState;

/// Growth of the error of a report that is not renewed, in parts per billion: the frequency
/// tolerance of RFC 5905, figure 5 (PHI).
pub const DRIFT_PPB: i64 = 15_000;

/// Leap seconds that a server has by itself, and not from its sources.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KnownLeaps {
    /// TAI minus UTC in seconds, by the server's configuration or list.
    pub tai_minus_utc_s: Option<i32>,
    /// True if it has a list of leap seconds that has not expired, which decides.
    pub has_list: bool,
    /// Next leap second by that list.
    pub next: Option<LeapSecond>,
}

/// Readings of the system's clocks at a poll.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ClockReadings {
    /// Instant of the readings.
    pub monotonic: Timestamp<Monotonic>,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`.
    pub realtime_minus_monotonic: Span,
    /// State of the kernel's clock; `None` if it is not available.
    pub kernel: Option<KernelClock>,
    /// Leap seconds that the server has passed since its start; negative if more were deleted than
    /// inserted.
    pub leaps_s: i32,
    /// Pending leap seconds as the server has them.
    pub leaps: KnownLeaps,
}

impl ClockReadings {
    /// Returns `CLOCK_REALTIME` at these readings.
    #[must_use]
    pub const fn realtime(&self) -> Timestamp<Utc> {
        let ns = self.monotonic.as_ns().saturating_add(self.realtime_minus_monotonic.as_ns());
        Timestamp::from_ns(ns)
    }
}

/// Slew of the system clock by another program, which changes the offset.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Slew {
    /// Growth of the offset by it, in parts per billion of the slewed clock.
    pub rate_ppb: i64,
    /// Duration of the slew after the report.
    pub lasts: Span,
    /// Growth of the offset's error bound meanwhile, in parts per billion.
    pub error_bound_ppb: i64,
}

/// Estimate of the time by a source, and the claims of a server that follows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceEstimate {
    /// Instant of the estimate.
    pub at: Timestamp<Monotonic>,
    /// True time minus `CLOCK_REALTIME` at that instant.
    pub offset: Span,
    /// Growth of the offset, in parts per billion.
    pub frequency_ppb: i64,
    /// Additional change while the system clock is slewed.
    pub slew: Slew,
    /// Maximum measurement error of the offset, either way, in addition to the root distance.
    pub uncertainty: Span,
    /// Leap indicator to claim; a report that is not synchronised takes no part in the selection.
    pub leap: LeapIndicator,
    /// TAI minus UTC in seconds, if a source received it from satellites.
    pub tai_minus_utc_s: Option<i32>,
    /// Next leap second, if a source received it from satellites.
    pub next_leap: Option<LeapSecond>,
    /// Stratum to claim.
    pub stratum: u8,
    /// Reference identifier to claim.
    pub reference_id: [u8; 4],
    /// Instant of the last correction of the source itself.
    pub reference: Timestamp<Utc>,
    /// Round-trip delay to the reference clock.
    pub root_delay: Span,
    /// Dispersion to the reference clock at the instant of the report.
    pub root_dispersion: Span,
    /// True if no other source and no clock of this host has ever confirmed it. This field and the
    /// next are set where all sources are known.
    pub is_unconfirmed: bool,
    /// Clock of this host, ahead of the monotonic clock, that agrees with it to a day, and of which
    /// it is no mirror.
    pub host_clock: Option<Span>,
}

impl SourceEstimate {
    /// Returns true time minus `CLOCK_REALTIME`, extrapolated to `now`.
    #[must_use]
    pub fn offset_at(&self, now: Timestamp<Monotonic>) -> Span {
        let age = now - self.at;
        let slewed = parts_per_billion(age.min(self.slew.lasts), self.slew.rate_ppb);
        self.offset + parts_per_billion(age, self.frequency_ppb) + slewed
    }

    /// Returns the growth of the offset at `now`, in parts per billion.
    #[must_use]
    pub fn rate_ppb_at(&self, now: Timestamp<Monotonic>) -> i64 {
        let slewing = now - self.at < self.slew.lasts;
        self.frequency_ppb + if slewing { self.slew.rate_ppb } else { 0 }
    }

    /// Returns the dispersion to claim at `now`: that of the report, the measurement error, and the
    /// growth since.
    #[must_use]
    pub fn dispersion_at(&self, now: Timestamp<Monotonic>) -> Span {
        let growth_ppb = DRIFT_PPB + self.slew.error_bound_ppb;
        self.root_dispersion + self.uncertainty + parts_per_billion(now - self.at, growth_ppb)
    }

    /// Returns half the width of the interval that contains true time at `now` if the source is
    /// right (RFC 5905, section 11.2.1).
    #[must_use]
    pub fn distance_at(&self, now: Timestamp<Monotonic>) -> Span {
        Span::from_ns(self.root_delay.as_ns() / 2) + self.dispersion_at(now)
    }
}

/// Returns the share `ppb` of a span, in billionths.
pub(crate) fn parts_per_billion(span: Span, ppb: i64) -> Span {
    let share = i128::from(span.as_ns()) * i128::from(ppb) / i128::from(NS_PER_S);
    Span::from_ns(share.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
}

/// Reason for which a source does not report the time; the text is for the user.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SourceError {
    /// No data arrive.
    #[error("{0}")]
    NoData(String),
    /// The data cannot be used.
    #[error("{0}")]
    Unusable(String),
}

/// Source of time.
pub trait TimeSource: Send {
    /// Returns its name in messages: its specification on the command line.
    fn name(&self) -> &str;

    /// Returns its present estimate. Called about once a second; may block for up to a second.
    /// `None` if there is nothing new, so that the last report still holds until it is too old.
    fn poll(&mut self, readings: &ClockReadings) -> Result<Option<SourceEstimate>, SourceError>;

    /// Receives its state after each selection among the sources.
    fn selection_changed(&mut self, _standing: SelectionState) {}

    /// Receives the facts by which times are judged.
    fn judge_by(&mut self, _basis: Plausibility) {}

    /// Receives the time, ahead of the monotonic clock, of the last report that was found plausible
    /// by all evidence, and the reason.
    fn vouch(&mut self, _ahead: Span, _support: Support) {}

    /// Returns the time, ahead of the monotonic clock, to which it has set the system clock
    /// although nothing had confirmed it: such a clock confirms nothing, and contradicts nothing.
    fn set_unconfirmed(&self) -> Option<Span> {
        None
    }

    /// Returns true if it only repeats the system clock, so that it confirms no other source.
    fn is_mirror(&self) -> bool {
        false
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A synchronised report of stratum 1, made at instant zero.
    pub(crate) fn report(offset_ns: i64, uncertainty_ns: i64) -> SourceEstimate {
        SourceEstimate {
            at: Timestamp::from_ns(0),
            offset: Span::from_ns(offset_ns),
            frequency_ppb: 0,
            slew: Slew::default(),
            uncertainty: Span::from_ns(uncertainty_ns),
            leap: LeapIndicator::None,
            tai_minus_utc_s: None,
            next_leap: None,
            stratum: 1,
            reference_id: *b"GPS\0",
            reference: Timestamp::from_ns(0),
            root_delay: Span::ZERO,
            root_dispersion: Span::ZERO,
            is_unconfirmed: false,
            host_clock: None,
        }
    }

    #[test]
    fn a_report_is_extrapolated_and_its_error_bound_grows() {
        let report = SourceEstimate {
            frequency_ppb: -2_000,
            root_delay: Span::from_ns(200),
            root_dispersion: Span::from_ns(30),
            ..report(1_000_000, 7)
        };
        let later = Timestamp::from_ns(10 * NS_PER_S);
        assert_eq!(report.offset_at(later), Span::from_ns(1_000_000 - 20_000));
        assert_eq!(report.distance_at(later), Span::from_ns(100 + 30 + 7 + 150_000));
        assert_eq!(report.dispersion_at(report.at), Span::from_ns(37));
    }

    #[test]
    fn a_slew_is_followed_to_its_end_and_its_error_bound_grows_without_a_new_report() {
        let slew =
            Slew { rate_ppb: -80_000_000, lasts: Span::from_ms(500), error_bound_ppb: 80_000_000 };
        let report = SourceEstimate { slew, ..report(40_000_000, 7) };
        let at = |ms: i64| Timestamp::from_ns(ms * 1_000_000);
        assert_eq!(report.offset_at(at(250)), Span::from_ms(20));
        assert_eq!(report.offset_at(at(2_000)), Span::ZERO);
        assert_eq!((report.rate_ppb_at(at(250)), report.rate_ppb_at(at(500))), (-80_000_000, 0));
        assert_eq!(report.dispersion_at(at(2_000)), Span::from_ns(160_000_000 + 7 + 30_000));
    }
}
