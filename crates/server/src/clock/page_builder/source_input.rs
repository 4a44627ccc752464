//! Effect of the time sources on a clock page: the correction of the system clock and the system
//! variables, or an unsynchronised page if no source is usable or the time has jumped.

use horolog_source::{
    ClockPage, JumpGuard, JumpVerdict, PlausibilityRuleParameters, ServerLeapSeconds,
    SourceEstimate, SystemVariables, TimeClaim, UNDISCIPLINED_REFERENCE_ID,
};
use horolog_sys::clock::ClockMonotonic;
use horolog_time::leap::{Date, LeapListValidity, LeapSecond};
use horolog_time::{Clock, Monotonic, NtpShort, NtpTimestamp, Span, Timestamp, Utc};
use horolog_wire::ntp::{LeapIndicator, STRATUM_UNSYNCHRONISED};

use super::{ClockPageBuilder, SystemClockReading};
use crate::clock::leap_file::LeapFile;
use crate::clock::leap_transition::LeapOutputs;
use crate::clock::sources::{SharedSourceState, SourceSelectionOutcome};
use crate::config::SystemLeapBehaviour;

/// Time after a leap second for which a source's leap indicator may still be that of before:
/// sources are polled once a second, and a report is valid for 8 s.
const LEAP_REPORT_DELAY: Span = Span::from_ms(10_000);

impl ClockPageBuilder {
    /// Adopts the present result of the sources, and the confirmed time. While the result is being
    /// written, the last one stays.
    pub(crate) fn update_from_sources(&mut self, sources: &SharedSourceState) -> &mut Self {
        if let Some(source_reading) = sources.reading(ClockMonotonic.now()) {
            self.source_reading = source_reading;
        }
        self.confirmed = sources.confirmed();
        self
    }

    /// Passes to the sources' thread the notice from the last page, if any, and, unless the served
    /// time is that of a test, the number of leap seconds since the start and the leap data of the
    /// server itself.
    pub(crate) fn report_to_sources(&mut self, sources: &SharedSourceState) {
        if let Some(notice) = self.jump_notice.take() {
            sources.push_notice(notice);
        }
        if !self.config.has_test_time() {
            sources.set_passed_leaps(self.leap_transition.leaps_s());
            sources.set_known_leaps(self.known_leaps);
        }
    }

    /// Returns the leap data of the server itself: TAI minus UTC by the configuration or the list,
    /// whether there is an unexpired list, and the next leap second if that list contains it. Empty
    /// if the system clock is smeared. A source whose leap data was supplied to it is trusted less.
    pub(super) fn update_known_leaps(&self, outputs: &LeapOutputs) -> ServerLeapSeconds {
        if self.config.leap_seconds.system == SystemLeapBehaviour::Smears {
            return ServerLeapSeconds::default();
        }
        let list = self.leap_file.as_ref().map(LeapFile::list);
        let list =
            list.as_deref().filter(|list| list.validity(outputs.utc) != LeapListValidity::Expired);
        ServerLeapSeconds {
            tai_minus_utc_s: self.tai.known_s(),
            has_list: list.is_some(),
            next: outputs.next.filter(|leap| list.is_some_and(|list| list.leaps().contains(leap))),
        }
    }

    /// Returns TAI minus UTC as reported by the selected source, in seconds; `None` if it reports
    /// none, or no source is selected.
    pub(super) fn source_tai_minus_utc_s(&self) -> Option<i32> {
        match self.source_reading {
            SourceSelectionOutcome::Selected(report) => report.tai_minus_utc_s,
            SourceSelectionOutcome::NotPolled | SourceSelectionOutcome::NoSource => None,
        }
    }

    /// Returns the time of the selected source's report; `None` without a selected source.
    pub(super) fn source_time(&self) -> Option<Timestamp<Monotonic>> {
        match self.source_reading {
            SourceSelectionOutcome::Selected(report) => Some(report.at),
            SourceSelectionOutcome::NotPolled | SourceSelectionOutcome::NoSource => None,
        }
    }

