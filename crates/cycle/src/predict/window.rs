//! Fixed-point iteration: the shortest window in which some work completes under interference of
//! recurring work. Pure integer arithmetic in ns; the caller defines the meaning of the values.

/// Maximum number of rounds of an iteration. A start close to the fixed point needs few.
const ROUNDS_MAX: u64 = 100_000;
/// Relative margin by which the floating-point start of an iteration lies below the exact value.
const START_MARGIN: f64 = 1e-9;

/// Work that recurs at a minimum interval, with release jitter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RecurringWork {
    /// Duration of one occurrence, in ns.
    pub(super) ns: u64,
    /// Shortest interval between two occurrences without jitter, in ns.
    pub(super) every_ns: u64,
    /// Largest release jitter, in ns, which brings an occurrence closer to the next.
    pub(super) jitter_ns: u64,
}

/// Reason for which no fixed point was found within the limit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum NoFixedPoint {
    /// The utilisation by the interference is this, 1 or more.
    Overloaded(f64),
    /// The fixed point lies beyond the limit.
    BeyondLimit,
    /// The iteration did not converge within the permitted number of rounds.
    NotConverged,
}

/// Window at the fixed point: its length in ns, and the number of rounds of the iteration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FixedPointWindow {
    pub(super) ns: u64,
    pub(super) rounds: u64,
}

impl RecurringWork {
    /// Returns the largest number of occurrences in a window, `ceil((w + J) / T)`.
    pub(super) fn occurrences_max(&self, window_ns: u64) -> u64 {
        window_ns.saturating_add(self.jitter_ns).div_ceil(self.every_ns.max(1))
    }

    /// Returns the number of occurrences by the equations as published, `floor(w / T)`.
    pub(super) fn published_occurrences(&self, window_ns: u64) -> u64 {
        window_ns / self.every_ns.max(1)
    }

    pub(super) fn utilisation(&self) -> f64 {
        self.ns as f64 / self.every_ns.max(1) as f64
    }
}

/// Returns the shortest window that contains `base_ns` and the largest interference in it; fails if
/// it is longer than `limit_ns`.
pub(super) fn safe_window(
    base_ns: u64,
    interference: &[RecurringWork],
    limit_ns: u64,
) -> Result<FixedPointWindow, NoFixedPoint> {
    let share: f64 = interference.iter().map(RecurringWork::utilisation).sum();
    if share >= 1.0 && base_ns > 0 {
        return Err(NoFixedPoint::Overloaded(share));
    }
    // Each count is at least its quotient, so the fixed point is at least this.
    let jitter_ns: f64 =
        interference.iter().map(|one| one.utilisation() * one.jitter_ns as f64).sum();
    let start = (base_ns as f64 + jitter_ns) / (1.0 - share) * (1.0 - START_MARGIN);
    iterate(base_ns.max(start as u64), limit_ns, |window| {
        demand_in_window(base_ns, interference, |one| one.occurrences_max(window))
    })
}

/// Returns the shortest window by equations (1) and (3) as published, which round counts down.
pub(super) fn published_window(
    base_ns: u64,
    interference: &[RecurringWork],
    limit_ns: u64,
) -> Result<FixedPointWindow, NoFixedPoint> {
    iterate(base_ns, limit_ns, |window| {
        demand_in_window(base_ns, interference, |one| one.published_occurrences(window))
    })
}

fn demand_in_window(
    base_ns: u64,
    interference: &[RecurringWork],
    count: impl Fn(&RecurringWork) -> u64,
) -> u64 {
    let all = interference.iter().map(|one| one.ns.saturating_mul(count(one)));
    all.fold(base_ns, u64::saturating_add)
}

fn iterate(
    start: u64,
    limit_ns: u64,
    next: impl Fn(u64) -> u64,
) -> Result<FixedPointWindow, NoFixedPoint> {
    let mut window_ns = start;
    for rounds in 1..=ROUNDS_MAX {
        if window_ns > limit_ns {
            return Err(NoFixedPoint::BeyondLimit);
        }
        match next(window_ns) {
            same if same == window_ns => return Ok(FixedPointWindow { ns: same, rounds }),
            longer => window_ns = longer,
        }
    }
    Err(NoFixedPoint::NotConverged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ns: u64, every_ns: u64) -> RecurringWork {
        RecurringWork { ns, every_ns, jitter_ns: 0 }
    }

    #[test]
    fn the_least_fixed_point_is_found() {
        // 5 = 3 + ceil(5/4) · 1, and nothing below.
        assert_eq!(safe_window(3, &[of(1, 4)], 100).map(|window| window.ns), Ok(4));
        assert_eq!(safe_window(4, &[of(1, 4)], 100).map(|window| window.ns), Ok(6));
        assert_eq!(published_window(4, &[of(1, 4)], 100).map(|window| window.ns), Ok(5));
        assert_eq!(safe_window(7, &[], 100).map(|window| window.ns), Ok(7));
        assert_eq!(safe_window(0, &[of(9, 9)], 100).map(|window| window.ns), Ok(0));
    }

    #[test]
    fn a_missing_fixed_point_has_a_reason() {
        assert_eq!(
            safe_window(1, &[of(1, 2), of(1, 2)], 1_000),
            Err(NoFixedPoint::Overloaded(1.0))
        );
        assert_eq!(safe_window(60, &[of(1, 2)], 100), Err(NoFixedPoint::BeyondLimit));
        assert_eq!(published_window(60, &[of(2, 2)], 1_000), Err(NoFixedPoint::BeyondLimit));
        // One that creeps: the floors of a share of one go on for ever.
        assert_eq!(published_window(2, &[of(1, 1)], u64::MAX), Err(NoFixedPoint::NotConverged));
    }

    #[test]
    fn a_start_worked_out_leads_to_the_same_as_from_below() {
        for base in 1..200 {
            for (ns, every) in [(1, 3), (2, 7), (9, 11), (10, 41)] {
                let between = [of(ns, every), RecurringWork { ns: 3, every_ns: 53, jitter_ns: 20 }];
                let slow = iterate(base, 1 << 40, |window| {
                    demand_in_window(base, &between, |one| one.occurrences_max(window))
                });
                let found = safe_window(base, &between, 1 << 40);
                assert_eq!(found.map(|one| one.ns), slow.map(|one| one.ns), "{base} {ns} {every}");
            }
        }
    }
}
