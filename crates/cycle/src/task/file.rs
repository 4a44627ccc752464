//! Task file in TOML. Times are written with their units.

use horolog_time::text;
use serde::Deserialize;
use toml::Spanned;

use super::{
    ComputeAmount, MessageDestination, Policy, PollingServerSpec, SchedulingSpec, Superstep,
    SuperstepMessage, Task, TaskProgram, TaskSet, TaskSetError, TaskWork,
};

/// Largest size of a task file that is read, in bytes.
pub const FILE_MAX: u64 = 1 << 20;
/// Default real-time priority.
pub const DEFAULT_PRIORITY: u8 = 80;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTaskFile {
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
    steps: Vec<Spanned<RawSuperstep>>,
    command: Option<Vec<String>>,
    program: Option<Vec<String>>,
    states: Option<Spanned<Vec<String>>>,
    polling: Option<Spanned<RawPollingServer>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawSuperstep {
    compute: Option<Spanned<String>>,
    units: Option<u64>,
    message: Option<u64>,
    to: Option<Spanned<String>>,
    barrier: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawPollingServer {
    rate: f64,
    compute: Option<Spanned<String>>,
    units: Option<u64>,
    budget: u32,
}

impl TaskSet {
    /// Parses a task file.
    ///
    /// # Errors
    ///
    /// The file is invalid; the error names the line, or for a duplicate name the task.
    pub fn parse(text: &str) -> Result<Self, TaskSetError> {
        let raw: RawTaskFile = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let reason = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            TaskSetError::at_byte(text, at, reason)
        })?;
        let reader = TaskFileReader { text };
        let mut tasks = Vec::new();
        for task in &raw.tasks {
            let read = reader.task(task.get_ref(), task.span().start)?;
            read.check().map_err(|reason| reader.error_at(task, reason))?;
            tasks.push(read);
        }
        Self::new(tasks)
    }
}

/// Converter of the parsed tables of a file to tasks. Its errors name the line.
struct TaskFileReader<'a> {
    text: &'a str,
}

impl TaskFileReader<'_> {
    fn error_at<T>(&self, at: &Spanned<T>, reason: impl std::fmt::Display) -> TaskSetError {
        TaskSetError::at_byte(self.text, at.span().start, reason)
    }

    fn task(&self, raw: &RawTask, offset: usize) -> Result<Task, TaskSetError> {
        let period_ns = self.time_ns(&raw.period)?;
        let policy = match &raw.policy {
            None => Policy::Fifo,
            Some(name) => Policy::parse(name.get_ref()).map_err(|why| self.error_at(name, why))?,
        };
        let default_priority = if policy.has_priority() { DEFAULT_PRIORITY } else { 0 };
        Ok(Task {
            name: raw.name.clone(),
            period_ns,
            deadline_ns: self.time_or(raw.deadline.as_ref(), period_ns)?,
            offset_ns: self.time_or(raw.offset.as_ref(), 0)?,
            schedule: SchedulingSpec {
                policy,
                priority: raw.priority.unwrap_or(default_priority),
                core: raw.core,
            },
            work: self.work(raw, offset)?,
            worst_ns: raw.worst.as_ref().map(|worst| self.time_ns(worst)).transpose()?,
            critical_ns: self.time_or(raw.critical.as_ref(), 0)?,
        })
    }

    fn work(&self, raw: &RawTask, offset: usize) -> Result<TaskWork, TaskSetError> {
        let single_step = RawSuperstep {
            compute: raw.compute.clone(),
            units: raw.units,
            message: raw.message,
            to: raw.to.clone(),
            barrier: raw.barrier,
        };
        let mut kinds = Vec::new();
        if !single_step.is_empty() {
            kinds.push(TaskWork::Steps(vec![self.step(&single_step, offset)?]));
        }
        if !raw.steps.is_empty() {
            let step = |step: &Spanned<RawSuperstep>| self.step(step.get_ref(), step.span().start);
            kinds.push(TaskWork::Steps(raw.steps.iter().map(step).collect::<Result<_, _>>()?));
        }
        kinds.extend(raw.command.clone().map(TaskWork::Command));
        let states = raw.states.as_ref().map(|states| states.get_ref().clone());
        if let (Some(states), None) = (&raw.states, &raw.program) {
            return Err(self.error_at(states, "only a program reports states; this task has none"));
        }
        let program = |words| TaskProgram { words, states: states.unwrap_or_default() };
        kinds.extend(raw.program.clone().map(program).map(TaskWork::Program));
        if let Some(polling) = &raw.polling {
            let offset = polling.span().start;
            let RawPollingServer { rate, compute, units, budget } = polling.get_ref();
            let event = self.compute(compute.as_ref(), *units, offset)?;
            kinds.push(TaskWork::Polling(PollingServerSpec {
                rate: *rate,
                event,
                budget: *budget,
            }));
        }
        let one_of = "a step (compute, units, message, barrier), [[task.step]], command, program \
                      or [task.polling]";
        let mut kinds = kinds.into_iter();
        match (kinds.next(), kinds.next()) {
            (Some(work), None) => Ok(work),
            (None, _) => Err(TaskSetError::at_byte(
                self.text,
                offset,
                format!("the task has no work; add one of {one_of}"),
            )),
            _ => {
                let reason = format!("the task has several kinds of work; keep one of {one_of}");
                Err(TaskSetError::at_byte(self.text, offset, reason))
            }
        }
    }

    fn step(&self, raw: &RawSuperstep, offset: usize) -> Result<Superstep, TaskSetError> {
        let to = match &raw.to {
            None => None,
            Some(to) => match to.get_ref().as_str() {
                "all" => Some(MessageDestination::All),
                "next" => Some(MessageDestination::Next),
                _ => return Err(self.error_at(to, "write all or next")),
            },
        };
        if let (Some(to), None) = (&raw.to, raw.message) {
            return Err(self.error_at(to, "'to' needs a message"));
        }
        let message = |bytes| SuperstepMessage { bytes, to: to.unwrap_or(MessageDestination::All) };
        Ok(Superstep {
            compute: self.compute(raw.compute.as_ref(), raw.units, offset)?,
            message: raw.message.map(message),
            barrier: raw.barrier.unwrap_or(false),
        })
    }

    fn compute(
        &self,
        time: Option<&Spanned<String>>,
        units: Option<u64>,
        offset: usize,
    ) -> Result<ComputeAmount, TaskSetError> {
        match (time, units) {
            (Some(_), Some(_)) => Err(TaskSetError::at_byte(
                self.text,
                offset,
                "compute and units exclude one another; keep one",
            )),
            (Some(time), None) => self.time_ns(time).map(ComputeAmount::Ns),
            (None, units) => Ok(ComputeAmount::Units(units.unwrap_or(0))),
        }
    }

    fn time_or(
        &self,
        time: Option<&Spanned<String>>,
        default_ns: u64,
    ) -> Result<u64, TaskSetError> {
        time.map_or(Ok(default_ns), |time| self.time_ns(time))
    }

    fn time_ns(&self, time: &Spanned<String>) -> Result<u64, TaskSetError> {
        let text = time.get_ref();
        let ns = text::duration(text).ok().and_then(|time| u64::try_from(time.as_nanos()).ok());
        ns.ok_or_else(|| self.error_at(time, "write a time such as \"10ms\", \"250us\" or \"1s\""))
    }
}

impl RawSuperstep {
    fn is_empty(&self) -> bool {
        let Self { compute, units, message, to, barrier } = self;
        compute.is_none()
            && units.is_none()
            && message.is_none()
            && to.is_none()
            && barrier.is_none()
    }
}