    /// Returns the next leap second that the selected source received from satellites; `None` if
    /// the served time is that of a test.
    pub(super) fn source_next_leap(&self) -> Option<LeapSecond> {
        match self.source_reading {
            SourceSelectionOutcome::Selected(report) if !self.config.has_test_time() => {
                report.next_leap
            }
            _ => None,
        }
    }

    /// Returns the offset of true time from the system clock at `now`, by the selected source; zero
    /// without one.
    pub(super) fn correction(&self, now: Timestamp<Monotonic>) -> Span {
        match &self.source_reading {
            SourceSelectionOutcome::Selected(report) => report.offset_at(now),
            SourceSelectionOutcome::NotPolled | SourceSelectionOutcome::NoSource => Span::ZERO,
        }
    }

    /// Returns the rate at which [`Self::correction`] changes at `now`, in ppb; zero without a
    /// selected source.
    pub(super) fn frequency_ppb(&self, now: Timestamp<Monotonic>) -> i64 {
        match &self.source_reading {
            SourceSelectionOutcome::Selected(report) => report.rate_ppb_at(now),
            SourceSelectionOutcome::NotPolled | SourceSelectionOutcome::NoSource => 0,
        }
    }

    /// Returns the builder with rules by which times are plausible.
    pub(crate) fn with_plausibility(self, rules: PlausibilityRuleParameters) -> Self {
        Self { guard: JumpGuard::with_plausibility(rules), ..self }
    }

    /// Compares the time to be served with that of the last page, and records jumps and implausible
    /// times with their notices. If sources are configured but none is usable, there is nothing to
    /// compare, and the last verdict stays.
    pub(super) fn check_continuity(
        &mut self,
        reading: &SystemClockReading,
        realtime_minus_monotonic: Span,
    ) {
        let is_claimed = match self.source_reading {
            SourceSelectionOutcome::NotPolled => self.is_kernel_trusted(reading),
            SourceSelectionOutcome::Selected(_) => true,
            SourceSelectionOutcome::NoSource => return,
        };
        let now = reading.now;
        let utc_minus_monotonic = realtime_minus_monotonic + self.correction(now);
        let (is_unconfirmed, host_clock) = match &self.source_reading {
            SourceSelectionOutcome::Selected(report) => (report.is_unconfirmed, report.host_clock),
            SourceSelectionOutcome::NotPolled | SourceSelectionOutcome::NoSource => (false, None),
        };
        let confirmed = self.confirmed;
        let claim = TimeClaim {
            now,
            utc_minus_monotonic,
            is_from_source: is_claimed,
            confirmed_time: confirmed,
            host_clock,
            is_unconfirmed,
        };
        let judgement = self.guard.judge(claim);
        let utc = Timestamp::from_ns(now.as_ns().saturating_add(utc_minus_monotonic.as_ns()));
        self.jump_notice = notice(judgement, utc).or(self.jump_notice.take());
        self.jumped = !judgement.is_trusted();
    }

    /// Returns the leap indicator reported by the selected source; [`LeapIndicator::None`] if there
    /// is no such source, a list takes precedence, the system clock is smeared, or the report may
    /// date from before the last leap second.
    pub(super) fn source_leap(&self, outputs: &LeapOutputs) -> LeapIndicator {
        let is_old = outputs
            .latest
            .is_some_and(|leap| outputs.utc - leap.step_instant() < LEAP_REPORT_DELAY);
        let smears = self.config.leap_seconds.system == SystemLeapBehaviour::Smears;
        match self.source_reading {
            SourceSelectionOutcome::Selected(report)
                if self.leap_file.is_none() && !is_old && !smears =>
            {
                report.leap
            }
            _ => LeapIndicator::None,
        }
    }

