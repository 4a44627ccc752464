//! Guard against jumps of the time to serve. A time that jumps by more than [`JUMP_MAX`] is not
//! served until it returns, another source confirms it, or the operator accepts it. The guard
//! cannot decide which of the two times is right; a wrong time that is stable is still wrong. Pure.

use horolog_discipline::{ImplausibilityReason, PlausibilityRuleParameters, is_within_a_day};
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp};

/// Largest jump that is served without confirmation: the panic threshold of RFC 5905, figure 5.
pub const JUMP_MAX: Span = Span::from_ns(1_000 * NS_PER_S);

/// Verdict on serving a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JumpVerdict {
    /// The time continues as expected.
    Continuous,
    /// The time has just jumped by this amount.
    Jumped(Span),
    /// The time has just become implausible: before the build date, or too far after it.
    Implausible(ImplausibilityReason),
    /// The time is still jumped or implausible, as already reported.
    StillJumped,
    /// The time is trusted again.
    Recovered,
    /// The time is trusted because the operator has accepted it.
    Accepted,
    /// The time has moved by this amount from one that was never confirmed, and is trusted.
    Moved(Span),
}

impl JumpVerdict {
    /// Returns true if the time may be served.
    #[must_use]
    pub const fn is_trusted(self) -> bool {
        matches!(self, Self::Continuous | Self::Recovered | Self::Accepted | Self::Moved(_))
    }
}

/// Time to be judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeClaim {
    /// Instant of the claim.
    pub now: Timestamp<Monotonic>,
    /// UTC minus the monotonic clock.
    pub utc_minus_monotonic: Span,
    /// True if a time source reports this time as right.
    pub is_from_source: bool,
    /// Time, as UTC minus the monotonic clock, on which several sources agree, of which at least
    /// one does not merely repeat the system clock; `None` if there is none.
    pub confirmed_time: Option<Span>,
    /// Clock of this host, as UTC minus the monotonic clock, that agrees with the time to a day,
    /// independently of the source; `None` if there is none.
    pub host_clock: Option<Span>,
    /// True if nothing has ever confirmed the time; such a time is no evidence against a later one.
    pub is_unconfirmed: bool,
}

/// Guard of the served time, which it judges repeatedly.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct JumpGuard {
    basis: Option<PlausibilityRuleParameters>,
    expected: Option<Span>,
    /// True if the expected time was confirmed, so that a jump from it is not trusted.
    is_confirmed: bool,
    unconfirmed: Option<Span>,
    was_implausible: bool,
    was_accepted: bool,
}

impl JumpGuard {
    /// Creates a guard that also rejects times outside the limits of `plausibility`.
    #[must_use]
    pub fn with_plausibility(basis: PlausibilityRuleParameters) -> Self {
        Self { basis: Some(basis), ..Self::default() }
    }

    /// Judges a time. If it is plausible, the first one is trusted, since nothing was served before
    /// that it could contradict; it is expected from then on if a source reports it.
    pub fn judge(&mut self, claim: TimeClaim) -> JumpVerdict {
        let TimeClaim { now, utc_minus_monotonic: ahead, confirmed_time: confirmed, .. } = claim;
        let utc = Timestamp::from_ns(now.as_ns().saturating_add(ahead.as_ns()));
        if let Some(reason) = self.basis.and_then(|basis| basis.check(utc).err()) {
            let was_reported = std::mem::replace(&mut self.was_implausible, true);
            return if was_reported {
                JumpVerdict::StillJumped
            } else {
                JumpVerdict::Implausible(reason)
            };
        }
        let was_implausible = std::mem::take(&mut self.was_implausible);
        let is_near_time = |expected| is_near(ahead, expected);
        let is_continuous = self.expected.is_none_or(is_near_time);
        // A host clock that agrees with both times decides nothing.
        let contradicts_expected = |clock| {
            is_within_a_day(clock, ahead)
                && !self.expected.is_some_and(|before| is_within_a_day(clock, before))
        };
        if is_continuous
            || confirmed.is_some_and(is_near_time)
            || claim.host_clock.is_some_and(contradicts_expected)
        {
            self.expect(&claim, is_continuous);
            let has_recovered = self.unconfirmed.take().is_some() || was_implausible;
            return match (has_recovered, std::mem::take(&mut self.was_accepted)) {
                (true, true) => JumpVerdict::Accepted,
                (true, false) => JumpVerdict::Recovered,
                (false, _) => JumpVerdict::Continuous,
            };
        }
        if let Some(before) = self.expected.filter(|_| !self.is_confirmed) {
            self.expect(&claim, false);
            self.unconfirmed = None;
            return JumpVerdict::Moved(ahead - before);
        }
        match self.unconfirmed.replace(ahead) {
            Some(unconfirmed) if is_near_time(unconfirmed) => JumpVerdict::StillJumped,
            earlier => JumpVerdict::Jumped(ahead - earlier.or(self.expected).unwrap_or(ahead)),
        }
    }

