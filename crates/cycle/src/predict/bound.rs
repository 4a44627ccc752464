//! Safe bound of response times: for each task, the tasks with which it shares a core, the longest
//! windows of its work, and the terms of their sum. The windows are those of response-time analysis
//! for one core with preemption by priority:
//!
//! ```text
//! w = B + S + C + sum over tasks before it of ceil((w + J) / T) · (C + S)
//!   + sum over interrupts and the tick of ceil(w / T) · C
//! ```
//!
//! B is the blocking, S the context switches, C the execution time, J the release jitter and T the
//! period. A task that waits for other nodes has a window for each segment up to the end of a wait;
//! its response time is its start latency plus the sum of its windows. Waits, its own and those of
//! the tasks before it, count as computation, which is safe (suspension-oblivious analysis, Chen et
//! al. 2019).

use std::fmt::Write as _;

use horolog_record::{
    CyclePredictBound, CyclePredictMethod, CyclePredictTaskResult, CyclePredictTerm,
    CyclePredictTermKind as Term, CyclePredictVerdict as Verdict,
};

use super::cost::{CoreCosts, HostCosts};
use super::demand::{DemandSegment, PeriodDemand};
use super::window::{FixedPointWindow, NoFixedPoint, RecurringWork, safe_window};
use super::{PredictError, PredictedHostConfig, published};
use crate::task::{Policy, Task, TaskSet};

/// Number of context switches for each dispatch of a task: to it, and away from it.
const SWITCHES: u64 = 2;

/// Tasks of a prediction with their demands and costs, and the host.
pub(super) struct AnalysedTaskSet<'a> {
    pub(super) task_demands: Vec<TaskDemand<'a>>,
    pub(super) host: PredictedHostConfig,
}

/// Task, its demand, and the costs of its core.
pub(super) struct TaskDemand<'a> {
    pub(super) task: &'a Task,
    pub(super) demand: PeriodDemand,
    pub(super) costs: CoreCosts,
}

/// Bound, or the reason for its absence.
type ResponseTimeBoundResult = Result<CyclePredictBound, String>;

impl TaskDemand<'_> {
    /// Returns the rank of its scheduling class and priority. The kernel runs `SCHED_DEADLINE`
    /// before real-time priorities, and these before `SCHED_OTHER`.
    pub(super) const fn level(&self) -> u8 {
        match self.task.schedule.policy {
            Policy::Deadline => u8::MAX,
            Policy::Fifo | Policy::Rr => self.task.schedule.priority,
            Policy::Other => 0,
        }
    }

    /// Returns true if both tasks can run on one core.
    pub(super) fn can_share_core(&self, other: &Self) -> bool {
        match (self.task.schedule.core, other.task.schedule.core) {
            (Some(core), Some(other)) => core == other,
            _ => true,
        }
    }

    fn switch_time_ns(&self) -> u64 {
        let dispatches = self.demand.sum(|one| one.dispatches);
        dispatches.saturating_mul(SWITCHES).saturating_mul(self.costs.switch_ns)
    }

    /// Returns the longest time for which one job occupies a core, in ns, including waits and
    /// switches.
    pub(super) fn job_ns(&self) -> u64 {
        self.demand.sum(DemandSegment::safe_ns).saturating_add(self.switch_time_ns())
    }

    /// Returns the utilisation of a core by the task.
    pub(super) fn utilisation(&self) -> f64 {
        self.job_ns() as f64 / self.task.period_ns.max(1) as f64
    }
}