    /// Returns the system variables of the selected source at `now`, with the leap indicator `leap`
    /// and with the configured values that replace those of the source. They are those of an
    /// unsynchronised clock if `leap` says so, or if the source does and no leap indicator is
    /// configured.
    pub(super) fn source_variables(
        &self,
        report: &SourceEstimate,
        now: Timestamp<Monotonic>,
        leap: LeapIndicator,
    ) -> SystemVariables {
        let Self { config, .. } = self;
        let is_source_unsynchronised =
            report.leap == LeapIndicator::Unsynchronised && config.leap.is_none();
        if leap == LeapIndicator::Unsynchronised || is_source_unsynchronised {
            return self.unsynchronised();
        }
        let is_undisciplined =
            config.source.keep_stratum && report.reference_id == UNDISCIPLINED_REFERENCE_ID;
        let reference_id =
            if is_undisciplined { config.reference_id() } else { report.reference_id };
        let configured_delay = config.source.keep_root_delay.then_some(config.root_delay);
        let dispersion = config.root_dispersion.unwrap_or(report.dispersion_at(now));
        SystemVariables {
            leap,
            stratum: if config.source.keep_stratum { config.stratum } else { report.stratum },
            precision: self.precision,
            root_delay: NtpShort::from_span(configured_delay.unwrap_or(report.root_delay)),
            root_dispersion: NtpShort::from_span(dispersion),
            reference_id: config.reference_id.unwrap_or(reference_id),
            reference: NtpTimestamp::from_utc(report.reference),
        }
    }

    /// Returns the root distance of a page at `now`: by the selected source, unless there is none
    /// or a root dispersion is configured; then half the root delay plus the root dispersion.
    pub(super) fn root_distance(&self, page: &ClockPage, now: Timestamp<Monotonic>) -> Span {
        let claimed = page.variables;
        match &self.source_reading {
            SourceSelectionOutcome::Selected(report) if self.config.root_dispersion.is_none() => {
                report.root_distance_at(now)
            }
            _ => {
                let half_delay = Span::from_ns(claimed.root_delay.to_span().as_ns() / 2);
                half_delay + claimed.root_dispersion.to_span()
            }
        }
    }

    /// Returns the system variables of an unsynchronised clock.
    pub(super) fn unsynchronised(&self) -> SystemVariables {
        SystemVariables {
            leap: LeapIndicator::Unsynchronised,
            stratum: STRATUM_UNSYNCHRONISED,
            precision: self.precision,
            root_delay: NtpShort::from_span(self.config.root_delay),
            root_dispersion: NtpShort::from_span(Span::from_ns(i64::MAX)),
            reference_id: [0; 4],
            reference: NtpTimestamp::UNKNOWN,
        }
    }
}

/// Returns the notice about a verdict on the continuity of time, with the time `utc` to be served;
/// `None` if nothing has changed.
fn notice(judgement: JumpVerdict, utc: Timestamp<Utc>) -> Option<String> {
    match judgement {
        JumpVerdict::Jumped(by) => Some(format!(
            "the time jumped by {:+} s; all replies report unsynchronised until it returns or \
             another source confirms it; if it is right, confirm it with: kill -HUP {}",
            by.as_seconds().round(),
            std::process::id(),
        )),
        JumpVerdict::Implausible(reason) => {
            Some(format!("the time is implausible: {reason}; all replies report unsynchronised"))
        }
        JumpVerdict::Recovered => Some(format!(
            "the time is served again after its implausibility ended: it is {}",
            Date(utc)
        )),
        JumpVerdict::Accepted => {
            Some(format!("the time accepted by the operator is served: it is {}", Date(utc)))
        }
        JumpVerdict::Moved(by) => Some(format!(
            "the time moved by {:+} s to {}; the earlier one was unconfirmed",
            by.as_seconds().round(),
            Date(utc),
        )),
        JumpVerdict::Continuous | JumpVerdict::StillJumped => None,
    }
}

