//! Definition of periodic tasks: their releases, deadlines, scheduling and work in each period.
//! Values of these types are valid by construction or were checked by [`TaskSet::new`]; nothing
//! runs here.

mod error;
mod file;
#[cfg(test)]
mod tests;

pub use horolog_record::TaskPolicy as Policy;
use serde::{Deserialize, Serialize};

use crate::ring::{COLLECT_INTERVAL_NS, NON_PERIOD_MAX};

pub use error::TaskSetError;
pub(crate) use error::check_name;
pub use file::{FILE_MAX, PRIORITY};

/// Tasks of a set, at most.
pub const TASKS_MAX: usize = 64;
/// Supersteps of a task, at most.
pub const STEPS_MAX: usize = 16;
/// Shortest period.
pub const PERIOD_MIN_NS: u64 = 50_000;
/// Longest period: an hour.
pub const PERIOD_MAX_NS: u64 = 3_600_000_000_000;
/// Longest message of a step, in bytes.
pub const MESSAGE_MAX: u64 = 1 << 20;
/// States that a program names, at most.
pub const STATES_MAX: usize = 15;
/// Longest name of a state, in bytes.
pub const STATE_MAX: usize = 32;
/// Events that a polling server serves in a period, at most.
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
    /// Its name, unique in the set.
    pub name: String,
    /// Time from one release to the next.
    pub period_ns: u64,
    /// Time from a release to the deadline of its work; no longer than the period.
    pub deadline_ns: u64,
    /// Time from the first instant of the set to the first release; shorter than the period.
    pub offset_ns: u64,
    /// Its scheduling.
    pub schedule: SchedulingSpec,
    /// Its work in each period.
    pub work: TaskWork,
    /// Longest execution known beforehand, for predictions.
    pub worst_ns: Option<u64>,
    /// Longest time for which it blocks every other task (a lock that tasks of a higher priority
    /// need, a region without preemption).
    pub critical_ns: u64,
}

/// Scheduling of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchedulingSpec {
    /// The policy.
    pub policy: Policy,
    /// Real-time priority, 1 to 99; 0 under [`Policy::Other`] and [`Policy::Deadline`].
    pub priority: u8,
    /// Core to which it is pinned.
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
    /// Program that is started once, and marks its periods by messages.
    Program(TaskProgram),
    /// Server of events that arrive at any time.
    Polling(Polling),
}

/// Program that waits for its releases and marks its activities.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TaskProgram {
    /// Program with its arguments.
    pub words: Vec<String>,
    /// Valid states of the program; its periods are counted separately by state.
    pub states: Vec<String>,
}

/// Superstep: computation, then communication, then a barrier; absent parts are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Superstep {
    /// Its computation.
    pub compute: Compute,
    /// Message that is sent, and received from the peers.
    pub message: Option<StepMessage>,
    /// True if all nodes wait for the last of them.
    pub barrier: bool,
}

/// Amount of computation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compute {
    /// An amount with this undisturbed duration on the node; calibrated beforehand.
    Ns(u64),
    /// Units of the load, the same number on every node.
    Units(u64),
}

impl Compute {
    /// Returns true if there is nothing to compute.
    #[must_use]
    pub const fn is_nothing(self) -> bool {
        matches!(self, Self::Ns(0) | Self::Units(0))
    }
}

/// Message of a node to its peers in a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StepMessage {
    /// Its length.
    pub bytes: u64,
    /// Its receivers.
    pub to: Audience,
}

/// Nodes that receive a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Audience {
    /// Every other node.
    All,
    /// The next node in their order; after the last, the first.
    Next,
}

