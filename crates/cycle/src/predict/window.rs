//! Fixed points: the shortest time in which some work is done while other work comes between. Pure
//! arithmetic over whole nanoseconds; what the figures mean is for whoever gives them.

/// Rounds after which an iteration is given up. A start close to the fixed point needs few.
const ROUNDS_MAX: u64 = 100_000;
/// A start that is worked out in floating point is kept below the exact one by this share.
const ROUNDING: f64 = 1e-9;

/// Work that comes again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Recurring {
    /// How long it is each time, in ns.
    pub(super) ns: u64,
    /// From one time to the next at least, in ns.
    pub(super) every_ns: u64,
    /// By how much a time may be put off, in ns, so that it is closer to the next.
    pub(super) jitter_ns: u64,
}

/// Why there is no fixed point within the limit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum NoEnd {
    /// What comes between takes this share of all time, 1 or more.
    Overloaded(f64),
    /// It lies beyond the limit.
    Beyond,
    /// It was not found within the rounds allowed.
    Rounds,
}

/// A fixed point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Window {
    pub(super) ns: u64,
    pub(super) rounds: u64,
}

impl Recurring {
    /// How often it comes in a window at most: each time begun counts whole.
    pub(super) fn most(&self, window_ns: u64) -> u64 {
        window_ns.saturating_add(self.jitter_ns).div_ceil(self.every_ns.max(1))
    }

    /// How often it comes by the equations as they are printed: only times that are over count.
    pub(super) fn printed(&self, window_ns: u64) -> u64 {
        window_ns / self.every_ns.max(1)
    }

    pub(super) fn share(&self) -> f64 {
        self.ns as f64 / self.every_ns.max(1) as f64
    }
}

/// The least window that holds `base_ns` and all that comes in it at most.
pub(super) fn safe(base_ns: u64, between: &[Recurring], limit_ns: u64) -> Result<Window, NoEnd> {
    let share: f64 = between.iter().map(Recurring::share).sum();
    if share >= 1.0 && base_ns > 0 {
        return Err(NoEnd::Overloaded(share));
    }
    // Each count is no smaller than the quotient, so that the fixed point is no smaller than this.
    let late: f64 = between.iter().map(|one| one.share() * one.jitter_ns as f64).sum();
    let start = (base_ns as f64 + late) / (1.0 - share) * (1.0 - ROUNDING);
    iterate(base_ns.max(start as u64), limit_ns, |window| {
        demand(base_ns, between, |one| one.most(window))
    })
}

/// The least window by floors, as equations (1) and (3) are printed.
pub(super) fn printed(base_ns: u64, between: &[Recurring], limit_ns: u64) -> Result<Window, NoEnd> {
    iterate(base_ns, limit_ns, |window| demand(base_ns, between, |one| one.printed(window)))
}

fn demand(base_ns: u64, between: &[Recurring], count: impl Fn(&Recurring) -> u64) -> u64 {
    let all = between.iter().map(|one| one.ns.saturating_mul(count(one)));
    all.fold(base_ns, u64::saturating_add)
}

fn iterate(start: u64, limit_ns: u64, next: impl Fn(u64) -> u64) -> Result<Window, NoEnd> {
    let mut window_ns = start;
    for rounds in 1..=ROUNDS_MAX {
        if window_ns > limit_ns {
            return Err(NoEnd::Beyond);
        }
        match next(window_ns) {
            same if same == window_ns => return Ok(Window { ns: same, rounds }),
            longer => window_ns = longer,
        }
    }
    Err(NoEnd::Rounds)
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
        assert_eq!(printed(4, &[of(1, 4)], 100).map(|window| window.ns), Ok(5));
        assert_eq!(safe(7, &[], 100).map(|window| window.ns), Ok(7));
        assert_eq!(safe(0, &[of(9, 9)], 100).map(|window| window.ns), Ok(0));
    }

    #[test]
    fn where_there_is_none_it_is_said_why() {
        assert_eq!(safe(1, &[of(1, 2), of(1, 2)], 1_000), Err(NoEnd::Overloaded(1.0)));
        assert_eq!(safe(60, &[of(1, 2)], 100), Err(NoEnd::Beyond));
        assert_eq!(printed(60, &[of(2, 2)], 1_000), Err(NoEnd::Beyond));
        // One that creeps: the floors of a share of one go on for ever.
        assert_eq!(printed(2, &[of(1, 1)], u64::MAX), Err(NoEnd::Rounds));
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
