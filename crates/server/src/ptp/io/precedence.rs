//! When the thread of a port goes before ordinary threads, so that its Syncs leave evenly on a busy
//! machine: for as long as it needs little time. What it does beyond that, being flooded or having
//! many streams to send, it does as an ordinary thread, so that others have their turns.

use horolog_sys::affinity::{Scheduling, be_ordinary, prefer_real_time};
use horolog_time::{Monotonic, Span, Timestamp};

/// The lowest real-time priority, as the clock thread has.
const PRIORITY: i32 = 1;
/// The share of a core that it may take before others, as one part of so many.
const SHARE: i64 = 10;
/// How much of that it may take in one go, and how far it can run into debt.
const BURST: Span = Span::from_ms(5);

/// Time that may still be taken before others.
struct Budget {
    left: Span,
    at: Timestamp<Monotonic>,
    is_kept: bool,
}

impl Budget {
    const fn new(at: Timestamp<Monotonic>) -> Self {
        Self { left: BURST, at, is_kept: true }
    }

    /// Takes off the time from `began` to `ended`, and says whether the budget is kept. One that
    /// was not has to be half full to be so again.
    fn take(&mut self, began: Timestamp<Monotonic>, ended: Timestamp<Monotonic>) -> bool {
        let gained = Span::from_ns((ended - self.at).as_ns() / SHARE);
        self.at = ended;
        self.left = (self.left + gained - (ended - began)).clamp(Span::ZERO - BURST, BURST);
        let enough = if self.is_kept { Span::ZERO } else { Span::from_ns(BURST.as_ns() / 2) };
        self.is_kept = self.left >= enough;
        self.is_kept
    }
}

/// The thread's way to go before others.
pub(super) struct Precedence {
    budget: Budget,
    is_real_time: bool,
    /// Whether the system allows it; found out the first time.
    is_allowed: bool,
}

impl Precedence {
    /// Goes before others from now on, where that is allowed.
    pub(super) fn take(now: Timestamp<Monotonic>) -> Self {
        let mut this = Self { budget: Budget::new(now), is_real_time: false, is_allowed: true };
        this.set(true);
        this
    }

    /// Accounts for a turn's work, and goes before others or with them by that.
    pub(super) fn worked(&mut self, began: Timestamp<Monotonic>, ended: Timestamp<Monotonic>) {
        let wanted = self.budget.take(began, ended);
        self.set(wanted);
    }

    fn set(&mut self, wanted: bool) {
        if wanted == self.is_real_time || !self.is_allowed {
            return;
        }
        self.is_allowed = if wanted {
            matches!(prefer_real_time(PRIORITY), Scheduling::RealTime)
        } else {
            be_ordinary().is_ok()
        };
        self.is_real_time = wanted && self.is_allowed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Works for so long at the beginning of each of so many milliseconds.
    fn work(budget: &mut Budget, worked: Span, turns: i64) -> bool {
        let mut is_kept = true;
        for _ in 0..turns {
            let began = budget.at + Span::from_ms(1) - worked;
            is_kept = budget.take(began, began + worked);
        }
        is_kept
    }

    #[test]
    fn what_takes_little_goes_before_others_for_ever() {
        let mut budget = Budget::new(Timestamp::from_ns(0));
        assert!(work(&mut budget, Span::from_ns(99_000), 100_000));
    }

    #[test]
    fn what_takes_much_goes_with_others_until_it_has_rested() {
        const WORK: Span = Span::from_ns(900_000);
        let mut budget = Budget::new(Timestamp::from_ns(0));
        assert!(work(&mut budget, WORK, 6), "a burst");
        assert!(!work(&mut budget, WORK, 1));
        assert!(!work(&mut budget, WORK, 100_000));
        // From the deepest debt to half of a burst by a tenth of the time.
        assert!(!work(&mut budget, Span::ZERO, 74));
        assert!(work(&mut budget, Span::ZERO, 2));
    }
}