#[cfg(test)]
mod tests {
    use horolog_source::{ClockPage, Slew};
    use horolog_sys::clock::ClockOffset;
    use horolog_time::NS_PER_S;

    use super::*;
    use crate::config::{ClockTrust, ServerConfig};

    const OFFSET_NS: i64 = 1_700_000_000 * NS_PER_S;

    fn reading(now_s: i64, step: Span) -> SystemClockReading {
        SystemClockReading {
            now: Timestamp::from_timespec(now_s, 0),
            offset: ClockOffset {
                offset: Span::from_ns(OFFSET_NS) + step,
                uncertainty: Span::from_ns(50),
            },
            kernel: None,
        }
    }

    fn report() -> SourceEstimate {
        SourceEstimate {
            at: Timestamp::from_timespec(5, 0),
            offset: Span::from_ms(20),
            frequency_ppb: 40_000,
            slew: Slew::default(),
            uncertainty: Span::from_ns(1_000),
            leap: LeapIndicator::Insert,
            tai_minus_utc_s: None,
            next_leap: None,
            stratum: 3,
            reference_id: [192, 0, 2, 1],
            reference: Timestamp::from_ns(OFFSET_NS),
            root_delay: Span::from_ms(8),
            root_dispersion: Span::from_ms(4),
            is_unconfirmed: false,
            host_clock: None,
        }
    }

    fn renewal(
        source_reading: SourceSelectionOutcome,
        change: impl FnOnce(&mut ServerConfig),
    ) -> ClockPageBuilder {
        let mut config = ServerConfig::default();
        change(&mut config);
        let first = reading(0, Span::ZERO);
        ClockPageBuilder { source_reading, ..ClockPageBuilder::new(&config, -24, &first) }
    }

    /// Served time minus the system's before any step.
    fn error_ns(page: &ClockPage) -> i64 {
        let utc = Timestamp::from_ns(page.timebase.anchor.as_ns() + OFFSET_NS);
        page.timebase.ntp_at_anchor.since(NtpTimestamp::from_utc(utc)).as_ns()
    }

    fn is_unsynchronised(page: &ClockPage) -> bool {
        let SystemVariables { leap, stratum, reference_id, .. } = page.variables;
        (leap, stratum, reference_id) == (LeapIndicator::Unsynchronised, 16, [0; 4])
    }

    #[test]
    fn what_was_selected_is_served_and_claimed() {
        let page = renewal(SourceSelectionOutcome::Selected(report()), |_| ())
            .pages(&reading(7, Span::ZERO))
            .stepped;
        assert!((error_ns(&page) - 20_080_000).abs() <= 1, "two seconds of 40 us");
        let later = page.timebase.anchor + Span::from_ms(500);
        let gained = page.timebase.ntp_at(later).unwrap().since(page.timebase.ntp_at_anchor);
        assert!((gained.as_ns() - 500_020_000).abs() <= 1, "{gained:?}");
        let variables = page.variables;
        assert_eq!((variables.leap, variables.stratum), (LeapIndicator::Insert, 3));
        assert_eq!((variables.precision, variables.reference_id), (-24, [192, 0, 2, 1]));
        assert_eq!(variables.reference, NtpTimestamp::from_utc(report().reference));
        assert_eq!(variables.root_delay, NtpShort::from_span(Span::from_ms(8)));
        let grown = Span::from_ns(4_000_000 + 1_000 + 30_000);
        assert_eq!(variables.root_dispersion, NtpShort::from_span(grown));
    }

