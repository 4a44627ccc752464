//! Gives each pulse its second.
//!
//! A sentence begins to come some time after the pulse of the second that it names. So at a pulse
//! the latest sentence names the second of the pulse before, and this pulse marks the next one
//! (Liu, Wu and Wang, "Design of NTP server based on multi-core processor", 2020, section 2.2.3,
//! add 1 for that reason). Here no pulse is labelled by one sentence: several in a row must name
//! the same count of seconds. From then on seconds are counted from pulse to pulse, and sentences
//! confirm the count or dispute it.

mod confirm;
mod count;
mod vote;

use std::collections::VecDeque;

use horolog_time::leap::Leap;
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};

use crate::grid::Grid;
use crate::{LabelSettings, LabelledPulse, Pulse, PulseDoubt};
use count::Count;
use vote::Vote;

/// A gap between pulses of more than this has to be confirmed by more than one pulse.
const GAP: Span = Span::from_ns(10 * NS_PER_S);
/// Pulses that are closer together are one that bounced.
const APART: Span = Span::from_ms(20);
/// Widths of pulses whose median counts.
const WIDTHS_MAX: usize = 9;
const WIDTHS_MIN: usize = 3;
/// Without a pulse a second is known to half of it, as sentences come within theirs.
const HALF: Span = Span::from_ms(500);
/// How old a sentence may be that tells the time alone.
const COARSE_AGE_MAX: Span = Span::from_ns(10 * NS_PER_S);

/// The time by sentences alone, for a line without pulses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Coarse {
    /// When a sentence came.
    pub at: Timestamp<Monotonic>,
    /// UTC then, in the middle of what it may be.
    pub utc: Timestamp<Utc>,
    /// How far that may be wrong.
    pub uncertainty: Span,
}

/// Gives pulses their seconds; see the module.
#[derive(Clone, Debug)]
pub struct Labeller {
    settings: LabelSettings,
    grid: Grid,
    last_sequence: Option<u64>,
    /// The count that was established, at the latest pulse that was labelled.
    count: Option<Count>,
    /// When a sentence last confirmed it.
    confirmed: Timestamp<Monotonic>,
    /// What sentences name that do not confirm it, or that establish it.
    vote: Option<Vote>,
    /// What sentences name by themselves, where no pulse comes.
    coarse_vote: Option<Vote>,
    /// The count by sentences alone, at the latest of them that confirmed it.
    coarse_count: Option<Count>,
    last_named: Option<Timestamp<Utc>>,
    leap: Option<Leap>,
    /// A sentence has named a second 60 that nobody had announced.
    has_seen_leap: bool,
    widths: VecDeque<Span>,
    /// The host's clock at the latest pulse, to name what is wrong with a sentence.
    realtime: Option<Timestamp<Utc>>,
}

impl Labeller {
    /// One that knows no second yet.
    #[must_use]
    pub fn new(settings: LabelSettings) -> Self {
        Self {
            settings,
            grid: Grid::default(),
            last_sequence: None,
            count: None,
            confirmed: Timestamp::from_ns(0),
            vote: None,
            coarse_vote: None,
            coarse_count: None,
            last_named: None,
            leap: None,
            has_seen_leap: false,
            widths: VecDeque::new(),
            realtime: None,
        }
    }

    /// Says which leap second is next, if one is. Close to it that cannot be taken back, and one
    /// that is past is not taken.
    pub fn announce(&mut self, leap: Option<Leap>) {
        let counted = self.count.map(|count| count.second);
        let is_within = |leap: &Leap, seconds: i64| {
            counted.is_some_and(|second| second + seconds >= leap.instant().as_ns() / NS_PER_S)
        };
        if !self.leap.is_some_and(|leap| is_within(&leap, 2)) {
            self.leap = leap.filter(|leap| !is_within(leap, 0));
        }
    }

