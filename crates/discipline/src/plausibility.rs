//! Plausibility of a time: one decision for all sources, whether the time is a receiver's sentence,
//! a sample of a device, or the system clock as reported by a daemon or the kernel. Pure: it reads
//! no clock, and the date of the build is a parameter that a simulation can replace.
//!
//! A clock of this host (system clock, RTC) is credible if it is not before the build, not beyond
//! the validity of the build, and not more than a day before the time last saved on disk.
//!
//! The first of these rules that applies decides about a time:
//!
//! 1. It agrees to a day with a credible clock, or with the source's last plausible time, continued
//!    by the monotonic clock: plausible.
//! 2. It differs from a credible clock or from the source's confirmed time by a multiple of 1024
//!    weeks: implausible.
//! 3. It is before the build or beyond its validity: implausible.
//! 4. Another source agrees with it to a day: plausible.
//! 5. It is more than a day before the time last saved, or more than a day away from a credible
//!    clock or from the source's confirmed time: implausible, until another source or the operator
//!    confirms it.
//! 6. Otherwise it is plausible, but unconfirmed: it refutes no other time, and the source may name
//!    another one later.

use horolog_time::leap::Date;
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};
use thiserror::Error;

const DAY: Span = Span::from_ns(86_400 * NS_PER_S);
/// Maximum difference of a time from the one that the operator accepted, in ns: 15 min.
const ACCEPTANCE_TOLERANCE_NS: u64 = 900 * NS_PER_S as u64;
/// Mean year of the Gregorian calendar.
const YEAR_S: i64 = 31_556_952;
/// Period of the GPS week number, which is modulo 1024: a receiver that has lost count of the
/// periods is wrong by a multiple of this.
const ROLLOVER: Span = Span::from_ns(1_024 * 7 * DAY.as_ns());

/// Reason for which a time is not plausible.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ImplausibilityReason {
    /// The time is before the build.
    #[error(
        "reported time {} is before {}, the build date or the value of --plausible-from",
        Date(*time),
        Date(*build)
    )]
    BeforeBuild {
        /// The time.
        time: Timestamp<Utc>,
        /// The build's date.
        build: Timestamp<Utc>,
    },
    /// The time is beyond the validity of the build.
    #[error(
        "reported time {} is after {}, the last plausible date of this build; if it is right, \
         raise --plausible-years",
        Date(*time),
        Date(*last)
    )]
    AfterValidity {
        /// The time.
        time: Timestamp<Utc>,
        /// The last plausible time.
        last: Timestamp<Utc>,
    },
    /// The time is wrong by this many periods of 1024 weeks.
    #[error("reported time is {}, the error of a GPS week rollover", WeekRollovers(*.0))]
    Rollover(i64),
    /// The time is more than a day before the time last saved on disk, and nothing confirms it.
    #[error("reported time {} is before {}, the time last saved", Date(*time), Date(*saved))]
    BeforeSaved {
        /// The time.
        time: Timestamp<Utc>,
        /// The time last saved.
        saved: Timestamp<Utc>,
    },
    /// The time is more than a day away from that of a reference, and nothing confirms either.
    #[error(
        "reported time is {}, {reference} reports {}, and neither is confirmed",
        Date(*time),
        Date(*other)
    )]
    ContradictsReference {
        /// The time.
        time: Timestamp<Utc>,
        /// Time of the reference.
        other: Timestamp<Utc>,
        /// Reference that it was compared with.
        reference: PlausibilityReference,
    },
}

impl ImplausibilityReason {
    /// Returns the name under which rejected times, sentences and pulses are counted.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BeforeBuild { .. } => "before_build",
            Self::AfterValidity { .. } => "too_far",
            Self::Rollover(_) => "rollover",
            Self::BeforeSaved { .. } => "before_saved",
            Self::ContradictsReference { .. } => "apart",
        }
    }

    /// Returns true if another source or the operator can confirm the time.
    #[must_use]
    pub const fn is_confirmable(self) -> bool {
        matches!(self, Self::BeforeSaved { .. } | Self::ContradictsReference { .. })
    }
}

/// Number of GPS week rollovers (1024 weeks each) by which a time differs, displayed in words.
struct WeekRollovers(i64);

impl std::fmt::Display for WeekRollovers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let direction = if self.0 < 0 { "behind" } else { "ahead" };
        match self.0.unsigned_abs() {
            1 => write!(f, "1024 weeks {direction}"),
            times => write!(f, "{times} times 1024 weeks {direction}"),
        }
    }
}

/// Reference that a time is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlausibilityReference {
    /// The system clock.
    SystemClock,
    /// The real-time clock.
    Rtc,
    /// The source's own earlier time, carried on by the monotonic clock.
    Continuation,
}

impl std::fmt::Display for PlausibilityReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::SystemClock => "the system clock",
            Self::Rtc => "the RTC",
            Self::Continuation => "its own earlier time",
        })
    }
}

