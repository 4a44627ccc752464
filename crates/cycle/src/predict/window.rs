//! Fixed points: the shortest time in which some work is done under interference of other work.
//! Pure arithmetic over whole nanoseconds; the caller defines the meaning of the values.

/// Maximum number of rounds of an iteration. A start close to the fixed point needs few.
const ROUNDS_MAX: u64 = 100_000;
/// Share by which a start computed in floating point is placed below the exact one.
const ROUNDING: f64 = 1e-9;

/// Recurring work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Recurring {
    /// Its duration each time, in ns.
    pub(super) ns: u64,
    /// Shortest interval from one time to the next, in ns.
    pub(super) every_ns: u64,
    /// Longest delay of a time, in ns, which brings it closer to the next.
    pub(super) jitter_ns: u64,
}

/// Reason for the absence of a fixed point within the limit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum NoFixedPoint {
    /// The interference takes this share of all time, 1 or more.
    Overloaded(f64),
    /// It lies beyond the limit.
    Beyond,
    /// It was not found within the permitted rounds.
    Rounds,
}

/// A fixed point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Window {
    pub(super) ns: u64,
    pub(super) rounds: u64,
}

impl Recurring {
    /// Returns its largest number in a window: each begun time counts as a whole.
    pub(super) fn most(&self, window_ns: u64) -> u64 {
        window_ns.saturating_add(self.jitter_ns).div_ceil(self.every_ns.max(1))
    }

    /// Returns its number by the equations as published: only completed times count.
    pub(super) fn published(&self, window_ns: u64) -> u64 {
        window_ns / self.every_ns.max(1)
    }

    pub(super) fn share(&self) -> f64 {
        self.ns as f64 / self.every_ns.max(1) as f64
    }
}

/// Returns the least window that holds `base_ns` and the most interference in it.
pub(super) fn safe(
    base_ns: u64,
    between: &[Recurring],
    limit_ns: u64,
) -> Result<Window, NoFixedPoint> {
    let share: f64 = between.iter().map(Recurring::share).sum();
    if share >= 1.0 && base_ns > 0 {
        return Err(NoFixedPoint::Overloaded(share));
    }
    // Each count is at least the quotient, so that the fixed point is at least this.
    let late: f64 = between.iter().map(|one| one.share() * one.jitter_ns as f64).sum();
    let start = (base_ns as f64 + late) / (1.0 - share) * (1.0 - ROUNDING);
    iterate(base_ns.max(start as u64), limit_ns, |window| {
        demand(base_ns, between, |one| one.most(window))
    })
}

/// Returns the least window by floors, according to equations (1) and (3) as published.
pub(super) fn published(
    base_ns: u64,
    between: &[Recurring],
    limit_ns: u64,
) -> Result<Window, NoFixedPoint> {
    iterate(base_ns, limit_ns, |window| demand(base_ns, between, |one| one.published(window)))
}

fn demand(base_ns: u64, between: &[Recurring], count: impl Fn(&Recurring) -> u64) -> u64 {
    let all = between.iter().map(|one| one.ns.saturating_mul(count(one)));
    all.fold(base_ns, u64::saturating_add)
}

fn iterate(start: u64, limit_ns: u64, next: impl Fn(u64) -> u64) -> Result<Window, NoFixedPoint> {
    let mut window_ns = start;
    for rounds in 1..=ROUNDS_MAX {
        if window_ns > limit_ns {
            return Err(NoFixedPoint::Beyond);
        }
        match next(window_ns) {
            same if same == window_ns => return Ok(Window { ns: same, rounds }),
            longer => window_ns = longer,
        }
    }
    Err(NoFixedPoint::Rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ns: u64, every_ns: u64) -> Recurring {
        Recurring { ns, every_ns, jitter_ns: 0 }
    }

    #[test]
    fn the_least_fixed_point_is_found() {
        // 5 = 3 + ceil(5/4) · 1, and nothing below.
        assert_eq!(safe(3, &[of(1, 4)], 100).map(|window| window.ns), Ok(4));
        assert_eq!(safe(4, &[of(1, 4)], 100).map(|window| window.ns), Ok(6));
        assert_eq!(published(4, &[of(1, 4)], 100).map(|window| window.ns), Ok(5));
        assert_eq!(safe(7, &[], 100).map(|window| window.ns), Ok(7));
        assert_eq!(safe(0, &[of(9, 9)], 100).map(|window| window.ns), Ok(0));
    }

    #[test]
    fn a_missing_fixed_point_has_a_reason() {
        assert_eq!(safe(1, &[of(1, 2), of(1, 2)], 1_000), Err(NoFixedPoint::Overloaded(1.0)));
        assert_eq!(safe(60, &[of(1, 2)], 100), Err(NoFixedPoint::Beyond));
        assert_eq!(published(60, &[of(2, 2)], 1_000), Err(NoFixedPoint::Beyond));
        // One that creeps: the floors of a share of one go on for ever.
        assert_eq!(published(2, &[of(1, 1)], u64::MAX), Err(NoFixedPoint::Rounds));
    }

    #[test]
    fn a_start_worked_out_leads_to_the_same_as_from_below() {
        for base in 1..200 {
            for (ns, every) in [(1, 3), (2, 7), (9, 11), (10, 41)] {
                let between = [of(ns, every), Recurring { ns: 3, every_ns: 53, jitter_ns: 20 }];
                let slow =
                    iterate(base, 1 << 40, |window| demand(base, &between, |one| one.most(window)));
                let found = safe(base, &between, 1 << 40);
                assert_eq!(found.map(|one| one.ns), slow.map(|one| one.ns), "{base} {ns} {every}");
            }
        }
    }
}
