//! Real-time priority of a port's thread, so that Sync messages are sent on time on a busy host, as
//! long as the thread needs little CPU time. If it needs more, because of a flood or many streams,
//! it runs as a sched-other thread, so that other threads do not starve.

use horolog_sys::affinity::{RealTimeSchedulingOutcome, set_sched_other, try_real_time};
use horolog_time::{Monotonic, Span, Timestamp};

/// Lowest real-time priority, as for the clock thread.
const REAL_TIME_PRIORITY: i32 = 1;
/// Divisor for the share of a core that the thread may use at real-time priority: a tenth.
const CPU_SHARE_DIVISOR: i64 = 10;
/// Maximum of the CPU time budget, and of an overdraft of it.
const BUDGET_MAX: Span = Span::from_ms(5);

/// CPU time budget for running at real-time priority.
struct RealTimeCpuBudget {
    remaining: Span,
    updated_at: Timestamp<Monotonic>,
    is_within_budget: bool,
}

impl RealTimeCpuBudget {
    const fn new(at: Timestamp<Monotonic>) -> Self {
        Self { remaining: BUDGET_MAX, updated_at: at, is_within_budget: true }
    }

    /// Charges the time from `began` to `ended`, and returns true if the thread is within its
    /// budget. After an overdraft the budget must be half full first.
    fn spend(&mut self, began: Timestamp<Monotonic>, ended: Timestamp<Monotonic>) -> bool {
        let gained = Span::from_ns((ended - self.updated_at).as_ns() / CPU_SHARE_DIVISOR);
        self.updated_at = ended;
        self.remaining =
            (self.remaining + gained - (ended - began)).clamp(Span::ZERO - BUDGET_MAX, BUDGET_MAX);
        let enough =
            if self.is_within_budget { Span::ZERO } else { Span::from_ns(BUDGET_MAX.as_ns() / 2) };
        self.is_within_budget = self.remaining >= enough;
        self.is_within_budget
    }
}

/// Throttle of the calling thread: real-time scheduling only within its CPU time budget.
pub(super) struct RealTimeThrottle {
    budget: RealTimeCpuBudget,
    is_real_time: bool,
    /// True unless the system refused to change the scheduling.
    is_allowed: bool,
}

impl RealTimeThrottle {
    /// Sets real-time priority for the calling thread, if permitted, and returns its throttle with
    /// a full budget.
    pub(super) fn raise(now: Timestamp<Monotonic>) -> Self {
        let mut this =
            Self { budget: RealTimeCpuBudget::new(now), is_real_time: false, is_allowed: true };
        this.set(true);
        this
    }

    /// Charges the time from `began` to `ended` to the budget, and sets real-time or sched-other
    /// scheduling accordingly.
    pub(super) fn charge_work(&mut self, began: Timestamp<Monotonic>, ended: Timestamp<Monotonic>) {
        let wanted = self.budget.spend(began, ended);
        self.set(wanted);
    }

    fn set(&mut self, wanted: bool) {
        if wanted == self.is_real_time || !self.is_allowed {
            return;
        }
        self.is_allowed = if wanted {
            matches!(try_real_time(REAL_TIME_PRIORITY), RealTimeSchedulingOutcome::RealTime)
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
    fn work(budget: &mut RealTimeCpuBudget, worked: Span, turns: i64) -> bool {
        let mut is_within_budget = true;
        for _ in 0..turns {
            let began = budget.updated_at + Span::from_ms(1) - worked;
            is_within_budget = budget.spend(began, began + worked);
        }
        is_within_budget
    }

    #[test]
    fn what_takes_little_goes_before_others_for_ever() {
        let mut budget = RealTimeCpuBudget::new(Timestamp::from_ns(0));
        assert!(work(&mut budget, Span::from_ns(99_000), 100_000));
    }

    #[test]
    fn what_takes_much_goes_with_others_until_it_has_rested() {
        const WORK: Span = Span::from_ns(900_000);
        let mut budget = RealTimeCpuBudget::new(Timestamp::from_ns(0));
        assert!(work(&mut budget, WORK, 6), "a burst");
        assert!(!work(&mut budget, WORK, 1));
        assert!(!work(&mut budget, WORK, 100_000));
        // From the deepest debt to half of a burst by a tenth of the time.
        assert!(!work(&mut budget, Span::ZERO, 74));
        assert!(work(&mut budget, Span::ZERO, 2));
    }
}
