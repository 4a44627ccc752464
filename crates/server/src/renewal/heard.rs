//! How the sources of time bear on a clock page: what is added to the system clock, what is claimed
//! of it, and when nothing is claimed because no source says the time or the time has jumped.

use horolog_source::{Guard, Judgement, KnownLeaps, Report, TimeClaim, UNDISCIPLINED};
use horolog_sys::clock::MonotonicClock;
use horolog_time::leap::{Leap as LeapSecond, Validity};
use horolog_time::{Clock, Monotonic, NtpShort, NtpTimestamp, Span, Timestamp, Utc};
use horolog_wire::ntp::{Leap, STRATUM_UNSYNCHRONISED};

use super::{Reading, Renewal};
use crate::config::LeapSystem;
use crate::course::Point;
use crate::leap_file::LeapFile;
use crate::sources::{Heard, SharedSources};
use crate::{Page, SystemVariables};

/// Sources are asked once a second, and believed for eight.
const WORD_IS_OLD: Span = Span::from_ms(10_000);

impl Renewal {
    /// Takes over what the sources say now.
    pub(crate) fn hearing(&mut self, sources: &SharedSources) -> &mut Self {
        if let Some(heard) = sources.heard(MonotonicClock.now()) {
            self.heard = heard;
        }
        self.confirmed = sources.confirmed();
        self
    }

    /// Leaves with the sources what the last page gave rise to say to the user, and the leap
    /// seconds that have really passed.
    pub(crate) fn tell(&mut self, sources: &SharedSources) {
        if let Some(notice) = self.jump_notice.take() {
            sources.notify(notice);
        }
        if !self.config.is_test() {
            sources.passed_leaps(self.course.leaps_s());
            sources.known_leaps(self.known_leaps);
        }
    }

    /// What is known of leap seconds by no source: those that are told what they say are believed
    /// less.
    pub(super) fn know_leaps(&self, point: &Point) -> KnownLeaps {
        if self.config.leap_seconds.system == LeapSystem::Smears {
            return KnownLeaps::default();
        }
        let list = self.leap_file.as_ref().map(LeapFile::list);
        let list = list.as_deref().filter(|list| list.validity(point.utc) != Validity::Expired);
        KnownLeaps {
            tai_minus_utc_s: self.tai.known_s(),
            has_list: list.is_some(),
            next: point.next.filter(|leap| list.is_some_and(|list| list.leaps().contains(leap))),
        }
    }

    /// TAI minus UTC as the selected source was told it.
    pub(super) fn heard_tai_minus_utc_s(&self) -> Option<i32> {
        match self.heard {
            Heard::Selected(report) => report.tai_minus_utc_s,
            Heard::Unasked | Heard::Nobody => None,
        }
    }

    /// When the selected source said what it says.
    pub(super) fn heard_at(&self) -> Option<Timestamp<Monotonic>> {
        match self.heard {
            Heard::Selected(report) => Some(report.at),
            Heard::Unasked | Heard::Nobody => None,
        }
    }

    /// The next leap second as satellites have told it to the selected source.
    pub(super) fn heard_next_leap(&self) -> Option<LeapSecond> {
        match self.heard {
            Heard::Selected(report) if !self.config.is_test() => report.next_leap,
            _ => None,
        }
    }

    /// True time minus the system clock.
    pub(super) fn correction(&self, now: Timestamp<Monotonic>) -> Span {
        match &self.heard {
            Heard::Selected(report) => report.offset_at(now),
            Heard::Unasked | Heard::Nobody => Span::ZERO,
        }
    }

    /// How fast that grows, in parts per billion.
    pub(super) fn frequency_ppb(&self, now: Timestamp<Monotonic>) -> i64 {
        match &self.heard {
            Heard::Selected(report) => report.rate_ppb_at(now),
            Heard::Unasked | Heard::Nobody => 0,
        }
    }

    /// The same, believing no time before `earliest`.
    pub(crate) fn no_earlier_than(self, earliest: Timestamp<Utc>) -> Self {
        Self { guard: Guard::no_earlier_than(earliest), ..self }
    }

    /// Judges whether the time that is to be served goes on from the last page's. Where no source
    /// says it there is none to judge.
    pub(super) fn beware(&mut self, reading: &Reading, realtime_minus_monotonic: Span) {
        let is_claimed = match self.heard {
            Heard::Unasked => self.is_kernel_trusted(reading),
            Heard::Selected(_) => true,
            Heard::Nobody => return,
        };
        let now = reading.now;
        let ahead = realtime_minus_monotonic + self.correction(now);
        let claim = TimeClaim { now, ahead, is_claimed, confirmed: self.confirmed };
        let judgement = self.guard.judge(claim);
        self.jump_notice = notice(judgement).or(self.jump_notice.take());
        self.jumped = !judgement.is_trusted();
    }

