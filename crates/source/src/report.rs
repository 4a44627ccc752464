//! Source estimate, common to all time sources, and the trait by which sources are polled. Sources
//! measure and report; the selection is in the modules `selection` and `selector`.

use horolog_discipline::{PlausibilityReason, PlausibilityRuleParameters};
use horolog_sys::adjtimex::KernelClockStatus;
use horolog_time::leap::LeapSecond;
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};
use horolog_wire::ntp::LeapIndicator;

use crate::SelectionState;

/// Growth of the error of an estimate with its age, in parts per billion: the frequency tolerance
/// PHI of RFC 5905, figure 5.
pub const DRIFT_PPB: i64 = 15_000;

/// Leap seconds known to the server independently of its sources.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ServerLeapSeconds {
    /// TAI minus UTC in seconds, by the server's configuration or leap second list; `None` if
    /// neither has it.
    pub tai_minus_utc_s: Option<i32>,
    /// True if the server has an unexpired leap second list, which takes precedence.
    pub has_list: bool,
    /// Next leap second in the list; `None` if there is none.
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
    pub kernel: Option<KernelClockStatus>,
    /// Net leap seconds that the server has passed since its start, inserted minus deleted.
    pub leaps_s: i32,
    /// Leap seconds known to the server.
    pub leaps: ServerLeapSeconds,
}

impl ClockReadings {
    /// Returns `CLOCK_REALTIME` at these readings.
    #[must_use]
    pub const fn realtime(&self) -> Timestamp<Utc> {
        let ns = self.monotonic.as_ns().saturating_add(self.realtime_minus_monotonic.as_ns());
        Timestamp::from_ns(ns)
    }
}

/// Slew of the system clock by another program, which changes the offset over time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Slew {
    /// Change of the offset by the slew, in parts per billion of the slewed clock.
    pub rate_ppb: i64,
    /// Remaining duration of the slew after the estimate.
    pub duration: Span,
    /// Growth of the offset's error bound from the estimate on, in parts per billion, in addition
    /// to [`DRIFT_PPB`]; it does not end with the slew.
    pub error_bound_ppb: i64,
}

/// Estimate of the time by a source, and the fields for the replies of a server that follows it.
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
    /// Error bound of the measured offset, in addition to the root distance.
    pub uncertainty: Span,
    /// Leap indicator for replies; an unsynchronised estimate takes no part in the selection.
    pub leap: LeapIndicator,
    /// TAI minus UTC in seconds, if a source received it from satellites.
    pub tai_minus_utc_s: Option<i32>,
    /// Next leap second, if a source received it from satellites.
    pub next_leap: Option<LeapSecond>,
    /// Stratum for replies.
    pub stratum: u8,
    /// Reference identifier for replies.
    pub reference_id: [u8; 4],
    /// Instant of the last update of the source itself (reference timestamp).
    pub reference: Timestamp<Utc>,
    /// Round-trip delay to the reference clock.
    pub root_delay: Span,
    /// Dispersion to the reference clock at the instant of the estimate.
    pub root_dispersion: Span,
    /// True if no other source and no clock of this host has ever confirmed the time. The selector
    /// sets this field and the next.
    pub is_unconfirmed: bool,
    /// Clock of this host, as UTC minus the monotonic clock, that agrees with the time to a day and
    /// that the source does not merely repeat; `None` if there is none.
    pub host_clock: Option<Span>,
}

impl SourceEstimate {
    /// Returns true time minus `CLOCK_REALTIME`, extrapolated to `now`.
    #[must_use]
    pub fn offset_at(&self, now: Timestamp<Monotonic>) -> Span {
        let age = now - self.at;
        let slew_change = parts_per_billion(age.min(self.slew.duration), self.slew.rate_ppb);
        self.offset + parts_per_billion(age, self.frequency_ppb) + slew_change
    }

