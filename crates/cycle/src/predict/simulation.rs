//! Simulation of tasks in steps of 10 us, with random offsets, jitter, interrupts and choices among
//! equals, as the test oracle of the bounds: no job may end later than its task's bound. It shares
//! with the analysis the demands of tasks, but not the computation of interference.

use horolog_record::{CyclePredictCost, CyclePredictCostKind as Kind};
use horolog_time::SplitMix64;
use proptest::prelude::*;

use super::PredictedHostConfig;
use super::cost::HostCosts;
use super::demand::PeriodDemand;
use super::tests::{costs, predicted, tasks};
use crate::task::{Policy, Task};

/// Duration of a step, in ns.
const UNIT_NS: u64 = 10_000;
/// Number of steps of a run.
const STEPS: u64 = 2_000;

#[derive(Clone, Copy, Debug)]
enum SimulatedPhase {
    Run(u64),
    Wait(u64),
}

/// Job that was released and is not complete. Times are in steps.
struct SimulatedJob {
    /// Step of the release.
    due: u64,
    /// Earliest step in which it can run.
    ready: u64,
    /// Remaining phases, the next one last.
    phases: Vec<SimulatedPhase>,
    /// Steps left in its critical section, in which it keeps its core.
    critical: u64,
    core: Option<usize>,
}

struct SimulatedTask<'a> {
    task: &'a Task,
    demand: PeriodDemand,
    /// Released jobs, the oldest first.
    jobs: Vec<SimulatedJob>,
    next_release: u64,
    longest: u64,
}

/// Disturbance that takes a core from all tasks.
struct InterruptSource {
    core: usize,
    length: u64,
    every: u64,
    is_sporadic: bool,
    next: u64,
    left: u64,
}

struct TaskSimulation<'a> {
    random: SplitMix64,
    tasks: Vec<SimulatedTask<'a>>,
    interrupt_sources: Vec<InterruptSource>,
    cores: usize,
    switch: u64,
    release: u64,
    /// True if all delays and costs have their largest values.
    is_extreme: bool,
}

fn find(costs: &[CyclePredictCost], kind: Kind) -> &CyclePredictCost {
    costs.iter().find(|cost| cost.kind == kind).unwrap()
}