    /// The leap that the selected source speaks of, where no list knows better. Right after a leap
    /// that was passed its word is old.
    pub(super) fn heard_leap(&self, point: &Point) -> Leap {
        let is_old = point.latest.is_some_and(|leap| point.utc - leap.instant() < WORD_IS_OLD);
        let smears = self.config.leap_seconds.system == LeapSystem::Smears;
        match self.heard {
            Heard::Selected(report) if self.leap_file.is_none() && !is_old && !smears => {
                report.leap
            }
            _ => Leap::None,
        }
    }

    /// The variables of the selected source, with the leap indicator that was found for now.
    pub(super) fn mirrored(
        &self,
        report: &Report,
        now: Timestamp<Monotonic>,
        leap: Leap,
    ) -> SystemVariables {
        let Self { config, .. } = self;
        let silent = report.leap == Leap::Unsynchronised && config.leap.is_none();
        if leap == Leap::Unsynchronised || silent {
            return self.unsynchronised();
        }
        let nameless = config.source.keep_stratum && report.reference_id == UNDISCIPLINED;
        let reference_id = if nameless { config.reference_id() } else { report.reference_id };
        let kept_delay = config.source.keep_root_delay.then_some(config.root_delay);
        let dispersion = config.root_dispersion.unwrap_or(report.dispersion_at(now));
        SystemVariables {
            leap,
            stratum: if config.source.keep_stratum { config.stratum } else { report.stratum },
            precision: self.precision,
            root_delay: NtpShort::from_span(kept_delay.unwrap_or(report.root_delay)),
            root_dispersion: NtpShort::from_span(dispersion),
            reference_id: config.reference_id.unwrap_or(reference_id),
            reference: NtpTimestamp::from_utc(report.reference),
        }
    }

    /// Half the width of the interval that true time lies in.
    pub(super) fn distance(&self, page: &Page, now: Timestamp<Monotonic>) -> Span {
        let claimed = page.variables;
        match &self.heard {
            Heard::Selected(report) if self.config.root_dispersion.is_none() => {
                report.distance_at(now)
            }
            _ => {
                let half_delay = Span::from_ns(claimed.root_delay.to_span().as_ns() / 2);
                half_delay + claimed.root_dispersion.to_span()
            }
        }
    }

    /// The variables of a clock that is not synchronised.
    pub(super) fn unsynchronised(&self) -> SystemVariables {
        SystemVariables {
            leap: Leap::Unsynchronised,
            stratum: STRATUM_UNSYNCHRONISED,
            precision: self.precision,
            root_delay: NtpShort::from_span(self.config.root_delay),
            root_dispersion: NtpShort::from_span(Span::from_ns(i64::MAX)),
            reference_id: [0; 4],
            reference: NtpTimestamp::UNKNOWN,
        }
    }
}

/// What a judgement gives rise to say.
fn notice(judgement: Judgement) -> Option<String> {
    match judgement {
        Judgement::Jumped(by) => Some(format!(
            "the time has jumped by {:+} s; all replies say unsynchronised until it is back, \
             another source confirms it, or the server is reloaded (SIGHUP) or restarted",
            by.as_seconds().round(),
        )),
        Judgement::TooEarly(utc) => Some(format!(
            "the time is {} s since 1970, which was before this program was made and so is wrong; \
             all replies say unsynchronised",
            utc.to_timespec().0
        )),
        Judgement::Settled => Some("the time that was doubted is served again".into()),
        Judgement::Steady | Judgement::Doubted => None,
    }
}

#[cfg(test)]
mod tests {
    use horolog_source::Slew;
    use horolog_sys::clock::ClockOffset;
    use horolog_time::NS_PER_S;

    use super::*;
    use crate::{Page, ServerConfig, Trust};

    const OFFSET_NS: i64 = 1_700_000_000 * NS_PER_S;

    fn reading(now_s: i64, step: Span) -> Reading {
        Reading {
            now: Timestamp::from_timespec(now_s, 0),
            offset: ClockOffset {
                offset: Span::from_ns(OFFSET_NS) + step,
                uncertainty: Span::from_ns(50),
            },
            kernel: None,
        }
    }

