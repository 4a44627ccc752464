//! Safe bound: the tasks with which a task shares a core, the longest time of each window of its
//! work, and the terms of that time. Windows are those of response-time analysis for one core with
//! preemption by priority:
//!
//! ```text
//! w = B + S + C + sum over tasks before it of ceil((w + J) / T) · (C + S)
//!   + sum over interrupts and the tick of ceil(w / T) · C
//! ```
//!
//! A task that waits for other nodes has a window for each segment up to the end of a wait, and its
//! response time is its start latency plus the sum of its windows. Waiting counts as computation,
//! its own and that of tasks before it, which is safe (Chen et al. 2019, suspension-oblivious
//! analysis).

use std::fmt::Write as _;

use horolog_record::{
    CyclePredictBound, CyclePredictMethod, CyclePredictTask, CyclePredictTerm,
    CyclePredictTermKind as Term, CyclePredictVerdict as Verdict,
};

use super::cost::{CoreCosts, Costs};
use super::demand::{Demand, DemandSegment};
use super::window::{NoFixedPoint, Recurring, Window, safe};
use super::{Machine, PredictError, published};
use crate::task::{Policy, Task, TaskSet};

/// Switches for each dispatch of a task: to it, and away from it.
const SWITCHES: u64 = 2;

/// Tasks with their demands and the costs of their cores.
pub(super) struct AnalysisSet<'a> {
    pub(super) rows: Vec<TaskDemand<'a>>,
    pub(super) machine: Machine,
}

/// Task, its demand, and the costs of its core.
pub(super) struct TaskDemand<'a> {
    pub(super) task: &'a Task,
    pub(super) demand: Demand,
    pub(super) costs: CoreCosts,
}

/// Bound, or the reason for its absence.
type BoundResult = Result<CyclePredictBound, String>;

impl TaskDemand<'_> {
    /// Returns the rank of its class: the kernel runs deadlines before real-time priorities, and
    /// these before the fair class.
    pub(super) const fn level(&self) -> u8 {
        match self.task.schedule.policy {
            Policy::Deadline => u8::MAX,
            Policy::Fifo | Policy::Rr => self.task.schedule.priority,
            Policy::Other => 0,
        }
    }

    /// Returns true if both can run on one core.
    pub(super) fn can_share_core(&self, other: &Self) -> bool {
        match (self.task.schedule.core, other.task.schedule.core) {
            (Some(core), Some(other)) => core == other,
            _ => true,
        }
    }

    fn switches_ns(&self) -> u64 {
        let dispatches = self.demand.sum(|one| one.dispatches);
        dispatches.saturating_mul(SWITCHES).saturating_mul(self.costs.switch_ns)
    }

    /// Returns the longest time that one of its jobs occupies a core, including switches.
    pub(super) fn job_ns(&self) -> u64 {
        self.demand.sum(DemandSegment::safe_ns).saturating_add(self.switches_ns())
    }

    /// Returns its utilisation of a core.
    pub(super) fn share(&self) -> f64 {
        self.job_ns() as f64 / self.task.period_ns.max(1) as f64
    }
}

