//! Equations (1) to (3) as they are printed:
//!
//! ```text
//! R = C + max C_k + floor(R / T_sched) · C_sched + sum of floor(R / T_v) · C_v
//! ```
//!
//! C is equation (2). `max C_k` is the longest time for which another call under `SCHED_FIFO`
//! blocks this one: all of a task that runs before it, and of one below the stretch that it does
//! not leave. The least fixed point is taken. It is no safe bound, and nothing else rests on it.

use horolog_record::{CyclePredictBound, CyclePredictTermKind as Term};

use super::bound::{Plan, Row, Sums};
use super::demand::Segment;
use super::window::{Recurring, printed};
use crate::task::Policy;

/// A bound beyond as many periods is none.
const PERIODS_MAX: u64 = 100;

/// R by equation (3); `None` where the iteration has no end.
pub(super) fn bound(plan: &Plan<'_>, row: &Row<'_>) -> Option<CyclePredictBound> {
    let blocking_ns = blocking_ns(plan, row);
    let between: Vec<Recurring> = row.costs.between().collect();
    let base_ns = row.demand.printed_ns().saturating_add(blocking_ns);
    let limit_ns = row.task.period_ns.saturating_mul(PERIODS_MAX);
    let window = printed(base_ns, &between, limit_ns).ok()?;
    let mut sums = Sums::default();
    let own = |of: fn(&Segment) -> u64| row.demand.sum(of);
    sums.add(Term::Computation, own(|one| one.computation_ns));
    sums.add(Term::Communication, own(|one| one.communication.printed_ns));
    sums.add(Term::Barrier, own(|one| one.barrier.printed_ns));
    sums.add(Term::Blocking, blocking_ns);
    let kinds =
        [(Term::Scheduler, &row.costs.scheduler), (Term::Interrupts, &row.costs.interrupts)];
    for (kind, all) in kinds {
        for one in all {
            sums.add(kind, one.ns.saturating_mul(one.printed(window.ns)));
        }
    }
    sums.rounds = window.rounds;
    Some(sums.bound())
}

fn blocking_ns(plan: &Plan<'_>, row: &Row<'_>) -> u64 {
    let others = plan.rows.iter().filter(|other| other.task.name != row.task.name);
    let fifo = others.filter(|other| other.task.schedule.policy == Policy::Fifo);
    let blocks_ns = |other: &Row<'_>| {
        if other.level() >= row.level() {
            other.demand.printed_ns()
        } else {
            other.task.critical_ns
        }
    };
    fifo.filter(|other| other.meets(row)).map(blocks_ns).max().unwrap_or(0)
}
