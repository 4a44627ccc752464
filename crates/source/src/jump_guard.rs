//! Guard against jumps of the time: a time that was right a moment ago and is years away now is not
//! served until it is back, another source confirms it, or the operator accepts it. Pure. The guard
//! cannot decide which of the two times is right; that a wrong time is stable does not make it
//! better.

use horolog_discipline::{Implausible, Plausibility, agree};
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp};

/// Largest jump that is followed: the panic threshold of RFC 5905, figure 5.
pub const JUMP_MAX: Span = Span::from_ns(1_000 * NS_PER_S);

/// Judgement on serving the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// It continues as expected.
    Steady,
    /// It has just jumped by this much.
    Jumped(Span),
    /// It has just been found implausible: before the build, or too far beyond it.
    Implausible(Implausible),
    /// One of these was returned before, and nothing has improved.
    StillJumped,
    /// It is trusted again.
    Recovered,
    /// The operator has accepted it.
    Accepted,
    /// It has moved by this much from a time that nothing had confirmed, and is trusted.
    Moved(Span),
}

impl Judgement {
    /// Returns true if the time may be served.
    #[must_use]
    pub const fn is_trusted(self) -> bool {
        matches!(self, Self::Steady | Self::Recovered | Self::Accepted | Self::Moved(_))
    }
}

/// Time to be judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeClaim {
    /// Instant of the claim.
    pub now: Timestamp<Monotonic>,
    /// Time minus the monotonic clock.
    pub ahead: Span,
    /// True if a source claims that it is right.
    pub is_claimed: bool,
    /// Time, ahead of the monotonic clock, on which several sources agree of which one is no mirror
    /// of the system clock.
    pub confirmed: Option<Span>,
    /// Clock of this host, ahead of the monotonic clock, that agrees with it to a day, and that it
    /// does not merely repeat.
    pub host_clock: Option<Span>,
    /// True if nothing has ever confirmed it, so that it contradicts no later time.
    pub is_unconfirmed: bool,
}

/// Guard of one time, which it judges repeatedly.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct JumpGuard {
    basis: Option<Plausibility>,
    expected: Option<Span>,
    /// True if the expected time contradicts another time.
    is_firm: bool,
    unconfirmed: Option<Span>,
    was_implausible: bool,
    was_accepted: bool,
}

impl JumpGuard {
    /// Creates a guard that accepts no time before the build, and none too far beyond it.
    #[must_use]
    pub fn within(basis: Plausibility) -> Self {
        Self { basis: Some(basis), ..Self::default() }
    }

    /// Judges a time. The first that a source claims to be right is trusted; before it, no time was
    /// served that another could contradict.
    pub fn judge(&mut self, claim: TimeClaim) -> Judgement {
        let TimeClaim { now, ahead, confirmed, .. } = claim;
        let utc = Timestamp::from_ns(now.as_ns().saturating_add(ahead.as_ns()));
        if let Some(reason) = self.basis.and_then(|basis| basis.check(utc).err()) {
            let was_reported = std::mem::replace(&mut self.was_implausible, true);
            return if was_reported {
                Judgement::StillJumped
            } else {
                Judgement::Implausible(reason)
            };
        }
        let was_implausible = std::mem::take(&mut self.was_implausible);
        let is_as = |expected| is_near(ahead, expected);
        let goes_on = self.expected.is_none_or(is_as);
        // A clock that agrees with both decides nothing.
        let is_against = |clock| {
            agree(clock, ahead) && !self.expected.is_some_and(|before| agree(clock, before))
        };
        if goes_on || confirmed.is_some_and(is_as) || claim.host_clock.is_some_and(is_against) {
            self.expect(&claim, goes_on);
            let settled = self.unconfirmed.take().is_some() || was_implausible;
            return match (settled, std::mem::take(&mut self.was_accepted)) {
                (true, true) => Judgement::Accepted,
                (true, false) => Judgement::Recovered,
                (false, _) => Judgement::Steady,
            };
        }
        if let Some(before) = self.expected.filter(|_| !self.is_firm) {
            self.expect(&claim, false);
            self.unconfirmed = None;
            return Judgement::Moved(ahead - before);
        }
        match self.unconfirmed.replace(ahead) {
            Some(unconfirmed) if is_as(unconfirmed) => Judgement::StillJumped,
            earlier => Judgement::Jumped(ahead - earlier.or(self.expected).unwrap_or(ahead)),
        }
    }

    /// Expects a time to continue; one that was firm stays so as long as it `goes_on`.
    fn expect(&mut self, claim: &TimeClaim, goes_on: bool) {
        if claim.is_claimed || self.expected.is_some() {
            self.expected = Some(claim.ahead);
            self.is_firm = !claim.is_unconfirmed || goes_on && self.is_firm;
        }
    }

    /// Accepts the time to which it has jumped, on the operator's command.
    pub fn accept(&mut self) {
        if let Some(unconfirmed) = self.unconfirmed {
            (self.expected, self.is_firm, self.was_accepted) = (Some(unconfirmed), true, true);
        }
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
        TimeClaim {
            now,
            ahead,
            is_claimed: true,
            confirmed: None,
            host_clock: None,
            is_unconfirmed: false,
        }
    }

    #[test]
    fn small_steps_are_followed_at_once() {
        let mut guard = JumpGuard::default();
        for step in 0..10 {
            let ahead = Span::from_ns(step * 999 * NS_PER_S);
            assert_eq!(guard.judge(claim(step, ahead)), Judgement::Steady);
        }
    }

