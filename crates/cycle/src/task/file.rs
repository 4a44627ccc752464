//! A set of tasks as a person writes it, in a TOML file. Times are written with their units.

use horolog_time::text;
use serde::Deserialize;
use toml::Spanned;

use super::{
    Audience, Compute, Fault, Message, Policy, Polling, Program, Schedule, Step, Task, TaskSet,
    Work,
};

/// The longest file that is read, in bytes.
pub const FILE_MAX: u64 = 1 << 20;
/// The real-time priority of a task that is given none.
pub const PRIORITY: u8 = 80;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(rename = "task")]
    tasks: Vec<Spanned<RawTask>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawTask {
    name: String,
    period: Spanned<String>,
    deadline: Option<Spanned<String>>,
    offset: Option<Spanned<String>>,
    policy: Option<Spanned<String>>,
    priority: Option<u8>,
    core: Option<usize>,
    worst: Option<Spanned<String>>,
    critical: Option<Spanned<String>>,
    compute: Option<Spanned<String>>,
    units: Option<u64>,
    message: Option<u64>,
    to: Option<Spanned<String>>,
    barrier: Option<bool>,
    #[serde(default, rename = "step")]
    steps: Vec<Spanned<RawStep>>,
    command: Option<Vec<String>>,
    program: Option<Vec<String>>,
    states: Option<Spanned<Vec<String>>>,
    polling: Option<Spanned<RawPolling>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawStep {
    compute: Option<Spanned<String>>,
    units: Option<u64>,
    message: Option<u64>,
    to: Option<Spanned<String>>,
    barrier: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawPolling {
    rate: f64,
    compute: Option<Spanned<String>>,
    units: Option<u64>,
    budget: u32,
}

impl TaskSet {
    /// Reads a task file.
    ///
    /// # Errors
    ///
    /// What is wrong, and in which line.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let raw: Raw = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let reason = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            Fault::at(text, at, reason)
        })?;
        let reader = Reader { text };
        let mut tasks = Vec::new();
        for task in &raw.tasks {
            let read = reader.task(task.get_ref(), task.span().start)?;
            read.check().map_err(|reason| reader.fault(task, reason))?;
            tasks.push(read);
        }
        Self::new(tasks)
    }
}

/// Turns what stands in a text into what it means, or says where it means nothing.
struct Reader<'a> {
    text: &'a str,
}

impl Reader<'_> {
    fn fault<T>(&self, at: &Spanned<T>, reason: impl std::fmt::Display) -> Fault {
        Fault::at(self.text, at.span().start, reason)
    }

    fn task(&self, raw: &RawTask, begins: usize) -> Result<Task, Fault> {
        let period_ns = self.time_ns(&raw.period)?;
        let policy = match &raw.policy {
            None => Policy::Fifo,
            Some(name) => Policy::parse(name.get_ref()).map_err(|why| self.fault(name, why))?,
        };
        let usual = if policy.has_priority() { PRIORITY } else { 0 };
        Ok(Task {
            name: raw.name.clone(),
            period_ns,
            deadline_ns: self.time_or(raw.deadline.as_ref(), period_ns)?,
            offset_ns: self.time_or(raw.offset.as_ref(), 0)?,
            schedule: Schedule { policy, priority: raw.priority.unwrap_or(usual), core: raw.core },
            work: self.work(raw, begins)?,
            worst_ns: raw.worst.as_ref().map(|worst| self.time_ns(worst)).transpose()?,
            critical_ns: self.time_or(raw.critical.as_ref(), 0)?,
        })
    }

    fn work(&self, raw: &RawTask, begins: usize) -> Result<Work, Fault> {
        let whole = RawStep {
            compute: raw.compute.clone(),
            units: raw.units,
            message: raw.message,
            to: raw.to.clone(),
            barrier: raw.barrier,
        };
        let mut kinds = Vec::new();
        if !whole.is_empty() {
            kinds.push(Work::Steps(vec![self.step(&whole, begins)?]));
        }
        if !raw.steps.is_empty() {
            let step = |step: &Spanned<RawStep>| self.step(step.get_ref(), step.span().start);
            kinds.push(Work::Steps(raw.steps.iter().map(step).collect::<Result<_, _>>()?));
        }
        kinds.extend(raw.command.clone().map(Work::Command));
        let states = raw.states.as_ref().map(|states| states.get_ref().clone());
        if let (Some(states), None) = (&raw.states, &raw.program) {
            return Err(self.fault(states, "only a program says states; there is none"));
        }
        let program = |words| Program { words, states: states.unwrap_or_default() };
        kinds.extend(raw.program.clone().map(program).map(Work::Program));
        if let Some(polling) = &raw.polling {
            let begins = polling.span().start;
            let RawPolling { rate, compute, units, budget } = polling.get_ref();
            let event = self.compute(compute.as_ref(), *units, begins)?;
            kinds.push(Work::Polling(Polling { rate: *rate, event, budget: *budget }));
        }
        let one_of = "a step (compute, units, message, barrier), [[task.step]], command, program \
                      or [task.polling]";
        let mut kinds = kinds.into_iter();
        match (kinds.next(), kinds.next()) {
            (Some(work), None) => Ok(work),
            (None, _) => Err(Fault::at(
                self.text,
                begins,
                format!("the task says not what it does; give one of {one_of}"),
            )),
            _ => {
                let reason = format!("the task does several things; give one of {one_of}");
                Err(Fault::at(self.text, begins, reason))
            }
        }
    }

    fn step(&self, raw: &RawStep, begins: usize) -> Result<Step, Fault> {
        let to = match &raw.to {
            None => None,
            Some(to) => match to.get_ref().as_str() {
                "all" => Some(Audience::All),
                "next" => Some(Audience::Next),
                _ => return Err(self.fault(to, "write all or next")),
            },
        };
        if let (Some(to), None) = (&raw.to, raw.message) {
            return Err(self.fault(to, "there is no message that could go anywhere"));
        }
        let message = |bytes| Message { bytes, to: to.unwrap_or(Audience::All) };
        Ok(Step {
            compute: self.compute(raw.compute.as_ref(), raw.units, begins)?,
            message: raw.message.map(message),
            barrier: raw.barrier.unwrap_or(false),
        })
    }

    fn compute(
        &self,
        time: Option<&Spanned<String>>,
        units: Option<u64>,
        begins: usize,
    ) -> Result<Compute, Fault> {
        match (time, units) {
            (Some(_), Some(_)) => {
                Err(Fault::at(self.text, begins, "give either compute or units, not both"))
            }
            (Some(time), None) => self.time_ns(time).map(Compute::Ns),
            (None, units) => Ok(Compute::Units(units.unwrap_or(0))),
        }
    }

    fn time_or(&self, time: Option<&Spanned<String>>, other_ns: u64) -> Result<u64, Fault> {
        time.map_or(Ok(other_ns), |time| self.time_ns(time))
    }

    fn time_ns(&self, time: &Spanned<String>) -> Result<u64, Fault> {
        let text = time.get_ref();
        let ns = text::duration(text).ok().and_then(|time| u64::try_from(time.as_nanos()).ok());
        ns.ok_or_else(|| self.fault(time, "write a time such as \"10ms\", \"250us\" or \"1s\""))
    }
}

impl RawStep {
    fn is_empty(&self) -> bool {
        let Self { compute, units, message, to, barrier } = self;
        compute.is_none()
            && units.is_none()
            && message.is_none()
            && to.is_none()
            && barrier.is_none()
    }
}
