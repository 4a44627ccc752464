//! Builder of the clock pages from readings of the system's clocks. Pure, so that tests can let
//! clocks step, drift, lose synchronisation and pass leap seconds.

use horolog_source::{ClockPage, ClockPages, JumpGuard, ServerLeapSeconds, SystemVariables};
use horolog_sys::adjtimex::KernelClockStatus;
use horolog_sys::clock::ClockOffset;
use horolog_time::leap::{LeapKind, LeapListValidity, Smear, SmearReading};
use horolog_time::{
    Monotonic, NO_STEP, NS_PER_S, NtpShort, NtpTimestamp, Span, Timebase, Timestamp, Utc,
};
use horolog_wire::ntp::{LeapIndicator, STRATUM_UNSYNCHRONISED};

use super::leap_file::LeapFile;
use super::leap_notice::LeapNotice;
use super::leap_transition::{LeapInputs, LeapOutputs, LeapTransitionTracker};
use super::sources::SourceSelectionOutcome;
use super::tai::{TaiInputs, TaiOffsetTracker};
use crate::config::{ClockTrust, ServerConfig, SystemLeapBehaviour};

mod source_input;

/// Reading of the system's clocks at one instant.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct SystemClockReading {
    /// Instant of the reading.
    pub(crate) now: Timestamp<Monotonic>,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`.
    pub(crate) offset: ClockOffset,
    /// Report of the kernel on its clock; `None` if unavailable.
    pub(crate) kernel: Option<KernelClockStatus>,
}

/// Builder of the clock pages of a server.
#[derive(Debug)]
pub(crate) struct ClockPageBuilder {
    config: ServerConfig,
    precision: i8,
    start: Timestamp<Monotonic>,
    source_reading: SourceSelectionOutcome,
    guard: JumpGuard,
    /// True if the served time has jumped and the new time is not confirmed yet.
    jumped: bool,
    /// True time minus monotonic time, if several sources agree on it.
    confirmed: Option<Span>,
    jump_notice: Option<String>,
    leap_file: Option<LeapFile>,
    leap_transition: LeapTransitionTracker,
    tai: TaiOffsetTracker,
    known_leaps: ServerLeapSeconds,
    recent_root_distance: RecentMax,
    current_notices: Vec<LeapNotice>,
    new_notices: Vec<LeapNotice>,
}

impl ClockPageBuilder {
    /// Creates a builder with a first reading, from which a test drift starts.
    pub(crate) fn new(config: &ServerConfig, precision: i8, first: &SystemClockReading) -> Self {
        Self {
            config: config.clone(),
            precision,
            start: first.now,
            source_reading: SourceSelectionOutcome::default(),
            guard: JumpGuard::default(),
            jumped: false,
            confirmed: None,
            jump_notice: None,
            leap_file: None,
            leap_transition: LeapTransitionTracker::new(first.offset),
            tai: TaiOffsetTracker::default(),
            known_leaps: ServerLeapSeconds::default(),
            recent_root_distance: RecentMax::default(),
            current_notices: Vec::new(),
            new_notices: Vec::new(),
        }
    }

    /// Adopts the reply values of a configuration for the following pages. Test offset and drift,
    /// precision and page life do not change. A reload also confirms a time to which the clock has
    /// jumped.
    pub(crate) fn reconfigure(&mut self, config: &ServerConfig) {
        self.guard.accept();
        adopt_reply_values(&mut self.config, config);
    }

    /// Returns the builder with a file of leap seconds.
    pub(crate) fn with_leap_file(self, leap_file: Option<LeapFile>) -> Self {
        Self { leap_file, ..self }
    }

    /// Returns the pages for a reading of the clocks, and updates the state that later pages depend
    /// on.
    pub(crate) fn pages(&mut self, reading: &SystemClockReading) -> ClockPages {
        let list = self.leap_file.as_ref().map(LeapFile::list);
        let inputs = LeapInputs {
            system: self.config.leap_seconds.system,
            disciplined: self.config.trust == ClockTrust::Kernel && !self.config.has_test_time(),
            uses_kernel_leap: !self.config.has_test_time(),
            served_lead: self.test_lead(reading.now) + self.correction(reading.now),
            source_time: self.source_time(),
            list: list.as_deref(),
            receiver_leap: self.source_next_leap(),
        };
        let outputs = self.leap_transition.advance(reading, &inputs);
        self.update_notices(&outputs.notices);
        self.check_continuity(reading, outputs.realtime_minus_monotonic);
        let tai_minus_utc_s = self.tai_minus_utc_s(reading, &outputs);
        self.known_leaps = self.update_known_leaps(&outputs);
        let stepped = self.stepped_page(reading, &outputs);
        let distance = self.root_distance(&stepped, reading.now);
        // The error bound of an unsynchronised clock is unknown.
        if stepped.variables.leap == LeapIndicator::Unsynchronised {
            self.recent_root_distance = RecentMax::default();
        }
        let distance_lately = self.recent_root_distance.update(distance, reading.now);
        ClockPages {
            stepped: ClockPage {
                tai_minus_utc_s,
                root_distance: distance,
                root_distance_recent_max: distance_lately,
                ..stepped
            },
            smeared: ClockPage {
                root_distance: distance,
                root_distance_recent_max: distance_lately,
                ..self.smeared_page(reading, &outputs)
            },
        }
    }

    fn tai_minus_utc_s(
        &mut self,
        reading: &SystemClockReading,
        outputs: &LeapOutputs,
    ) -> Option<i16> {
        if self.config.leap_seconds.system == SystemLeapBehaviour::Smears {
            return None;
        }
        let list = self.leap_file.as_ref().map(LeapFile::list);
        self.tai.update(&TaiInputs {
            configured_s: self.config.leap_seconds.tai_offset_s,
            list: list
                .as_deref()
                .filter(|list| list.validity(outputs.utc) != LeapListValidity::Expired),
            source_s: self.source_tai_minus_utc_s(),
            kernel_s: reading.kernel.map_or(0, |kernel| kernel.tai_offset_s),
            utc: outputs.utc,
            active_leap: outputs.active_leap,
            passed_leaps_s: self.leap_transition.passed_leaps_s(),
        })
    }

    /// Returns the warnings that are new since the last call.
    pub(crate) fn take_notices(&mut self) -> Vec<LeapNotice> {
        std::mem::take(&mut self.new_notices)
    }

    fn update_notices(&mut self, notices: &[LeapNotice]) {
        let is_new = |notice: &&LeapNotice| !self.current_notices.contains(notice);
        self.new_notices.extend(notices.iter().filter(is_new));
        self.current_notices = notices.to_vec();
    }

    /// Returns the test offset and drift at `now`: the deliberate offset of the served time.
    fn test_lead(&self, now: Timestamp<Monotonic>) -> Span {
        let elapsed_ns = i128::from((now - self.start).as_ns());
        let drift_ns = elapsed_ns * i128::from(self.config.test_drift_ppb) / 1_000_000_000;
        self.config.test_offset + Span::from_ns(drift_ns as i64)
    }

    /// Returns the frequency offset of the served time from the monotonic clock at `now`, without a
    /// smear, in ppb.
    fn drift_ppb(&self, now: Timestamp<Monotonic>) -> i64 {
        self.config.test_drift_ppb + self.frequency_ppb(now)
    }

    fn stepped_page(&self, reading: &SystemClockReading, outputs: &LeapOutputs) -> ClockPage {
        let mut timebase = self.timebase(reading.now, outputs.utc, 0);
        let mut reference = timebase.ntp_at_anchor;
        if let Some(leap) = outputs.active_leap {
            let away_ns = i128::from((leap.step_instant() - outputs.utc).as_ns());
            let rate_ppb = i128::from(NS_PER_S + self.drift_ppb(reading.now));
            let away_ns = away_ns * i128::from(NS_PER_S) / rate_ppb;
            timebase.step_at = reading.now + Span::from_ns(away_ns as i64);
            timebase.step = (leap.step().as_ns() / NS_PER_S) << 32;
            // No reply before or after the step may have a reference timestamp in the future.
            if leap.kind == LeapKind::Insert {
                reference = reference.wrapping_add(leap.step());
            }
        }
        let leap = match outputs.announced.map(|leap| leap.kind) {
            None => LeapIndicator::None,
            Some(LeapKind::Insert) => LeapIndicator::Insert,
            Some(LeapKind::Delete) => LeapIndicator::Delete,
        };
        let leap = if leap == LeapIndicator::None { self.source_leap(outputs) } else { leap };
        let leap = self.config.leap.unwrap_or(leap);
        let variables = self.system_variables(reading, outputs, leap, reference);
        let after = self.config.leap.unwrap_or(LeapIndicator::None);
        let leap_after = self.system_variables(reading, outputs, after, reference).leap;
        clock_page(outputs, timebase, variables, leap_after)
    }

    /// Returns the page of smeared time. It is linear, so that where the rate changes, at the start
    /// and the end of a smear, its error is the smear's rate times the age of the page: 1.2 µs
    /// after 100 ms with a smear of 24 hours.
    fn smeared_page(&self, reading: &SystemClockReading, outputs: &LeapOutputs) -> ClockPage {
        let SmearReading { instant, rate_ppb, is_smearing: smearing } = self.smear_reading(outputs);
        let timebase = self.timebase(reading.now, instant, rate_ppb);
        // A smearing server announces no leap second, but it does announce an unsynchronised clock.
        let leap = self.config.leap.filter(|leap| *leap == LeapIndicator::Unsynchronised);
        let leap = leap.unwrap_or(LeapIndicator::None);
        let mut variables = self.system_variables(reading, outputs, leap, timebase.ntp_at_anchor);
        if smearing && variables.leap != LeapIndicator::Unsynchronised {
            let utc = outputs.active_leap.filter(|leap| outputs.utc >= leap.step_instant());
            let utc = outputs.utc + utc.map_or(Span::ZERO, |leap| leap.step());
            variables.reference_id = smear_reference_id(instant - utc);
        }
        let leap_after = variables.leap;
        clock_page(outputs, timebase, variables, leap_after)
    }

    fn smear_reading(&self, outputs: &LeapOutputs) -> SmearReading {
        let unsmeared = SmearReading { instant: outputs.utc, rate_ppb: 0, is_smearing: false };
        if self.config.leap_seconds.system == SystemLeapBehaviour::Smears {
            return unsmeared;
        }
        let smear =
            Smear { length: Span::from_ns(self.config.leap_seconds.smear.as_nanos() as i64) };
        if let Some(leap) = outputs.active_leap {
            return smear.reading_at(&leap, outputs.utc);
        }
        let next = outputs.next.map(|leap| smear.reading_at(&leap, outputs.utc));
        let latest = outputs.latest.map(|leap| smear.reading_at(&leap, outputs.utc - leap.step()));
        next.into_iter().chain(latest).find(|smeared| smeared.is_smearing).unwrap_or(unsmeared)
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

    fn system_variables(
        &self,
        reading: &SystemClockReading,
        outputs: &LeapOutputs,
        leap: LeapIndicator,
        reference: NtpTimestamp,
    ) -> SystemVariables {
        if self.jumped {
            return self.unsynchronised();
        }
        match self.source_reading {
            SourceSelectionOutcome::NotPolled => {
                self.kernel_variables(reading, outputs, leap, reference)
            }
            SourceSelectionOutcome::Selected(_) if outputs.is_uncertain => self.unsynchronised(),
            SourceSelectionOutcome::Selected(report) => {
                self.source_variables(&report, reading.now, leap)
            }
            SourceSelectionOutcome::NoSource => self.unsynchronised(),
        }
    }

    /// Returns true if the system clock may be served as synchronised without time sources.
    fn is_kernel_trusted(&self, reading: &SystemClockReading) -> bool {
        match self.config.trust {
            ClockTrust::Local => true,
            ClockTrust::Kernel => reading.kernel.is_some_and(|kernel| kernel.synchronised),
        }
    }

    /// Returns the system variables if no time sources are configured, by the kernel's report and
    /// the trust in it.
    fn kernel_variables(
        &self,
        reading: &SystemClockReading,
        outputs: &LeapOutputs,
        leap: LeapIndicator,
        reference: NtpTimestamp,
    ) -> SystemVariables {
        let (config, kernel) = (&self.config, reading.kernel);
        let trusted = self.is_kernel_trusted(reading);
        let leap =
            if trusted && !outputs.is_uncertain { leap } else { LeapIndicator::Unsynchronised };
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

fn clock_page(
    outputs: &LeapOutputs,
    timebase: Timebase,
    variables: SystemVariables,
    leap_after: LeapIndicator,
) -> ClockPage {
    ClockPage {
        variables,
        timebase,
        realtime_minus_monotonic: outputs.realtime_minus_monotonic,
        realtime_step: outputs.active_leap.map_or(Span::ZERO, |leap| leap.step()),
        leap_after,
        tai_minus_utc_s: None,
        root_distance: Span::ZERO,
        root_distance_recent_max: Span::ZERO,
    }
}

/// Maximum of a value over the last one to two intervals.
#[derive(Clone, Copy, Default, Debug)]
struct RecentMax {
    /// Start of the current interval, and the maximum in it.
    current: Option<(Timestamp<Monotonic>, Span)>,
    /// Maximum in the previous interval.
    before: Span,
}

impl RecentMax {
    /// Length of an interval: longer than the usual time between updates of a source, because
    /// daemons correct the clock every 16 s to 64 s.
    const INTERVAL: Span = Span::from_ns(64 * NS_PER_S);

    fn update(&mut self, value: Span, now: Timestamp<Monotonic>) -> Span {
        let (started_at, largest) = match self.current {
            Some((begun, largest)) if now - begun < Self::INTERVAL => (begun, largest.max(value)),
            Some((_, largest)) => {
                self.before = largest;
                (now, value)
            }
            None => (now, value),
        };
        self.current = Some((started_at, largest));
        largest.max(self.before)
    }
}

/// Copies the reply values from `new` to `config`: the options of replies that can change in a
/// running server.
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

/// Returns the reference identifier during a smear: 254, and the offset from UTC in units of 2^-22
/// s, as in the NTP reference implementation (its README.leapsmear).
fn smear_reference_id(offset: Span) -> [u8; 4] {
    let units = (i128::from(offset.as_ns()) << 22) / i128::from(NS_PER_S);
    let [_, high, middle, low] = (units as i32).to_be_bytes();
    [254, high, middle, low]
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod leap_tests;
