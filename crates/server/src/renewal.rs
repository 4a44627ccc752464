//! How the clock pages follow from one look at the system's clocks: pure, so that it is tested with
//! clocks that step, drift, lose their synchronisation and pass leap seconds.

use horolog_source::{Guard, KnownLeaps};
use horolog_sys::adjtimex::KernelClock;
use horolog_sys::clock::ClockOffset;
use horolog_time::leap::{LeapKind, Smear, Smeared, Validity};
use horolog_time::{
    Monotonic, NO_STEP, NS_PER_S, NtpShort, NtpTimestamp, Span, Timebase, Timestamp, Utc,
};
use horolog_wire::ntp::{Leap, STRATUM_UNSYNCHRONISED};

use crate::config::LeapSystem;
use crate::course::{Course, Point, Terms};
use crate::leap_file::LeapFile;
use crate::leap_notice::LeapNotice;
use crate::sources::Heard;
use crate::tai::{TaiMinusUtc, TaiTerms};
use crate::{Page, Pages, ServerConfig, SystemVariables, Trust};

mod heard;

/// One look at the system's clocks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Reading {
    /// When it was taken.
    pub(crate) now: Timestamp<Monotonic>,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`.
    pub(crate) offset: ClockOffset,
    /// What the kernel says of its clock; `None` when it does not answer.
    pub(crate) kernel: Option<KernelClock>,
}

/// Makes the pages of one server.
#[derive(Debug)]
pub(crate) struct Renewal {
    config: ServerConfig,
    precision: i8,
    start: Timestamp<Monotonic>,
    heard: Heard,
    guard: Guard,
    /// The time has jumped, and it is not known yet whether to where it should be.
    jumped: bool,
    /// True time minus the monotonic clock where more than one source says it.
    confirmed: Option<Span>,
    jump_notice: Option<String>,
    leap_file: Option<LeapFile>,
    course: Course,
    tai: TaiMinusUtc,
    known_leaps: KnownLeaps,
    lately: Lately,
    standing: Vec<LeapNotice>,
    fresh: Vec<LeapNotice>,
}

impl Renewal {
    /// Starts with a first look; a test drift counts from there.
    pub(crate) fn new(config: &ServerConfig, precision: i8, first: &Reading) -> Self {
        Self {
            config: config.clone(),
            precision,
            start: first.now,
            heard: Heard::default(),
            guard: Guard::default(),
            jumped: false,
            confirmed: None,
            jump_notice: None,
            leap_file: None,
            course: Course::new(first.offset),
            tai: TaiMinusUtc::default(),
            known_leaps: KnownLeaps::default(),
            lately: Lately::default(),
            standing: Vec::new(),
            fresh: Vec::new(),
        }
    }

    /// From the next page on, says what this configuration says. What is served on purpose, the
    /// precision and the page's life stay. Whoever reloads a server says as well that the time to
    /// which it has jumped is right.
    pub(crate) fn reconfigure(&mut self, config: &ServerConfig) {
        self.guard.accept();
        adopt_reply_values(&mut self.config, config);
    }

    /// The same with a list of leap seconds.
    pub(crate) fn with_leap_file(self, leap_file: Option<LeapFile>) -> Self {
        Self { leap_file, ..self }
    }

    /// The pages that follow from a look at the clocks.
    pub(crate) fn pages(&mut self, reading: &Reading) -> Pages {
        let list = self.leap_file.as_ref().map(LeapFile::list);
        let terms = Terms {
            system: self.config.leap_seconds.system,
            disciplined: self.config.trust == Trust::Kernel && !self.config.is_test(),
            ask_kernel: !self.config.is_test(),
            ahead: self.ahead(reading.now) + self.correction(reading.now),
            heard_at: self.heard_at(),
            list: list.as_deref(),
            told: self.heard_next_leap(),
        };
        let point = self.course.advance(reading, &terms);
        self.notice(&point.notices);
        self.beware(reading, point.realtime_minus_monotonic);
        let tai_minus_utc_s = self.tai_minus_utc_s(reading, &point);
        self.known_leaps = self.know_leaps(&point);
        let stepped = self.stepped(reading, &point);
        let distance = self.distance(&stepped, reading.now);
        // How far a clock was off of which nobody said the time is not known.
        if stepped.variables.leap == Leap::Unsynchronised {
            self.lately = Lately::default();
        }
        let distance_lately = self.lately.see(distance, reading.now);
        Pages {
            stepped: Page { tai_minus_utc_s, distance, distance_lately, ..stepped },
            smeared: Page { distance, distance_lately, ..self.smeared(reading, &point) },
        }
    }

    fn tai_minus_utc_s(&mut self, reading: &Reading, point: &Point) -> Option<i16> {
        if self.config.leap_seconds.system == LeapSystem::Smears {
            return None;
        }
        let list = self.leap_file.as_ref().map(LeapFile::list);
        self.tai.at(&TaiTerms {
            told_s: self.config.leap_seconds.tai_offset_s,
            list: list.as_deref().filter(|list| list.validity(point.utc) != Validity::Expired),
            heard_s: self.heard_tai_minus_utc_s(),
            kernel_s: reading.kernel.map_or(0, |kernel| kernel.tai_offset_s),
            utc: point.utc,
            passing: point.passing,
            passed_s: self.course.passed_s(),
        })
    }

    /// What there is to warn of since the last call, each once as long as it lasts.
    pub(crate) fn take_notices(&mut self) -> Vec<LeapNotice> {
        std::mem::take(&mut self.fresh)
    }

    fn notice(&mut self, notices: &[LeapNotice]) {
        let is_new = |notice: &&LeapNotice| !self.standing.contains(notice);
        self.fresh.extend(notices.iter().filter(is_new));
        self.standing = notices.to_vec();
    }

    /// How far the served time is ahead of the system clock on purpose.
    fn ahead(&self, now: Timestamp<Monotonic>) -> Span {
        let elapsed_ns = i128::from((now - self.start).as_ns());
        let drift_ns = elapsed_ns * i128::from(self.config.test_drift_ppb) / 1_000_000_000;
        self.config.test_offset + Span::from_ns(drift_ns as i64)
    }

    /// How fast the served time gains on the monotonic clock, smearing aside.
    fn drift_ppb(&self, now: Timestamp<Monotonic>) -> i64 {
        self.config.test_drift_ppb + self.frequency_ppb(now)
    }

    fn stepped(&self, reading: &Reading, point: &Point) -> Page {
        let mut timebase = self.timebase(reading.now, point.utc, 0);
        let mut reference = timebase.ntp_at_anchor;
        if let Some(leap) = point.passing {
            let away_ns = i128::from((leap.instant() - point.utc).as_ns());
            let rate_ppb = i128::from(NS_PER_S + self.drift_ppb(reading.now));
            let away_ns = away_ns * i128::from(NS_PER_S) / rate_ppb;
            timebase.step_at = reading.now + Span::from_ns(away_ns as i64);
            timebase.step = (leap.step().as_ns() / NS_PER_S) << 32;
            // No reply made before or after the step may state a reference that is yet to come.
            if leap.kind == LeapKind::Insert {
                reference = reference.wrapping_add(leap.step());
            }
        }
        let leap = match point.announced.map(|leap| leap.kind) {
            None => Leap::None,
            Some(LeapKind::Insert) => Leap::Insert,
            Some(LeapKind::Delete) => Leap::Delete,
        };
        let leap = if leap == Leap::None { self.heard_leap(point) } else { leap };
        let leap = self.config.leap.unwrap_or(leap);
        let variables = self.variables(reading, point, leap, reference);
        let after = self.config.leap.unwrap_or(Leap::None);
        let leap_after = self.variables(reading, point, after, reference).leap;
        page(point, timebase, variables, leap_after)
    }

    /// The smeared page. It is linear for as long as it lives, so at the two kinks of the smear it
    /// is wrong by the rate of the smear times the age of the page: 1.2 µs in 100 ms.
    fn smeared(&self, reading: &Reading, point: &Point) -> Page {
        let Smeared { instant, rate_ppb, smearing } = self.smear(point);
        let timebase = self.timebase(reading.now, instant, rate_ppb);
        // What must not be announced is the leap; that a clock is not synchronised must be.
        let leap = self.config.leap.filter(|leap| *leap == Leap::Unsynchronised);
        let leap = leap.unwrap_or(Leap::None);
        let mut variables = self.variables(reading, point, leap, timebase.ntp_at_anchor);
        if smearing && variables.leap != Leap::Unsynchronised {
            let utc = point.passing.filter(|leap| point.utc >= leap.instant());
            let utc = point.utc + utc.map_or(Span::ZERO, |leap| leap.step());
            variables.reference_id = smear_reference_id(instant - utc);
        }
        let leap_after = variables.leap;
        page(point, timebase, variables, leap_after)
    }

    fn smear(&self, point: &Point) -> Smeared {
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
        reading: &Reading,
        point: &Point,
        leap: Leap,
        reference: NtpTimestamp,
    ) -> SystemVariables {
        if self.jumped {
            return self.unsynchronised();
        }
        match self.heard {
            Heard::Unasked => self.kernels(reading, point, leap, reference),
            Heard::Selected(_) if point.doubtful => self.unsynchronised(),
            Heard::Selected(report) => self.mirrored(&report, reading.now, leap),
            Heard::Nobody => self.unsynchronised(),
        }
    }

    /// Whether the system clock is said to be right where no source is asked.
    fn is_kernel_trusted(&self, reading: &Reading) -> bool {
        match self.config.trust {
            Trust::Local => true,
            Trust::Kernel => reading.kernel.is_some_and(|kernel| kernel.synchronised),
        }
    }

    /// The variables where no source is asked: after the kernel's word, as far as it is trusted.
    fn kernels(
        &self,
        reading: &Reading,
        point: &Point,
        leap: Leap,
        reference: NtpTimestamp,
    ) -> SystemVariables {
        let (config, kernel) = (&self.config, reading.kernel);
        let trusted = self.is_kernel_trusted(reading);
        let leap = if trusted && !point.doubtful { leap } else { Leap::Unsynchronised };
        let synchronised = leap != Leap::Unsynchronised;
        let dispersion = match config.trust {
            Trust::Local => Span::ZERO,
            Trust::Kernel => kernel.map_or(Span::from_ns(i64::MAX), |kernel| kernel.maximum_error),
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

fn page(point: &Point, timebase: Timebase, variables: SystemVariables, leap_after: Leap) -> Page {
    Page {
        variables,
        timebase,
        realtime_minus_monotonic: point.realtime_minus_monotonic,
        realtime_step: point.passing.map_or(Span::ZERO, |leap| leap.step()),
        leap_after,
        tai_minus_utc_s: None,
        distance: Span::ZERO,
        distance_lately: Span::ZERO,
    }
}

/// The largest of what was seen in the last one to two terms.
#[derive(Clone, Copy, Default, Debug)]
struct Lately {
    /// When the present term began, and the largest in it.
    present: Option<(Timestamp<Monotonic>, Span)>,
    /// The largest in the term before.
    before: Span,
}

impl Lately {
    /// Longer than sources are silent as a rule: daemons correct the clock every 16 s to 64 s.
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

/// Copies what replies say of the server, which a running server can change.
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

/// The reference identifier of a clock that is being smeared: 254 and how far it is from UTC, in
/// units of 2^-22 s, as the reference implementation's server states it (its README.leapsmear).
fn smear_reference_id(ahead: Span) -> [u8; 4] {
    let units = (i128::from(ahead.as_ns()) << 22) / i128::from(NS_PER_S);
    let [_, high, middle, low] = (units as i32).to_be_bytes();
    [254, high, middle, low]
}

#[cfg(test)]
#[path = "renewal_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "renewal_leap_tests.rs"]
mod leap_tests;
