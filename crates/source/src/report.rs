//! What every source of time says, and the trait by which it is asked. A source measures and
//! repeats; it does not choose between itself and others.

use horolog_sys::adjtimex::KernelClock;
use horolog_time::leap::Leap as LeapSecond;
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};
use horolog_wire::ntp::Leap;

use crate::Standing;

/// How fast the error of a report grows that is not renewed, in parts per billion: the frequency
/// tolerance of RFC 5905, figure 5 (PHI).
pub const DRIFT_PPB: i64 = 15_000;

/// What a server knows of leap seconds by itself, and not by its sources.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KnownLeaps {
    /// TAI minus UTC in seconds, as the server was told or as its list says.
    pub tai_minus_utc_s: Option<i32>,
    /// Whether it has a list of leap seconds that has not expired, which decides.
    pub has_list: bool,
    /// The next leap second by that list.
    pub next: Option<LeapSecond>,
}

/// The system's clocks when a source is asked.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Look {
    /// When that is.
    pub monotonic: Timestamp<Monotonic>,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`.
    pub realtime_minus_monotonic: Span,
    /// What the kernel says of its clock; `None` when it does not answer.
    pub kernel: Option<KernelClock>,
    /// How many leap seconds the server has passed since its start; negative where there were more
    /// deleted than inserted.
    pub leaps_s: i32,
    /// What the server knows of those to come.
    pub leaps: KnownLeaps,
}

impl Look {
    /// `CLOCK_REALTIME` at this look.
    #[must_use]
    pub const fn realtime(&self) -> Timestamp<Utc> {
        let ns = self.monotonic.as_ns().saturating_add(self.realtime_minus_monotonic.as_ns());
        Timestamp::from_ns(ns)
    }
}

/// How somebody is slewing the system clock, which takes the offset along.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Slew {
    /// How fast the offset grows by it, in parts per billion of the slewed clock.
    pub rate_ppb: i64,
    /// How long after the report that goes on.
    pub lasts: Span,
    /// How fast the offset becomes uncertain meanwhile, in parts per billion.
    pub doubt_ppb: i64,
}

/// What a source says of the time, and what a server that follows it claims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// When it held.
    pub at: Timestamp<Monotonic>,
    /// True time minus `CLOCK_REALTIME` at that instant.
    pub offset: Span,
    /// How fast the offset grows, in parts per billion.
    pub frequency_ppb: i64,
    /// How it changes beside that while the system clock is slewed.
    pub slew: Slew,
    /// How far the offset may be wrong by measuring, either way, beside the root distance.
    pub uncertainty: Span,
    /// Leap indicator to claim; a report that is not synchronised takes no part in a vote.
    pub leap: Leap,
    /// TAI minus UTC in seconds, of a source that was told it by satellites.
    pub tai_minus_utc_s: Option<i32>,
    /// The leap second that is next, of a source that was told it by satellites.
    pub next_leap: Option<LeapSecond>,
    /// Stratum to claim.
    pub stratum: u8,
    /// Reference identifier to claim.
    pub reference_id: [u8; 4],
    /// When the source itself was last corrected.
    pub reference: Timestamp<Utc>,
    /// Round-trip delay to the reference clock.
    pub root_delay: Span,
    /// Dispersion to the reference clock at the instant of the report.
    pub root_dispersion: Span,
}

impl Report {
    /// True time minus `CLOCK_REALTIME`, carried on to `now`.
    #[must_use]
    pub fn offset_at(&self, now: Timestamp<Monotonic>) -> Span {
        let age = now - self.at;
        let slewed = parts_per_billion(age.min(self.slew.lasts), self.slew.rate_ppb);
        self.offset + parts_per_billion(age, self.frequency_ppb) + slewed
    }

    /// How fast the offset grows at `now`, in parts per billion.
    #[must_use]
    pub fn rate_ppb_at(&self, now: Timestamp<Monotonic>) -> i64 {
        let slewing = now - self.at < self.slew.lasts;
        self.frequency_ppb + if slewing { self.slew.rate_ppb } else { 0 }
    }

    /// Dispersion to claim at `now`: that of the report, what measuring it added, and what it grew
    /// by since.
    #[must_use]
    pub fn dispersion_at(&self, now: Timestamp<Monotonic>) -> Span {
        let growth_ppb = DRIFT_PPB + self.slew.doubt_ppb;
        self.root_dispersion + self.uncertainty + parts_per_billion(now - self.at, growth_ppb)
    }

    /// Half the width of the interval that true time lies in at `now` if the source is right
    /// (RFC 5905, section 11.2.1).
    #[must_use]
    pub fn distance_at(&self, now: Timestamp<Monotonic>) -> Span {
        Span::from_ns(self.root_delay.as_ns() / 2) + self.dispersion_at(now)
    }
}

/// The share `ppb` of a span, in billionths.
pub(crate) fn parts_per_billion(span: Span, ppb: i64) -> Span {
    let share = i128::from(span.as_ns()) * i128::from(ppb) / i128::from(NS_PER_S);
    Span::from_ns(share.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
}

/// Why a source does not say the time; the text is for the user.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// Nothing comes.
    #[error("{0}")]
    Silent(String),
    /// What comes cannot be used.
    #[error("{0}")]
    Unusable(String),
}

/// Something that says what time it is.
pub trait Source: Send {
    /// Its name in messages: how it was asked for on the command line.
    fn name(&self) -> &str;

    /// What it says now. Called about once a second; may block for up to a second. `None` when
    /// there is nothing new, so that the last report still holds until it is too old.
    fn poll(&mut self, look: &Look) -> Result<Option<Report>, Fault>;

    /// Is told after each round what it counted for, by the vote with the others.
    fn judged(&mut self, _standing: Standing) {}

    /// Whether it only repeats what the system clock shows, so that it confirms no other source.
    fn is_mirror(&self) -> bool {
        false
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A synchronised report of stratum 1, made at instant zero.
    pub(crate) fn report(offset_ns: i64, uncertainty_ns: i64) -> Report {
        Report {
            at: Timestamp::from_ns(0),
            offset: Span::from_ns(offset_ns),
            frequency_ppb: 0,
            slew: Slew::default(),
            uncertainty: Span::from_ns(uncertainty_ns),
            leap: Leap::None,
            tai_minus_utc_s: None,
            next_leap: None,
            stratum: 1,
            reference_id: *b"GPS\0",
            reference: Timestamp::from_ns(0),
            root_delay: Span::ZERO,
            root_dispersion: Span::ZERO,
        }
    }

    #[test]
    fn a_report_is_carried_on_and_grows_doubtful() {
        let report = Report {
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
    fn a_slew_is_followed_to_its_end_and_doubted_as_long_as_nothing_new_comes() {
        let slew = Slew { rate_ppb: -80_000_000, lasts: Span::from_ms(500), doubt_ppb: 80_000_000 };
        let report = Report { slew, ..report(40_000_000, 7) };
        let at = |ms: i64| Timestamp::from_ns(ms * 1_000_000);
        assert_eq!(report.offset_at(at(250)), Span::from_ms(20));
        assert_eq!(report.offset_at(at(2_000)), Span::ZERO);
        assert_eq!((report.rate_ppb_at(at(250)), report.rate_ppb_at(at(500))), (-80_000_000, 0));
        assert_eq!(report.dispersion_at(at(2_000)), Span::from_ns(160_000_000 + 7 + 30_000));
    }
}