/// Parameters of the rules by which times are judged: the date of the build, and the times of this
/// host at the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlausibilityRuleParameters {
    /// The build's date.
    pub build: Timestamp<Utc>,
    /// Time after the build until which times are plausible.
    pub validity: Span,
    /// The time last saved on disk.
    pub saved: Option<Timestamp<Utc>>,
    /// RTC minus monotonic clock; `None` if unknown.
    pub rtc: Option<Span>,
}

impl PlausibilityRuleParameters {
    /// Lower limit of the build's date, 2026-01-01T00:00:00Z: no build is older.
    pub const BUILD_MIN: Timestamp<Utc> = Timestamp::from_ns(1_767_225_600 * NS_PER_S);
    /// Years beyond the build that are plausible by default.
    pub const DEFAULT_VALIDITY_YEARS: u16 = 20;

    /// Returns the length of this number of mean Gregorian years.
    #[must_use]
    pub const fn span_of_years(years: u16) -> Span {
        Span::from_ns((years as i64).saturating_mul(YEAR_S * NS_PER_S))
    }

    /// Checks that a time is neither before the build nor too far beyond it.
    ///
    /// # Errors
    ///
    /// The limit that it violates.
    pub fn check(&self, time: Timestamp<Utc>) -> Result<(), ImplausibilityReason> {
        let (build, last) = (self.build, self.build + self.validity);
        if time < build {
            Err(ImplausibilityReason::BeforeBuild { time, build })
        } else if time > last {
            Err(ImplausibilityReason::AfterValidity { time, last })
        } else {
            Ok(())
        }
    }

    /// Returns the credible clocks of this host, each as its difference from the monotonic clock.
    fn credible_clocks(
        &self,
        evidence: &PlausibilityEvidence<'_>,
    ) -> impl Iterator<Item = (PlausibilityReference, Span)> {
        let system_clock =
            evidence.system.map(|system| (PlausibilityReference::SystemClock, system));
        let rtc = self.rtc.map(|rtc| (PlausibilityReference::Rtc, rtc));
        let (rules, now) = (*self, evidence.now);
        system_clock.into_iter().chain(rtc).filter(move |(_, ahead)| {
            let time = utc_at(now, *ahead);
            rules.check(time).is_ok() && rules.saved.is_none_or(|saved| time >= saved - DAY)
        })
    }

    /// Judges a time by its difference `ahead` from the monotonic clock. `anchor` is the last
    /// plausible time of its source.
    fn judge(
        &self,
        evidence: &PlausibilityEvidence<'_>,
        ahead: Span,
        anchor: Option<LastPlausibleTime>,
    ) -> Result<PlausibilityReason, ImplausibilityReason> {
        let time = utc_at(evidence.now, ahead);
        if self.credible_clocks(evidence).any(|(_, clock)| is_within_a_day(ahead, clock)) {
            return Ok(PlausibilityReason::Confirmed);
        }
        if let Some(anchor) = anchor.filter(|anchor| is_within_a_day(ahead, anchor.ahead)) {
            let is_confirmed = evidence.others.iter().any(|other| is_within_a_day(ahead, *other));
            return Ok(match (anchor.is_confirmed, is_confirmed) {
                (true, _) => PlausibilityReason::Continued,
                (false, true) => PlausibilityReason::Confirmed,
                (false, false) => PlausibilityReason::Unopposed,
            });
        }
        let previous = anchor.filter(|anchor| anchor.is_confirmed);
        let previous = previous.map(|anchor| (PlausibilityReference::Continuation, anchor.ahead));
        let references = || self.credible_clocks(evidence).chain(previous);
        if let Some(times) = references().find_map(|(_, other)| rollover_count(ahead - other)) {
            return Err(ImplausibilityReason::Rollover(times));
        }
        self.check(time)?;
        if evidence.others.iter().any(|other| is_within_a_day(ahead, *other)) {
            return Ok(PlausibilityReason::Confirmed);
        }
        if let Some(saved) = self.saved.filter(|saved| time < *saved - DAY) {
            return Err(ImplausibilityReason::BeforeSaved { time, saved });
        }
        references().next().map_or(Ok(PlausibilityReason::Unopposed), |(reference, other)| {
            Err(ImplausibilityReason::ContradictsReference {
                time,
                other: utc_at(evidence.now, other),
                reference,
            })
        })
    }
}

impl Default for PlausibilityRuleParameters {
    fn default() -> Self {
        let validity = Self::span_of_years(Self::DEFAULT_VALIDITY_YEARS);
        Self { build: Self::BUILD_MIN, validity, saved: None, rtc: None }
    }
}

/// Reason for which a time is plausible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlausibilityReason {
    /// Agreement of a credible clock or another source.
    Confirmed,
    /// Continuation of a confirmed time.
    Continued,
    /// No contradiction and no confirmation.
    Unopposed,
}

/// Last plausible time of a source, as its difference from the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LastPlausibleTime {
    ahead: Span,
    /// True if a clock, another source or the operator confirmed it; only then may it refute
    /// another time.
    is_confirmed: bool,
}

