//! Definition of periodic tasks: their releases, deadlines, scheduling and work in each period.
//! [`TaskSet::new`] checks them; [`TaskSet::check`] repeats this after a change. Nothing runs here.

mod error;
mod file;
#[cfg(test)]
mod tests;

pub use horolog_record::TaskSchedulingPolicy as Policy;
use serde::{Deserialize, Serialize};

use crate::ring::{COLLECT_INTERVAL_NS, NON_PERIOD_MAX};

pub use error::TaskSetError;
pub(crate) use error::check_name;
pub use file::{DEFAULT_PRIORITY, FILE_MAX};

/// Largest number of tasks in a set.
pub const TASKS_MAX: usize = 64;
/// Largest number of supersteps of a task.
pub const STEPS_MAX: usize = 16;
/// Shortest period, in ns.
pub const PERIOD_MIN_NS: u64 = 50_000;
/// Longest period, in ns: one hour.
pub const PERIOD_MAX_NS: u64 = 3_600_000_000_000;
/// Longest message of a step, in bytes.
pub const MESSAGE_MAX: u64 = 1 << 20;
/// Largest number of states of a program.
pub const STATES_MAX: usize = 15;
/// Longest name of a state, in bytes.
pub const STATE_MAX: usize = 32;
/// Largest number of events that a polling server serves in a period.
pub const BUDGET_MAX: u32 = 100_000;

/// Tasks that run together on one node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Vec<Task>", into = "Vec<Task>")]
pub struct TaskSet {
    tasks: Vec<Task>,
}

/// Periodic task. All times are in ns.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Task {
    /// Name, unique in the set.
    pub name: String,
    /// Time from one release to the next.
    pub period_ns: u64,
    /// Time from a release to the deadline of its work; no longer than the period.
    pub deadline_ns: u64,
    /// Time from the start of the run to the first release; shorter than the period.
    pub offset_ns: u64,
    /// Scheduling of the task's thread.
    pub schedule: SchedulingSpec,
    /// Work in each period.
    pub work: TaskWork,
    /// Worst-case execution time, if known: for predictions, and the runtime under
    /// `SCHED_DEADLINE`.
    pub worst_ns: Option<u64>,
    /// Longest time for which the task blocks every other task: a lock that tasks of a higher
    /// priority need, or a region without preemption.
    pub critical_ns: u64,
}

/// Scheduling of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchedulingSpec {
    /// Scheduling policy.
    pub policy: Policy,
    /// Real-time priority, 1 to 99; 0 under [`Policy::Other`] and [`Policy::Deadline`].
    pub priority: u8,
    /// Core to which the task is pinned; `None` for any core.
    pub core: Option<usize>,
}

/// Work of a task in a period.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskWork {
    /// The built-in load: supersteps, one after the other.
    Steps(Vec<Superstep>),
    /// Program that is started at each release, with its arguments.
    Command(Vec<String>),
    /// Program that is started once and marks its periods by messages.
    Program(TaskProgram),
    /// Polling server of aperiodic events.
    Polling(PollingServerSpec),
}

/// Program that is started once, receives its releases and marks its activities.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TaskProgram {
    /// Program and its arguments.
    pub words: Vec<String>,
    /// Valid states of the program; its periods are counted separately by state.
    pub states: Vec<String>,
}

/// Superstep: computation, then a message, then a barrier; each of them may be absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Superstep {
    /// Amount of computation.
    pub compute: ComputeAmount,
    /// Message that the node sends to its peers; it waits for theirs.
    pub message: Option<SuperstepMessage>,
    /// True if all nodes wait for each other at the end.
    pub barrier: bool,
}

/// Computation of a superstep or an event, as a duration or in units of the built-in load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComputeAmount {
    /// Computation that takes this long if undisturbed, in ns; calibrated on the node beforehand.
    Ns(u64),
    /// Units of the built-in load, the same number on every node.
    Units(u64),
}

impl ComputeAmount {
    /// Returns true if there is nothing to compute.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        matches!(self, Self::Ns(0) | Self::Units(0))
    }
}

/// Message of a node to its peers in a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SuperstepMessage {
    /// Length in bytes.
    pub bytes: u64,
    /// Receiving nodes.
    pub to: MessageDestination,
}

/// Nodes that receive a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessageDestination {
    /// Every other node.
    All,
    /// The next node by index; the first one after the last.
    Next,
}

/// Polling server: aperiodic work in the form of a periodic task. Events wait for the next release
/// and are served then, up to the budget.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct PollingServerSpec {
    /// Mean number of events per second; they arrive as a Poisson process.
    pub rate: f64,
    /// Computation of each event.
    pub event: ComputeAmount,
    /// Largest number of events served in a period.
    pub budget: u32,
}

