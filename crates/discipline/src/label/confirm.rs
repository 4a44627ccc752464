//! Effect of sentences on the count of seconds: they establish, confirm or dispute it.

use horolog_time::leap::LeapSecond;
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp};

use super::count::{self, SecondCountAnchor};
use super::{COARSE_TOLERANCE, PulseLabeller};
use crate::{
    ImplausibilityReason, PulseLabellerSettings, PulseRejectReason, Sentence, SentenceRejectReason,
    rollover_count,
};

const DAY_S: i64 = 86_400;
/// Distance from a leap second, in seconds, within which a count that differs by one second needs
/// only `sentences_to_establish` sentences.
const LEAP_WINDOW_S: i64 = 60;

impl PulseLabeller {
    /// Takes a sentence as a vote for the established count or for another one.
    ///
    /// # Errors
    ///
    /// The reason for which the sentence does not confirm the established count or count towards a
    /// new one. A sentence that disagrees is an error, but also a vote for another count.
    pub fn add_sentence(&mut self, sentence: &Sentence) -> Result<(), SentenceRejectReason> {
        if !sentence.is_valid {
            return Err(SentenceRejectReason::Void);
        }
        if sentence.is_leap_second {
            // Leap seconds end a day: any other 60 is a rounding by the receiver.
            let ends_day = (sentence.second.as_ns() / NS_PER_S + 1) % DAY_S == 0;
            self.has_unannounced_leap |= self.leap.is_none() && ends_day;
            return Err(SentenceRejectReason::LeapSecond);
        }
        let (second, fraction_ns) = sentence.second.to_timespec();
        if self.last_named.replace(second) == Some(second) {
            return Err(SentenceRejectReason::Repeated);
        }
        // Arrival shifted to the start of the named second.
        let second_start = sentence.received - Span::from_ns(fraction_ns.into());
        let coarse_result =
            self.update_coarse_count(SecondCountAnchor { second, at: second_start });
        self.expire(sentence.received);
        match self.count {
            Some(count) => self.confirm(count, sentence),
            None => self.establish(sentence).map_err(|reject| match (reject, coarse_result) {
                (SentenceRejectReason::NoPulse, Err(disagrees)) => disagrees,
                _ => reject,
            }),
        }
    }

    /// Compares a sentence with the count by sentences alone, and establishes or replaces that
    /// count once enough sentences in a row agree.
    fn update_coarse_count(
        &mut self,
        named: SecondCountAnchor,
    ) -> Result<(), SentenceRejectReason> {
        let PulseLabellerSettings { sentences_to_establish, sentences_to_change, gap_max, .. } =
            self.settings;
        let vote = SecondCountCandidate::update(&mut self.coarse_vote, named, COARSE_TOLERANCE);
        let current_count = self.coarse_count.filter(|count| named.at - count.at <= gap_max);
        let difference_s =
            current_count.map_or(0, |count| named.second - count.nearest_count(named.at).0.second);
        let needed = match current_count {
            None => sentences_to_establish,
            Some(_) if difference_s == 0 => 0,
            Some(_) if difference_s.abs() == 1 && self.is_near_leap(named.second) => {
                sentences_to_establish
            }
            Some(_) => sentences_to_change,
        };
        if vote.votes >= needed {
            self.coarse_count = Some(named);
            return Ok(());
        }
        self.coarse_count = current_count;
        let difference = Span::from_ns(difference_s.saturating_mul(NS_PER_S));
        current_count.map_or(Ok(()), |_| Err(SentenceRejectReason::Disagrees(difference)))
    }

    /// Returns true within [`LEAP_WINDOW_S`] of an announced leap second, or if a sentence has
    /// reported one that was not announced.
    fn is_near_leap(&self, second: i64) -> bool {
        let is_near = |leap: &LeapSecond| {
            (second - leap.step_instant().as_ns().div_euclid(NS_PER_S)).abs() <= LEAP_WINDOW_S
        };
        self.has_unannounced_leap || self.leap.as_ref().is_some_and(is_near)
    }