    /// Returns the growth of the offset at `now`, in parts per billion.
    #[must_use]
    pub fn rate_ppb_at(&self, now: Timestamp<Monotonic>) -> i64 {
        let is_slewing = now - self.at < self.slew.duration;
        self.frequency_ppb + if is_slewing { self.slew.rate_ppb } else { 0 }
    }

    /// Returns the dispersion at `now`: root dispersion, measurement error and their growth since
    /// the estimate.
    #[must_use]
    pub fn dispersion_at(&self, now: Timestamp<Monotonic>) -> Span {
        let growth_ppb = DRIFT_PPB + self.slew.error_bound_ppb;
        self.root_dispersion + self.uncertainty + parts_per_billion(now - self.at, growth_ppb)
    }

    /// Returns the root distance at `now`: half the width of the interval that contains true time
    /// if the source is right (RFC 5905, section 11.2.1).
    #[must_use]
    pub fn root_distance_at(&self, now: Timestamp<Monotonic>) -> Span {
        Span::from_ns(self.root_delay.as_ns() / 2) + self.dispersion_at(now)
    }
}

/// Returns `ppb` billionths of a span.
pub(crate) fn parts_per_billion(span: Span, ppb: i64) -> Span {
    let share = i128::from(span.as_ns()) * i128::from(ppb) / i128::from(NS_PER_S);
    Span::from_ns(share.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
}

/// Reason why a source does not report the time, as text for the user.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SourceError {
    /// No data arrives.
    #[error("{0}")]
    NoData(String),
    /// The data that arrives is unusable.
    #[error("{0}")]
    Unusable(String),
}

/// Source of time that is polled.
pub trait PollableTimeSource: Send {
    /// Returns the specification of the source on the command line, as its name in messages.
    fn name(&self) -> &str;

    /// Returns the present estimate. Called about once a second; may block for up to a second.
    /// `None` if there is nothing new: the last estimate then remains valid until it is too old.
    fn poll(&mut self, readings: &ClockReadings) -> Result<Option<SourceEstimate>, SourceError>;

    /// Receives the result of each selection for this source.
    fn selection_changed(&mut self, _standing: SelectionState) {}

    /// Receives the limits of plausible times.
    fn judge_by(&mut self, _basis: PlausibilityRuleParameters) {}

    /// Receives the time (as UTC minus the monotonic clock) of this source's last estimate that was
    /// found plausible by all evidence, and the support for it.
    fn vouch(&mut self, _ahead: Span, _support: PlausibilityReason) {}

    /// Returns the time (as UTC minus the monotonic clock) to which this source has set the system
    /// clock without confirmation; `None` if it has not. A clock set so neither confirms nor
    /// contradicts any source.
    fn unconfirmed_clock_setting(&self) -> Option<Span> {
        None
    }

    /// Returns true if the source merely repeats the system clock, so that it confirms no other
    /// source.
    fn is_system_clock_mirror(&self) -> bool {
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
        assert_eq!(report.root_distance_at(later), Span::from_ns(100 + 30 + 7 + 150_000));
        assert_eq!(report.dispersion_at(report.at), Span::from_ns(37));
    }

    #[test]
    fn a_slew_is_followed_to_its_end_and_its_error_bound_grows_without_a_new_report() {
        let slew = Slew {
            rate_ppb: -80_000_000,
            duration: Span::from_ms(500),
            error_bound_ppb: 80_000_000,
        };
        let report = SourceEstimate { slew, ..report(40_000_000, 7) };
        let at = |ms: i64| Timestamp::from_ns(ms * 1_000_000);
        assert_eq!(report.offset_at(at(250)), Span::from_ms(20));
        assert_eq!(report.offset_at(at(2_000)), Span::ZERO);
        assert_eq!((report.rate_ppb_at(at(250)), report.rate_ppb_at(at(500))), (-80_000_000, 0));
        assert_eq!(report.dispersion_at(at(2_000)), Span::from_ns(160_000_000 + 7 + 30_000));
    }
}
