//! The guard against time that jumps: what was right a moment ago and is years away now is not
//! served until it has held still for a while. Pure. It does not know which of the two times is
//! right, and does not say.

use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp};

/// The largest jump that is followed at once: the panic threshold of RFC 5905, figure 5.
pub const JUMP_MAX: Span = Span::from_ns(1_000 * NS_PER_S);
/// How long the time must hold still after a larger one.
pub const HOLD: Span = Span::from_ns(60 * NS_PER_S);

/// Whether the time may be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// It runs as it did.
    Steady,
    /// It has just jumped by this much.
    Jumped(Span),
    /// It has jumped, and has not held still for long enough.
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

/// Watches one time, which it is shown again and again.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Guard {
    trusted: Option<Span>,
    doubted: Option<(Timestamp<Monotonic>, Span)>,
}

impl Guard {
    /// Judges the time that is `ahead` of the monotonic clock at `now`. The first is trusted.
    pub fn judge(&mut self, now: Timestamp<Monotonic>, ahead: Span) -> Judgement {
        let trusted = *self.trusted.get_or_insert(ahead);
        if is_near(ahead, trusted) {
            self.trusted = Some(ahead);
            let settled = self.doubted.take().is_some();
            return if settled { Judgement::Settled } else { Judgement::Steady };
        }
        match self.doubted {
            Some((since, doubted)) if is_near(ahead, doubted) => {
                if now - since < HOLD {
                    return Judgement::Doubted;
                }
                *self = Self { trusted: Some(ahead), doubted: None };
                Judgement::Settled
            }
            earlier => {
                self.doubted = Some((now, ahead));
                Judgement::Jumped(ahead - earlier.map_or(trusted, |(_, doubted)| doubted))
            }
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

    fn at(seconds: i64) -> Timestamp<Monotonic> {
        Timestamp::from_timespec(seconds, 0)
    }

    #[test]
    fn small_steps_are_followed_at_once() {
        let mut guard = Guard::default();
        for step in 0..10 {
            let ahead = Span::from_ns(step * 999 * NS_PER_S);
            assert_eq!(guard.judge(at(step), ahead), Judgement::Steady);
        }
    }

    #[test]
    fn years_are_doubted_until_they_hold_still() {
        let mut guard = Guard::default();
        guard.judge(at(0), Span::ZERO);
        assert_eq!(guard.judge(at(1), YEAR), Judgement::Jumped(YEAR));
        assert_eq!(guard.judge(at(60), YEAR), Judgement::Doubted);
        assert_eq!(guard.judge(at(61), YEAR), Judgement::Settled);
        assert_eq!(guard.judge(at(62), YEAR), Judgement::Steady);
        assert!(!guard.judge(at(63), Span::ZERO).is_trusted(), "the way back is a jump too");
    }

    #[test]
    fn a_time_that_comes_back_is_believed_at_once() {
        let mut guard = Guard::default();
        guard.judge(at(0), Span::ZERO);
        guard.judge(at(1), -YEAR);
        assert_eq!(guard.judge(at(2), Span::from_ms(5)), Judgement::Settled);
        assert_eq!(guard.judge(at(3), Span::from_ms(5)), Judgement::Steady);
    }

    #[test]
    fn a_second_jump_starts_the_wait_anew() {
        let mut guard = Guard::default();
        guard.judge(at(0), Span::ZERO);
        guard.judge(at(1), YEAR);
        assert_eq!(guard.judge(at(50), -YEAR), Judgement::Jumped(-YEAR - YEAR));
        assert_eq!(guard.judge(at(100), -YEAR), Judgement::Doubted);
        assert_eq!(guard.judge(at(110), -YEAR), Judgement::Settled);
    }

    #[test]
    fn extremes_do_not_overflow() {
        let mut guard = Guard::default();
        guard.judge(at(0), Span::from_ns(i64::MIN));
        assert!(!guard.judge(at(1), Span::from_ns(i64::MAX)).is_trusted());
    }
}
