//! Real-time priority of a port's thread, so that its Syncs leave evenly on a busy host, as long as
//! it needs little CPU time. Beyond that, when it is flooded or has many streams to send, it runs
//! as a sched-other thread, so that others are not starved.

use horolog_sys::affinity::{Scheduling, set_sched_other, try_real_time};
use horolog_time::{Monotonic, Span, Timestamp};

/// Lowest real-time priority, as of the clock thread.
const PRIORITY: i32 = 1;
/// Divisor for the share of a core that it may use at real-time priority.
const SHARE: i64 = 10;
/// Part of that share that it may use at once, and its maximum debt.
const BURST: Span = Span::from_ms(5);

/// Time that may still be used at real-time priority.
struct PriorityBudget {
    left: Span,
    at: Timestamp<Monotonic>,
    is_within_budget: bool,
}

impl PriorityBudget {
    const fn new(at: Timestamp<Monotonic>) -> Self {
        Self { left: BURST, at, is_within_budget: true }
    }

    /// Subtracts the time from `began` to `ended`; returns true if the budget holds. After an
    /// overrun it must be half full to count as within budget again.
    fn take(&mut self, began: Timestamp<Monotonic>, ended: Timestamp<Monotonic>) -> bool {
        let gained = Span::from_ns((ended - self.at).as_ns() / SHARE);
        self.at = ended;
        self.left = (self.left + gained - (ended - began)).clamp(Span::ZERO - BURST, BURST);
        let enough =
            if self.is_within_budget { Span::ZERO } else { Span::from_ns(BURST.as_ns() / 2) };
        self.is_within_budget = self.left >= enough;
        self.is_within_budget
    }
}

/// Control of the thread's priority.
pub(super) struct ThreadPriority {
    budget: PriorityBudget,
    is_real_time: bool,
    /// True if the system permits real-time priority; determined at the first use.
    is_allowed: bool,
}

impl ThreadPriority {
    /// Sets real-time priority from now on, if permitted.
    pub(super) fn take(now: Timestamp<Monotonic>) -> Self {
        let mut this =
            Self { budget: PriorityBudget::new(now), is_real_time: false, is_allowed: true };
        this.set(true);
        this
    }

    /// Charges the work of a turn, and sets the priority accordingly.
    pub(super) fn worked(&mut self, began: Timestamp<Monotonic>, ended: Timestamp<Monotonic>) {
        let wanted = self.budget.take(began, ended);
        self.set(wanted);
    }

    fn set(&mut self, wanted: bool) {
        if wanted == self.is_real_time || !self.is_allowed {
            return;
        }
        self.is_allowed = if wanted {
            matches!(try_real_time(PRIORITY), Scheduling::RealTime)
        } else {
            set_sched_other().is_ok()
        };
        self.is_real_time = wanted && self.is_allowed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Works for so long at the beginning of each of so many milliseconds.
    fn work(budget: &mut PriorityBudget, worked: Span, turns: i64) -> bool {
        let mut is_within_budget = true;
        for _ in 0..turns {
            let began = budget.at + Span::from_ms(1) - worked;
            is_within_budget = budget.take(began, began + worked);
        }
        is_within_budget
    }

    #[test]
    fn what_takes_little_goes_before_others_for_ever() {
        let mut budget = PriorityBudget::new(Timestamp::from_ns(0));
        assert!(work(&mut budget, Span::from_ns(99_000), 100_000));
    }

    #[test]
    fn what_takes_much_goes_with_others_until_it_has_rested() {
        const WORK: Span = Span::from_ns(900_000);
        let mut budget = PriorityBudget::new(Timestamp::from_ns(0));
        assert!(work(&mut budget, WORK, 6), "a burst");
        assert!(!work(&mut budget, WORK, 1));
        assert!(!work(&mut budget, WORK, 100_000));
        // From the deepest debt to half of a burst by a tenth of the time.
        assert!(!work(&mut budget, Span::ZERO, 74));
        assert!(work(&mut budget, Span::ZERO, 2));
    }
}