impl<'a> AnalysisSet<'a> {
    pub(super) fn new(
        set: &'a TaskSet,
        costs: &Costs,
        machine: Machine,
    ) -> Result<Self, PredictError> {
        let row = |task: &'a Task| {
            let demand = Demand::of(task, costs, machine.nodes)?;
            let is_ordinary = task.schedule.policy == Policy::Other;
            Ok(TaskDemand { task, demand, costs: costs.of(task.schedule.core, is_ordinary) })
        };
        Ok(Self { rows: set.tasks().iter().map(row).collect::<Result<_, _>>()?, machine })
    }

    /// Returns all tasks with their bounds.
    pub(super) fn bounds(&self) -> Vec<CyclePredictTask> {
        let by_density = self.by_density();
        let bound = |row: &TaskDemand<'_>| match self.response(row) {
            Ok(bound) if bound.response_ns <= row.task.deadline_ns => Ok(bound),
            _ if by_density && row.task.schedule.policy == Policy::Deadline => {
                Ok(by_deadline(row.task.deadline_ns))
            }
            late => late,
        };
        let mut bounds: Vec<BoundResult> = self.rows.iter().map(bound).collect();
        self.withdraw(&mut bounds, by_density);
        self.rows.iter().zip(bounds).map(|(row, bound)| self.task(row, bound)).collect()
    }

    /// Returns the tasks that run before one, or in turn with it.
    pub(super) fn higher_priority(
        &self,
        row: &TaskDemand<'_>,
    ) -> impl Iterator<Item = &TaskDemand<'a>> {
        let (level, name) = (row.level(), row.task.name.clone());
        self.rows
            .iter()
            .filter(move |other| other.task.name != name && other.level() >= level)
            .filter(move |other| other.can_share_core(row))
    }

    /// Returns the longest time for which a lower task keeps the core, in ns.
    pub(super) fn blocking_ns(&self, row: &TaskDemand<'_>) -> u64 {
        let below =
            self.rows.iter().filter(|one| one.level() < row.level() && one.can_share_core(row));
        below.map(|one| one.task.critical_ns).max().unwrap_or(0)
    }

    /// Returns the longest delay after which a job of another task reaches this one's core. On its
    /// own core that is its start latency; a task that may run on any core can come from another
    /// one, where it was delayed up to its deadline.
    fn jitter_ns(&self, row: &TaskDemand<'_>, other: &TaskDemand<'_>) -> u64 {
        if self.comes_from_elsewhere(row, other) {
            other.task.deadline_ns
        } else {
            other.costs.release_ns
        }
    }

    fn comes_from_elsewhere(&self, row: &TaskDemand<'_>, other: &TaskDemand<'_>) -> bool {
        let is_free = |row: &TaskDemand<'_>| row.task.schedule.core.is_none();
        self.machine.cores > 1 && is_free(other) && !is_free(row)
    }

    /// Returns the interference of other tasks. Each time that one of them waits, a lower task may
    /// enter its non-preemptive section.
    fn interference(&self, row: &TaskDemand<'_>) -> Vec<Recurring> {
        let blocking_ns = self.blocking_ns(row);
        let one = |other: &TaskDemand<'_>| {
            let resumed = other.demand.sum(|one| one.dispatches).saturating_sub(1);
            let blocked_ns = resumed.saturating_mul(blocking_ns);
            Recurring {
                ns: other.job_ns().saturating_add(blocked_ns),
                every_ns: other.task.period_ns,
                jitter_ns: self.jitter_ns(row, other),
            }
        };
        self.higher_priority(row).map(one).collect()
    }

    /// Returns the costs of the core beyond tasks. A task that migrates between cores, because of
    /// those before it or because it waits, encounters the work in progress on each of them.
    fn costs(&self, row: &TaskDemand<'_>) -> CoreCosts {
        let is_free = row.task.schedule.core.is_none();
        let stays = row.demand.segments.iter().all(|one| one.dispatches == 1)
            && row.demand.segments.len() == 1
            && self.higher_priority(row).next().is_none();
        let is_moved = self.machine.cores > 1 && is_free && !stays;
        if is_moved { row.costs.on_each_of(self.machine.cores as u64) } else { row.costs.clone() }
    }

    fn response(&self, row: &TaskDemand<'_>) -> BoundResult {
        let tasks = self.interference(row);
        let costs = self.costs(row);
        let between: Vec<Recurring> = tasks.iter().copied().chain(costs.between()).collect();
        let blocking_ns = self.blocking_ns(row);
        let mut sums = TermSums::default();
        sums.add(Term::Release, row.costs.release_ns);
        for segment in &row.demand.segments {
            let blocked_ns = blocking_ns.saturating_mul(segment.dispatches);
            let switches = segment.dispatches.saturating_mul(SWITCHES);
            let switches_ns = switches.saturating_mul(row.costs.switch_ns);
            let own_ns = [segment.safe_ns(), blocked_ns, switches_ns];
            let base_ns = own_ns.into_iter().fold(0, u64::saturating_add);
            let limit_ns = row.task.period_ns.saturating_sub(sums.total_ns());
            let found = safe(base_ns, &between, limit_ns);
            // Without a fixed point, the terms up to the limit show the largest of them.
            let window = found.unwrap_or(Window { ns: limit_ns, rounds: 0 });
            sums.add(Term::Computation, segment.computation_ns);
            sums.add(Term::Communication, segment.communication.safe_ns);
            sums.add(Term::Barrier, segment.barrier.safe_ns);
            sums.add(Term::Blocking, blocked_ns);
            sums.add(Term::Switches, switches_ns);
            sums.add_all(Term::Interference, &tasks, window);
            sums.add_all(Term::Scheduler, &costs.scheduler, window);
            sums.add_all(Term::Interrupts, &costs.interrupts, window);
            sums.rounds += window.rounds;
            found.map_err(|why| no_end(why, row.task.period_ns, &sums))?;
        }
        if sums.total_ns() > row.task.period_ns {
            return Err(no_end(NoFixedPoint::Beyond, row.task.period_ns, &sums));
        }
        Ok(sums.bound())
    }

    /// Withdraws bounds that depend on a task that misses its deadline: on several cores, a task
    /// that may run on any of them carries at most one job over only as long as it meets its
    /// deadline.
    fn withdraw(&self, bounds: &mut [BoundResult], by_density: bool) {
        if self.machine.cores <= 1 {
            return;
        }
        loop {
            let is_late = |row: &TaskDemand<'_>| {
                let at = self.rows.iter().position(|one| one.task.name == row.task.name);
                let bound = at.and_then(|at| bounds[at].as_ref().ok());
                bound.is_none_or(|bound| bound.response_ns > row.task.deadline_ns)
            };
            let is_free = |row: &TaskDemand<'_>| row.task.schedule.core.is_none();
            let rests_on = |row: &TaskDemand<'_>| {
                let mut others =
                    self.higher_priority(row).filter(|one| is_free(row) || is_free(one));
                others.find(|other| is_late(other)).map(|other| other.task.name.clone())
            };
            let is_apart =
                |row: &TaskDemand<'_>| by_density && row.task.schedule.policy == Policy::Deadline;
            let sound = self.rows.iter().enumerate();
            let sound = sound.filter(|(at, row)| bounds[*at].is_ok() && !is_apart(row));
            let fallen: Vec<(usize, String)> =
                sound.filter_map(|(at, row)| Some((at, rests_on(row)?))).collect();
            if fallen.is_empty() {
                return;
            }
            for (at, other) in fallen {
                bounds[at] = Err(format!(
                    "task '{other}', which runs before it on any core, misses its deadline"
                ));
            }
        }
    }

    /// Returns true if all tasks by deadline meet theirs: their density, the costs of the core
    /// beyond them and their blocking sum up to less than the whole. For one core with earliest
    /// deadline first that suffices (Liu and Layland 1973; Liu 2000 for densities), and for several
    /// as well (Goossens, Funk and Baruah 2003).
    fn by_density(&self) -> bool {
        let rows = || self.rows.iter().filter(|row| row.task.schedule.policy == Policy::Deadline);
        let left_ns =
            |row: &TaskDemand<'_>| row.task.deadline_ns.saturating_sub(row.costs.release_ns) as f64;
        let Some(shortest_ns) = rows().map(left_ns).reduce(f64::min) else { return false };
        let density = |row: &TaskDemand<'_>| {
            let dispatches = row.demand.sum(|one| one.dispatches);
            let blocked_ns = dispatches.saturating_mul(self.blocking_ns(row));
            row.job_ns().saturating_add(blocked_ns) as f64 / left_ns(row)
        };
        let of_tasks: f64 = rows().map(density).sum();
        let between = || rows().next().into_iter().flat_map(|row| row.costs.between());
        let of_others: f64 = between().map(|one| one.share() + one.ns as f64 / shortest_ns).sum();
        shortest_ns > 0.0 && of_tasks + of_others <= 1.0
    }

    fn task(&self, row: &TaskDemand<'_>, bound: BoundResult) -> CyclePredictTask {
        let Task { name, period_ns, deadline_ns, schedule, .. } = row.task;
        let lacks = self.unknown(row);
        let is_in_time = |bound: &BoundResult| {
            bound.as_ref().is_ok_and(|bound| bound.response_ns <= *deadline_ns)
        };
        // An iteration has one round at least.
        let method = match &bound {
            Ok(bound) if bound.rounds == 0 => CyclePredictMethod::Density,
            _ => CyclePredictMethod::Response,
        };
        let verdict = match &lacks {
            Some(_) => Verdict::Unknown,
            None if is_in_time(&bound) => Verdict::Schedulable,
            None => Verdict::Unschedulable,
        };
        let why = lacks.clone().or_else(|| bound.as_ref().err().cloned());
        let known = lacks.is_none();
        let safe = bound.ok().filter(|_| known);
        let margin = |bound: &CyclePredictBound| {
            let (deadline, response) = (i128::from(*deadline_ns), i128::from(bound.response_ns));
            i64::try_from(deadline - response).unwrap_or(i64::MIN)
        };
        CyclePredictTask {
            name: name.clone(),
            period_ns: *period_ns,
            deadline_ns: *deadline_ns,
            policy: schedule.policy,
            priority: schedule.priority,
            core: schedule.core,
            utilisation: row.demand.unknown.is_none().then(|| row.share()),
            verdict,
            reason: why,
            method,
            margin_ns: safe.as_ref().map(margin),
            safe,
            as_published: known.then(|| published::bound(self, row)).flatten(),
            before: self.higher_priority(row).map(|other| other.task.name.clone()).collect(),
            measured: None,
        }
    }

    /// Returns the unknown quantity of a task, or of one that it has to wait for.
    fn unknown(&self, row: &TaskDemand<'_>) -> Option<String> {
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

fn no_end(why: NoFixedPoint, period_ns: u64, sums: &TermSums) -> String {
    match why {
        NoFixedPoint::Overloaded(share) => format!(
            "tasks that run before it take {:.0}% of the core, so it may never finish",
            share * 100.0
        ),
        NoFixedPoint::Beyond => {
            let most = sums.largest().map_or_else(String::new, |term| {
                format!("; most of it is {}, {} us", term.kind.name(), term.ns / 1_000)
            });
            format!(
                "it may take longer than its period of {} us, and overlap its next job{most}",
                period_ns / 1_000
            )
        }
        NoFixedPoint::Rounds => "the iteration did not converge".to_owned(),
    }
}

/// Returns the deadline as a bound: a task that meets it takes no longer.
fn by_deadline(deadline_ns: u64) -> CyclePredictBound {
    CyclePredictBound { response_ns: deadline_ns, rounds: 0, terms: Vec::new(), dominant: None }
}

/// Sums of a bound's terms.
#[derive(Default)]
pub(super) struct TermSums {
    terms: [u64; Term::ALL.len()],
    pub(super) rounds: u64,
}

impl TermSums {
    pub(super) fn add(&mut self, kind: Term, ns: u64) {
        for (of, sum) in Term::ALL.into_iter().zip(&mut self.terms) {
            if of == kind {
                *sum = sum.saturating_add(ns);
            }
        }
    }

    fn add_all(&mut self, kind: Term, all: &[Recurring], window: Window) {
        for one in all {
            self.add(kind, one.ns.saturating_mul(one.most(window.ns)));
        }
    }

    fn total_ns(&self) -> u64 {
        self.terms.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    fn terms(&self) -> impl DoubleEndedIterator<Item = CyclePredictTerm> {
        let all = Term::ALL.into_iter().zip(self.terms).filter(|(_, ns)| *ns > 0);
        all.map(|(kind, ns)| CyclePredictTerm { kind, ns })
    }

    /// Returns the largest term, the first of several.
    fn largest(&self) -> Option<CyclePredictTerm> {
        self.terms().rev().max_by_key(|term| term.ns)
    }

    /// Returns the bound that is their sum.
    pub(super) fn bound(&self) -> CyclePredictBound {
        let terms: Vec<CyclePredictTerm> = self.terms().collect();
        let dominant = self.largest().map(|term| term.kind);
        CyclePredictBound { response_ns: self.total_ns(), rounds: self.rounds, terms, dominant }
    }
}