impl<'a> TaskSimulation<'a> {
    fn new(
        tasks: &'a [Task],
        costs: &[CyclePredictCost],
        machine: PredictedHostConfig,
        (seed, is_extreme): (u64, bool),
    ) -> Self {
        let mut random = SplitMix64::new(seed);
        let all = HostCosts::new(costs.to_vec());
        let actor = |task: &'a Task| SimulatedTask {
            task,
            demand: PeriodDemand::from_task(task, &all, machine.nodes).unwrap(),
            jobs: Vec::new(),
            next_release: if is_extreme { 50 } else { task.offset_ns / UNIT_NS },
            longest: 0,
        };
        let mut disturbers = Vec::new();
        for core in 0..machine.cores {
            for kind in [Kind::Scheduler, Kind::Interrupt] {
                let cost = find(costs, kind);
                let every = cost.every_ns.unwrap() / UNIT_NS;
                let next = if is_extreme { 50 } else { random.next_below(every as usize) as u64 };
                let length = cost.ns / UNIT_NS;
                let is_sporadic = kind == Kind::Interrupt;
                disturbers.push(InterruptSource {
                    core,
                    length,
                    every,
                    is_sporadic,
                    next,
                    left: 0,
                });
            }
        }
        let actors = tasks.iter().map(actor).collect();
        let [switch, release] =
            [Kind::Switch, Kind::Release].map(|kind| find(costs, kind).ns / UNIT_NS);
        Self {
            random,
            tasks: actors,
            interrupt_sources: disturbers,
            cores: machine.cores,
            switch,
            release,
            is_extreme,
        }
    }

    /// Returns a number of steps up to `most`.
    fn up_to(&mut self, most: u64) -> u64 {
        if self.is_extreme { most } else { self.random.next_below(most as usize + 1) as u64 }
    }

    fn phases(&mut self, at: usize) -> Vec<SimulatedPhase> {
        let switches = 2 * self.switch;
        let mut phases = Vec::new();
        for segment in self.tasks[at].demand.segments.clone() {
            let waits = [segment.communication.safe_ns, segment.barrier.safe_ns];
            phases.push(SimulatedPhase::Run(segment.computation_ns / UNIT_NS + switches));
            for ns in waits.into_iter().take(segment.dispatches as usize - 1) {
                let wait = self.up_to(ns / UNIT_NS);
                phases.extend([SimulatedPhase::Wait(wait), SimulatedPhase::Run(switches)]);
            }
        }
        phases.reverse();
        phases
    }

    fn release(&mut self, now: u64) {
        for at in 0..self.tasks.len() {
            if self.tasks[at].next_release == now {
                let phases = self.phases(at);
                // In an extreme run the first job is late and the next is not, so that they are
                // close together.
                let is_on_time = self.is_extreme && now > 50;
                let late = if is_on_time { 0 } else { self.up_to(self.release) };
                let job =
                    SimulatedJob { due: now, ready: now + late, phases, critical: 0, core: None };
                let actor = &mut self.tasks[at];
                actor.jobs.push(job);
                actor.next_release = now + actor.task.period_ns / UNIT_NS;
            }
        }
    }

    /// Returns true for each core that interrupts leave to tasks in this step.
    fn disturb(&mut self, now: u64) -> Vec<bool> {
        let mut is_left = vec![true; self.cores];
        for disturber in &mut self.interrupt_sources {
            if disturber.next <= now {
                disturber.left += disturber.length;
                let late = if disturber.is_sporadic && !self.is_extreme {
                    self.random.next_below(30) as u64
                } else {
                    0
                };
                disturber.next += disturber.every + late;
            }
            if disturber.left > 0 && is_left[disturber.core] {
                disturber.left -= 1;
                is_left[disturber.core] = false;
            }
        }
        is_left
    }

    /// Advances waits and removes completed jobs.
    fn settle(&mut self, now: u64) {
        for actor in &mut self.tasks {
            let Some(job) = actor.jobs.first_mut().filter(|job| job.ready <= now) else { continue };
            loop {
                match job.phases.last_mut() {
                    Some(SimulatedPhase::Run(0)) => drop(job.phases.pop()),
                    Some(SimulatedPhase::Wait(left)) => {
                        job.ready = now + *left;
                        job.core = None;
                        job.phases.pop();
                        if job.ready > now {
                            break;
                        }
                    }
                    _ => break,
                }
            }
            if job.phases.is_empty() && job.ready <= now {
                actor.longest = actor.longest.max(now - job.due);
                actor.jobs.remove(0);
            }
        }
    }

    /// Assigns cores to tasks by the rules of the kernel: first a task in its critical section
    /// keeps its core, then tasks by class and priority, at random among equals; under
    /// `SCHED_DEADLINE` the earliest deadline first.
    fn assign(&mut self, now: u64) -> Vec<(usize, usize)> {
        let mut ready: Vec<(u8, u64, usize)> = Vec::new();
        for at in 0..self.tasks.len() {
            let draw = self.random.next_below(1_000) as u64;
            let actor = &self.tasks[at];
            let Some(job) = actor.jobs.first().filter(|job| job.ready <= now) else { continue };
            let schedule = actor.task.schedule;
            let level = match schedule.policy {
                _ if job.critical > 0 && job.core.is_some() => 0,
                Policy::Deadline => 1,
                Policy::Fifo | Policy::Rr => 100 - schedule.priority,
                Policy::Other => 101,
            };
            let deadline = job.due + actor.task.deadline_ns / UNIT_NS;
            ready.push((level, if level == 1 { deadline } else { draw }, at));
        }
        ready.sort_unstable();
        let mut free: Vec<usize> = (0..self.cores).collect();
        let mut assigned = Vec::new();
        for (level, _, at) in ready {
            let (tied, held) = (self.tasks[at].task.schedule.core, self.tasks[at].jobs[0].core);
            let wanted = if level == 0 { held } else { tied };
            let of = |core: usize| free.iter().position(|one| *one == core);
            // A task stays on its core if that is free.
            let index = match wanted {
                Some(core) => of(core),
                None if free.is_empty() => None,
                None => held.and_then(of).or_else(|| Some(self.random.next_below(free.len()))),
            };
            if let Some(index) = index {
                assigned.push((at, free.swap_remove(index)));
            }
        }
        assigned
    }

    fn step(&mut self, now: u64) {
        self.release(now);
        let is_left = self.disturb(now);
        self.settle(now);
        let assigned = self.assign(now);
        for at in 0..self.tasks.len() {
            let core = assigned.iter().find(|(one, _)| *one == at).map(|(_, core)| *core);
            let draw = self.is_extreme || self.random.next_below(2) == 0;
            let actor = &mut self.tasks[at];
            let Some(job) = actor.jobs.first_mut() else { continue };
            if core.is_some() && job.core.is_none() && draw {
                job.critical = actor.task.critical_ns / UNIT_NS;
            }
            job.core = core;
            if let (Some(core), Some(SimulatedPhase::Run(left))) = (core, job.phases.last_mut())
                && is_left[core]
            {
                *left -= 1;
                job.critical = job.critical.saturating_sub(1);
            }
        }
    }

    /// Returns the longest response time of each task, in ns.
    fn longest(mut self) -> Vec<u64> {
        for now in 0..STEPS {
            self.step(now);
        }
        self.settle(STEPS);
        self.tasks.iter().map(|actor| actor.longest * UNIT_NS).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn no_job_ends_later_than_its_bound(
        tasks in tasks(), costs in costs(), nodes in 1..4_u32, cores in 1..3_usize, seed: u64,
        is_extreme: bool,
    ) {
        let machine = PredictedHostConfig { nodes, cores, real_time_share: None };
        let tasks: Vec<Task> = tasks
            .into_iter()
            .map(|mut task| {
                task.schedule.core = task.schedule.core.map(|core| core % cores);
                task
            })
            .collect();
        let longest = TaskSimulation::new(&tasks, &costs, machine, (seed, is_extreme)).longest();
        for (task, longest) in predicted(&tasks, &costs, machine).tasks.iter().zip(longest) {
            if let Some(safe) = &task.safe {
                prop_assert!(longest <= safe.response_ns, "{longest} ns: {task:?}");
            }
        }
    }
}
