//! Execution of one order: its services are started and awaited; its other jobs are created before
//! the start time and wait for it. Each runs in a process of its own that is supervised, limited
//! and terminated with its agent. Agents and local runs share this code. It does not judge orders;
//! [`crate::policy`] does that beforehand.

mod process;
mod ready;
mod start_gate;
mod streams;
mod termination;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use horolog_sys::namespace::NetNs;

use self::process::JobProcess;
use self::ready::{Readiness, ReadinessWaiter};
pub use self::start_gate::wait_for_start as pass_gate;
use crate::id::{AgentName, CampaignId, JobId};
use crate::order::{AgentClockState, Job, JobEnd, JobOutcome, Order, OrderEvent};
use crate::role::{CommandFiles, RoleOptionError};

/// Additional time for a service after the other jobs, at the end of which it is terminated.
const SERVICE_REST: Duration = Duration::from_mins(1);
/// Longest time for which services may run before a start time is set.
const IDLE_MAX: Duration = Duration::from_mins(10);

/// Environment in which jobs run.
#[derive(Clone, Debug)]
pub struct ExecutionEnv {
    /// Binary of horolog, or one that also calls [`pass_gate`] before it begins.
    pub program: PathBuf,
    /// Private directory of the agent. Each job gets one in it, which is removed with the job.
    pub directory: PathBuf,
    /// Lab host to run in; this host by default.
    pub host: Option<NetNs>,
}

/// Event during the execution of an order.
#[derive(Clone, PartialEq, Debug)]
pub enum JobEvent {
    /// Event of current interest.
    OrderEvent(OrderEvent),
    /// Outcome of a job: once for each, in any case.
    Outcome(Box<JobOutcome>),
}

/// Receiver of job events.
pub type EventSink = Arc<dyn Fn(JobEvent) + Send + Sync>;

/// Reason why an order cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// The options of a job do not match its kind.
    #[error("job {job}: {fault}")]
    Options {
        /// Job.
        job: JobId,
        /// Error in its options.
        fault: RoleOptionError,
    },
    /// Files cannot be created.
    #[error(
        "cannot create job files in {}: {source}; choose another directory",
        directory.display()
    )]
    Files {
        /// Directory.
        directory: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// Service that is not ready in time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("service {job} is not ready: {reason}")]
pub struct NotReady {
    /// Service.
    pub job: JobId,
    /// Reason, in one line.
    pub reason: String,
}

/// Control state of the processes of an order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum JobControl {
    /// Processes run.
    GoOn = 0,
    /// Jobs that measure against services end; services go on.
    Stop = 1,
    /// Everything ends.
    Abandon = 2,
}

/// Context shared by all processes of an order.
struct GroupContext {
    campaign: CampaignId,
    agent: AgentName,
    event_sink: EventSink,
    wish: AtomicU8,
    /// True if services must end because all else is done.
    is_finished: AtomicBool,
    /// Time at which services are terminated even without a command.
    services_until: Mutex<Instant>,
}

impl GroupContext {
    fn wish(&self) -> JobControl {
        match self.wish.load(Ordering::SeqCst) {
            0 => JobControl::GoOn,
            1 => JobControl::Stop,
            _ => JobControl::Abandon,
        }
    }

    fn want(&self, wish: JobControl) {
        self.wish.fetch_max(wish as u8, Ordering::SeqCst);
    }

    fn services_until(&self) -> Instant {
        *self.services_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish_event(&self, event: OrderEvent) {
        (self.event_sink)(JobEvent::OrderEvent(event));
    }

    /// Reports the outcome of a job, once for each.
    fn publish_outcome(&self, outcome: JobOutcome) {
        self.publish_event(OrderEvent::Ended { job: outcome.job.clone() });
        (self.event_sink)(JobEvent::Outcome(Box::new(outcome)));
    }

    /// Returns the outcome of a job of which only its end is known.
    fn outcome(&self, job: &JobId, ending: JobEnd) -> JobOutcome {
        JobOutcome::new(self.campaign.clone(), self.agent.clone(), job.clone(), ending)
    }
}

/// Processes of one order. On drop, it terminates those that still run, and waits for their end.
pub struct JobGroup {
    common: Arc<GroupContext>,
    deadline: Duration,
    clock: Option<AgentClockState>,
    /// Services that are not started yet.
    services: Vec<JobProcess>,
    others: Vec<JobProcess>,
    threads: Vec<JoinHandle<()>>,
}

impl JobGroup {
    /// Prepares command lines and directories. Nothing is started. `clock` is the state of this
    /// host's clock, for the outcomes.
    ///
    /// # Errors
    ///
    /// Options are invalid, or a directory cannot be written to.
    pub fn begin(
        order: &Order,
        means: &ExecutionEnv,
        clock: Option<AgentClockState>,
        event_sink: EventSink,
    ) -> Result<Self, BeginError> {
        let common = Arc::new(GroupContext {
            campaign: order.campaign.clone(),
            agent: order.agent.clone(),
            event_sink,
            wish: AtomicU8::new(JobControl::GoOn as u8),
            is_finished: AtomicBool::new(false),
            services_until: Mutex::new(Instant::now() + IDLE_MAX),
        });
        let all =
            order.jobs.iter().map(|job| prepare(job, means)).collect::<Result<Vec<_>, _>>()?;
        let (services, others) = all.into_iter().partition(JobProcess::is_service);
        let deadline = Duration::from_nanos(order.deadline_ns);
        Ok(Self { common, deadline, clock, services, others, threads: Vec::new() })
    }

