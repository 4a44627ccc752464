//! Job executor of an agent: one thread per order, which creates, starts and, on command,
//! terminates the order's processes, and reports their activity as events.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use crate::job::{JobEvent, JobEventSink, JobExecutionEnvironment, JobGroup};
use crate::order::{AgentClockOffset, JobEnd, JobOutcome, Order, OrderEvent};

/// Longest time until services are ready.
const SERVICE_READY_TIMEOUT: Duration = Duration::from_secs(15);
const DIRECTORY: &str = "jobs";

/// Command to the processes of an order.
#[derive(Clone, Copy, Debug)]
enum ExecutorCommand {
    Start(i64),
    Finish,
    Abandon,
}

/// Handle of the thread that executes one order. On drop, the thread terminates the processes that
/// still run.
pub(super) struct JobExecutor {
    command_sender: Sender<ExecutorCommand>,
}

/// Creates an empty job directory in the agent's state directory, in place of that of a previous
/// agent process.
pub(super) fn create_job_directory(state: &Path) -> io::Result<PathBuf> {
    let directory = state.join(DIRECTORY);
    match fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => DirBuilder::new().mode(0o700).create(&directory)?,
    }
    Ok(directory)
}

impl JobExecutor {
    /// Starts a thread that creates the processes of an order and starts its services. Each job of
    /// the order yields exactly one outcome, even if the thread cannot be started.
    pub(super) fn begin(
        order: Order,
        environment: JobExecutionEnvironment,
        clock: Option<AgentClockOffset>,
        event_sink: JobEventSink,
    ) -> Self {
        let (command_sender, commands) = mpsc::channel();
        let (order_copy, sink_copy) = (order.clone(), Arc::clone(&event_sink));
        let run =
            move || match JobGroup::begin(&order, &environment, clock, Arc::clone(&event_sink)) {
                Ok(group) => execute_commands(group, &commands),
                Err(error) => report_start_failure(&order, &error.to_string(), &event_sink),
            };
        if let Err(error) = thread::Builder::new().name("order".into()).spawn(run) {
            report_start_failure(
                &order_copy,
                &format!("cannot start a thread: {error}"),
                &sink_copy,
            );
        }
        Self { command_sender }
    }

    /// Starts the jobs that are not services at `at_ns`, UTC in ns since 1970.
    pub(super) fn start(&self, at_ns: i64) {
        self.send_command(ExecutorCommand::Start(at_ns));
    }

    /// Terminates the services.
    pub(super) fn finish(&self) {
        self.send_command(ExecutorCommand::Finish);
    }

    /// Terminates all jobs of the order.
    pub(super) fn abandon(&self) {
        self.send_command(ExecutorCommand::Abandon);
    }

    fn send_command(&self, command: ExecutorCommand) {
        // Fails only if the thread has ended; then no process is left.
        let _ = self.command_sender.send(command);
    }
}

fn execute_commands(mut group: JobGroup, commands: &Receiver<ExecutorCommand>) {
    // An unready service is reported as an event.
    let _ = group.start_services(SERVICE_READY_TIMEOUT);
    for command in commands {
        match command {
            ExecutorCommand::Start(at_ns) => group.start(at_ns),
            ExecutorCommand::Finish => group.finish(),
            ExecutorCommand::Abandon => group.abandon(),
        }
    }
}

/// Reports that an order cannot be started, with a refusal as the outcome of each job.
fn report_start_failure(order: &Order, reason: &str, event_sink: &JobEventSink) {
    if let Some(job) = order.jobs.first() {
        let (job, reason) = (job.id.clone(), reason.to_owned());
        event_sink(JobEvent::OrderEvent(OrderEvent::NotReady { job, reason }));
    }
    for job in &order.jobs {
        let Order { campaign, agent, .. } = order.clone();
        let ending = JobEnd::Refused { reason: reason.to_owned() };
        event_sink(JobEvent::Outcome(Box::new(JobOutcome::new(
            campaign,
            agent,
            job.id.clone(),
            ending,
        ))));
    }
}