    /// Records the time as expected. A confirmed time remains so while it is continuous
    /// (`goes_on`).
    fn expect(&mut self, claim: &TimeClaim, goes_on: bool) {
        if claim.is_from_source || self.expected.is_some() {
            self.expected = Some(claim.utc_minus_monotonic);
            self.is_confirmed = !claim.is_unconfirmed || goes_on && self.is_confirmed;
        }
    }

    /// Accepts the jumped time, on the operator's command.
    pub fn accept(&mut self) {
        if let Some(unconfirmed) = self.unconfirmed {
            (self.expected, self.is_confirmed, self.was_accepted) = (Some(unconfirmed), true, true);
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
            utc_minus_monotonic: ahead,
            is_from_source: true,
            confirmed_time: None,
            host_clock: None,
            is_unconfirmed: false,
        }
    }

    #[test]
    fn small_steps_are_followed_at_once() {
        let mut guard = JumpGuard::default();
        for step in 0..10 {
            let ahead = Span::from_ns(step * 999 * NS_PER_S);
            assert_eq!(guard.judge(claim(step, ahead)), JumpVerdict::Continuous);
        }
    }

    #[test]
    fn a_jump_by_years_is_not_trusted_however_long_it_lasts() {
        let mut guard = JumpGuard::default();
        guard.judge(claim(0, Span::ZERO));
        assert_eq!(guard.judge(claim(1, YEAR)), JumpVerdict::Jumped(YEAR));
        for second in [2, 61, 62, 86_400] {
            assert_eq!(guard.judge(claim(second, YEAR)), JumpVerdict::StillJumped);
        }
    }

    #[test]
    fn a_time_that_comes_back_is_believed_at_once() {
        let mut guard = JumpGuard::default();
        guard.judge(claim(0, Span::ZERO));
        guard.judge(claim(1, -YEAR));
        assert_eq!(guard.judge(claim(2, Span::from_ms(5))), JumpVerdict::Recovered);
        assert_eq!(guard.judge(claim(3, Span::from_ms(5))), JumpVerdict::Continuous);
    }

    #[test]
    fn what_the_operator_accepts_is_believed_and_nothing_else() {
        let mut guard = JumpGuard::default();
        guard.judge(claim(0, Span::ZERO));
        guard.judge(claim(1, YEAR));
        guard.accept();
        assert_eq!(guard.judge(claim(2, -YEAR)), JumpVerdict::Jumped(-YEAR - YEAR));
        assert_eq!(guard.judge(claim(3, YEAR)), JumpVerdict::Accepted);
        assert!(!guard.judge(claim(4, Span::ZERO)).is_trusted(), "the way back is a jump too");
    }

    #[test]
    fn what_others_confirm_is_believed_and_no_other_time() {
        let mut guard = JumpGuard::default();
        guard.judge(claim(0, Span::ZERO));
        let of_old = TimeClaim { confirmed_time: Some(Span::ZERO), ..claim(1, YEAR) };
        assert_eq!(guard.judge(of_old), JumpVerdict::Jumped(YEAR));
        let confirmed =
            TimeClaim { confirmed_time: Some(YEAR + Span::from_ms(20)), ..claim(2, YEAR) };
        assert_eq!(guard.judge(confirmed), JumpVerdict::Recovered);
        assert_eq!(guard.judge(claim(3, YEAR)), JumpVerdict::Continuous);
    }

