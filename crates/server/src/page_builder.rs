//! Derivation of the clock pages from one reading of the system's clocks. Pure, so that it is
//! tested with clocks that step, drift, lose their synchronisation and pass leap seconds.

use horolog_source::{JumpGuard, ServerLeapSeconds};
use horolog_sys::adjtimex::KernelClock;
use horolog_sys::clock::ClockOffset;
use horolog_time::leap::{LeapKind, LeapListValidity, Smear, Smeared};
use horolog_time::{
    Monotonic, NO_STEP, NS_PER_S, NtpShort, NtpTimestamp, Span, Timebase, Timestamp, Utc,
};
use horolog_wire::ntp::{LeapIndicator, STRATUM_UNSYNCHRONISED};

use crate::config::LeapSystem;
use crate::leap_file::LeapFile;
use crate::leap_notice::LeapNotice;
use crate::leap_transition::{LeapInputs, LeapOutputs, LeapTransition};
use crate::sources::SourceReading;
use crate::tai::{TaiInputs, TaiMinusUtc};
use crate::{ClockPage, ClockTrust, Pages, ServerConfig, SystemVariables};

mod source_input;

/// Reading of the system's clocks at one instant.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct SystemClockReading {
    /// Instant of the reading.
    pub(crate) now: Timestamp<Monotonic>,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`.
    pub(crate) offset: ClockOffset,
    /// Kernel's report on its clock; `None` if it is unavailable.
    pub(crate) kernel: Option<KernelClock>,
}

/// Builder of the pages of one server.
#[derive(Debug)]
pub(crate) struct PageBuilder {
    config: ServerConfig,
    precision: i8,
    start: Timestamp<Monotonic>,
    source_reading: SourceReading,
    guard: JumpGuard,
    /// True if the time has jumped and the new time has not been confirmed yet.
    jumped: bool,
    /// True time minus the monotonic clock, if more than one source agrees on it.
    confirmed: Option<Span>,
    jump_notice: Option<String>,
    leap_file: Option<LeapFile>,
    leap_transition: LeapTransition,
    tai: TaiMinusUtc,
    known_leaps: ServerLeapSeconds,
    lately: RecentMax,
    standing: Vec<LeapNotice>,
    fresh: Vec<LeapNotice>,
}

impl PageBuilder {
    /// Starts with a first reading; a test drift counts from there.
    pub(crate) fn new(config: &ServerConfig, precision: i8, first: &SystemClockReading) -> Self {
        Self {
            config: config.clone(),
            precision,
            start: first.now,
            source_reading: SourceReading::default(),
            guard: JumpGuard::default(),
            jumped: false,
            confirmed: None,
            jump_notice: None,
            leap_file: None,
            leap_transition: LeapTransition::new(first.offset),
            tai: TaiMinusUtc::default(),
            known_leaps: ServerLeapSeconds::default(),
            lately: RecentMax::default(),
            standing: Vec::new(),
            fresh: Vec::new(),
        }
    }

    /// Applies this configuration from the next page on. The deliberate error of the served time,
    /// the precision and the page's life do not change. A reload also confirms the time to which
    /// the clock has jumped.
    pub(crate) fn reconfigure(&mut self, config: &ServerConfig) {
        self.guard.accept();
        adopt_reply_values(&mut self.config, config);
    }

    /// Returns the builder with a list of leap seconds.
    pub(crate) fn with_leap_file(self, leap_file: Option<LeapFile>) -> Self {
        Self { leap_file, ..self }
    }

    /// Returns the pages that follow from a reading of the clocks.
    pub(crate) fn pages(&mut self, reading: &SystemClockReading) -> Pages {
        let list = self.leap_file.as_ref().map(LeapFile::list);
        let terms = LeapInputs {
            system: self.config.leap_seconds.system,
            disciplined: self.config.trust == ClockTrust::Kernel && !self.config.is_test(),
            uses_kernel_leap: !self.config.is_test(),
            ahead: self.ahead(reading.now) + self.correction(reading.now),
            source_time: self.source_time(),
            list: list.as_deref(),
            receiver_leap: self.source_next_leap(),
        };
        let point = self.leap_transition.advance(reading, &terms);
        self.notice(&point.notices);
        self.check_continuity(reading, point.realtime_minus_monotonic);
        let tai_minus_utc_s = self.tai_minus_utc_s(reading, &point);
        self.known_leaps = self.update_known_leaps(&point);
        let stepped = self.stepped(reading, &point);
        let distance = self.distance(&stepped, reading.now);
        // The error of a clock without a known time is unknown.
        if stepped.variables.leap == LeapIndicator::Unsynchronised {
            self.lately = RecentMax::default();
        }
        let distance_lately = self.lately.see(distance, reading.now);
        Pages {
            stepped: ClockPage {
                tai_minus_utc_s,
                distance,
                distance_recent: distance_lately,
                ..stepped
            },
            smeared: ClockPage {
                distance,
                distance_recent: distance_lately,
                ..self.smeared(reading, &point)
            },
        }
    }

    fn tai_minus_utc_s(
        &mut self,
        reading: &SystemClockReading,
        point: &LeapOutputs,
    ) -> Option<i16> {
        if self.config.leap_seconds.system == LeapSystem::Smears {
            return None;
        }
        let list = self.leap_file.as_ref().map(LeapFile::list);
        self.tai.at(&TaiInputs {
            configured_s: self.config.leap_seconds.tai_offset_s,
            list: list
                .as_deref()
                .filter(|list| list.validity(point.utc) != LeapListValidity::Expired),
            source_s: self.source_tai_minus_utc_s(),
            kernel_s: reading.kernel.map_or(0, |kernel| kernel.tai_offset_s),
            utc: point.utc,
            passing: point.passing,
            passed_s: self.leap_transition.passed_s(),
        })
    }

    /// Returns the warnings since the last call, each once while its cause lasts.
    pub(crate) fn take_notices(&mut self) -> Vec<LeapNotice> {
        std::mem::take(&mut self.fresh)
    }

    fn notice(&mut self, notices: &[LeapNotice]) {
        let is_new = |notice: &&LeapNotice| !self.standing.contains(notice);
        self.fresh.extend(notices.iter().filter(is_new));
        self.standing = notices.to_vec();
    }

    /// Returns the deliberate lead of the served time over the system clock.
    fn ahead(&self, now: Timestamp<Monotonic>) -> Span {
        let elapsed_ns = i128::from((now - self.start).as_ns());
        let drift_ns = elapsed_ns * i128::from(self.config.test_drift_ppb) / 1_000_000_000;
        self.config.test_offset + Span::from_ns(drift_ns as i64)
    }

    /// Returns the drift of the served time against the monotonic clock, without smearing.
    fn drift_ppb(&self, now: Timestamp<Monotonic>) -> i64 {
        self.config.test_drift_ppb + self.frequency_ppb(now)
    }

    fn stepped(&self, reading: &SystemClockReading, point: &LeapOutputs) -> ClockPage {
        let mut timebase = self.timebase(reading.now, point.utc, 0);
        let mut reference = timebase.ntp_at_anchor;
        if let Some(leap) = point.passing {
            let away_ns = i128::from((leap.instant() - point.utc).as_ns());
            let rate_ppb = i128::from(NS_PER_S + self.drift_ppb(reading.now));
            let away_ns = away_ns * i128::from(NS_PER_S) / rate_ppb;
            timebase.step_at = reading.now + Span::from_ns(away_ns as i64);
            timebase.step = (leap.step().as_ns() / NS_PER_S) << 32;
            // No reply made before or after the step may carry a reference time in the future.
            if leap.kind == LeapKind::Insert {
                reference = reference.wrapping_add(leap.step());
            }
        }
        let leap = match point.announced.map(|leap| leap.kind) {
            None => LeapIndicator::None,
            Some(LeapKind::Insert) => LeapIndicator::Insert,
            Some(LeapKind::Delete) => LeapIndicator::Delete,
        };
        let leap = if leap == LeapIndicator::None { self.source_leap(point) } else { leap };
        let leap = self.config.leap.unwrap_or(leap);
        let variables = self.variables(reading, point, leap, reference);
        let after = self.config.leap.unwrap_or(LeapIndicator::None);
        let leap_after = self.variables(reading, point, after, reference).leap;
        page(point, timebase, variables, leap_after)
    }

    /// Returns the smeared page. It is linear during its life, so at the two kinks of the smear its
    /// error is the rate of the smear times the age of the page: 1.2 µs in 100 ms.
    fn smeared(&self, reading: &SystemClockReading, point: &LeapOutputs) -> ClockPage {
        let Smeared { instant, rate_ppb, smearing } = self.smear(point);
        let timebase = self.timebase(reading.now, instant, rate_ppb);
        // The leap must not be announced, but an unsynchronised clock must be.
        let leap = self.config.leap.filter(|leap| *leap == LeapIndicator::Unsynchronised);
        let leap = leap.unwrap_or(LeapIndicator::None);
        let mut variables = self.variables(reading, point, leap, timebase.ntp_at_anchor);
        if smearing && variables.leap != LeapIndicator::Unsynchronised {
            let utc = point.passing.filter(|leap| point.utc >= leap.instant());
            let utc = point.utc + utc.map_or(Span::ZERO, |leap| leap.step());
            variables.reference_id = smear_reference_id(instant - utc);
        }
        let leap_after = variables.leap;
        page(point, timebase, variables, leap_after)
    }

    fn smear(&self, point: &LeapOutputs) -> Smeared {
        let plain = Smeared { instant: point.utc, rate_ppb: 0, smearing: false };
        if self.config.leap_seconds.system == LeapSystem::Smears {
            return plain;
        }
        let smear =
            Smear { length: Span::from_ns(self.config.leap_seconds.smear.as_nanos() as i64) };
        if let Some(leap) = point.passing {
            return smear.at(&leap, point.utc);
        }
        let next = point.next.map(|leap| smear.at(&leap, point.utc));
        let latest = point.latest.map(|leap| smear.at(&leap, point.utc - leap.step()));
        next.into_iter().chain(latest).find(|smeared| smeared.smearing).unwrap_or(plain)
    }

    fn timebase(&self, now: Timestamp<Monotonic>, utc: Timestamp<Utc>, rate_ppb: i64) -> Timebase {
        Timebase {
            anchor: now,
            ntp_at_anchor: NtpTimestamp::from_utc(utc),
            rate: Timebase::rate_with_drift(self.drift_ppb(now) + rate_ppb),
            expires: now + Span::from_ns(self.config.page_life.as_nanos() as i64),
            step_at: NO_STEP,
            step: 0,
        }
    }

    fn variables(
        &self,
        reading: &SystemClockReading,
        point: &LeapOutputs,
        leap: LeapIndicator,
        reference: NtpTimestamp,
    ) -> SystemVariables {
        if self.jumped {
            return self.unsynchronised();
        }
        match self.source_reading {
            SourceReading::NotPolled => self.kernels(reading, point, leap, reference),
            SourceReading::Selected(_) if point.is_uncertain => self.unsynchronised(),
            SourceReading::Selected(report) => self.mirrored(&report, reading.now, leap),
            SourceReading::NoSource => self.unsynchronised(),
        }
    }

    /// Returns true if the system clock is regarded as correct without time sources.
    fn is_kernel_trusted(&self, reading: &SystemClockReading) -> bool {
        match self.config.trust {
            ClockTrust::Local => true,
            ClockTrust::Kernel => reading.kernel.is_some_and(|kernel| kernel.synchronised),
        }
    }

    /// Returns the variables without time sources: from the kernel's report, as far as it is
    /// trusted.
    fn kernels(
        &self,
        reading: &SystemClockReading,
        point: &LeapOutputs,
        leap: LeapIndicator,
        reference: NtpTimestamp,
    ) -> SystemVariables {
        let (config, kernel) = (&self.config, reading.kernel);
        let trusted = self.is_kernel_trusted(reading);
        let leap =
            if trusted && !point.is_uncertain { leap } else { LeapIndicator::Unsynchronised };
        let synchronised = leap != LeapIndicator::Unsynchronised;
        let dispersion = match config.trust {
            ClockTrust::Local => Span::ZERO,
            ClockTrust::Kernel => {
                kernel.map_or(Span::from_ns(i64::MAX), |kernel| kernel.maximum_error)
            }
        };
        SystemVariables {
            leap,
            stratum: if synchronised { config.stratum } else { STRATUM_UNSYNCHRONISED },
            precision: self.precision,
            root_delay: NtpShort::from_span(config.root_delay),
            root_dispersion: NtpShort::from_span(config.root_dispersion.unwrap_or(dispersion)),
            reference_id: if synchronised { config.reference_id() } else { [0; 4] },
            reference: if synchronised { reference } else { NtpTimestamp::UNKNOWN },
        }
    }
}

fn page(
    point: &LeapOutputs,
    timebase: Timebase,
    variables: SystemVariables,
    leap_after: LeapIndicator,
) -> ClockPage {
    ClockPage {
        variables,
        timebase,
        realtime_minus_monotonic: point.realtime_minus_monotonic,
        realtime_step: point.passing.map_or(Span::ZERO, |leap| leap.step()),
        leap_after,
        tai_minus_utc_s: None,
        distance: Span::ZERO,
        distance_recent: Span::ZERO,
    }
}

/// Maximum of the values in the last one to two terms.
#[derive(Clone, Copy, Default, Debug)]
struct RecentMax {
    /// Start of the present term, and its maximum.
    present: Option<(Timestamp<Monotonic>, Span)>,
    /// Maximum of the previous term.
    before: Span,
}

impl RecentMax {
    /// Longer than the usual interval between updates of a source: daemons correct the clock every
    /// 16 s to 64 s.
    const TERM: Span = Span::from_ns(64 * NS_PER_S);

    fn see(&mut self, value: Span, now: Timestamp<Monotonic>) -> Span {
        let (begun, largest) = match self.present {
            Some((begun, largest)) if now - begun < Self::TERM => (begun, largest.max(value)),
            Some((_, largest)) => {
                self.before = largest;
                (now, value)
            }
            None => (now, value),
        };
        self.present = Some((begun, largest));
        largest.max(self.before)
    }
}

/// Copies the reply values, which can change in a running server.
pub(crate) fn adopt_reply_values(config: &mut ServerConfig, new: &ServerConfig) {
    config.trust = new.trust;
    config.stratum = new.stratum;
    config.reference_id = new.reference_id;
    config.leap = new.leap;
    config.root_delay = new.root_delay;
    config.root_dispersion = new.root_dispersion;
    config.source.keep_stratum = new.source.keep_stratum;
    config.source.keep_root_delay = new.source.keep_root_delay;
}

/// Returns the reference identifier of a clock that is being smeared: 254 and its offset from UTC
/// in units of 2^-22 s, as in the reference implementation's server (its README.leapsmear).
fn smear_reference_id(ahead: Span) -> [u8; 4] {
    let units = (i128::from(ahead.as_ns()) << 22) / i128::from(NS_PER_S);
    let [_, high, middle, low] = (units as i32).to_be_bytes();
    [254, high, middle, low]
}

#[cfg(test)]
#[path = "page_builder_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "page_builder_leap_tests.rs"]
mod leap_tests;
