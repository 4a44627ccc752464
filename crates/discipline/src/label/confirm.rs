//! What sentences do to the count of seconds: establish it, confirm it, dispute it.

use horolog_time::leap::Leap;
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};

use super::count::{self, Count};
use super::vote::Vote;
use super::{HALF, Labeller};
use crate::{LabelSettings, PulseDoubt, Sentence, SentenceDoubt};

/// GPS counts weeks modulo 1024, and a receiver that has lost count is wrong by as many.
pub(super) const ROLLOVER_S: i64 = 1_024 * 7 * 86_400;
/// How far from that the difference may be.
const ROLLOVER_DOUBT_S: i64 = DAY_S;
const DAY_S: i64 = 86_400;
/// How far from a leap second sentences that name the count behind it are believed soon.
const AT_LEAP_S: i64 = 60;

impl Labeller {
    /// Takes a sentence and says whether it counts for the second that is known, or for one that is
    /// to be known.
    ///
    /// # Errors
    ///
    /// Why it does not.
    pub fn sentence(&mut self, sentence: &Sentence) -> Result<(), SentenceDoubt> {
        if !sentence.is_valid {
            return Err(SentenceDoubt::Void);
        }
        if sentence.second.as_ns() % NS_PER_S != 0 {
            return Err(SentenceDoubt::Fractional);
        }
        if sentence.is_leap_second {
            // Leap seconds end a day: another 60 is a receiver's rounding.
            let ends_day = (sentence.second.as_ns() / NS_PER_S + 1) % DAY_S == 0;
            self.has_seen_leap |= self.leap.is_none() && ends_day;
            return Err(SentenceDoubt::LeapSecond);
        }
        if self.last_named.replace(sentence.second) == Some(sentence.second) {
            return Err(SentenceDoubt::Repeated);
        }
        if sentence.second < self.settings.earliest {
            return Err(self.rollover(sentence.second).unwrap_or(SentenceDoubt::Past));
        }
        let received = Count::new(sentence.second, sentence.received);
        let coarse = self.take_coarse(received);
        self.expire(sentence.received);
        match self.count {
            Some(count) => self.confirm(count, sentence),
            None => self.establish(sentence).map_err(|doubt| match (doubt, coarse) {
                (SentenceDoubt::NoPulse, Err(disagrees)) => disagrees,
                _ => doubt,
            }),
        }
    }

    /// Compares a sentence with the count by sentences alone, and establishes or changes that.
    fn take_coarse(&mut self, named: Count) -> Result<(), SentenceDoubt> {
        let LabelSettings { establish, change, gap_max, .. } = self.settings;
        let vote = Vote::take(&mut self.coarse_vote, named, HALF);
        let known = self.coarse_count.filter(|count| named.at - count.at <= gap_max);
        let off_s = known.map_or(0, |count| named.second - count.nearest(named.at).0.second);
        let needed = match known {
            None => establish,
            Some(_) if off_s == 0 => 0,
            Some(_) if off_s.abs() == 1 && self.is_at_leap(named.second) => establish,
            Some(_) => change,
        };
        if vote.votes >= needed {
            self.coarse_count = Some(named);
            return Ok(());
        }
        self.coarse_count = known;
        let off = Span::from_ns(off_s.saturating_mul(NS_PER_S));
        known.map_or(Ok(()), |_| Err(SentenceDoubt::Disagrees(off)))
    }

    /// Whether a leap second is just passing, or has been seen.
    fn is_at_leap(&self, second: i64) -> bool {
        let is_near =
            |leap: &Leap| (second - leap.instant().as_ns().div_euclid(NS_PER_S)).abs() <= AT_LEAP_S;
        self.has_seen_leap || self.leap.as_ref().is_some_and(is_near)
    }

    /// Counts sentences for a second that is not known yet.
    fn establish(&mut self, sentence: &Sentence) -> Result<(), SentenceDoubt> {
        if let Some(doubt) = self.rollover(sentence.second) {
            return Err(doubt);
        }
        if let Some(width) = self.wrong_edge() {
            return Err(SentenceDoubt::Pulse(PulseDoubt::Polarity(width)));
        }
        if let Some(doubt) = self.rate(sentence.received) {
            return Err(SentenceDoubt::Pulse(doubt));
        }
        let regular = self.grid.regular(sentence.received, self.settings.tolerance).next_back();
        let at = regular.ok_or(SentenceDoubt::NoPulse)?;
        self.check_lag(sentence.received - at)?;
        let named = Count::new(sentence.second, at);
        let vote = Vote::take(&mut self.vote, named, self.settings.tolerance);
        if vote.votes >= self.settings.establish {
            self.adopt(named, sentence.received);
        }
        Ok(())
    }

    /// Compares a sentence with the count.
    fn confirm(&mut self, count: Count, sentence: &Sentence) -> Result<(), SentenceDoubt> {
        let (second, lag) = count.begun(sentence.received);
        self.check_lag(lag)?;
        let Some(expected) = count::utc_of(second, self.leap) else {
            return Err(SentenceDoubt::LeapSecond);
        };
        let named = sentence.second.as_ns() / NS_PER_S;
        if named == expected {
            self.confirmed = sentence.received;
            self.vote = None;
            // Seconds go on as they were counted, so there was no leap.
            self.has_seen_leap = false;
            return Ok(());
        }
        let doubt = rollovers(named - expected).map_or_else(
            || SentenceDoubt::Disagrees(Span::from_ns((named - expected).saturating_mul(NS_PER_S))),
            SentenceDoubt::Rollover,
        );
        if matches!(doubt, SentenceDoubt::Rollover(_)) {
            return Err(doubt);
        }
        // The start of the second that it is compared with.
        let begun = Count::new(sentence.second, sentence.received - lag);
        let vote = Vote::take(&mut self.vote, begun, self.settings.tolerance);
        let is_leap = self.has_seen_leap && named + 1 == expected;
        let needed = if is_leap { self.settings.establish } else { self.settings.change };
        if vote.votes >= needed {
            self.adopt(begun, sentence.received);
        }
        Err(doubt)
    }

    fn adopt(&mut self, count: Count, now: Timestamp<Monotonic>) {
        self.count = Some(count);
        self.leap = self.leap.filter(|leap| count.second < leap.midnight.as_ns() / NS_PER_S);
        self.confirmed = now;
        self.vote = None;
        self.has_seen_leap = false;
    }

    fn check_lag(&self, lag: Span) -> Result<(), SentenceDoubt> {
        let LabelSettings { lag_min, lag_max, .. } = self.settings;
        if lag < lag_min || lag > lag_max { Err(SentenceDoubt::Lag(lag)) } else { Ok(()) }
    }

    /// Whether a sentence is 1024 weeks away from what the host's clock says, where that can be
    /// right itself.
    fn rollover(&self, named: Timestamp<Utc>) -> Option<SentenceDoubt> {
        let host = self.realtime.filter(|host| *host >= self.settings.earliest)?;
        let times = rollovers((named - host).as_ns() / NS_PER_S)?;
        Some(SentenceDoubt::Rollover(times))
    }
}

/// How many times the weeks of GPS were miscounted, where that is what is wrong.
fn rollovers(seconds: i64) -> Option<i64> {
    let times = (seconds + ROLLOVER_S / 2).div_euclid(ROLLOVER_S);
    let rest = seconds - times * ROLLOVER_S;
    (times != 0 && rest.abs() < ROLLOVER_DOUBT_S).then_some(times)
}