impl TryFrom<Vec<Task>> for TaskSet {
    type Error = TaskSetError;

    fn try_from(tasks: Vec<Task>) -> Result<Self, TaskSetError> {
        Self::new(tasks)
    }
}

impl From<TaskSet> for Vec<Task> {
    fn from(set: TaskSet) -> Self {
        set.tasks
    }
}

impl TaskSet {
    /// Creates a set of these tasks.
    ///
    /// # Errors
    ///
    /// A task or the set is invalid; the error names the task, if one is the cause.
    pub fn new(tasks: Vec<Task>) -> Result<Self, TaskSetError> {
        if tasks.is_empty() || tasks.len() > TASKS_MAX {
            let count = tasks.len();
            let reason = format!("there are {count} tasks; use 1 to {TASKS_MAX}");
            return Err(TaskSetError::for_set(reason));
        }
        for (at, task) in tasks.iter().enumerate() {
            if tasks[..at].iter().any(|other| other.name == task.name) {
                return Err(TaskSetError::for_task(&task.name, "another task has this name"));
            }
        }
        let set = Self { tasks };
        set.check()?;
        Ok(set)
    }

    /// Checks that each task is valid as it is now. A change of the policy can make a task invalid.
    ///
    /// # Errors
    ///
    /// A task is invalid; the error names it.
    pub fn check(&self) -> Result<(), TaskSetError> {
        let checked =
            |task: &Task| task.check().map_err(|reason| TaskSetError::for_task(&task.name, reason));
        self.tasks.iter().try_for_each(checked)
    }

    /// Returns these tasks under another policy. Tasks without a priority get the default; under
    /// [`Policy::Deadline`] no task is pinned to a core, which the kernel would refuse.
    #[must_use]
    pub fn with_policy(&self, policy: Policy) -> Self {
        let mut set = self.clone();
        for task in &mut set.tasks {
            let SchedulingSpec { priority, core, .. } = task.schedule;
            let priority = match (policy.has_priority(), priority) {
                (false, _) => 0,
                (true, 0) => DEFAULT_PRIORITY,
                (true, priority) => priority,
            };
            let core = core.filter(|_| policy != Policy::Deadline);
            task.schedule = SchedulingSpec { policy, priority, core };
        }
        set
    }

    /// Returns these tasks pinned to a core, except those under `SCHED_DEADLINE`, which the kernel
    /// does not pin.
    #[must_use]
    pub fn pinned_to_core(&self, core: usize) -> Self {
        let mut set = self.clone();
        for task in &mut set.tasks {
            task.schedule.core = (task.schedule.policy != Policy::Deadline).then_some(core);
        }
        set
    }

    /// Returns these tasks with the computation of each superstep divided by the number of nodes,
    /// rounded up. Other kinds of work are unchanged.
    #[must_use]
    pub fn divided(&self, nodes: u64) -> Self {
        self.with_amounts(|amount| amount.div_ceil(nodes.max(1)))
    }

    /// Returns these tasks with the computation of each superstep multiplied by `factor`, rounded.
    /// Other kinds of work are unchanged.
    #[must_use]
    pub fn multiplied(&self, factor: f64) -> Self {
        self.with_amounts(|amount| (amount as f64 * factor).round() as u64)
    }

    fn with_amounts(&self, change: impl Fn(u64) -> u64) -> Self {
        let mut set = self.clone();
        for task in &mut set.tasks {
            let TaskWork::Steps(steps) = &mut task.work else { continue };
            for step in steps {
                match &mut step.compute {
                    ComputeAmount::Ns(amount) | ComputeAmount::Units(amount) => {
                        *amount = change(*amount);
                    }
                }
            }
        }
        set
    }

    /// Returns the tasks, in their order.
    #[must_use]
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }
}

impl Task {
    fn check(&self) -> Result<(), String> {
        error::check_name(&self.name)?;
        if !(PERIOD_MIN_NS..=PERIOD_MAX_NS).contains(&self.period_ns) {
            return Err("a period is 50us to 1h long".to_owned());
        }
        if self.deadline_ns == 0 || self.deadline_ns > self.period_ns {
            return Err("a deadline is longer than 0 and no longer than the period".to_owned());
        }
        if self.offset_ns >= self.period_ns {
            return Err("an offset is shorter than the period".to_owned());
        }
        if self.critical_ns > self.period_ns {
            return Err("the critical section is longer than the period".to_owned());
        }
        self.schedule.check()?;
        let starts_process = matches!(self.work, TaskWork::Command(_) | TaskWork::Program(_));
        if starts_process && self.schedule.policy == Policy::Deadline {
            return Err(
                "policy deadline does not support tasks that start programs: child processes \
                 cannot inherit it"
                    .to_owned(),
            );
        }
        self.work.check(self.period_ns)
    }
}

