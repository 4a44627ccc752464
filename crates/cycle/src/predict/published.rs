//! Equations (1) to (3) of the paper (see [`super`]) as published:
//!
//! ```text
//! R = C + max C_k + floor(R / T_sched) · C_sched + sum of floor(R / T_v) · C_v
//! ```
//!
//! C is equation (2). `max C_k` is the longest blocking by another task under `SCHED_FIFO`: the
//! whole execution of one with the same or a higher priority, or the critical section of one with a
//! lower priority. The result is the least fixed point. It is not a safe bound, and no other value
//! depends on it.

use horolog_record::{CyclePredictBound, CyclePredictTermKind as Term};

use super::bound::{AnalysedTaskSet, BoundTermSums, TaskDemand};
use super::demand::DemandSegment;
use super::window::{RecurringWork, published_window};
use crate::task::Policy;

/// Number of periods beyond which a bound is discarded.
const PERIODS_MAX: u64 = 100;

/// Returns R by equation (3) as published; `None` if the iteration exceeds [`PERIODS_MAX`] periods
/// or does not converge.
pub(super) fn published_bound(
    plan: &AnalysedTaskSet<'_>,
    row: &TaskDemand<'_>,
) -> Option<CyclePredictBound> {
    let blocking_ns = blocking_ns(plan, row);
    let recurring_work: Vec<RecurringWork> = row.costs.non_task_work().collect();
    let base_ns = row.demand.published_ns().saturating_add(blocking_ns);
    let limit_ns = row.task.period_ns.saturating_mul(PERIODS_MAX);
    let window = published_window(base_ns, &recurring_work, limit_ns).ok()?;
    let mut sums = BoundTermSums::default();
    let sum = |of: fn(&DemandSegment) -> u64| row.demand.sum(of);
    sums.add(Term::Computation, sum(|one| one.computation_ns));
    sums.add(Term::Communication, sum(|one| one.communication.published_ns));
    sums.add(Term::Barrier, sum(|one| one.barrier.published_ns));
    sums.add(Term::Blocking, blocking_ns);
    let kinds =
        [(Term::Scheduler, &row.costs.scheduler), (Term::Interrupts, &row.costs.interrupts)];
    for (kind, all) in kinds {
        for one in all {
            sums.add(kind, one.ns.saturating_mul(one.published_occurrences(window.ns)));
        }
    }
    sums.rounds = window.rounds;
    Some(sums.to_bound())
}

fn blocking_ns(plan: &AnalysedTaskSet<'_>, row: &TaskDemand<'_>) -> u64 {
    let others = plan.task_demands.iter().filter(|other| other.task.name != row.task.name);
    let fifo = others.filter(|other| other.task.schedule.policy == Policy::Fifo);
    let blocking_by_ns = |other: &TaskDemand<'_>| {
        if other.level() >= row.level() {
            other.demand.published_ns()
        } else {
            other.task.critical_ns
        }
    };
    fifo.filter(|other| other.can_share_core(row)).map(blocking_by_ns).max().unwrap_or(0)
}
