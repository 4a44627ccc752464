//! Labelling of pulses: gives each pulse its second.
//!
//! A sentence begins to arrive some time after the pulse of the second that it names. At a pulse,
//! therefore, the latest sentence names the second of the previous pulse, and this pulse marks the
//! next second (Liu, Wu and Wang, "Design of NTP server based on multi-core processor", 2020,
//! section 2.2.3, add 1 for that reason). Here no pulse is labelled by one sentence: several in a
//! row must name the same count of seconds. From then on seconds are counted from pulse to pulse,
//! and sentences confirm the count or dispute it.

mod confirm;
mod count;

use std::collections::VecDeque;

use horolog_time::leap::LeapSecond;
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};

use crate::recent_pulses::RecentPulses;
use crate::{LabelledPulse, Pulse, PulseLabellerSettings, PulseRejectReason};
use confirm::SecondCountCandidate;
use count::SecondCountAnchor;

/// Longest gap between pulses after which a pulse needs no regular pulses before it as
/// confirmation.
const UNCONFIRMED_GAP_MAX: Span = Span::from_ns(10 * NS_PER_S);
/// Minimum distance of two pulses; closer edges are bounces of one pulse.
const PULSE_DISTANCE_MIN: Span = Span::from_ms(20);
/// Maximum number of pulse widths from which the median is computed; the minimum is [`WIDTHS_MIN`].
const WIDTHS_MAX: usize = 9;
const WIDTHS_MIN: usize = 3;
/// Tolerance of the arrival of sentences against a count by sentences alone.
const COARSE_TOLERANCE: Span = Span::from_ms(500);
/// Maximum age of a time by sentences alone.
const COARSE_AGE_MAX: Span = Span::from_ns(10 * NS_PER_S);

/// Time by sentences alone, for a line without pulses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentenceOnlyTime {
    /// Arrival of the latest sentence that confirmed the count.
    pub at: Timestamp<Monotonic>,
    /// UTC at that instant, the middle of the possible range.
    pub utc: Timestamp<Utc>,
    /// Maximum error of `utc`.
    pub error_bound: Span,
}

impl SentenceOnlyTime {
    /// Middle of the possible lags, from the named instant to the start of its sentence.
    pub const LAG_MIDDLE: Span = Span::from_ms(500);
    /// Maximum deviation of the lag from [`Self::LAG_MIDDLE`]: most sentences begin within the
    /// second that they name, those of a slow line or a busy receiver up to half a second after its
    /// end.
    pub const LAG_DEVIATION_MAX: Span = Span::from_ms(1_000);

    /// Returns the time by a sentence that began at `at`.
    #[must_use]
    pub fn from_sentence(named: Timestamp<Utc>, at: Timestamp<Monotonic>) -> Self {
        Self { at, utc: named + Self::LAG_MIDDLE, error_bound: Self::LAG_DEVIATION_MAX }
    }
}

/// Labeller that gives pulses their seconds; see the module.
#[derive(Clone, Debug)]
pub struct PulseLabeller {
    settings: PulseLabellerSettings,
    recent_pulses: RecentPulses,
    last_sequence: Option<u64>,
    /// Established count, at the latest pulse that was labelled.
    count: Option<SecondCountAnchor>,
    /// Instant of the last confirmation by a sentence.
    confirmed_at: Timestamp<Monotonic>,
    /// Candidate for `count`, named by sentences that do not confirm the established one, and its
    /// votes.
    vote: Option<SecondCountCandidate>,
    /// Candidate for `coarse_count`, and its votes.
    coarse_vote: Option<SecondCountCandidate>,
    /// Count by sentences alone, at the latest sentence that confirmed it.
    coarse_count: Option<SecondCountAnchor>,
    last_named: Option<i64>,
    leap: Option<LeapSecond>,
    /// True if a sentence has named a second 60 that was not announced.
    has_unannounced_leap: bool,
    widths: VecDeque<Span>,
}

impl PulseLabeller {
    /// Creates a labeller without an established second.
    #[must_use]
    pub fn new(settings: PulseLabellerSettings) -> Self {
        Self {
            settings,
            recent_pulses: RecentPulses::default(),
            last_sequence: None,
            count: None,
            confirmed_at: Timestamp::from_ns(0),
            vote: None,
            coarse_vote: None,
            coarse_count: None,
            last_named: None,
            leap: None,
            has_unannounced_leap: false,
            widths: VecDeque::new(),
        }
    }

    /// Announces the next leap second, if there is one. From two seconds before a leap on the
    /// announcement cannot be changed, and a leap in the past is ignored.
    pub fn announce_leap(&mut self, leap: Option<LeapSecond>) {
        let counted_second = self.count.map(|count| count.second);
        let is_within = |leap: &LeapSecond, seconds: i64| {
            counted_second
                .is_some_and(|second| second + seconds >= leap.step_instant().as_ns() / NS_PER_S)
        };
        if !self.leap.is_some_and(|leap| is_within(&leap, 2)) {
            self.leap = leap.filter(|leap| !is_within(leap, 0));
        }
    }

    /// Discards the count of seconds and all votes, because they belong to a wrong time.
    pub fn forget_count(&mut self) {
        (self.count, self.vote, self.last_named) = (None, None, None);
        (self.coarse_count, self.coarse_vote) = (None, None);
        self.has_unannounced_leap = false;
    }