    #[test]
    fn a_system_clock_that_is_slewed_is_served_as_it_will_be() {
        // It lags 30 ms behind and gains 60 ms a second, until it is right in half a second.
        let slew = Slew {
            rate_ppb: -60_000_000,
            duration: Span::from_ms(500),
            error_bound_ppb: 60_000_000,
        };
        let slewed =
            SourceEstimate { offset: Span::from_ms(30), frequency_ppb: 0, slew, ..report() };
        let mut renewal = renewal(SourceSelectionOutcome::Selected(slewed), |_| ());
        let page = renewal.pages(&reading(5, Span::ZERO)).stepped;
        let later = page.timebase.anchor + Span::from_ms(100);
        let gained = page.timebase.ntp_at(later).unwrap().since(page.timebase.ntp_at_anchor);
        assert!((gained.as_ns() - 94_000_000).abs() <= 10, "{gained:?}");
        let right = renewal.pages(&reading(6, Span::ZERO)).stepped;
        assert!(error_ns(&right).abs() <= 1);
        let later_dispersion =
            renewal.pages(&reading(8, Span::ZERO)).stepped.variables.root_dispersion;
        let growth = later_dispersion.to_bits() - right.variables.root_dispersion.to_bits();
        assert!(growth > NtpShort::from_span(Span::from_ms(119)).to_bits(), "{growth}");
    }

    #[test]
    fn what_is_configured_wins_over_the_sources() {
        let mut renewal = renewal(SourceSelectionOutcome::Selected(report()), |config| {
            config.leap = Some(LeapIndicator::None);
            config.stratum = 9;
            config.source.keep_stratum = true;
            config.source.keep_root_delay = true;
            config.reference_id = Some(*b"TOLD");
            config.root_dispersion = Some(Span::from_ms(77));
        });
        let variables = renewal.pages(&reading(7, Span::ZERO)).stepped.variables;
        assert_eq!((variables.leap, variables.stratum), (LeapIndicator::None, 9));
        assert_eq!(&variables.reference_id, b"TOLD");
        assert_eq!(variables.root_delay, NtpShort::from_bits(0));
        assert_eq!(variables.root_dispersion, NtpShort::from_span(Span::from_ms(77)));
        renewal.config.reference_id = None;
        renewal.config.stratum = 1;
        renewal.source_reading = SourceSelectionOutcome::Selected(SourceEstimate {
            reference_id: UNDISCIPLINED_REFERENCE_ID,
            ..report()
        });
        let variables = renewal.pages(&reading(8, Span::ZERO)).stepped.variables;
        assert_eq!(&variables.reference_id, b"LOCL", "a primary server has no address there");
        renewal.config.leap = Some(LeapIndicator::Unsynchronised);
        assert!(is_unsynchronised(&renewal.pages(&reading(9, Span::ZERO)).stepped));
    }

    #[test]
    fn without_a_choice_the_server_is_not_synchronised() {
        let page = renewal(SourceSelectionOutcome::NoSource, |_| ())
            .pages(&reading(7, Span::ZERO))
            .stepped;
        assert!(is_unsynchronised(&page));
    }