/// Server of events that arrive at any time: they wait for the next release and served then,
/// up to the budget. It is aperiodic work in the form of a periodic task.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Polling {
    /// Mean number of events in a second, with exponentially distributed times between them.
    pub rate: f64,
    /// Computation of each event.
    pub event: Compute,
    /// Events served in a period, at most.
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
    /// Makes a set of these tasks.
    ///
    /// # Errors
    ///
    /// The error with its task.
    pub fn new(tasks: Vec<Task>) -> Result<Self, TaskSetError> {
        if tasks.is_empty() || tasks.len() > TASKS_MAX {
            let count = tasks.len();
            let reason = format!("there are {count} tasks; use 1 to {TASKS_MAX}");
            return Err(TaskSetError::of_set(reason));
        }
        for (at, task) in tasks.iter().enumerate() {
            if tasks[..at].iter().any(|other| other.name == task.name) {
                return Err(TaskSetError::of_task(&task.name, "another task has this name"));
            }
        }
        let set = Self { tasks };
        set.check()?;
        Ok(set)
    }

    /// Checks that each task is valid in its present form, which may no longer be so under another
    /// policy.
    ///
    /// # Errors
    ///
    /// The error with its task.
    pub fn check(&self) -> Result<(), TaskSetError> {
        let checked =
            |task: &Task| task.check().map_err(|reason| TaskSetError::of_task(&task.name, reason));
        self.tasks.iter().try_for_each(checked)
    }

    /// Returns the same tasks under another policy: those without a priority get the default, and
    /// under [`Policy::Deadline`] none is pinned to a core, which the kernel does not allow.
    #[must_use]
    pub fn under(&self, policy: Policy) -> Self {
        let mut set = self.clone();
        for task in &mut set.tasks {
            let SchedulingSpec { priority, core, .. } = task.schedule;
            let priority = match (policy.has_priority(), priority) {
                (false, _) => 0,
                (true, 0) => PRIORITY,
                (true, priority) => priority,
            };
            let core = core.filter(|_| policy != Policy::Deadline);
            task.schedule = SchedulingSpec { policy, priority, core };
        }
        set
    }

    /// Returns the same tasks pinned to a core, except those that the kernel does not pin.
    #[must_use]
    pub fn on_core(&self, core: usize) -> Self {
        let mut set = self.clone();
        for task in &mut set.tasks {
            task.schedule.core = (task.schedule.policy != Policy::Deadline).then_some(core);
        }
        set
    }

    /// Returns the same tasks with the computation of their supersteps divided among this number of
    /// nodes.
    #[must_use]
    pub fn divided(&self, nodes: u64) -> Self {
        self.with_amounts(|amount| amount.div_ceil(nodes.max(1)))
    }

    /// Returns the same tasks with the computation of their supersteps multiplied by `factor`.
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
                    Compute::Ns(amount) | Compute::Units(amount) => *amount = change(*amount),
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
        let starts = matches!(self.work, TaskWork::Command(_) | TaskWork::Program(_));
        if starts && self.schedule.policy == Policy::Deadline {
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
        if step.compute.is_nothing() && step.message.is_none() && !step.barrier {
            return Err("a step has no work; add compute, units, a message or a barrier".to_owned());
        }
    }
    Ok(())
}

fn check_compute(compute: Compute, period_ns: u64) -> Result<(), String> {
    match compute {
        Compute::Ns(ns) if ns > period_ns.saturating_mul(10) => {
            Err("it computes for longer than ten periods".to_owned())
        }
        _ => Ok(()),
    }
}

impl Polling {
    fn check(&self, period_ns: u64) -> Result<(), String> {
        if !(self.rate > 0.0 && self.rate <= 1e6) {
            return Err("the rate of events is above 0 and 1M a second at most".to_owned());
        }
        if self.budget == 0 || self.budget > BUDGET_MAX {
            return Err(format!("a budget is 1 to {BUDGET_MAX} events"));
        }
        if self.event.is_nothing() {
            return Err("an event has no work; add its compute or units".to_owned());
        }
        check_compute(self.event, period_ns)?;
        self.check_room(period_ns)
    }

    /// Refuses a server that could serve more events than there is room for between two
    /// collections.
    fn check_room(&self, period_ns: u64) -> Result<(), String> {
        let (room, periods) = (NON_PERIOD_MAX as u64, COLLECT_INTERVAL_NS.div_ceil(period_ns));
        let of_budget = u64::from(self.budget) * periods;
        let of_work = match self.event {
            Compute::Ns(ns) => COLLECT_INTERVAL_NS / ns.max(1) + 1,
            Compute::Units(_) => u64::MAX,
        };
        // Events that may wait after a disturbance of a second.
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
