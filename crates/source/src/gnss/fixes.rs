//! Fix state of several receivers, identified by talker on a serial line and by device in gpsd. RMC
//! reports the fix itself. ZDA does not, and receivers may send it without a fix; then other
//! sentences report that. Pure.

use std::collections::VecDeque;

use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp};

use super::sentence::{ParsedSentence, SentenceError, SentenceFields, Talker};

/// Validity of a fix report: receivers may send RMC less often than ZDA.
const REPORT_VALIDITY: Span = Span::from_ns(10 * NS_PER_S);
/// Time for which a GSA of an unused satellite system does not override another fix report.
const SYSTEM_REPORT_INTERVAL: Span = Span::from_ns(2 * NS_PER_S);
/// Most receivers that are tracked. A single receiver may use several talkers: one for each
/// satellite system, and one for all.
const RECEIVERS_MAX: usize = 16;

/// Latest report of each receiver, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct FixStates<R = Talker> {
    reports: VecDeque<(R, bool, Timestamp<Monotonic>)>,
    /// Instant of the last GSA with a fix; `None` before the first.
    last_gsa_fix: Option<Timestamp<Monotonic>>,
}

impl<R> Default for FixStates<R> {
    fn default() -> Self {
        Self { reports: VecDeque::new(), last_gsa_fix: None }
    }
}

impl FixStates {
    /// Processes a sentence whose first character arrived at `at`. Returns true if it contains a
    /// time and reports a fix itself, or its receiver may have one
    /// ([`may_have_fix`](Self::may_have_fix)).
    pub(crate) fn apply_sentence(
        &mut self,
        sentence: &Result<ParsedSentence, SentenceError>,
        at: Timestamp<Monotonic>,
    ) -> bool {
        self.expire(at);
        match sentence {
            Ok(ParsedSentence { talker, reports_fix: true, .. }) => self.record(*talker, true, at),
            Err(SentenceError::NoFix(talker, _)) => self.record(*talker, false, at),
            Ok(ParsedSentence { talker, .. }) => return self.may_have_fix(talker),
            Err(_) => {}
        }
        sentence.is_ok()
    }

    /// Processes a fix report that arrived at `at`. A report for a single satellite system is never
    /// recorded as a fix, and as the lack of one only while no other recent report shows a fix.
    pub(crate) fn apply_report(&mut self, note: TalkerFixStatus, at: Timestamp<Monotonic>) {
        self.expire(at);
        if !note.is_of_one_system {
            return self.record(note.talker, note.has_fix, at);
        }
        let mut fixes = self.reports.iter().filter(|(_, has_fix, _)| *has_fix);
        let is_recent = |when: Timestamp<Monotonic>| at - when < SYSTEM_REPORT_INTERVAL;
        if note.has_fix {
            self.last_gsa_fix = Some(at);
        } else if !fixes.any(|(.., when)| is_recent(*when))
            && !self.last_gsa_fix.is_some_and(is_recent)
        {
            self.record(note.talker, false, at);
        }
    }
}

impl<R: PartialEq> FixStates<R> {
    /// Removes reports that are too old at `now`.
    pub(crate) fn expire(&mut self, now: Timestamp<Monotonic>) {
        self.reports.retain(|(.., reported)| now - *reported < REPORT_VALIDITY);
    }

    /// Records the fix state of a receiver at `at`, unless a later one is known.
    pub(crate) fn record(&mut self, receiver: R, has_fix: bool, at: Timestamp<Monotonic>) {
        let is_later = |(other, _, when): &(R, _, _)| *other == receiver && *when > at;
        if self.reports.iter().any(is_later) {
            return;
        }
        self.reports.retain(|(other, ..)| *other != receiver);
        if self.reports.len() == RECEIVERS_MAX {
            self.reports.pop_front();
        }
        self.reports.push_back((receiver, has_fix, at));
    }

    /// Returns true if there are reports and none of them shows a fix.
    pub(crate) fn has_no_fix(&self) -> bool {
        !self.reports.is_empty() && self.reports.iter().all(|(_, has_fix, _)| !has_fix)
    }