    #[test]
    fn a_jump_by_years_of_the_system_clock_or_of_the_source_is_not_trusted() {
        let years = Span::from_ns(5 * 31_557_600 * NS_PER_S);
        let mut renewal = renewal(SourceSelectionOutcome::Selected(report()), |_| ());
        assert!(!is_unsynchronised(&renewal.pages(&reading(5, Span::ZERO)).stepped));
        assert!(is_unsynchronised(&renewal.pages(&reading(6, years)).stepped));
        let notice = renewal.jump_notice.take().unwrap();
        assert!(notice.starts_with("the time jumped by +157788000 s"), "{notice}");
        assert!(is_unsynchronised(&renewal.pages(&reading(7, years)).stepped));
        assert_eq!(renewal.jump_notice, None, "said once");
        assert!(!is_unsynchronised(&renewal.pages(&reading(8, Span::ZERO)).stepped));
        renewal.source_reading =
            SourceSelectionOutcome::Selected(SourceEstimate { offset: -years, ..report() });
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
    fn a_time_that_nothing_confirmed_gives_way_and_a_wrong_one_to_the_host_s_clock() {
        let years = Span::from_ns(5 * 31_557_600 * NS_PER_S);
        let wrong = SourceEstimate { is_unconfirmed: true, offset: years, ..report() };
        let mut renewal = renewal(SourceSelectionOutcome::Selected(wrong), |_| ());
        renewal.pages(&reading(5, Span::ZERO));
        renewal.source_reading =
            SourceSelectionOutcome::Selected(SourceEstimate { is_unconfirmed: true, ..report() });
        assert!(!is_unsynchronised(&renewal.pages(&reading(6, Span::ZERO)).stepped));
        let notice = renewal.jump_notice.take().unwrap();
        assert!(notice.contains("to 2023-11-14; the earlier one was unconfirmed"), "{notice}");
        // Confirmed, then wrong and accepted, then right.
        renewal.source_reading = SourceSelectionOutcome::Selected(report());
        renewal.pages(&reading(7, Span::ZERO));
        renewal.source_reading =
            SourceSelectionOutcome::Selected(SourceEstimate { offset: years, ..report() });
        assert!(is_unsynchronised(&renewal.pages(&reading(8, Span::ZERO)).stepped));
        renewal.reconfigure(&ServerConfig::default());
        assert!(!is_unsynchronised(&renewal.pages(&reading(9, Span::ZERO)).stepped));
        let notice = renewal.jump_notice.take().unwrap();
        assert!(
            notice.contains("accepted by the operator is served: it is 2028-11-14"),
            "{notice}"
        );
        let host_clock = Some(Span::from_ns(OFFSET_NS));
        renewal.source_reading =
            SourceSelectionOutcome::Selected(SourceEstimate { host_clock, ..report() });
        assert!(!is_unsynchronised(&renewal.pages(&reading(10, Span::ZERO)).stepped));
    }

    #[test]
    fn a_clock_stepped_before_a_source_is_selected_has_not_jumped() {
        let mut renewal = renewal(SourceSelectionOutcome::NoSource, |_| ());
        let years = Span::from_ns(5 * 31_557_600 * NS_PER_S);
        assert!(is_unsynchronised(&renewal.pages(&reading(5, -years)).stepped));
        renewal.source_reading = SourceSelectionOutcome::Selected(report());
        assert!(!is_unsynchronised(&renewal.pages(&reading(6, Span::ZERO)).stepped));
        assert_eq!(renewal.jump_notice, None);
    }

    #[test]
    fn a_time_before_the_build_or_decades_after_it_is_not_served() {
        let build = Timestamp::from_ns(OFFSET_NS);
        let years = Span::from_ns(31_557_600 * NS_PER_S);
        for (wrong, date) in [(-years, "2022-11-14"), (years + years, "2025-11-14")] {
            let renewal = renewal(SourceSelectionOutcome::NotPolled, |config| {
                config.trust = ClockTrust::Local;
            });
            let reach = PlausibilityRuleParameters::span_of_years(1);
            let mut renewal = renewal.with_plausibility(PlausibilityRuleParameters {
                build,
                validity: reach,
                ..PlausibilityRuleParameters::default()
            });
            assert!(is_unsynchronised(&renewal.pages(&reading(5, wrong)).stepped));
            let notice = renewal.jump_notice.take().unwrap();
            let begins = format!("the time is implausible: reported time {date}");
            assert!(notice.starts_with(&begins), "{notice}");
            assert!(!is_unsynchronised(&renewal.pages(&reading(6, Span::ZERO)).stepped));
        }
    }

    #[test]
    fn the_kernel_s_word_does_not_excuse_a_jump_either() {
        let mut renewal =
            renewal(SourceSelectionOutcome::NotPolled, |config| config.trust = ClockTrust::Local);
        assert!(!is_unsynchronised(&renewal.pages(&reading(5, Span::ZERO)).stepped));
        let years = Span::from_ns(31_557_600 * NS_PER_S);
        assert!(is_unsynchronised(&renewal.pages(&reading(6, years)).stepped));
    }
}
