//! Equations (1) to (3) as published:
//!
//! ```text
//! R = C + max C_k + floor(R / T_sched) · C_sched + sum of floor(R / T_v) · C_v
//! ```
//!
//! C is equation (2). `max C_k` is the longest time for which another call under `SCHED_FIFO`
//! blocks this one: the whole of a task that runs before it, and the non-preemptive section of a
//! lower one. The least fixed point is taken. It is not a safe bound, and nothing else depends on
//! it.

use horolog_record::{CyclePredictBound, CyclePredictTermKind as Term};

use super::bound::{AnalysisSet, TaskDemand, TermSums};
use super::demand::DemandSegment;
use super::window::{Recurring, published};
use crate::task::Policy;

/// Number of periods beyond which a bound is discarded.
const PERIODS_MAX: u64 = 100;

/// Returns R by equation (3); `None` if the iteration does not end.
pub(super) fn bound(plan: &AnalysisSet<'_>, row: &TaskDemand<'_>) -> Option<CyclePredictBound> {
    let blocking_ns = blocking_ns(plan, row);
    let between: Vec<Recurring> = row.costs.between().collect();
    let base_ns = row.demand.printed_ns().saturating_add(blocking_ns);
    let limit_ns = row.task.period_ns.saturating_mul(PERIODS_MAX);
    let window = published(base_ns, &between, limit_ns).ok()?;
    let mut sums = TermSums::default();
    let own = |of: fn(&DemandSegment) -> u64| row.demand.sum(of);
    sums.add(Term::Computation, own(|one| one.computation_ns));
    sums.add(Term::Communication, own(|one| one.communication.published_ns));
    sums.add(Term::Barrier, own(|one| one.barrier.published_ns));
    sums.add(Term::Blocking, blocking_ns);
    let kinds =
        [(Term::Scheduler, &row.costs.scheduler), (Term::Interrupts, &row.costs.interrupts)];
    for (kind, all) in kinds {
        for one in all {
            sums.add(kind, one.ns.saturating_mul(one.published(window.ns)));
        }
    }
    sums.rounds = window.rounds;
    Some(sums.bound())
}

fn blocking_ns(plan: &AnalysisSet<'_>, row: &TaskDemand<'_>) -> u64 {
    let others = plan.rows.iter().filter(|other| other.task.name != row.task.name);
    let fifo = others.filter(|other| other.task.schedule.policy == Policy::Fifo);
    let blocks_ns = |other: &TaskDemand<'_>| {
        if other.level() >= row.level() {
            other.demand.printed_ns()
        } else {
            other.task.critical_ns
        }
    };
    fifo.filter(|other| other.can_share_core(row)).map(blocks_ns).max().unwrap_or(0)
}