    fn report() -> Report {
        Report {
            at: Timestamp::from_timespec(5, 0),
            offset: Span::from_ms(20),
            frequency_ppb: 40_000,
            slew: Slew::default(),
            uncertainty: Span::from_ns(1_000),
            leap: Leap::Insert,
            tai_minus_utc_s: None,
            next_leap: None,
            stratum: 3,
            reference_id: [192, 0, 2, 1],
            reference: Timestamp::from_ns(OFFSET_NS),
            root_delay: Span::from_ms(8),
            root_dispersion: Span::from_ms(4),
        }
    }

    fn renewal(heard: Heard, change: impl FnOnce(&mut ServerConfig)) -> Renewal {
        let mut config = ServerConfig::default();
        change(&mut config);
        let first = reading(0, Span::ZERO);
        Renewal { heard, ..Renewal::new(&config, -24, &first) }
    }

    /// Served time minus the system's before any step.
    fn error_ns(page: &Page) -> i64 {
        let utc = Timestamp::from_ns(page.timebase.anchor.as_ns() + OFFSET_NS);
        page.timebase.ntp_at_anchor.since(NtpTimestamp::from_utc(utc)).as_ns()
    }

    fn is_unsynchronised(page: &Page) -> bool {
        let SystemVariables { leap, stratum, reference_id, .. } = page.variables;
        (leap, stratum, reference_id) == (Leap::Unsynchronised, 16, [0; 4])
    }

    #[test]
    fn what_was_selected_is_served_and_claimed() {
        let page =
            renewal(Heard::Selected(report()), |_| ()).pages(&reading(7, Span::ZERO)).stepped;
        assert!((error_ns(&page) - 20_080_000).abs() <= 1, "two seconds of 40 us");
        let later = page.timebase.anchor + Span::from_ms(500);
        let gained = page.timebase.ntp_at(later).unwrap().since(page.timebase.ntp_at_anchor);
        assert!((gained.as_ns() - 500_020_000).abs() <= 1, "{gained:?}");
        let variables = page.variables;
        assert_eq!((variables.leap, variables.stratum), (Leap::Insert, 3));
        assert_eq!((variables.precision, variables.reference_id), (-24, [192, 0, 2, 1]));
        assert_eq!(variables.reference, NtpTimestamp::from_utc(report().reference));
        assert_eq!(variables.root_delay, NtpShort::from_span(Span::from_ms(8)));
        let grown = Span::from_ns(4_000_000 + 1_000 + 30_000);
        assert_eq!(variables.root_dispersion, NtpShort::from_span(grown));
    }

    #[test]
    fn a_system_clock_that_is_slewed_is_served_as_it_will_be() {
        // It lags 30 ms behind and gains 60 ms a second, until it is right in half a second.
        let slew = Slew { rate_ppb: -60_000_000, lasts: Span::from_ms(500), doubt_ppb: 60_000_000 };
        let slewed = Report { offset: Span::from_ms(30), frequency_ppb: 0, slew, ..report() };
        let mut renewal = renewal(Heard::Selected(slewed), |_| ());
        let page = renewal.pages(&reading(5, Span::ZERO)).stepped;
        let later = page.timebase.anchor + Span::from_ms(100);
        let gained = page.timebase.ntp_at(later).unwrap().since(page.timebase.ntp_at_anchor);
        assert!((gained.as_ns() - 94_000_000).abs() <= 10, "{gained:?}");
        let right = renewal.pages(&reading(6, Span::ZERO)).stepped;
        assert!(error_ns(&right).abs() <= 1);
        let silent = renewal.pages(&reading(8, Span::ZERO)).stepped.variables.root_dispersion;
        let growth = silent.to_bits() - right.variables.root_dispersion.to_bits();
        assert!(growth > NtpShort::from_span(Span::from_ms(119)).to_bits(), "{growth}");
    }

