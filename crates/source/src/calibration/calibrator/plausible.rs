//! Plausibility of sentences. One whose time is not plausible does not reach the labeller, so that
//! it neither establishes a second nor sets a clock. Several implausible ones in a row become a
//! claim, which the other sources or the operator can confirm.

use horolog_discipline::{CoarseTime, Implausible, Servo, Support, TimeEvidence, agree};
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};

use super::Calibrator;
use crate::{ClockReadings, ParsedSentence, SourceEstimate};

/// Number of consecutive sentences that make a claim.
const SENTENCES: u32 = 3;
/// Maximum deviation of two times that continue one another.
const JITTER_MAX: Span = Span::from_ms(1_500);
/// Maximum age of the last of them.
const AGE_MAX: Span = Span::from_ns(10 * NS_PER_S);

/// Sentences in a row whose times are implausible and continue one another.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnconfirmedRun {
    at: Timestamp<Monotonic>,
    named: Timestamp<Utc>,
    sentences: u32,
}

impl UnconfirmedRun {
    fn ahead(&self) -> Span {
        Span::from_ns(self.named.as_ns().saturating_sub(self.at.as_ns()))
    }

    /// Returns the run that continues or begins with a sentence.
    fn with(before: Option<Self>, named: Timestamp<Utc>, at: Timestamp<Monotonic>) -> Self {
        let first = Self { at, named, sentences: 1 };
        let continues = |before: &Self| is_near(first.ahead(), before.ahead());
        match before.filter(continues) {
            // Several kinds of sentences name one second.
            Some(before) if before.named == named => before,
            Some(before) => Self { sentences: before.sentences.saturating_add(1), ..first },
            None => first,
        }
    }
}

fn is_near(one: Span, other: Span) -> bool {
    (one - other).as_ns().unsigned_abs() <= JITTER_MAX.as_ns().unsigned_abs()
}

impl Calibrator {
    /// Judges the time that a sentence names.
    pub(super) fn consider(
        &mut self,
        sentence: &ParsedSentence,
        at: Timestamp<Monotonic>,
        readings: &ClockReadings,
    ) -> Result<(), Implausible> {
        let ahead = Span::from_ns(sentence.utc.as_ns().saturating_sub(at.as_ns()));
        let system = readings.realtime_minus_monotonic;
        // A clock that these sentences have set is no independent evidence.
        let is_own = self.set_unconfirmed().is_some_and(|ahead| agree(ahead, system));
        let system = (!is_own).then_some(system);
        let judged = self.judge.consider(&TimeEvidence { now: at, system, others: &[] }, ahead);
        if let Ok(support) = judged {
            self.unconfirmed = (support == Support::Unopposed).then_some(ahead);
        }
        let judged = judged.map(drop);
        self.unconfirmed_run = match judged {
            Err(reason) if reason.is_confirmable() => {
                Some(UnconfirmedRun::with(self.unconfirmed_run, sentence.utc, at))
            }
            _ => None,
        };
        judged
    }

    /// Returns the time to which the clock has been set although nothing confirms it.
    pub(in crate::calibration) fn set_unconfirmed(&self) -> Option<Span> {
        self.unconfirmed.filter(|_| self.steps > 0)
    }

    /// Accepts a time that was found plausible by all evidence. If it is the time for which
    /// sentences were implausible, earlier counts and estimates belong to another time, and begin
    /// anew.
    pub(in crate::calibration) fn vouch(&mut self, ahead: Span, support: Support) {
        self.judge.vouch(ahead, support);
        if self.unconfirmed_run.is_some_and(|run| is_near(run.ahead(), ahead)) {
            self.unconfirmed_run = None;
            self.labeller.forget();
            self.settings.initial_frequency_ppb = self.commanded_ppb;
            self.servo = Servo::new(self.settings);
        }
    }

    /// Returns a claim of the time by implausible sentences.
    pub(super) fn unconfirmed_claim(&self, now: Timestamp<Monotonic>) -> Option<CoarseTime> {
        let is_claim = |run: &UnconfirmedRun| run.sentences >= SENTENCES && now - run.at <= AGE_MAX;
        let run = self.unconfirmed_run.filter(is_claim).filter(|_| self.broken.is_none())?;
        Some(CoarseTime::of_sentence(run.named, run.at))
    }

    /// Returns that claim as a report.
    pub(in crate::calibration) fn unconfirmed_report(
        &self,
        readings: &ClockReadings,
    ) -> Option<SourceEstimate> {
        let claim = self.unconfirmed_claim(readings.monotonic)?;
        Some(self.coarse_report(readings, &claim))
    }
}
