//! What a periodic task is: when it is released, by when it is to be through, how it is scheduled
//! and what it does in each period. Values here are right by their types or were checked by
//! [`TaskSet::new`]; nothing runs here.

mod fault;
mod file;
#[cfg(test)]
mod tests;

pub use horolog_record::TaskPolicy as Policy;
use serde::{Deserialize, Serialize};

use crate::ring::{LOOK_NS, OTHERS_MAX};

pub use fault::Fault;
pub(crate) use fault::check_name;
pub use file::{FILE_MAX, PRIORITY};

/// Tasks of a set, at most.
pub const TASKS_MAX: usize = 64;
/// Supersteps of a task, at most.
pub const STEPS_MAX: usize = 16;
/// The shortest period.
pub const PERIOD_MIN_NS: u64 = 50_000;
/// The longest period: an hour.
pub const PERIOD_MAX_NS: u64 = 3_600_000_000_000;
/// The longest message that is sent in a step, in bytes.
pub const MESSAGE_MAX: u64 = 1 << 20;
/// States that a program names, at most.
pub const STATES_MAX: usize = 15;
/// The longest name of a state, in bytes.
pub const STATE_MAX: usize = 32;
/// Events that a polling server serves in a period, at most.
pub const BUDGET_MAX: u32 = 100_000;

/// Tasks that run beside each other on one node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Vec<Task>", into = "Vec<Task>")]
pub struct TaskSet {
    tasks: Vec<Task>,
}

/// A periodic task. All times are in ns.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Task {
    /// Its name, which no other task of the set has.
    pub name: String,
    /// From one release to the next.
    pub period_ns: u64,
    /// From a release to when its work is to be done; no longer than the period.
    pub deadline_ns: u64,
    /// From the first instant of the set to the first release; shorter than the period.
    pub offset_ns: u64,
    /// How it is scheduled.
    pub schedule: Schedule,
    /// What it does in each period.
    pub work: Work,
    /// The longest execution that is known of it beforehand, for predictions.
    pub worst_ns: Option<u64>,
    /// The longest stretch in which it lets no other task go before it (a lock that others of a
    /// higher priority want, a region without preemption).
    pub critical_ns: u64,
}

/// How a task is scheduled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Schedule {
    /// The policy.
    pub policy: Policy,
    /// The real-time priority, 1 to 99; 0 under [`Policy::Other`] and [`Policy::Deadline`].
    pub priority: u8,
    /// The core that it is tied to.
    pub core: Option<usize>,
}

/// What a task does in a period.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// The built-in load: supersteps, one after the other.
    Steps(Vec<Step>),
    /// A program that is started at each release, with its arguments.
    Command(Vec<String>),
    /// A program that is started once, and marks its periods by messages.
    Program(Program),
    /// A server of events that come at any time.
    Polling(Polling),
}

/// A program that waits for its releases and marks what it does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Program {
    /// The program with its arguments.
    pub words: Vec<String>,
    /// The states that it may say to be in, so that its periods are told apart by them.
    pub states: Vec<String>,
}

/// A superstep: computation, then communication, then a barrier; what is absent is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// What is computed.
    pub compute: Compute,
    /// What is sent, and by the others received.
    pub message: Option<Message>,
    /// Whether all nodes wait for the last of them.
    pub barrier: bool,
}

/// How much is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compute {
    /// As much as takes this long on the node where nothing disturbs it; found out beforehand.
    Ns(u64),
    /// So many units of the load, the same on every node.
    Units(u64),
}

impl Compute {
    /// Whether there is nothing to compute.
    #[must_use]
    pub const fn is_nothing(self) -> bool {
        matches!(self, Self::Ns(0) | Self::Units(0))
    }
}

/// What a node sends to others in a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Message {
    /// Its length.
    pub bytes: u64,
    /// To whom it goes.
    pub to: Audience,
}

/// The nodes that a message goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Audience {
    /// Every other node.
    All,
    /// The node behind this one in their order; the first behind the last.
    Next,
}

/// Events that come at any time are kept until the next release and served then, so many of them at
/// most: aperiodic work in the shape of a periodic task.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Polling {
    /// The mean number of events in a second; from one to the next it is an exponentially
    /// distributed time.
    pub rate: f64,
    /// What each of them computes.
    pub event: Compute,
    /// How many are served in a period at most.
    pub budget: u32,
}

impl TryFrom<Vec<Task>> for TaskSet {
    type Error = Fault;

    fn try_from(tasks: Vec<Task>) -> Result<Self, Fault> {
        Self::new(tasks)
    }
}

impl From<TaskSet> for Vec<Task> {
    fn from(set: TaskSet) -> Self {
        set.tasks
    }
}

impl TaskSet {
    /// A set of these tasks.
    ///
    /// # Errors
    ///
    /// What is wrong, and with which task.
    pub fn new(tasks: Vec<Task>) -> Result<Self, Fault> {
        if tasks.is_empty() || tasks.len() > TASKS_MAX {
            let count = tasks.len();
            let reason = format!("there are {count} tasks; give 1 to {TASKS_MAX}");
            return Err(Fault::of_set(reason));
        }
        for (at, task) in tasks.iter().enumerate() {
            if tasks[..at].iter().any(|other| other.name == task.name) {
                return Err(Fault::of_task(&task.name, "there is another task of this name"));
            }
        }
        let set = Self { tasks };
        set.check()?;
        Ok(set)
    }