    #[test]
    fn what_is_configured_wins_over_the_sources() {
        let mut renewal = renewal(Heard::Selected(report()), |config| {
            config.leap = Some(Leap::None);
            config.stratum = 9;
            config.source.keep_stratum = true;
            config.source.keep_root_delay = true;
            config.reference_id = Some(*b"TOLD");
            config.root_dispersion = Some(Span::from_ms(77));
        });
        let variables = renewal.pages(&reading(7, Span::ZERO)).stepped.variables;
        assert_eq!((variables.leap, variables.stratum), (Leap::None, 9));
        assert_eq!(&variables.reference_id, b"TOLD");
        assert_eq!(variables.root_delay, NtpShort::from_bits(0));
        assert_eq!(variables.root_dispersion, NtpShort::from_span(Span::from_ms(77)));
        renewal.config.reference_id = None;
        renewal.config.stratum = 1;
        renewal.heard = Heard::Selected(Report { reference_id: UNDISCIPLINED, ..report() });
        let variables = renewal.pages(&reading(8, Span::ZERO)).stepped.variables;
        assert_eq!(&variables.reference_id, b"LOCL", "a primary server has no address there");
        renewal.config.leap = Some(Leap::Unsynchronised);
        assert!(is_unsynchronised(&renewal.pages(&reading(9, Span::ZERO)).stepped));
    }

    #[test]
    fn without_a_choice_the_server_is_not_synchronised() {
        let page = renewal(Heard::Nobody, |_| ()).pages(&reading(7, Span::ZERO)).stepped;
        assert!(is_unsynchronised(&page));
    }

    #[test]
    fn a_jump_by_years_of_the_system_clock_or_of_the_source_is_not_trusted() {
        let years = Span::from_ns(5 * 31_557_600 * NS_PER_S);
        let mut renewal = renewal(Heard::Selected(report()), |_| ());
        assert!(!is_unsynchronised(&renewal.pages(&reading(5, Span::ZERO)).stepped));
        assert!(is_unsynchronised(&renewal.pages(&reading(6, years)).stepped));
        let notice = renewal.jump_notice.take().unwrap();
        assert!(notice.starts_with("the time has jumped by +157788000 s"), "{notice}");
        assert!(is_unsynchronised(&renewal.pages(&reading(7, years)).stepped));
        assert_eq!(renewal.jump_notice, None, "said once");
        assert!(!is_unsynchronised(&renewal.pages(&reading(8, Span::ZERO)).stepped));
        renewal.heard = Heard::Selected(Report { offset: -years, ..report() });
        assert!(is_unsynchronised(&renewal.pages(&reading(9, Span::ZERO)).stepped));
        for later in [70, 86_400] {
            let page = renewal.pages(&reading(later, Span::ZERO)).stepped;
            assert!(is_unsynchronised(&page), "that it holds still does not make it right");
        }
        renewal.confirmed = Some(Span::from_ns(OFFSET_NS) - years + Span::from_ms(3));
        assert!(!is_unsynchronised(&renewal.pages(&reading(86_401, Span::ZERO)).stepped));
        renewal.confirmed = None;
        assert!(is_unsynchronised(&renewal.pages(&reading(86_402, years)).stepped));
        renewal.reconfigure(&ServerConfig::default());
        assert!(!is_unsynchronised(&renewal.pages(&reading(86_403, years)).stepped));
    }

    #[test]
    fn a_clock_that_is_set_before_it_is_said_to_be_right_has_not_jumped() {
        let mut renewal = renewal(Heard::Nobody, |_| ());
        let years = Span::from_ns(5 * 31_557_600 * NS_PER_S);
        assert!(is_unsynchronised(&renewal.pages(&reading(5, -years)).stepped));
        renewal.heard = Heard::Selected(report());
        assert!(!is_unsynchronised(&renewal.pages(&reading(6, Span::ZERO)).stepped));
        assert_eq!(renewal.jump_notice, None);
    }

    #[test]
    fn a_time_before_the_program_was_made_is_not_served() {
        let made = Timestamp::from_ns(OFFSET_NS);
        let renewal = renewal(Heard::Unasked, |config| config.trust = Trust::Local);
        let mut renewal = renewal.no_earlier_than(made);
        let years = Span::from_ns(31_557_600 * NS_PER_S);
        assert!(is_unsynchronised(&renewal.pages(&reading(5, -years)).stepped));
        let notice = renewal.jump_notice.take().unwrap();
        assert!(notice.starts_with("the time is 1668442405 s since 1970"), "{notice}");
        assert!(!is_unsynchronised(&renewal.pages(&reading(6, Span::ZERO)).stepped));
    }

    #[test]
    fn the_kernel_s_word_does_not_excuse_a_jump_either() {
        let mut renewal = renewal(Heard::Unasked, |config| config.trust = Trust::Local);
        assert!(!is_unsynchronised(&renewal.pages(&reading(5, Span::ZERO)).stepped));
        let years = Span::from_ns(31_557_600 * NS_PER_S);
        assert!(is_unsynchronised(&renewal.pages(&reading(6, years)).stepped));
    }
}
