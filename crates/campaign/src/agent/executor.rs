//! Job executor of an agent: one thread per order, which creates, starts and, on command,
//! terminates its processes. It decides nothing; the activity of the processes is reported as
//! events.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use crate::job::{EventSink, ExecutionEnv, JobEvent, JobGroup};
use crate::order::{AgentClockState, JobEnd, JobOutcome, Order, OrderEvent};

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

/// Thread of one order. On drop, processes that still run are terminated.
pub(super) struct JobExecutor {
    to: Sender<ExecutorCommand>,
}

/// Creates an empty directory for jobs below that of the agent; remains of a killed agent are
/// removed.
pub(super) fn directory(state: &Path) -> io::Result<PathBuf> {
    let directory = state.join(DIRECTORY);
    match fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => DirBuilder::new().mode(0o700).create(&directory)?,
    }
    Ok(directory)
}

impl JobExecutor {
    /// Starts the services of an order. Every job of it gets an outcome in any case.
    pub(super) fn begin(
        order: Order,
        means: ExecutionEnv,
        clock: Option<AgentClockState>,
        event_sink: EventSink,
    ) -> Self {
        let (to, commands) = mpsc::channel();
        let (spare, unable) = (order.clone(), Arc::clone(&event_sink));
        let run = move || match JobGroup::begin(&order, &means, clock, Arc::clone(&event_sink)) {
            Ok(group) => serve(group, &commands),
            Err(error) => cannot(&order, &error.to_string(), &event_sink),
        };
        if let Err(error) = thread::Builder::new().name("order".into()).spawn(run) {
            cannot(&spare, &format!("cannot start a thread: {error}"), &unable);
        }
        Self { to }
    }

    /// Starts the other jobs at this time, UTC in ns since 1970.
    pub(super) fn start(&self, at_ns: i64) {
        self.send_command(ExecutorCommand::Start(at_ns));
    }

    /// Terminates the services.
    pub(super) fn finish(&self) {
        self.send_command(ExecutorCommand::Finish);
    }

    /// Terminates everything.
    pub(super) fn abandon(&self) {
        self.send_command(ExecutorCommand::Abandon);
    }

    fn send_command(&self, what: ExecutorCommand) {
        // A thread that has ended has nothing left to terminate.
        let _ = self.to.send(what);
    }
}

fn serve(mut group: JobGroup, commands: &Receiver<ExecutorCommand>) {
    // An unready service is reported as an event.
    let _ = group.start_services(SERVICE_READY_TIMEOUT);
    for what in commands {
        match what {
            ExecutorCommand::Start(at_ns) => group.start(at_ns),
            ExecutorCommand::Finish => group.finish(),
            ExecutorCommand::Abandon => group.abandon(),
        }
    }
}

/// Reports that no job of an order can be started.
fn cannot(order: &Order, reason: &str, event_sink: &EventSink) {
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