impl SchedulingSpec {
    fn check(self) -> Result<(), String> {
        let Self { policy, priority, core } = self;
        match (policy.has_priority(), priority) {
            (true, 1..=99) | (false, 0) => {}
            (true, _) => return Err("a real-time priority is 1 to 99".to_owned()),
            (false, _) => return Err(format!("policy {} has no priority", policy.name())),
        }
        if policy == Policy::Deadline && core.is_some() {
            return Err(
                "policy deadline does not support core: the kernel refuses it for tasks that may \
                 not run on all cores"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

impl TaskWork {
    fn check(&self, period_ns: u64) -> Result<(), String> {
        match self {
            Self::Steps(steps) => check_steps(steps, period_ns),
            Self::Command(words) => check_words(words),
            Self::Program(program) => program.check(),
            Self::Polling(polling) => polling.check(period_ns),
        }
    }
}

fn check_words(words: &[String]) -> Result<(), String> {
    match words.first() {
        Some(program) if !program.is_empty() => Ok(()),
        _ => Err("the program is missing".to_owned()),
    }
}

impl TaskProgram {
    fn check(&self) -> Result<(), String> {
        check_words(&self.words)?;
        if self.states.len() > STATES_MAX {
            return Err(format!("there are {} states; use up to {STATES_MAX}", self.states.len()));
        }
        for (at, state) in self.states.iter().enumerate() {
            error::check_state(state)?;
            if self.states[..at].contains(state) {
                return Err(format!("state '{state}' occurs twice"));
            }
        }
        Ok(())
    }
}

fn check_steps(steps: &[Superstep], period_ns: u64) -> Result<(), String> {
    if steps.is_empty() || steps.len() > STEPS_MAX {
        return Err(format!("there are {} steps; use 1 to {STEPS_MAX}", steps.len()));
    }
    for step in steps {
        check_compute(step.compute, period_ns)?;
        if step.message.is_some_and(|message| !(1..=MESSAGE_MAX).contains(&message.bytes)) {
            return Err("a message has 1 byte to 1 MiB".to_owned());
        }
        if step.compute.is_zero() && step.message.is_none() && !step.barrier {
            return Err("a step has no work; add compute, units, a message or a barrier".to_owned());
        }
    }
    Ok(())
}

fn check_compute(compute: ComputeAmount, period_ns: u64) -> Result<(), String> {
    match compute {
        ComputeAmount::Ns(ns) if ns > period_ns.saturating_mul(10) => {
            Err("it computes for longer than ten periods".to_owned())
        }
        _ => Ok(()),
    }
}

impl PollingServerSpec {
    fn check(&self, period_ns: u64) -> Result<(), String> {
        if !(self.rate > 0.0 && self.rate <= 1e6) {
            return Err("the rate of events is above 0 and 1M a second at most".to_owned());
        }
        if self.budget == 0 || self.budget > BUDGET_MAX {
            return Err(format!("a budget is 1 to {BUDGET_MAX} events"));
        }
        if self.event.is_zero() {
            return Err("an event has no work; add its compute or units".to_owned());
        }
        check_compute(self.event, period_ns)?;
        self.check_ring_capacity(period_ns)
    }

    /// Refuses a server that could serve more events between two collections than a ring holds.
    fn check_ring_capacity(&self, period_ns: u64) -> Result<(), String> {
        let (room, periods) = (NON_PERIOD_MAX as u64, COLLECT_INTERVAL_NS.div_ceil(period_ns));
        let of_budget = u64::from(self.budget) * periods;
        let of_work = match self.event {
            ComputeAmount::Ns(ns) => COLLECT_INTERVAL_NS / ns.max(1) + 1,
            ComputeAmount::Units(_) => u64::MAX,
        };
        // Events that may be waiting after a disturbance of one second.
        let of_rate = self.rate.ceil() as u64;
        if of_budget.min(of_work).min(of_rate) <= room {
            return Ok(());
        }
        Err(format!(
            "up to {} events could occur in the {} ms until they are collected, and the limit is \
             {room}; use a budget of {} at most",
            of_budget.min(of_work),
            COLLECT_INTERVAL_NS / 1_000_000,
            room / periods
        ))
    }
}