    /// Whether the second is known.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.count.is_some()
    }

    /// Whether the last sentences name another second than the one that is counted.
    #[must_use]
    pub fn is_disputed(&self) -> bool {
        self.count.is_some() && self.vote.is_some()
    }

    /// The other edge of the pulse, where the device tells of both: how long the pulse is says
    /// whether the right edge is taken.
    pub fn opposite_edge(&mut self, at: Timestamp<Monotonic>) {
        let Some(pulse) = self.grid.latest() else { return };
        let width = at - pulse;
        if (1..NS_PER_S).contains(&width.as_ns()) {
            if self.widths.len() == WIDTHS_MAX {
                self.widths.pop_front();
            }
            self.widths.push_back(width);
        }
    }

    /// The width of the pulse, if it shows that this edge is its end.
    fn wrong_edge(&self) -> Option<Span> {
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

    /// Takes a pulse and says which second it marks, if that is sure.
    ///
    /// # Errors
    ///
    /// Why it is not.
    pub fn pulse(&mut self, pulse: &Pulse) -> Result<LabelledPulse, PulseDoubt> {
        if self.last_sequence.replace(pulse.sequence) == Some(pulse.sequence) {
            return Err(PulseDoubt::Repeated);
        }
        let at = pulse.monotonic;
        if self.grid.latest().is_some_and(|latest| at <= latest) {
            self.grid.forget_from(at);
            return Err(PulseDoubt::Backwards);
        }
        self.grid.take(at);
        self.realtime = Some(pulse.realtime);
        if let Some(width) = self.wrong_edge() {
            self.count = None;
            return Err(PulseDoubt::Polarity(width));
        }
        self.expire(at);
        let count = self.count.ok_or_else(|| self.rate(at).unwrap_or(PulseDoubt::NoSecond))?;
        let count = self.carry(count, at)?;
        self.count = Some(count);
        if self.vote.is_some_and(|vote| vote.votes >= self.settings.establish) {
            return Err(PulseDoubt::Disputed);
        }
        if at - self.confirmed > self.settings.carry_max {
            return Err(PulseDoubt::Unconfirmed);
        }
        let second = self.utc(count.second).ok_or(PulseDoubt::LeapSecond)?;
        let utc = Timestamp::from_timespec(second, 0) + self.settings.delay;
        Ok(LabelledPulse { pulse: *pulse, utc })
    }

    /// Gives up a count over a gap in which the monotonic clock may have gone wrong by too much.
    fn expire(&mut self, now: Timestamp<Monotonic>) {
        if self.count.is_some_and(|count| now - count.at > self.settings.gap_max) {
            self.count = None;
            self.vote = None;
        }
    }

    /// The count at a pulse, if it is one that the count can be carried on to.
    fn carry(&self, count: Count, at: Timestamp<Monotonic>) -> Result<Count, PulseDoubt> {
        let gap = at - count.at;
        let (next, beside) = count.nearest(at);
        let is_confirmed = gap <= GAP || self.grid.is_regular(at, self.settings.tolerance);
        // What the clock may have drifted since.
        let slack = self.settings.tolerance.as_ns() * (1 + gap.as_ns() / NS_PER_S);
        if next.second == count.second || beside.as_ns().abs() > slack.min(NS_PER_S / 4) {
            return Err(self.rate(at).unwrap_or(PulseDoubt::OffGrid(beside)));
        }
        is_confirmed.then_some(next).ok_or(PulseDoubt::AfterGap)
    }

    /// Whether several regular pulses come in a second.
    fn rate(&self, at: Timestamp<Monotonic>) -> Option<PulseDoubt> {
        let mut last = None;
        let is_apart = |pulse: &Timestamp<Monotonic>| {
            let is_apart = last.is_none_or(|last| *pulse - last >= APART);
            last = Some(*pulse);
            is_apart
        };
        let count = self.grid.regular(at, self.settings.tolerance).filter(is_apart).count();
        (count > 1).then_some(PulseDoubt::Rate(count as u32))
    }

    /// UTC of a count, and from where on it is counted past a leap second.
    fn utc(&mut self, second: i64) -> Option<i64> {
        let utc = count::utc_of(second, self.leap)?;
        if self.leap.is_some_and(|leap| count::is_past(second, leap)) {
            self.leap = None;
            if let Some(count) = &mut self.count {
                count.second = utc;
            }
        }
        Some(utc)
    }

    /// The time by sentences alone, if several in a row agree, at `now`. One that many contradict
    /// stays what it was until it is too old, or as many in a row have named another.
    #[must_use]
    pub fn coarse(&self, now: Timestamp<Monotonic>) -> Option<Coarse> {
        let Count { second, at } = self.coarse_count?;
        let utc = Timestamp::from_timespec(second, 0) + HALF;
        (now - at <= COARSE_AGE_MAX).then_some(Coarse { at, utc, uncertainty: HALF })
    }
}

#[cfg(test)]
mod tests;