    /// Takes a sentence as a vote for a count while none is established.
    fn establish(&mut self, sentence: &Sentence) -> Result<(), SentenceRejectReason> {
        if let Some(width) = self.wrong_edge_width() {
            return Err(SentenceRejectReason::Pulse(PulseRejectReason::Polarity(width)));
        }
        if let Some(reject) = self.rate_reject(sentence.received) {
            return Err(SentenceRejectReason::Pulse(reject));
        }
        let regular = self
            .recent_pulses
            .regular_pulses(sentence.received, self.settings.tolerance)
            .next_back();
        let at = regular.ok_or(SentenceRejectReason::NoPulse)?;
        let second = self.named_second(sentence, sentence.received - at)?;
        let named = SecondCountAnchor { second, at };
        let vote = SecondCountCandidate::update(&mut self.vote, named, self.settings.tolerance);
        if vote.votes >= self.settings.sentences_to_establish {
            self.adopt(named, sentence.received);
        }
        Ok(())
    }

    /// Compares a sentence with the established count: it confirms the count, or is a vote for
    /// another, which is an error even if it replaces the count.
    fn confirm(
        &mut self,
        count: SecondCountAnchor,
        sentence: &Sentence,
    ) -> Result<(), SentenceRejectReason> {
        let (second, lag) = count.second_at(sentence.received);
        let named = self.named_second(sentence, lag)?;
        let Some(expected) = count::utc_of(second, self.leap) else {
            return Err(SentenceRejectReason::LeapSecond);
        };
        if named == expected {
            self.confirmed_at = sentence.received;
            self.vote = None;
            // Seconds continue as they were counted, so there was no leap.
            self.has_unannounced_leap = false;
            return Ok(());
        }
        let difference = Span::from_ns((named - expected).saturating_mul(NS_PER_S));
        if let Some(times) = rollover_count(difference) {
            return Err(SentenceRejectReason::Implausible(ImplausibilityReason::Rollover(times)));
        }
        let reject = SentenceRejectReason::Disagrees(difference);
        // Start of the second with which the sentence is compared, under the number that the
        // sentence names.
        let named_start = SecondCountAnchor { second: named, at: sentence.received - lag };
        let vote =
            SecondCountCandidate::update(&mut self.vote, named_start, self.settings.tolerance);
        let is_leap = self.has_unannounced_leap && named + 1 == expected;
        let needed = if is_leap {
            self.settings.sentences_to_establish
        } else {
            self.settings.sentences_to_change
        };
        if vote.votes >= needed {
            self.adopt(named_start, sentence.received);
        }
        Err(reject)
    }

    fn adopt(&mut self, count: SecondCountAnchor, now: Timestamp<Monotonic>) {
        self.count = Some(count);
        self.leap = self.leap.filter(|leap| count.second < leap.midnight.as_ns() / NS_PER_S);
        self.confirmed_at = now;
        self.vote = None;
        self.has_unannounced_leap = false;
    }

    /// Returns the second of the pulse `since_pulse` before a sentence. Receivers that do not align
    /// their fixes to seconds name an instant within a second, or just before the pulse. The
    /// sentence arrives less than a second after that instant, so exactly one whole second is
    /// possible for the pulse.
    fn named_second(
        &self,
        sentence: &Sentence,
        since_pulse: Span,
    ) -> Result<i64, SentenceRejectReason> {
        let PulseLabellerSettings { lag_min, lag_max, .. } = self.settings;
        let at_pulse = (sentence.second - since_pulse).as_ns();
        let second = at_pulse.div_euclid(NS_PER_S) + i64::from(at_pulse.rem_euclid(NS_PER_S) > 0);
        let lag = Span::from_ns(second.saturating_mul(NS_PER_S).saturating_sub(at_pulse));
        let lag = if since_pulse.as_ns() < NS_PER_S { lag } else { since_pulse };
        if lag < lag_min || lag > lag_max {
            Err(SentenceRejectReason::Lag(lag))
        } else {
            Ok(second)
        }
    }
}

/// Count named by the last sentences, and the number of consecutive sentences that named it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SecondCountCandidate {
    pub(super) count: SecondCountAnchor,
    pub(super) votes: u32,
}

impl SecondCountCandidate {
    /// Adds the vote of a sentence and returns the result. A count other than that of the previous
    /// sentence starts again with one vote.
    pub(super) fn update(
        vote: &mut Option<Self>,
        named: SecondCountAnchor,
        tolerance: Span,
    ) -> Self {
        let previous = vote.filter(|vote| {
            let (expected, distance) = vote.count.nearest_count(named.at);
            // Sentences may be missing in between; the clock may drift by the tolerance in every
            // second.
            let seconds = 1 + (named.at - vote.count.at).as_seconds().abs() as i64;
            expected.second == named.second && distance.as_ns().abs() <= tolerance.as_ns() * seconds
        });
        let votes = previous.map_or(1, |before| before.votes.saturating_add(1));
        *vote.insert(Self { count: named, votes })
    }
}