impl<'a> AnalysedTaskSet<'a> {
    pub(super) fn new(
        set: &'a TaskSet,
        costs: &HostCosts,
        machine: PredictedHostConfig,
    ) -> Result<Self, PredictError> {
        let row = |task: &'a Task| {
            let demand = PeriodDemand::from_task(task, costs, machine.nodes)?;
            let is_sched_other = task.schedule.policy == Policy::Other;
            Ok(TaskDemand {
                task,
                demand,
                costs: costs.core_costs(task.schedule.core, is_sched_other),
            })
        };
        Ok(Self {
            task_demands: set.tasks().iter().map(row).collect::<Result<_, _>>()?,
            host: machine,
        })
    }

    /// Returns the record of each task, with its bounds.
    pub(super) fn bounds(&self) -> Vec<CyclePredictTaskResult> {
        let is_feasible = self.is_feasible_by_density();
        let bound = |row: &TaskDemand<'_>| match self.response_bound(row) {
            Ok(bound) if bound.response_ns <= row.task.deadline_ns => Ok(bound),
            _ if is_feasible && row.task.schedule.policy == Policy::Deadline => {
                Ok(deadline_bound(row.task.deadline_ns))
            }
            late => late,
        };
        let mut bounds: Vec<ResponseTimeBoundResult> =
            self.task_demands.iter().map(bound).collect();
        self.withdraw_bounds(&mut bounds, is_feasible);
        self.task_demands
            .iter()
            .zip(bounds)
            .map(|(row, bound)| self.task_record(row, bound))
            .collect()
    }

    /// Returns the other tasks of the same or a higher level that can share a core with that of
    /// `row`.
    pub(super) fn higher_priority(
        &self,
        row: &TaskDemand<'_>,
    ) -> impl Iterator<Item = &TaskDemand<'a>> {
        let (level, name) = (row.level(), row.task.name.clone());
        self.task_demands
            .iter()
            .filter(move |other| other.task.name != name && other.level() >= level)
            .filter(move |other| other.can_share_core(row))
    }

    /// Returns the longest blocking by the critical section of a task of a lower level, in ns.
    pub(super) fn blocking_ns(&self, row: &TaskDemand<'_>) -> u64 {
        let lower_tasks = self
            .task_demands
            .iter()
            .filter(|one| one.level() < row.level() && one.can_share_core(row));
        lower_tasks.map(|one| one.task.critical_ns).max().unwrap_or(0)
    }

    /// Returns the release jitter of another task on the core of this one, in ns: its start
    /// latency, or its deadline if it can migrate from another core, where it may have been delayed
    /// for that long.
    fn jitter_ns(&self, row: &TaskDemand<'_>, other: &TaskDemand<'_>) -> u64 {
        if self.can_migrate_to(row, other) {
            other.task.deadline_ns
        } else {
            other.costs.release_ns
        }
    }

    fn can_migrate_to(&self, row: &TaskDemand<'_>, other: &TaskDemand<'_>) -> bool {
        let is_unpinned = |row: &TaskDemand<'_>| row.task.schedule.core.is_none();
        self.host.cores > 1 && is_unpinned(other) && !is_unpinned(row)
    }

    /// Returns the interference of tasks that run before this one. Each time that one of them
    /// waits, a task of a lower level may enter its critical section.
    fn interference(&self, row: &TaskDemand<'_>) -> Vec<RecurringWork> {
        let blocking_ns = self.blocking_ns(row);
        let recurring_work = |other: &TaskDemand<'_>| {
            let resumptions = other.demand.sum(|one| one.dispatches).saturating_sub(1);
            let blocked_ns = resumptions.saturating_mul(blocking_ns);
            RecurringWork {
                ns: other.job_ns().saturating_add(blocked_ns),
                every_ns: other.task.period_ns,
                jitter_ns: self.jitter_ns(row, other),
            }
        };
        self.higher_priority(row).map(recurring_work).collect()
    }

    /// Returns the costs of the task's core. A task that can migrate between cores, because of
    /// tasks before it or because it waits, meets the recurring work of all cores and the work in
    /// progress on each of them.
    fn core_costs(&self, row: &TaskDemand<'_>) -> CoreCosts {
        let is_unpinned = row.task.schedule.core.is_none();
        let stays = row.demand.segments.iter().all(|one| one.dispatches == 1)
            && row.demand.segments.len() == 1
            && self.higher_priority(row).next().is_none();
        let is_moved = self.host.cores > 1 && is_unpinned && !stays;
        if is_moved {
            row.costs.for_migrating_task(self.host.cores as u64)
        } else {
            row.costs.clone()
        }
    }

    fn response_bound(&self, row: &TaskDemand<'_>) -> ResponseTimeBoundResult {
        let tasks = self.interference(row);
        let costs = self.core_costs(row);
        let interference: Vec<RecurringWork> =
            tasks.iter().copied().chain(costs.non_task_work()).collect();
        let blocking_ns = self.blocking_ns(row);
        let mut sums = BoundTermSums::default();
        sums.add(Term::Release, row.costs.release_ns);
        for segment in &row.demand.segments {
            let blocked_ns = blocking_ns.saturating_mul(segment.dispatches);
            let switches = segment.dispatches.saturating_mul(SWITCHES);
            let switches_ns = switches.saturating_mul(row.costs.switch_ns);
            let own_ns = [segment.safe_ns(), blocked_ns, switches_ns];
            let base_ns = own_ns.into_iter().fold(0, u64::saturating_add);
            let limit_ns = row.task.period_ns.saturating_sub(sums.total_ns());
            let fixed_point = safe_window(base_ns, &interference, limit_ns);
            // Without a fixed point the window is the limit, so that the largest term can be
            // reported.
            let window = fixed_point.unwrap_or(FixedPointWindow { ns: limit_ns, rounds: 0 });
            sums.add(Term::Computation, segment.computation_ns);
            sums.add(Term::Communication, segment.communication.safe_ns);
            sums.add(Term::Barrier, segment.barrier.safe_ns);
            sums.add(Term::Blocking, blocked_ns);
            sums.add(Term::Switches, switches_ns);
            sums.add_all(Term::Interference, &tasks, window);
            sums.add_all(Term::Scheduler, &costs.scheduler, window);
            sums.add_all(Term::Interrupts, &costs.interrupts, window);
            sums.rounds += window.rounds;
            fixed_point.map_err(|why| no_bound_reason(why, row.task.period_ns, &sums))?;
        }
        if sums.total_ns() > row.task.period_ns {
            return Err(no_bound_reason(NoFixedPoint::BeyondLimit, row.task.period_ns, &sums));
        }
        Ok(sums.to_bound())
    }

    /// Withdraws bounds that depend on a task that misses its deadline: on several cores, an
    /// unpinned task carries over at most one job only as long as it meets its deadline.
    fn withdraw_bounds(&self, bounds: &mut [ResponseTimeBoundResult], is_feasible: bool) {
        if self.host.cores <= 1 {
            return;
        }
        loop {
            let is_late = |row: &TaskDemand<'_>| {
                let at = self.task_demands.iter().position(|one| one.task.name == row.task.name);
                let bound = at.and_then(|at| bounds[at].as_ref().ok());
                bound.is_none_or(|bound| bound.response_ns > row.task.deadline_ns)
            };
            let is_unpinned = |row: &TaskDemand<'_>| row.task.schedule.core.is_none();
            let late_dependency = |row: &TaskDemand<'_>| {
                let mut others =
                    self.higher_priority(row).filter(|one| is_unpinned(row) || is_unpinned(one));
                others.find(|other| is_late(other)).map(|other| other.task.name.clone())
            };
            let is_proven_by_density =
                |row: &TaskDemand<'_>| is_feasible && row.task.schedule.policy == Policy::Deadline;
            let valid = self.task_demands.iter().enumerate();
            let valid = valid.filter(|(at, row)| bounds[*at].is_ok() && !is_proven_by_density(row));
            let withdrawn: Vec<(usize, String)> =
                valid.filter_map(|(at, row)| Some((at, late_dependency(row)?))).collect();
            if withdrawn.is_empty() {
                return;
            }
            for (at, other) in withdrawn {
                bounds[at] = Err(format!(
                    "task '{other}', which runs before it on any core, misses its deadline"
                ));
            }
        }
    }

    /// Returns true if all tasks under `SCHED_DEADLINE` meet their deadlines by the density test:
    /// their densities, including blocking, and the other work of the core sum up to at most 1.
    /// That is sufficient for earliest deadline first on one core (Liu and Layland 1973; Liu 2000
    /// for densities) and on several (Goossens, Funk and Baruah 2003). Returns false without such
    /// tasks.
    fn is_feasible_by_density(&self) -> bool {
        let rows =
            || self.task_demands.iter().filter(|row| row.task.schedule.policy == Policy::Deadline);
        let left_ns =
            |row: &TaskDemand<'_>| row.task.deadline_ns.saturating_sub(row.costs.release_ns) as f64;
        let Some(shortest_ns) = rows().map(left_ns).reduce(f64::min) else { return false };
        let density = |row: &TaskDemand<'_>| {
            let dispatches = row.demand.sum(|one| one.dispatches);
            let blocked_ns = dispatches.saturating_mul(self.blocking_ns(row));
            row.job_ns().saturating_add(blocked_ns) as f64 / left_ns(row)
        };
        let of_tasks: f64 = rows().map(density).sum();
        let between = || rows().next().into_iter().flat_map(|row| row.costs.non_task_work());
        let of_others: f64 =
            between().map(|one| one.utilisation() + one.ns as f64 / shortest_ns).sum();
        shortest_ns > 0.0 && of_tasks + of_others <= 1.0
    }

    fn task_record(
        &self,
        row: &TaskDemand<'_>,
        bound: ResponseTimeBoundResult,
    ) -> CyclePredictTaskResult {
        let Task { name, period_ns, deadline_ns, schedule, .. } = row.task;
        let unknown = self.unknown_demand(row);
        let is_in_time = |bound: &ResponseTimeBoundResult| {
            bound.as_ref().is_ok_and(|bound| bound.response_ns <= *deadline_ns)
        };
        // An iteration has at least one round.
        let method = match &bound {
            Ok(bound) if bound.rounds == 0 => CyclePredictMethod::Density,
            _ => CyclePredictMethod::Response,
        };
        let verdict = match &unknown {
            Some(_) => Verdict::Unknown,
            None if is_in_time(&bound) => Verdict::Schedulable,
            None => Verdict::Unschedulable,
        };
        let why = unknown.clone().or_else(|| bound.as_ref().err().cloned());
        let known = unknown.is_none();
        let safe = bound.ok().filter(|_| known);
        let margin = |bound: &CyclePredictBound| {
            let (deadline, response) = (i128::from(*deadline_ns), i128::from(bound.response_ns));
            i64::try_from(deadline - response).unwrap_or(i64::MIN)
        };
        CyclePredictTaskResult {
            name: name.clone(),
            period_ns: *period_ns,
            deadline_ns: *deadline_ns,
            policy: schedule.policy,
            priority: schedule.priority,
            core: schedule.core,
            utilisation: row.demand.unknown.is_none().then(|| row.utilisation()),
            verdict,
            reason: why,
            method,
            margin_ns: safe.as_ref().map(margin),
            safe,
            as_published: known.then(|| published::published_bound(self, row)).flatten(),
            before: self.higher_priority(row).map(|other| other.task.name.clone()).collect(),
            measured: None,
        }
    }

    /// Returns the unknown value in the demand of a task, or of one that runs before it.
    fn unknown_demand(&self, row: &TaskDemand<'_>) -> Option<String> {
        let others = || {
            self.higher_priority(row).find_map(|other| Some((other, other.demand.unknown.clone()?)))
        };
        row.demand.unknown.clone().or_else(|| {
            others().map(|(other, lacks)| {
                let mut reason = format!("of task '{}', which runs before it: ", other.task.name);
                let _ = write!(reason, "{lacks}");
                reason
            })
        })
    }
}

