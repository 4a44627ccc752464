//! Fix state of several receivers: those on one line, by their talkers, and those of a gpsd, by
//! their devices. RMC reports its own; ZDA does not, and a receiver without a fix may continue to
//! send it, with others that report it. Pure.

use std::collections::VecDeque;

use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp};

use super::fix_note::FixNote;
use super::sentence::{ParsedSentence, SentenceError, Talker};

/// Validity of a report: receivers may send RMC less often than ZDA.
const HOLDS: Span = Span::from_ns(10 * NS_PER_S);
/// Time for which a GSA for an unused system of satellites does not contradict a fix.
const SYSTEMS_TURN: Span = Span::from_ns(2 * NS_PER_S);
/// Maximum number of receivers. One of them has a talker for each system of satellites, and one for
/// all.
const RECEIVERS_MAX: usize = 16;

/// Last report of each receiver, the latest last.
#[derive(Clone, Debug)]
pub(crate) struct Fixes<R = Talker> {
    reports: VecDeque<(R, bool, Timestamp<Monotonic>)>,
    /// Instant of the last GSA with a fix.
    by_system: Option<Timestamp<Monotonic>>,
}

impl<R> Default for Fixes<R> {
    fn default() -> Self {
        Self { reports: VecDeque::new(), by_system: None }
    }
}

impl Fixes {
    /// Takes a sentence that began at `at`. Returns true if it names a time of a receiver that has
    /// a fix, or of one that never reported.
    pub(crate) fn take(
        &mut self,
        sentence: &Result<ParsedSentence, SentenceError>,
        at: Timestamp<Monotonic>,
    ) -> bool {
        self.expire(at);
        match sentence {
            Ok(ParsedSentence { talker, reports_fix: true, .. }) => self.note(*talker, true, at),
            Err(SentenceError::NoFix(talker, _)) => self.note(*talker, false, at),
            Ok(ParsedSentence { talker, .. }) => return self.may_have_fix(talker),
            Err(_) => {}
        }
        sentence.is_ok()
    }

    /// Takes the report of a sentence without a date that began at `at`. One for a single system of
    /// satellites counts if no other report is of a fix.
    pub(crate) fn report(&mut self, note: FixNote, at: Timestamp<Monotonic>) {
        self.expire(at);
        if !note.is_of_one_system {
            return self.note(note.talker, note.has_fix, at);
        }
        let mut fixes = self.reports.iter().filter(|(_, has_fix, _)| *has_fix);
        let is_recent = |when: Timestamp<Monotonic>| at - when < SYSTEMS_TURN;
        if note.has_fix {
            self.by_system = Some(at);
        } else if !fixes.any(|(.., when)| is_recent(*when))
            && !self.by_system.is_some_and(is_recent)
        {
            self.note(note.talker, false, at);
        }
    }
}

impl<R: PartialEq> Fixes<R> {
    /// Forgets reports that are too old at `now`: their receiver is gone.
    pub(crate) fn expire(&mut self, now: Timestamp<Monotonic>) {
        self.reports.retain(|(.., reported)| now - *reported < HOLDS);
    }

    /// Takes a receiver's own report at `at`, unless a later one is known.
    pub(crate) fn note(&mut self, receiver: R, has_fix: bool, at: Timestamp<Monotonic>) {
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

    /// Returns true if every receiver that made a report has no fix.
    pub(crate) fn is_none(&self) -> bool {
        !self.reports.is_empty() && self.reports.iter().all(|(_, has_fix, _)| !has_fix)
    }

    /// Returns true if a receiver's own report is of a fix. If it made none, the time may belong to
    /// any of those that did: a receiver's ZDA and RMC may have different talkers.
    pub(crate) fn may_have_fix(&self, receiver: &R) -> bool {
        let own = self.reports.iter().find(|(other, ..)| other == receiver);
        own.map_or_else(
            || self.reports.iter().all(|(_, has_fix, _)| *has_fix),
            |(_, has_fix, _)| *has_fix,
        )
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
        let (mut fixes, mut is_taken) = (Fixes::default(), false);
        for (second, (talker, text)) in sentences.iter().enumerate() {
            let sentence = ParsedSentence::read(&format!("{talker}{text}")).unwrap();
            is_taken = fixes.take(&sentence, Timestamp::from_ns(second as i64 * NS_PER_S));
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
        let (mut fixes, mut is_taken) = (Fixes::default(), false);
        for (number, text) in texts.iter().enumerate() {
            let at = Timestamp::from_ns(number as i64);
            if let Some(note) = FixNote::read(text) {
                fixes.report(note, at);
            } else {
                is_taken = fixes.take(&ParsedSentence::read(text).unwrap(), at);
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
        let mut fixes = Fixes::default();
        for number in 0..100_u8 {
            let void = Err(SentenceError::NoFix([b'G', number], super::super::NoFix::Void));
            assert!(!fixes.take(&void, Timestamp::from_ns(0)));
        }
        assert_eq!(fixes.reports.len(), RECEIVERS_MAX);
        let zda = ParsedSentence::read(&format!("GP{ZDA}")).unwrap();
        assert!(!fixes.take(&zda, Timestamp::from_ns(1)));
        assert!(fixes.take(&zda, Timestamp::from_ns(HOLDS.as_ns())));
    }
}
