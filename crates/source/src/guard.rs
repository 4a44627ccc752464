//! The guard against time that jumps: what was right a moment ago and is years away now is not
//! served until it is back, somebody else confirms it, or the operator accepts it. Pure. It does
//! not know which of the two times is right, and does not say; that a wrong time holds still makes
//! it no better.

use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};

/// The largest jump that is followed: the panic threshold of RFC 5905, figure 5.
pub const JUMP_MAX: Span = Span::from_ns(1_000 * NS_PER_S);

/// Whether the time may be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// It runs as it did.
    Steady,
    /// It has just jumped by this much.
    Jumped(Span),
    /// It has just been seen to be earlier than it can be.
    TooEarly(Timestamp<Utc>),
    /// One of these was said before, and nothing is better.
    Doubted,
    /// It is believed again.
    Settled,
}

impl Judgement {
    /// Whether the time may be served.
    #[must_use]
    pub const fn is_trusted(self) -> bool {
        matches!(self, Self::Steady | Self::Settled)
    }
}

/// A time that is to be judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeClaim {
    /// When.
    pub now: Timestamp<Monotonic>,
    /// How far it is ahead of the monotonic clock.
    pub ahead: Span,
    /// Whether somebody says that it is right.
    pub is_claimed: bool,
    /// How far the time is ahead on which several sources agree of which one is no mirror of the
    /// system clock.
    pub confirmed: Option<Span>,
}

/// Watches one time, which it is shown again and again.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Guard {
    earliest: Option<Timestamp<Utc>>,
    expected: Option<Span>,
    doubted: Option<Span>,
    was_early: bool,
}

impl Guard {
    /// A guard that believes no time before `earliest`.
    #[must_use]
    pub fn no_earlier_than(earliest: Timestamp<Utc>) -> Self {
        Self { earliest: Some(earliest), ..Self::default() }
    }

    /// Judges a time. The first that somebody claims to be right is trusted; before it, nobody was
    /// told a time that another could contradict.
    pub fn judge(&mut self, claim: TimeClaim) -> Judgement {
        let TimeClaim { now, ahead, is_claimed, confirmed } = claim;
        let utc = Timestamp::from_ns(now.as_ns().saturating_add(ahead.as_ns()));
        if self.earliest.is_some_and(|earliest| utc < earliest) {
            let said = std::mem::replace(&mut self.was_early, true);
            return if said { Judgement::Doubted } else { Judgement::TooEarly(utc) };
        }
        let was_early = std::mem::take(&mut self.was_early);
        let is_as = |expected| is_near(ahead, expected);
        if self.expected.is_none_or(is_as) || confirmed.is_some_and(is_as) {
            if is_claimed || self.expected.is_some() {
                self.expected = Some(ahead);
            }
            let settled = self.doubted.take().is_some() || was_early;
            return if settled { Judgement::Settled } else { Judgement::Steady };
        }
        match self.doubted.replace(ahead) {
            Some(doubted) if is_as(doubted) => Judgement::Doubted,
            earlier => Judgement::Jumped(ahead - earlier.or(self.expected).unwrap_or(ahead)),
        }
    }

    /// The operator says that the time to which it has jumped is right.
    pub fn accept(&mut self) {
        self.expected = self.doubted.or(self.expected);
    }
}