    /// Whether each task can be as it is, which may no longer hold under another policy.
    ///
    /// # Errors
    ///
    /// What is wrong, and with which task.
    pub fn check(&self) -> Result<(), Fault> {
        let checked =
            |task: &Task| task.check().map_err(|reason| Fault::of_task(&task.name, reason));
        self.tasks.iter().try_for_each(checked)
    }

    /// The same tasks under another policy: those that had no priority get the usual one, and under
    /// [`Policy::Deadline`] none is tied to a core, which the kernel does not allow.
    #[must_use]
    pub fn under(&self, policy: Policy) -> Self {
        let mut set = self.clone();
        for task in &mut set.tasks {
            let Schedule { priority, core, .. } = task.schedule;
            let priority = match (policy.has_priority(), priority) {
                (false, _) => 0,
                (true, 0) => PRIORITY,
                (true, priority) => priority,
            };
            let core = core.filter(|_| policy != Policy::Deadline);
            task.schedule = Schedule { policy, priority, core };
        }
        set
    }

    /// The same tasks tied to a core, but for those that the kernel ties to none.
    #[must_use]
    pub fn on_core(&self, core: usize) -> Self {
        let mut set = self.clone();
        for task in &mut set.tasks {
            task.schedule.core = (task.schedule.policy != Policy::Deadline).then_some(core);
        }
        set
    }

    /// The same tasks with what their supersteps compute divided among so many nodes.
    #[must_use]
    pub fn divided(&self, nodes: u64) -> Self {
        self.with_amounts(|amount| amount.div_ceil(nodes.max(1)))
    }

    /// The same tasks with what their supersteps compute so many times as much.
    #[must_use]
    pub fn multiplied(&self, factor: f64) -> Self {
        self.with_amounts(|amount| (amount as f64 * factor).round() as u64)
    }

    fn with_amounts(&self, change: impl Fn(u64) -> u64) -> Self {
        let mut set = self.clone();
        for task in &mut set.tasks {
            let Work::Steps(steps) = &mut task.work else { continue };
            for step in steps {
                match &mut step.compute {
                    Compute::Ns(amount) | Compute::Units(amount) => *amount = change(*amount),
                }
            }
        }
        set
    }

    /// The tasks, in their order.
    #[must_use]
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }
}

impl Task {
    fn check(&self) -> Result<(), String> {
        fault::check_name(&self.name)?;
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
            return Err("the critical stretch is longer than the period".to_owned());
        }
        self.schedule.check()?;
        let starts = matches!(self.work, Work::Command(_) | Work::Program(_));
        if starts && self.schedule.policy == Policy::Deadline {
            return Err(
                "policy deadline is not for tasks that start programs: the kernel gives it to none \
                 that such a task starts"
                    .to_owned(),
            );
        }
        self.work.check(self.period_ns)
    }
}

impl Schedule {
    fn check(self) -> Result<(), String> {
        let Self { policy, priority, core } = self;
        match (policy.has_priority(), priority) {
            (true, 1..=99) | (false, 0) => {}
            (true, _) => return Err("a real-time priority is 1 to 99".to_owned()),
            (false, _) => return Err(format!("policy {} has no priority", policy.name())),
        }
        if policy == Policy::Deadline && core.is_some() {
            return Err(
                "policy deadline takes no core: the kernel refuses it for tasks that may not run \
                 on all of them"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

impl Work {
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
        _ => Err("the program to run is not named".to_owned()),
    }
}

impl Program {
    fn check(&self) -> Result<(), String> {
        check_words(&self.words)?;
        if self.states.len() > STATES_MAX {
            return Err(format!("there are {} states; name up to {STATES_MAX}", self.states.len()));
        }
        for (at, state) in self.states.iter().enumerate() {
            fault::check_state(state)?;
            if self.states[..at].contains(state) {
                return Err(format!("state '{state}' is named twice"));
            }
        }
        Ok(())
    }
}

fn check_steps(steps: &[Step], period_ns: u64) -> Result<(), String> {
    if steps.is_empty() || steps.len() > STEPS_MAX {
        return Err(format!("there are {} steps; give 1 to {STEPS_MAX}", steps.len()));
    }
    for step in steps {
        check_compute(step.compute, period_ns)?;
        if step.message.is_some_and(|message| !(1..=MESSAGE_MAX).contains(&message.bytes)) {
            return Err("a message has 1 byte to 1 MiB".to_owned());
        }
        if step.compute.is_nothing() && step.message.is_none() && !step.barrier {
            return Err(
                "a step does nothing; give it a compute, units, a message or a barrier".to_owned()
            );
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
            return Err("an event computes something; give its compute or units".to_owned());
        }
        check_compute(self.event, period_ns)?;
        self.check_room(period_ns)
    }

    /// Refuses what would serve more events than there is room for until their figures are taken.
    fn check_room(&self, period_ns: u64) -> Result<(), String> {
        let (room, periods) = (OTHERS_MAX as u64, LOOK_NS.div_ceil(period_ns));
        let of_budget = u64::from(self.budget) * periods;
        let of_work = match self.event {
            Compute::Ns(ns) => LOOK_NS / ns.max(1) + 1,
            Compute::Units(_) => u64::MAX,
        };
        // What may wait after a disturbance of a second.
        let of_rate = self.rate.ceil() as u64;
        if of_budget.min(of_work).min(of_rate) <= room {
            return Ok(());
        }
        Err(format!(
            "up to {} events could be served in the {} ms until their figures are taken, and there \
             is room for {room}; give a budget of {} at most",
            of_budget.min(of_work),
            LOOK_NS / 1_000_000,
            room / periods
        ))
    }
}
