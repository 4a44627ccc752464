//! Tasks of a run: from a file, or one from flags.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use horolog_cycle::task::{
    ComputeAmount, DEFAULT_PRIORITY, MessageDestination, SchedulingSpec, Superstep,
    SuperstepMessage, Task, TaskProgram, TaskSet, TaskWork,
};
use horolog_record::TaskSchedulingPolicy;

use crate::commands::cycle::predict::input::read_tasks;
use crate::failure::CommandFailure;
use crate::values;
use horolog_time::text::Size;

/// Definition of the tasks.
#[derive(Args, Debug)]
pub(super) struct CycleTaskArgs {
    /// Task file (TOML): [[task]] with name, period and work.
    file: Option<PathBuf>,
    /// Time from one release to the next.
    #[arg(short, long, value_name = "TIME", value_parser = values::positive_duration)]
    period: Option<Duration>,
    /// Time from a release to its deadline [default: the period].
    #[arg(short, long, value_name = "TIME", value_parser = values::positive_duration)]
    deadline: Option<Duration>,
    /// Compute for this time (CPU time, as calibrated on this host before the run).
    #[arg(short, long, value_name = "TIME", value_parser = values::positive_duration,
          conflicts_with = "units")]
    compute: Option<Duration>,
    /// Compute this number of units of the built-in load: the same work on every host, in a time
    /// that depends on its speed.
    #[arg(short, long, value_name = "COUNT", value_parser = values::count)]
    units: Option<u32>,
    /// Send a message of this size in bytes (k is 1024) to the other nodes, and wait for their
    /// messages.
    #[arg(short, long, value_name = "SIZE")]
    message: Option<Size>,
    /// Recipients of the message. all: all other nodes; next: the next node [default: all].
    #[arg(long, value_name = "WHO", value_parser = parse_message_destination, requires = "message")]
    to: Option<MessageDestination>,
    /// Wait at a barrier after the work of each period until all nodes have reached it.
    #[arg(short, long)]
    barrier: bool,
    /// Scheduling policy: fifo, rr, other or deadline [default: fifo].
    #[arg(long, value_name = "POLICY", value_parser = TaskSchedulingPolicy::parse)]
    policy: Option<TaskSchedulingPolicy>,
    /// Real-time priority of fifo and rr [default: 80].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=99))]
    priority: Option<u8>,
    /// Cores to pin the nodes to, such as 0,1: each node gets the next core of the list, which
    /// starts again when it ends. No effect under the policy deadline [default: no pinning].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    core: Vec<usize>,
    /// Run the command once for all periods: it receives each release, and marks begin, phases and
    /// end by messages on an inherited socket (see docs/cycle.md).
    #[arg(long, requires = "command")]
    program: bool,
    /// Command to start at each release, or with --program once.
    #[arg(last = true, value_name = "COMMAND",
          conflicts_with_all = ["compute", "units", "message", "to", "barrier"])]
    command: Vec<String>,
}

fn parse_message_destination(text: &str) -> Result<MessageDestination, String> {
    match text {
        "all" => Ok(MessageDestination::All),
        "next" => Ok(MessageDestination::Next),
        _ => Err("write all or next".to_owned()),
    }
}

impl CycleTaskArgs {
    /// Returns the cores of `--core`, which the nodes take in turn.
    pub(super) fn cores(&self) -> &[usize] {
        &self.core
    }

    pub(super) fn task_set(&self) -> Result<TaskSet, CommandFailure> {
        match &self.file {
            Some(path) => self.reject_task_flags(path).and_then(|()| read_tasks(path)),
            None => TaskSet::new(vec![self.task_from_flags()?]).map_err(CommandFailure::usage),
        }
    }

    /// Rejects flags that define a task, since the task file defines all of them.
    fn reject_task_flags(&self, file: &Path) -> Result<(), CommandFailure> {
        let flags = [
            (self.period.is_some(), "--period"),
            (self.deadline.is_some(), "--deadline"),
            (self.compute.is_some(), "--compute"),
            (self.units.is_some(), "--units"),
            (self.message.is_some(), "--message"),
            (self.to.is_some(), "--to"),
            (self.barrier, "--barrier"),
            (self.policy.is_some(), "--policy"),
            (self.priority.is_some(), "--priority"),
            (!self.core.is_empty(), "--core"),
            (self.program, "--program"),
            (!self.command.is_empty(), "the command"),
        ];
        let Some((_, flag)) = flags.into_iter().find(|(is_present, _)| *is_present) else {
            return Ok(());
        };
        let file = file.display();
        Err(CommandFailure::usage(format!(
            "{file} is taken for a task file, which excludes {flag}: omit one of them; if {file} \
             is a command, write '--' before it"
        )))
    }

    fn task_from_flags(&self) -> Result<Task, CommandFailure> {
        let period = self.period.ok_or_else(|| {
            CommandFailure::usage("no tasks; give --period and the work, or a task file")
        })?;
        let policy = self.policy.unwrap_or(TaskSchedulingPolicy::Fifo);
        if policy == TaskSchedulingPolicy::Deadline && !self.core.is_empty() {
            return Err(CommandFailure::usage(
                "policy deadline takes no --core: the kernel refuses it for tasks that may not run \
                 on all of them",
            ));
        }
        let default_priority = if policy.has_priority() { DEFAULT_PRIORITY } else { 0 };
        Ok(Task {
            name: "task".to_owned(),
            period_ns: duration_ns(period),
            deadline_ns: duration_ns(self.deadline.unwrap_or(period)),
            offset_ns: 0,
            schedule: SchedulingSpec {
                policy,
                priority: self.priority.unwrap_or(default_priority),
                core: None,
            },
            work: self.work_from_flags()?,
            worst_ns: None,
            critical_ns: 0,
        })
    }

    fn work_from_flags(&self) -> Result<TaskWork, CommandFailure> {
        if !self.command.is_empty() {
            let words = self.command.clone();
            return Ok(if self.program {
                TaskWork::Program(TaskProgram { words, states: Vec::new() })
            } else {
                TaskWork::Command(words)
            });
        }
        let compute = match (self.compute, self.units) {
            (Some(time), _) => ComputeAmount::Ns(duration_ns(time)),
            (None, units) => ComputeAmount::Units(units.unwrap_or(0).into()),
        };
        if compute.is_zero() && self.message.is_none() && !self.barrier {
            return Err(CommandFailure::usage(
                "the task does nothing; give --compute, --units, --message, --barrier or a command \
                 behind '--'",
            ));
        }
        let to = self.to.unwrap_or(MessageDestination::All);
        let message = self.message.map(|size| SuperstepMessage { bytes: size.bytes(), to });
        Ok(TaskWork::Steps(vec![Superstep { compute, message, barrier: self.barrier }]))
    }
}

/// Converts a duration to ns, limited to the range of `u64`.
fn duration_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