    #[test]
    fn a_jump_by_years_is_not_trusted_however_long_it_lasts() {
        let mut guard = JumpGuard::default();
        guard.judge(claim(0, Span::ZERO));
        assert_eq!(guard.judge(claim(1, YEAR)), Judgement::Jumped(YEAR));
        for second in [2, 61, 62, 86_400] {
            assert_eq!(guard.judge(claim(second, YEAR)), Judgement::StillJumped);
        }
    }

    #[test]
    fn a_time_that_comes_back_is_believed_at_once() {
        let mut guard = JumpGuard::default();
        guard.judge(claim(0, Span::ZERO));
        guard.judge(claim(1, -YEAR));
        assert_eq!(guard.judge(claim(2, Span::from_ms(5))), Judgement::Recovered);
        assert_eq!(guard.judge(claim(3, Span::from_ms(5))), Judgement::Steady);
    }

    #[test]
    fn what_the_operator_accepts_is_believed_and_nothing_else() {
        let mut guard = JumpGuard::default();
        guard.judge(claim(0, Span::ZERO));
        guard.judge(claim(1, YEAR));
        guard.accept();
        assert_eq!(guard.judge(claim(2, -YEAR)), Judgement::Jumped(-YEAR - YEAR));
        assert_eq!(guard.judge(claim(3, YEAR)), Judgement::Accepted);
        assert!(!guard.judge(claim(4, Span::ZERO)).is_trusted(), "the way back is a jump too");
    }

    #[test]
    fn what_others_confirm_is_believed_and_no_other_time() {
        let mut guard = JumpGuard::default();
        guard.judge(claim(0, Span::ZERO));
        let of_old = TimeClaim { confirmed: Some(Span::ZERO), ..claim(1, YEAR) };
        assert_eq!(guard.judge(of_old), Judgement::Jumped(YEAR));
        let confirmed = TimeClaim { confirmed: Some(YEAR + Span::from_ms(20)), ..claim(2, YEAR) };
        assert_eq!(guard.judge(confirmed), Judgement::Recovered);
        assert_eq!(guard.judge(claim(3, YEAR)), Judgement::Steady);
    }

    #[test]
    fn a_right_time_after_a_wrong_one_that_was_accepted_is_believed_by_the_host_s_clock() {
        let mut guard = JumpGuard::default();
        guard.judge(claim(0, Span::ZERO));
        guard.judge(claim(1, YEAR));
        guard.accept();
        assert_eq!(guard.judge(claim(2, YEAR)), Judgement::Accepted);
        let hours = Span::from_ns(20 * 3_600 * NS_PER_S);
        let back = TimeClaim { host_clock: Some(hours), ..claim(3, Span::ZERO) };
        assert_eq!(guard.judge(back), Judgement::Steady);
        let near = TimeClaim { host_clock: Some(hours), ..claim(4, hours) };
        assert_eq!(guard.judge(near), Judgement::Jumped(hours), "it agrees with both");
    }

    #[test]
    fn a_time_that_nothing_confirmed_does_not_contradict_the_next() {
        let unconfirmed =
            |second, ahead| TimeClaim { is_unconfirmed: true, ..claim(second, ahead) };
        let mut guard = JumpGuard::default();
        assert_eq!(guard.judge(unconfirmed(0, YEAR)), Judgement::Steady);
        assert_eq!(guard.judge(unconfirmed(1, Span::ZERO)), Judgement::Moved(-YEAR));
        assert_eq!(guard.judge(unconfirmed(2, Span::ZERO)), Judgement::Steady);
        assert_eq!(guard.judge(claim(3, Span::ZERO)), Judgement::Steady, "confirmed now");
        assert_eq!(guard.judge(unconfirmed(4, Span::ZERO)), Judgement::Steady);
        assert_eq!(guard.judge(unconfirmed(5, YEAR)), Judgement::Jumped(YEAR));
    }

    #[test]
    fn a_time_that_no_source_claimed_is_not_expected_to_continue() {
        let mut guard = JumpGuard::default();
        guard.judge(TimeClaim { is_claimed: false, ..claim(0, Span::ZERO) });
        assert_eq!(guard.judge(claim(1, YEAR)), Judgement::Steady);
        assert!(!guard.judge(TimeClaim { is_claimed: false, ..claim(2, Span::ZERO) }).is_trusted());
    }

    #[test]
    fn a_time_before_the_build_or_too_far_beyond_it_is_never_believed() {
        let basis = Plausibility {
            build: Timestamp::from_ns(YEAR.as_ns()),
            reach: Plausibility::years(2),
            ..Plausibility::default()
        };
        for wrong in [Span::ZERO, Span::from_ns(4 * YEAR.as_ns())] {
            let mut guard = JumpGuard::within(basis);
            assert!(matches!(guard.judge(claim(1, wrong)), Judgement::Implausible(_)));
            guard.accept();
            assert_eq!(guard.judge(claim(2, wrong)), Judgement::StillJumped);
            assert_eq!(guard.judge(claim(3, YEAR)), Judgement::Recovered);
            assert_eq!(guard.judge(claim(4, YEAR)), Judgement::Steady);
        }
    }

    #[test]
    fn a_second_jump_is_reported_too() {
        let mut guard = JumpGuard::default();
        guard.judge(claim(0, Span::ZERO));
        guard.judge(claim(1, YEAR));
        assert_eq!(guard.judge(claim(50, -YEAR)), Judgement::Jumped(-YEAR - YEAR));
        assert_eq!(guard.judge(claim(100, -YEAR)), Judgement::StillJumped);
    }

    #[test]
    fn extremes_do_not_overflow() {
        let mut guard = JumpGuard::default();
        guard.judge(claim(0, Span::from_ns(i64::MIN)));
        assert!(!guard.judge(claim(1, Span::from_ns(i64::MAX))).is_trusted());
    }
}
