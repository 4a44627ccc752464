//! Plausibility of sentences. A sentence with an implausible time does not reach the labeller, so
//! it neither labels a pulse nor sets a clock. Several consecutive ones become a claim that other
//! sources or the operator can confirm.

use horolog_discipline::{
    ImplausibilityReason, PlausibilityEvidence, PlausibilityReason, SentenceOnlyTime, Servo,
    is_within_a_day,
};
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};

use super::Calibrator;
use crate::{ClockReadings, ParsedSentence, SourceEstimate};

/// Number of consecutive sentences that make a claim.
const CLAIM_SENTENCES_MIN: u32 = 3;
/// Largest difference of UTC minus `CLOCK_MONOTONIC` between consecutive sentences of one claim.
const JITTER_MAX: Span = Span::from_ms(1_500);
/// Largest age of the last sentence of a claim.
const AGE_MAX: Span = Span::from_ns(10 * NS_PER_S);

/// Consecutive sentences whose times are implausible and continue one another.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnconfirmedSentences {
    at: Timestamp<Monotonic>,
    sentence_utc: Timestamp<Utc>,
    sentences: u32,
}

impl UnconfirmedSentences {
    fn utc_minus_monotonic(&self) -> Span {
        Span::from_ns(self.sentence_utc.as_ns().saturating_sub(self.at.as_ns()))
    }

    /// Returns the state after a sentence that continues `previous` or begins anew.
    fn continue_or_begin(
        previous: Option<Self>,
        sentence_utc: Timestamp<Utc>,
        at: Timestamp<Monotonic>,
    ) -> Self {
        let first = Self { at, sentence_utc, sentences: 1 };
        let continues = |before: &Self| {
            is_continuous(first.utc_minus_monotonic(), before.utc_minus_monotonic())
        };
        match previous.filter(continues) {
            // Another kind of sentence for the same second.
            Some(before) if before.sentence_utc == sentence_utc => before,
            Some(before) => Self { sentences: before.sentences.saturating_add(1), ..first },
            None => first,
        }
    }
}

fn is_continuous(one: Span, other: Span) -> bool {
    (one - other).as_ns().unsigned_abs() <= JITTER_MAX.as_ns().unsigned_abs()
}

impl Calibrator {
    /// Checks the plausibility of a sentence's time, which arrived at `at`. An implausible time
    /// that can be confirmed continues or begins a claim; any other sentence ends the claim.
    pub(super) fn check_plausibility(
        &mut self,
        sentence: &ParsedSentence,
        at: Timestamp<Monotonic>,
        readings: &ClockReadings,
    ) -> Result<(), ImplausibilityReason> {
        let utc_minus_monotonic = Span::from_ns(sentence.utc.as_ns().saturating_sub(at.as_ns()));
        let system = readings.realtime_minus_monotonic;
        // A clock that these sentences have set is no independent evidence.
        let is_set_by_sentences =
            self.unconfirmed_clock_setting().is_some_and(|ahead| is_within_a_day(ahead, system));
        let system = (!is_set_by_sentences).then_some(system);
        let result = self.judge.judge_without_record(
            &PlausibilityEvidence { now: at, system, others: &[] },
            utc_minus_monotonic,
        );
        if let Ok(support) = result {
            self.unconfirmed =
                (support == PlausibilityReason::Unopposed).then_some(utc_minus_monotonic);
        }
        let judged = result.map(drop);
        self.unconfirmed_sentences = match judged {
            Err(reason) if reason.is_confirmable() => {
                Some(UnconfirmedSentences::continue_or_begin(
                    self.unconfirmed_sentences,
                    sentence.utc,
                    at,
                ))
            }
            _ => None,
        };
        judged
    }

    /// Returns UTC minus `CLOCK_MONOTONIC` to which this calibration has set the clock without
    /// other evidence; `None` if it has stepped no clock, or other evidence supports the time.
    pub(in crate::calibration) fn unconfirmed_clock_setting(&self) -> Option<Span> {
        self.unconfirmed.filter(|_| self.steps > 0)
    }

    /// Accepts a time that all evidence supports. If sentences with this time were implausible so
    /// far, the state of labeller and servo belongs to another time and is reset.
    pub(in crate::calibration) fn vouch(
        &mut self,
        utc_minus_monotonic: Span,
        support: PlausibilityReason,
    ) {
        self.judge.accept_judged_time(utc_minus_monotonic, support);
        if self
            .unconfirmed_sentences
            .is_some_and(|run| is_continuous(run.utc_minus_monotonic(), utc_minus_monotonic))
        {
            self.unconfirmed_sentences = None;
            self.labeller.forget_count();
            self.settings.initial_frequency_ppb = self.commanded_ppb;
            self.servo = Servo::new(self.settings);
        }
    }

    /// Returns the claim of implausible sentences; `None` if they are too few or too old, or the
    /// input has an error.
    pub(super) fn unconfirmed_claim(&self, now: Timestamp<Monotonic>) -> Option<SentenceOnlyTime> {
        let is_claim = |run: &UnconfirmedSentences| {
            run.sentences >= CLAIM_SENTENCES_MIN && now - run.at <= AGE_MAX
        };
        let run =
            self.unconfirmed_sentences.filter(is_claim).filter(|_| self.input_error.is_none())?;
        Some(SentenceOnlyTime::from_sentence(run.sentence_utc, run.at))
    }

    /// Returns the claim of implausible sentences as a source estimate; `None` without a claim.
    pub(in crate::calibration) fn unconfirmed_estimate(
        &self,
        readings: &ClockReadings,
    ) -> Option<SourceEstimate> {
        let claim = self.unconfirmed_claim(readings.monotonic)?;
        Some(self.coarse_estimate(readings, &claim))
    }
}