fn is_near(a: Span, b: Span) -> bool {
    (a - b).as_ns().unsigned_abs() <= JUMP_MAX.as_ns().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: Span = Span::from_ns(31_557_600 * NS_PER_S);

    fn claim(seconds: i64, ahead: Span) -> TimeClaim {
        let now = Timestamp::from_timespec(seconds, 0);
        TimeClaim { now, ahead, is_claimed: true, confirmed: None }
    }

    #[test]
    fn small_steps_are_followed_at_once() {
        let mut guard = Guard::default();
        for step in 0..10 {
            let ahead = Span::from_ns(step * 999 * NS_PER_S);
            assert_eq!(guard.judge(claim(step, ahead)), Judgement::Steady);
        }
    }

    #[test]
    fn years_are_doubted_however_long_they_hold_still() {
        let mut guard = Guard::default();
        guard.judge(claim(0, Span::ZERO));
        assert_eq!(guard.judge(claim(1, YEAR)), Judgement::Jumped(YEAR));
        for second in [2, 61, 62, 86_400] {
            assert_eq!(guard.judge(claim(second, YEAR)), Judgement::Doubted);
        }
    }

    #[test]
    fn a_time_that_comes_back_is_believed_at_once() {
        let mut guard = Guard::default();
        guard.judge(claim(0, Span::ZERO));
        guard.judge(claim(1, -YEAR));
        assert_eq!(guard.judge(claim(2, Span::from_ms(5))), Judgement::Settled);
        assert_eq!(guard.judge(claim(3, Span::from_ms(5))), Judgement::Steady);
    }

    #[test]
    fn what_the_operator_accepts_is_believed_and_nothing_else() {
        let mut guard = Guard::default();
        guard.judge(claim(0, Span::ZERO));
        guard.judge(claim(1, YEAR));
        guard.accept();
        assert_eq!(guard.judge(claim(2, -YEAR)), Judgement::Jumped(-YEAR - YEAR));
        assert_eq!(guard.judge(claim(3, YEAR)), Judgement::Settled);
        assert!(!guard.judge(claim(4, Span::ZERO)).is_trusted(), "the way back is a jump too");
    }

    #[test]
    fn what_others_confirm_is_believed_and_no_other_time() {
        let mut guard = Guard::default();
        guard.judge(claim(0, Span::ZERO));
        let of_old = TimeClaim { confirmed: Some(Span::ZERO), ..claim(1, YEAR) };
        assert_eq!(guard.judge(of_old), Judgement::Jumped(YEAR));
        let confirmed = TimeClaim { confirmed: Some(YEAR + Span::from_ms(20)), ..claim(2, YEAR) };
        assert_eq!(guard.judge(confirmed), Judgement::Settled);
        assert_eq!(guard.judge(claim(3, YEAR)), Judgement::Steady);
    }

    #[test]
    fn a_time_that_nobody_claimed_is_not_expected_to_go_on() {
        let mut guard = Guard::default();
        guard.judge(TimeClaim { is_claimed: false, ..claim(0, Span::ZERO) });
        assert_eq!(guard.judge(claim(1, YEAR)), Judgement::Steady);
        assert!(!guard.judge(TimeClaim { is_claimed: false, ..claim(2, Span::ZERO) }).is_trusted());
    }

    #[test]
    fn a_time_before_the_earliest_is_never_believed() {
        let mut guard = Guard::no_earlier_than(Timestamp::from_ns(YEAR.as_ns()));
        let early = Timestamp::from_timespec(1, 0);
        assert_eq!(guard.judge(claim(1, Span::ZERO)), Judgement::TooEarly(early));
        guard.accept();
        assert_eq!(guard.judge(claim(2, Span::ZERO)), Judgement::Doubted);
        assert_eq!(guard.judge(claim(3, YEAR)), Judgement::Settled);
        assert_eq!(guard.judge(claim(4, YEAR)), Judgement::Steady);
    }

    #[test]
    fn a_second_jump_is_told_too() {
        let mut guard = Guard::default();
        guard.judge(claim(0, Span::ZERO));
        guard.judge(claim(1, YEAR));
        assert_eq!(guard.judge(claim(50, -YEAR)), Judgement::Jumped(-YEAR - YEAR));
        assert_eq!(guard.judge(claim(100, -YEAR)), Judgement::Doubted);
    }

    #[test]
    fn extremes_do_not_overflow() {
        let mut guard = Guard::default();
        guard.judge(claim(0, Span::from_ns(i64::MIN)));
        assert!(!guard.judge(claim(1, Span::from_ns(i64::MAX))).is_trusted());
    }
}