    /// Returns true if the receiver reports a fix. If it has no report, every other receiver must
    /// report one, because the ZDA and RMC of one receiver may have different talkers.
    pub(crate) fn may_have_fix(&self, receiver: &R) -> bool {
        let report = self.reports.iter().find(|(other, ..)| other == receiver);
        report.map_or_else(
            || self.reports.iter().all(|(_, has_fix, _)| *has_fix),
            |(_, has_fix, _)| *has_fix,
        )
    }
}

/// GGA quality indicators without a satellite fix: invalid, dead reckoning, manual, simulator.
const QUALITIES_WITHOUT_FIX: [&[u8]; 4] = [b"0", b"6", b"7", b"8"];
/// Mode indicators without a satellite fix: not valid, estimated, manual, simulator.
pub(super) const MODES_WITHOUT_FIX: &[u8] = b"NEMS";

/// Fix report of a talker's receiver, from a sentence without a date.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TalkerFixStatus {
    /// Talker of the sentence.
    pub(super) talker: Talker,
    /// True if there is a fix.
    pub(super) has_fix: bool,
    /// True for GSA, which some receivers send for each satellite system, used or not.
    pub(super) is_of_one_system: bool,
}

impl TalkerFixStatus {
    /// Parses the text between `$` and `*`; `None` if the sentence contains no fix report.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (talker, fields) = text.as_bytes().split_first_chunk()?;
        let fields = SentenceFields::from_text(fields);
        let kind = fields.get(0)?;
        let field = |index| fields.get(index).filter(|field| !field.is_empty());
        let is_no_mode = |mode: &u8| MODES_WITHOUT_FIX.contains(&mode.to_ascii_uppercase());
        let has_fix = match kind {
            b"GGA" => !QUALITIES_WITHOUT_FIX.contains(&field(6)?),
            b"GLL" => {
                let is_valid = field(6)?.eq_ignore_ascii_case(b"A");
                is_valid && !field(7).is_some_and(|mode| mode.iter().all(is_no_mode))
            }
            b"GNS" => !field(6)?.iter().all(is_no_mode),
            b"GSA" => field(2)? != b"1",
            _ => return None,
        };
        Some(Self { talker: *talker, has_fix, is_of_one_system: kind == b"GSA" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIX: &str = "RMC,081253,A,,,,,,,270219,,,A";
    const VOID: &str = "RMC,,V,,,,,,,,,,N";
    const ZDA: &str = "ZDA,081253,27,02,2019,,";

    /// Takes sentences by talker and text, one each second; returns true if the last was taken.
    fn last(sentences: &[(&str, &str)]) -> bool {
        let (mut fixes, mut is_taken) = (FixStates::default(), false);
        for (second, (talker, text)) in sentences.iter().enumerate() {
            let sentence = ParsedSentence::parse(&format!("{talker}{text}")).unwrap();
            is_taken =
                fixes.apply_sentence(&sentence, Timestamp::from_ns(second as i64 * NS_PER_S));
        }
        is_taken
    }

    #[test]
    fn a_void_of_one_receiver_does_not_revoke_the_fix_of_another() {
        assert!(last(&[("GA", VOID), ("GN", FIX)]));
        assert!(last(&[("GN", FIX), ("GA", VOID), ("GN", ZDA)]));
        assert!(last(&[("GA", VOID), ("GN", FIX), ("GA", VOID), ("GN", ZDA)]));
        assert!(!last(&[("GN", FIX), ("GA", VOID)]));
    }

    #[test]
    fn a_receiver_without_a_fix_is_void_in_its_zda_as_well() {
        assert!(last(&[("GP", ZDA)]), "it never said");
        assert!(!last(&[("GN", VOID), ("GN", ZDA)]));
        assert!(!last(&[("GN", VOID), ("GP", ZDA)]), "by another talker");
        assert!(!last(&[("GN", FIX), ("GA", VOID), ("GP", ZDA)]), "of either");
        assert!(!last(&[("GN", FIX), ("GN", VOID), ("GN", ZDA)]));
        assert!(last(&[("GN", VOID), ("GN", FIX), ("GP", ZDA)]));
        let seldom =
            [("GN", VOID), ("GN", ZDA), ("GN", ZDA), ("GN", ZDA), ("GN", ZDA), ("GN", ZDA)];
        assert!(!last(&seldom), "its RMC comes each five seconds");
    }

    /// Fixes of one second, with sentences without a date among them.
    fn last_of(texts: &[&str]) -> bool {
        let (mut fixes, mut is_taken) = (FixStates::default(), false);
        for (number, text) in texts.iter().enumerate() {
            let at = Timestamp::from_ns(number as i64);
            if let Some(note) = TalkerFixStatus::parse(text) {
                fixes.apply_report(note, at);
            } else {
                is_taken = fixes.apply_sentence(&ParsedSentence::parse(text).unwrap(), at);
            }
        }
        is_taken
    }

    #[test]
    fn a_date_without_a_fix_is_no_time_and_with_one_it_is() {
        let zda = "GPZDA,081253,27,02,2019,,";
        let (none, fix) = ("GPGGA,081253.00,,,,,0", "GPGGA,081253.00,,,,,1");
        for void in
            [none, "GPGSA,A,1", "GPGLL,,,,,081253.00,V,N", "GNGNS,081253.00,,,,,NN,00,99.99"]
        {
            assert!(!last_of(&[void, zda]), "{void}");
            assert!(!last_of(&[fix, none, void, zda]), "{void}");
        }
        assert!(last_of(&[none, fix, zda]));
        assert!(last_of(&[fix, "GPGSA,A,3", "GLGSA,A,1", zda]), "a system that is not used");
        assert!(last_of(&["GNGSA,A,3", "GNGSA,A,1", zda]), "with GSA alone");
        assert!(!last_of(&[none, "GPGSA,A,3", zda]), "by dead reckoning");
        assert!(last_of(&[none, "GPRMC,081253,A,,,,,,,270219,,,A"]), "RMC reports it itself");
    }

    #[test]
    fn any_number_of_talkers_is_bounded_and_reports_grow_old() {
        let mut fixes = FixStates::default();
        for number in 0..100_u8 {
            let void = Err(SentenceError::NoFix([b'G', number], super::super::NoFix::Void));
            assert!(!fixes.apply_sentence(&void, Timestamp::from_ns(0)));
        }
        assert_eq!(fixes.reports.len(), RECEIVERS_MAX);
        let zda = ParsedSentence::parse(&format!("GP{ZDA}")).unwrap();
        assert!(!fixes.apply_sentence(&zda, Timestamp::from_ns(1)));
        assert!(fixes.apply_sentence(&zda, Timestamp::from_ns(REPORT_VALIDITY.as_ns())));
    }

    #[test]
    fn sentences_without_a_date_report_a_fix_or_none() {
        for (text, expected) in [
            ("GPGGA,081253.00,,,,,0,00,99.99,,,,,,", Some(false)),
            ("GPGGA,081253.00,4807.0,N,01131.0,E,6,00,99.99,,,,,,", Some(false)),
            ("GPGGA,081253.00,4807.0,N,01131.0,E,1,08,0.9,545.4,M,46.9,M,,", Some(true)),
            ("GPGGA,081253.00,4807.0,N,01131.0,E,9,08,0.9,545.4,M,46.9,M,,", Some(true)),
            ("GPGGA,081253.00", None),
            ("GPGGA,,,,,,,,,,,,,,", None),
            ("GPGLL,,,,,081253.00,V,N", Some(false)),
            ("GPGLL,4807.0,N,01131.0,E,081253.00,A", Some(true)),
            ("GPGLL,4807.0,N,01131.0,E,081253.00,A,D", Some(true)),
            ("GPGLL,4807.0,N,01131.0,E,081253.00,A,n", Some(false)),
            ("GNGNS,081253.00,,,,,NN,00,99.99,,,,", Some(false)),
            ("GNGNS,081253.00,4807.0,N,01131.0,E,NA,05,1.1,,,,", Some(true)),
            ("GPGSA,A,1,,,,,,,,,,,,,99.99,99.99,99.99", Some(false)),
            ("GPGSA,A,3,04,05,,,,,,,,,,,2.5,1.3,2.1", Some(true)),
            ("GPRMC,081253,A,,,,,,,270219,,,A", None),
            ("GP", None),
            ("", None),
        ] {
            assert_eq!(TalkerFixStatus::parse(text).map(|note| note.has_fix), expected, "{text}");
        }
    }
}