    #[test]
    fn a_right_time_after_a_wrong_one_that_was_accepted_is_believed_by_the_host_s_clock() {
        let mut guard = JumpGuard::default();
        guard.judge(claim(0, Span::ZERO));
        guard.judge(claim(1, YEAR));
        guard.accept();
        assert_eq!(guard.judge(claim(2, YEAR)), JumpVerdict::Accepted);
        let hours = Span::from_ns(20 * 3_600 * NS_PER_S);
        let back = TimeClaim { host_clock: Some(hours), ..claim(3, Span::ZERO) };
        assert_eq!(guard.judge(back), JumpVerdict::Continuous);
        let near = TimeClaim { host_clock: Some(hours), ..claim(4, hours) };
        assert_eq!(guard.judge(near), JumpVerdict::Jumped(hours), "it agrees with both");
    }

    #[test]
    fn a_time_that_nothing_confirmed_does_not_contradict_the_next() {
        let unconfirmed =
            |second, ahead| TimeClaim { is_unconfirmed: true, ..claim(second, ahead) };
        let mut guard = JumpGuard::default();
        assert_eq!(guard.judge(unconfirmed(0, YEAR)), JumpVerdict::Continuous);
        assert_eq!(guard.judge(unconfirmed(1, Span::ZERO)), JumpVerdict::Moved(-YEAR));
        assert_eq!(guard.judge(unconfirmed(2, Span::ZERO)), JumpVerdict::Continuous);
        assert_eq!(guard.judge(claim(3, Span::ZERO)), JumpVerdict::Continuous, "confirmed now");
        assert_eq!(guard.judge(unconfirmed(4, Span::ZERO)), JumpVerdict::Continuous);
        assert_eq!(guard.judge(unconfirmed(5, YEAR)), JumpVerdict::Jumped(YEAR));
    }

    #[test]
    fn a_time_that_no_source_claimed_is_not_expected_to_continue() {
        let mut guard = JumpGuard::default();
        guard.judge(TimeClaim { is_from_source: false, ..claim(0, Span::ZERO) });
        assert_eq!(guard.judge(claim(1, YEAR)), JumpVerdict::Continuous);
        assert!(
            !guard.judge(TimeClaim { is_from_source: false, ..claim(2, Span::ZERO) }).is_trusted()
        );
    }

    #[test]
    fn a_time_before_the_build_or_too_far_beyond_it_is_never_believed() {
        let basis = PlausibilityRuleParameters {
            build: Timestamp::from_ns(YEAR.as_ns()),
            validity: PlausibilityRuleParameters::span_of_years(2),
            ..PlausibilityRuleParameters::default()
        };
        for wrong in [Span::ZERO, Span::from_ns(4 * YEAR.as_ns())] {
            let mut guard = JumpGuard::with_plausibility(basis);
            assert!(matches!(guard.judge(claim(1, wrong)), JumpVerdict::Implausible(_)));
            guard.accept();
            assert_eq!(guard.judge(claim(2, wrong)), JumpVerdict::StillJumped);
            assert_eq!(guard.judge(claim(3, YEAR)), JumpVerdict::Recovered);
            assert_eq!(guard.judge(claim(4, YEAR)), JumpVerdict::Continuous);
        }
    }

    #[test]
    fn a_second_jump_is_reported_too() {
        let mut guard = JumpGuard::default();
        guard.judge(claim(0, Span::ZERO));
        guard.judge(claim(1, YEAR));
        assert_eq!(guard.judge(claim(50, -YEAR)), JumpVerdict::Jumped(-YEAR - YEAR));
        assert_eq!(guard.judge(claim(100, -YEAR)), JumpVerdict::StillJumped);
    }

    #[test]
    fn extremes_do_not_overflow() {
        let mut guard = JumpGuard::default();
        guard.judge(claim(0, Span::from_ns(i64::MIN)));
        assert!(!guard.judge(claim(1, Span::from_ns(i64::MAX))).is_trusted());
    }
}