    /// Returns true if the second is established.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.count.is_some()
    }

    /// Returns true if the last sentences name another second than the one that is counted.
    #[must_use]
    pub fn is_disputed(&self) -> bool {
        self.count.is_some() && self.vote.is_some()
    }

    /// Adds the opposite edge of the latest pulse, if the device reports both edges: the width
    /// shows whether the configured edge is the start of the pulse.
    pub fn add_opposite_edge(&mut self, at: Timestamp<Monotonic>) {
        let Some(pulse) = self.recent_pulses.latest() else { return };
        let width = at - pulse;
        if (1..NS_PER_S).contains(&width.as_ns()) {
            if self.widths.len() == WIDTHS_MAX {
                self.widths.pop_front();
            }
            self.widths.push_back(width);
        }
    }

    /// Returns the median time from the configured edge to the opposite one, if it shows that the
    /// configured edge is the end of the pulse.
    fn wrong_edge_width(&self) -> Option<Span> {
        if self.widths.len() < WIDTHS_MIN {
            return None;
        }
        let mut sorted: Vec<_> = self.widths.iter().map(|width| width.as_ns()).collect();
        sorted.sort_unstable();
        let median = sorted[sorted.len() / 2];
        let is_wrong = match self.settings.width.map(Span::as_ns) {
            Some(width) => (median - width).abs() > (NS_PER_S - median - width).abs(),
            None => median > NS_PER_S / 2,
        };
        is_wrong.then_some(Span::from_ns(median))
    }

    /// Labels a pulse with the second that it marks.
    ///
    /// # Errors
    ///
    /// The reason for which the pulse gets no label.
    pub fn label_pulse(&mut self, pulse: &Pulse) -> Result<LabelledPulse, PulseRejectReason> {
        if self.last_sequence.replace(pulse.sequence) == Some(pulse.sequence) {
            return Err(PulseRejectReason::Repeated);
        }
        let at = pulse.monotonic;
        if self.recent_pulses.latest().is_some_and(|latest| at <= latest) {
            self.recent_pulses.forget_from(at);
            return Err(PulseRejectReason::Backwards);
        }
        self.recent_pulses.add_pulse(at);
        if let Some(width) = self.wrong_edge_width() {
            self.count = None;
            return Err(PulseRejectReason::Polarity(width));
        }
        self.expire(at);
        let count = self
            .count
            .ok_or_else(|| self.rate_reject(at).unwrap_or(PulseRejectReason::NoSecond))?;
        let count = self.carry_count(count, at)?;
        self.count = Some(count);
        if self.vote.is_some_and(|vote| vote.votes >= self.settings.sentences_to_establish) {
            return Err(PulseRejectReason::Disputed);
        }
        if at - self.confirmed_at > self.settings.carry_max {
            return Err(PulseRejectReason::Unconfirmed);
        }
        let second = self.utc(count.second).ok_or(PulseRejectReason::LeapSecond)?;
        let utc = Timestamp::from_timespec(second, 0) + self.settings.delay;
        Ok(LabelledPulse { pulse: *pulse, utc })
    }

    /// Discards the count after a gap in which the monotonic clock may have drifted too far.
    fn expire(&mut self, now: Timestamp<Monotonic>) {
        if self.count.is_some_and(|count| now - count.at > self.settings.gap_max) {
            self.count = None;
            self.vote = None;
        }
    }

    /// Continues the count to the pulse at `at`, if the pulse lies near a whole second of the
    /// count.
    fn carry_count(
        &self,
        count: SecondCountAnchor,
        at: Timestamp<Monotonic>,
    ) -> Result<SecondCountAnchor, PulseRejectReason> {
        let gap = at - count.at;
        let (next, distance) = count.nearest_count(at);
        let is_confirmed = gap <= UNCONFIRMED_GAP_MAX
            || self.recent_pulses.is_regular(at, self.settings.tolerance);
        // The tolerance grows with the possible drift of the monotonic clock over the gap.
        let slack = self.settings.tolerance.as_ns() * (1 + gap.as_ns() / NS_PER_S);
        if next.second == count.second || distance.as_ns().abs() > slack.min(NS_PER_S / 4) {
            return Err(self.rate_reject(at).unwrap_or(PulseRejectReason::OffGrid(distance)));
        }
        is_confirmed.then_some(next).ok_or(PulseRejectReason::AfterGap)
    }

    /// Returns the reject reason if several regular pulses come in a second.
    fn rate_reject(&self, at: Timestamp<Monotonic>) -> Option<PulseRejectReason> {
        let mut last = None;
        let is_apart = |pulse: &Timestamp<Monotonic>| {
            let is_apart = last.is_none_or(|last| *pulse - last >= PULSE_DISTANCE_MIN);
            last = Some(*pulse);
            is_apart
        };
        let count =
            self.recent_pulses.regular_pulses(at, self.settings.tolerance).filter(is_apart).count();
        (count > 1).then_some(PulseRejectReason::Rate(count as u32))
    }

    /// Returns UTC of a count, and rebases the count after a leap second.
    fn utc(&mut self, second: i64) -> Option<i64> {
        let utc = count::utc_of(second, self.leap)?;
        if self.leap.is_some_and(|leap| count::is_past_leap(second, leap)) {
            self.leap = None;
            if let Some(count) = &mut self.count {
                count.second = utc;
            }
        }
        Some(utc)
    }

    /// Returns the time by sentences alone at `now`, if several in a row have agreed. Contradicting
    /// sentences do not change it until enough of them in a row agree; without a confirmation it
    /// expires.
    #[must_use]
    pub fn coarse_time(&self, now: Timestamp<Monotonic>) -> Option<SentenceOnlyTime> {
        let SecondCountAnchor { second, at } = self.coarse_count?;
        let named = Timestamp::from_timespec(second, 0);
        (now - at <= COARSE_AGE_MAX).then(|| SentenceOnlyTime::from_sentence(named, at))
    }
}

#[cfg(test)]
mod tests;