    /// Starts the services and waits until all are ready. If one is not, everything is terminated,
    /// and the outcomes of all jobs have been reported on return.
    ///
    /// # Errors
    ///
    /// The service that is not ready, and the reason.
    pub fn start_services(&mut self, timeout: Duration) -> Result<(), NotReady> {
        let (to, ready) = mpsc::channel();
        let until = Instant::now() + timeout;
        let services = std::mem::take(&mut self.services);
        let all: Vec<_> = services.iter().map(|service| service.id().clone()).collect();
        for process in services {
            self.run(process, None, Some(ReadinessWaiter { to: to.clone(), until }));
        }
        drop(to);
        let readied = all_ready(&ready, &all);
        match &readied {
            Ok(()) => self.common.publish_event(OrderEvent::Ready),
            Err(NotReady { job, reason }) => {
                let (job, reason) = (job.clone(), reason.clone());
                self.common.publish_event(OrderEvent::NotReady { job, reason });
                self.call_off("a service was not ready");
            }
        }
        readied
    }

    /// Creates the processes of the other jobs, which begin by themselves at the start time: UTC,
    /// in ns since 1970. Returns before that.
    pub fn start(&mut self, at_ns: i64) {
        let ahead = at_ns.saturating_sub(process::now_ns()).max(0).unsigned_abs();
        let until = Instant::now() + Duration::from_nanos(ahead) + self.deadline + SERVICE_REST;
        *self.common.services_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
        for process in std::mem::take(&mut self.others) {
            self.run(process, Some(at_ns), None);
        }
    }

    /// Terminates the services; the other jobs go on.
    pub fn finish(&self) {
        self.common.is_finished.store(true, Ordering::SeqCst);
    }

    /// Terminates the jobs that are not services; services go on until [`JobGroup::finish`], so
    /// that no other job measures their end. Jobs that were not started are reported as abandoned.
    pub fn stop(&mut self) {
        self.end(JobControl::Stop);
    }

    /// Terminates everything; jobs that were not started are reported as abandoned.
    pub fn abandon(&mut self) {
        self.end(JobControl::Abandon);
    }

    fn end(&mut self, wish: JobControl) {
        self.common.want(wish);
        for process in self.services.drain(..).chain(self.others.drain(..)) {
            self.common.publish_outcome(self.common.outcome(process.id(), JobEnd::Abandoned));
        }
    }

    /// Returns true if all started processes have ended and their outcomes are reported.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits for the end of all started processes.
    pub fn wait(&mut self) {
        for thread in self.threads.drain(..) {
            // A panic has already been reported by the thread.
            let _ = thread.join();
        }
    }

    /// Terminates all started jobs and reports the others as refused.
    fn call_off(&mut self, reason: &str) {
        let refused = JobEnd::Refused { reason: reason.to_owned() };
        for process in self.others.drain(..) {
            self.common.publish_outcome(self.common.outcome(process.id(), refused.clone()));
        }
        self.abandon();
        self.wait();
    }

    fn run(&mut self, process: JobProcess, at_ns: Option<i64>, ready: Option<ReadinessWaiter>) {
        let (common, id) = (Arc::clone(&self.common), process.id().clone());
        let (deadline, clock) = (self.deadline, self.clock.clone());
        let run =
            move || common.publish_outcome(process.run(&common, at_ns, deadline, clock, ready));
        match thread::Builder::new().name(id.to_string()).spawn(run) {
            Ok(thread) => self.threads.push(thread),
            Err(error) => {
                let reason = format!("cannot start a thread: {error}");
                self.common.publish_outcome(self.common.outcome(&id, JobEnd::Refused { reason }));
            }
        }
    }
}

impl Drop for JobGroup {
    fn drop(&mut self) {
        self.abandon();
        self.wait();
    }
}

/// Waits until all of these are ready, or one fails.
fn all_ready(ready: &Receiver<Readiness>, all: &[JobId]) -> Result<(), NotReady> {
    let mut missing: Vec<_> = all.iter().collect();
    for (job, readied) in ready {
        missing.retain(|other| **other != job);
        readied.map_err(|reason| NotReady { job, reason })?;
    }
    let not_started = |job: &&JobId| {
        let reason = "it could not be started".to_owned();
        NotReady { job: (*job).clone(), reason }
    };
    missing.first().map(not_started).map_or(Ok(()), Err)
}

fn prepare(job: &Job, means: &ExecutionEnv) -> Result<JobProcess, BeginError> {
    let files_error = |source| BeginError::Files { directory: means.directory.clone(), source };
    let own = tempfile::Builder::new().prefix("job-").tempdir_in(&means.directory);
    let own = own.map_err(files_error)?;
    let [result, table, socket] = ["result", "table", "socket"].map(|name| own.path().join(name));
    let files = CommandFiles { result: &result, table: &table, socket: &socket };
    let line = job.kind.command_line(&job.options, &files);
    let line = line.map_err(|fault| BeginError::Options { job: job.id.clone(), fault })?;
    if let Some(text) = &line.table {
        std::fs::write(&table, text).map_err(files_error)?;
    }
    Ok(JobProcess::new(job.clone(), line.argv, means.clone(), own))
}

#[cfg(test)]
mod tests;