fn no_bound_reason(why: NoFixedPoint, period_ns: u64, sums: &BoundTermSums) -> String {
    match why {
        NoFixedPoint::Overloaded(share) => format!(
            "tasks that run before it take {:.0}% of the core, so it may never finish",
            share * 100.0
        ),
        NoFixedPoint::BeyondLimit => {
            let most = sums.largest().map_or_else(String::new, |term| {
                format!("; most of it is {}, {} us", term.kind.name(), term.ns / 1_000)
            });
            format!(
                "it may take longer than its period of {} us, and overlap its next job{most}",
                period_ns / 1_000
            )
        }
        NoFixedPoint::NotConverged => "the iteration did not converge".to_owned(),
    }
}

/// Returns the deadline as the bound of a task that is known to meet it.
fn deadline_bound(deadline_ns: u64) -> CyclePredictBound {
    CyclePredictBound { response_ns: deadline_ns, rounds: 0, terms: Vec::new(), dominant: None }
}

/// Sums of the terms of a bound, in ns.
#[derive(Default)]
pub(super) struct BoundTermSums {
    terms: [u64; Term::ALL.len()],
    pub(super) rounds: u64,
}

impl BoundTermSums {
    pub(super) fn add(&mut self, kind: Term, ns: u64) {
        for (of, sum) in Term::ALL.into_iter().zip(&mut self.terms) {
            if of == kind {
                *sum = sum.saturating_add(ns);
            }
        }
    }

    fn add_all(&mut self, kind: Term, all: &[RecurringWork], window: FixedPointWindow) {
        for one in all {
            self.add(kind, one.ns.saturating_mul(one.occurrences_max(window.ns)));
        }
    }

    fn total_ns(&self) -> u64 {
        self.terms.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    fn terms(&self) -> impl DoubleEndedIterator<Item = CyclePredictTerm> {
        let all = Term::ALL.into_iter().zip(self.terms).filter(|(_, ns)| *ns > 0);
        all.map(|(kind, ns)| CyclePredictTerm { kind, ns })
    }

    /// Returns the largest term, the first of equal ones; `None` if all are 0.
    fn largest(&self) -> Option<CyclePredictTerm> {
        self.terms().rev().max_by_key(|term| term.ns)
    }

    /// Returns the bound that is the sum of these terms.
    pub(super) fn to_bound(&self) -> CyclePredictBound {
        let terms: Vec<CyclePredictTerm> = self.terms().collect();
        let dominant = self.largest().map(|term| term.kind);
        CyclePredictBound { response_ns: self.total_ns(), rounds: self.rounds, terms, dominant }
    }
}