/// Evidence by which a time is judged at one instant. Times are differences from the monotonic
/// clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlausibilityEvidence<'a> {
    /// Instant of the evidence.
    pub now: Timestamp<Monotonic>,
    /// System clock; `None` if it merely shows an unconfirmed time to which it was set.
    pub system: Option<Span>,
    /// Times of other sources, each independent of the one that is judged.
    pub others: &'a [Span],
}

/// Judge of the times of one source, which remembers the last plausible one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PlausibilityJudge {
    rules: PlausibilityRuleParameters,
    /// Last plausible time. Times that merely continue a confirmed one do not replace it, so that a
    /// source cannot shift it by many small jumps.
    anchor: Option<LastPlausibleTime>,
    support: Option<PlausibilityReason>,
    unconfirmed: Option<Span>,
    accepted: Option<Span>,
}

impl PlausibilityJudge {
    /// Creates a judge with these rules and no remembered time.
    #[must_use]
    pub fn new(rules: PlausibilityRuleParameters) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Judges a time that is `ahead` of the monotonic clock, and records it if it is plausible.
    ///
    /// # Errors
    ///
    /// The reason for which it is not plausible.
    pub fn judge(
        &mut self,
        evidence: &PlausibilityEvidence<'_>,
        ahead: Span,
    ) -> Result<(), ImplausibilityReason> {
        let judged = self.rules.judge(evidence, ahead, self.anchor);
        self.unconfirmed = judged.err().filter(|reason| reason.is_confirmable()).map(|_| ahead);
        self.support = judged.ok();
        let support = judged?;
        if support != PlausibilityReason::Continued {
            self.anchor = Some(LastPlausibleTime {
                ahead,
                is_confirmed: support == PlausibilityReason::Confirmed,
            });
        }
        Ok(())
    }

    /// Returns the credible clock of this host that confirms a time, as its difference from the
    /// monotonic clock; `None` if none does.
    #[must_use]
    pub fn confirming_host_clock(
        &self,
        evidence: &PlausibilityEvidence<'_>,
        ahead: Span,
    ) -> Option<Span> {
        let mut clocks = self.rules.credible_clocks(evidence);
        clocks.find_map(|(_, clock)| is_within_a_day(ahead, clock).then_some(clock))
    }

    /// Returns the reason for which the last time was plausible; `None` if it was not.
    #[must_use]
    pub fn support(&self) -> Option<PlausibilityReason> {
        self.support
    }

    /// Judges a time without recording it, because a single sentence establishes nothing.
    ///
    /// # Errors
    ///
    /// The reason for which it is not plausible.
    pub fn judge_without_record(
        &self,
        evidence: &PlausibilityEvidence<'_>,
        ahead: Span,
    ) -> Result<PlausibilityReason, ImplausibilityReason> {
        self.rules.judge(evidence, ahead, self.anchor)
    }

    /// Accepts, on the operator's command, the last judged time if it was implausible only for lack
    /// of a confirmation, and returns it as its difference from the monotonic clock; otherwise
    /// `None`.
    pub fn accept_unconfirmed(&mut self) -> Option<Span> {
        let ahead = self.unconfirmed.take()?;
        self.anchor = Some(LastPlausibleTime { ahead, is_confirmed: true });
        self.accepted = Some(ahead);
        Some(ahead)
    }

    /// Accepts a time that was found plausible elsewhere, with this support.
    pub fn accept_judged_time(&mut self, ahead: Span, support: PlausibilityReason) {
        self.anchor = Some(LastPlausibleTime {
            ahead,
            is_confirmed: support != PlausibilityReason::Unopposed,
        });
    }

    /// Returns true if the operator accepted a time within 15 minutes of this one.
    #[must_use]
    pub fn is_accepted(&self, ahead: Span) -> bool {
        let is_near =
            |accepted| (ahead - accepted).as_ns().unsigned_abs() <= ACCEPTANCE_TOLERANCE_NS;
        self.accepted.is_some_and(is_near)
    }
}

/// Returns UTC at `now` on a clock that is `ahead` of the monotonic clock.
fn utc_at(now: Timestamp<Monotonic>, ahead: Span) -> Timestamp<Utc> {
    Timestamp::from_ns(now.as_ns().saturating_add(ahead.as_ns()))
}

/// Returns true if two times are a day or less apart.
#[must_use]
pub fn is_within_a_day(one: Span, other: Span) -> bool {
    (one - other).as_ns().unsigned_abs() <= DAY.as_ns().unsigned_abs()
}

/// Returns the number of periods of 1024 weeks by which a time is wrong, if they explain its
/// difference from another time to within a day; `None` otherwise.
#[must_use]
pub fn rollover_count(difference: Span) -> Option<i64> {
    let period = i128::from(ROLLOVER.as_ns());
    let difference = i128::from(difference.as_ns());
    let times = (difference + period / 2).div_euclid(period);
    let rest = difference - times * period;
    (times != 0 && rest.abs() < i128::from(DAY.as_ns())).then_some(times as i64)
}

#[cfg(test)]
mod tests;
