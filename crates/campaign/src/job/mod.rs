//! Execution of one order, shared by agents and local runs. Services are started and awaited until
//! they are ready; the other jobs are created before the start time and begin at it. Each job is a
//! supervised process with a deadline. Whether an order is allowed is decided beforehand by
//! [`crate::policy`].

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

use self::process::PreparedJob;
use self::ready::{ServiceReadiness, ServiceReadinessSender};
pub use self::start_gate::wait_for_start as pass_gate;
use crate::id::{AgentName, CampaignId, JobId};
use crate::order::{AgentClockOffset, Job, JobEnd, JobOutcome, Order, OrderEvent};
use crate::role::{CommandFiles, RoleOptionError};

/// Time after the deadline of the other jobs at which services are terminated without a command.
const SERVICE_EXTRA_TIME: Duration = Duration::from_mins(1);
/// Longest time for which services may run before a start time is set.
const SERVICE_IDLE_MAX: Duration = Duration::from_mins(10);

/// Environment in which jobs run.
#[derive(Clone, Debug)]
pub struct JobExecutionEnvironment {
    /// Binary of horolog, or another program that calls [`pass_gate`] before its work.
    pub program: PathBuf,
    /// Private directory, in which each job gets a temporary directory of its own.
    pub directory: PathBuf,
    /// Lab host to run in; this host by default.
    pub host: Option<NetNs>,
}

/// Event during the execution of an order.
#[derive(Clone, PartialEq, Debug)]
pub enum JobEvent {
    /// Event of the order or of one of its jobs.
    OrderEvent(OrderEvent),
    /// Outcome of a job; exactly one for each job of the order.
    Outcome(Box<JobOutcome>),
}

/// Callback that receives job events, on any thread.
pub type JobEventSink = Arc<dyn Fn(JobEvent) + Send + Sync>;

/// Reason why an order cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum OrderStartError {
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
pub struct ServiceNotReady {
    /// Service.
    pub job: JobId,
    /// Reason, in one line.
    pub reason: String,
}

/// Extent of the requested termination of the processes of an order; it only ever increases.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum RequestedJobTermination {
    /// All jobs continue.
    Continue = 0,
    /// Jobs that are not services end; services continue.
    Stop = 1,
    /// All jobs end.
    Abandon = 2,
}

/// State shared by a job group and the supervisors of its processes.
struct JobGroupSharedState {
    campaign: CampaignId,
    agent: AgentName,
    event_sink: JobEventSink,
    control: AtomicU8,
    /// True if services must end, after [`JobGroup::finish`].
    is_finished: AtomicBool,
    /// Time at which services are terminated even without a command.
    service_deadline: Mutex<Instant>,
}

impl JobGroupSharedState {
    fn control(&self) -> RequestedJobTermination {
        match self.control.load(Ordering::SeqCst) {
            0 => RequestedJobTermination::Continue,
            1 => RequestedJobTermination::Stop,
            _ => RequestedJobTermination::Abandon,
        }
    }

    fn escalate_control(&self, control: RequestedJobTermination) {
        self.control.fetch_max(control as u8, Ordering::SeqCst);
    }

    fn service_deadline(&self) -> Instant {
        *self.service_deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish_event(&self, event: OrderEvent) {
        (self.event_sink)(JobEvent::OrderEvent(event));
    }

    /// Reports the end and the outcome of a job.
    fn publish_outcome(&self, outcome: JobOutcome) {
        self.publish_event(OrderEvent::Ended { job: outcome.job.clone() });
        (self.event_sink)(JobEvent::Outcome(Box::new(outcome)));
    }

    /// Returns an outcome that holds only the end of the job.
    fn outcome(&self, job: &JobId, ending: JobEnd) -> JobOutcome {
        JobOutcome::new(self.campaign.clone(), self.agent.clone(), job.clone(), ending)
    }
}

/// Processes of one order. Drop terminates those that still run, and waits for their end.
pub struct JobGroup {
    context: Arc<JobGroupSharedState>,
    deadline: Duration,
    clock: Option<AgentClockOffset>,
    /// Services that are not started yet.
    services: Vec<PreparedJob>,
    measurements: Vec<PreparedJob>,
    threads: Vec<JoinHandle<()>>,
}

impl JobGroup {
    /// Prepares the command lines and directories of an order's jobs; no process is started.
    /// `clock` is the state of this host's clock, for the outcomes.
    ///
    /// # Errors
    ///
    /// Options are invalid, or a directory cannot be written to.
    pub fn begin(
        order: &Order,
        environment: &JobExecutionEnvironment,
        clock: Option<AgentClockOffset>,
        event_sink: JobEventSink,
    ) -> Result<Self, OrderStartError> {
        let context = Arc::new(JobGroupSharedState {
            campaign: order.campaign.clone(),
            agent: order.agent.clone(),
            event_sink,
            control: AtomicU8::new(RequestedJobTermination::Continue as u8),
            is_finished: AtomicBool::new(false),
            service_deadline: Mutex::new(Instant::now() + SERVICE_IDLE_MAX),
        });
        let all = order
            .jobs
            .iter()
            .map(|job| prepare_job(job, environment))
            .collect::<Result<Vec<_>, _>>()?;
        let (services, measurements) = all.into_iter().partition(PreparedJob::is_service);
        let deadline = Duration::from_nanos(order.deadline_ns);
        Ok(Self { context, deadline, clock, services, measurements, threads: Vec::new() })
    }

    /// Starts the services and waits until all are ready. If one is not ready within `timeout`, all
    /// jobs are terminated, and their outcomes have been reported on return.
    ///
    /// # Errors
    ///
    /// The service that is not ready, and the reason.
    pub fn start_services(&mut self, timeout: Duration) -> Result<(), ServiceNotReady> {
        let (readiness_sender, readiness_receiver) = mpsc::channel();
        let ready_deadline = Instant::now() + timeout;
        let services = std::mem::take(&mut self.services);
        let service_ids: Vec<_> = services.iter().map(|service| service.id().clone()).collect();
        for process in services {
            self.spawn_job_thread(
                process,
                None,
                Some(ServiceReadinessSender {
                    sender: readiness_sender.clone(),
                    deadline: ready_deadline,
                }),
            );
        }
        drop(readiness_sender);
        let result = await_readiness(&readiness_receiver, &service_ids);
        match &result {
            Ok(()) => self.context.publish_event(OrderEvent::Ready),
            Err(ServiceNotReady { job, reason }) => {
                let (job, reason) = (job.clone(), reason.clone());
                self.context.publish_event(OrderEvent::NotReady { job, reason });
                self.cancel_start("a service was not ready");
            }
        }
        result
    }

    /// Creates the processes of the other jobs, each of which waits for the start time `at_ns`
    /// (UTC, in ns since 1970). Returns without waiting for it.
    pub fn start(&mut self, at_ns: i64) {
        let ahead = at_ns.saturating_sub(process::utc_ns()).max(0).unsigned_abs();
        let until =
            Instant::now() + Duration::from_nanos(ahead) + self.deadline + SERVICE_EXTRA_TIME;
        *self.context.service_deadline.lock().unwrap_or_else(PoisonError::into_inner) = until;
        for process in std::mem::take(&mut self.measurements) {
            self.spawn_job_thread(process, Some(at_ns), None);
        }
    }

    /// Terminates the services; the other jobs go on.
    pub fn finish(&self) {
        self.context.is_finished.store(true, Ordering::SeqCst);
    }

    /// Terminates the jobs that are not services. Services continue until [`JobGroup::finish`], so
    /// that no measurement sees a service end. Jobs that were not started are reported as
    /// abandoned.
    pub fn stop(&mut self) {
        self.apply_control(RequestedJobTermination::Stop);
    }

    /// Terminates all jobs. Those that were not started are reported as abandoned.
    pub fn abandon(&mut self) {
        self.apply_control(RequestedJobTermination::Abandon);
    }

    fn apply_control(&mut self, control: RequestedJobTermination) {
        self.context.escalate_control(control);
        for process in self.services.drain(..).chain(self.measurements.drain(..)) {
            self.context.publish_outcome(self.context.outcome(process.id(), JobEnd::Abandoned));
        }
    }

    /// Returns true if all started processes have ended and their outcomes are reported.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits for the end of all started processes.
    pub fn wait(&mut self) {
        for thread in self.threads.drain(..) {
            // A panic has already been reported by the thread.
            let _ = thread.join();
        }
    }

    /// Terminates all started jobs, reports the others as refused, and waits for the processes.
    fn cancel_start(&mut self, reason: &str) {
        let refused = JobEnd::Refused { reason: reason.to_owned() };
        for process in self.measurements.drain(..) {
            self.context.publish_outcome(self.context.outcome(process.id(), refused.clone()));
        }
        self.abandon();
        self.wait();
    }

    fn spawn_job_thread(
        &mut self,
        process: PreparedJob,
        at_ns: Option<i64>,
        readiness_notifier: Option<ServiceReadinessSender>,
    ) {
        let (context, id) = (Arc::clone(&self.context), process.id().clone());
        let (deadline, clock) = (self.deadline, self.clock.clone());
        let run = move || {
            context.publish_outcome(process.run(
                &context,
                at_ns,
                deadline,
                clock,
                readiness_notifier,
            ));
        };
        match thread::Builder::new().name(id.to_string()).spawn(run) {
            Ok(thread) => self.threads.push(thread),
            Err(error) => {
                let reason = format!("cannot start a thread: {error}");
                self.context.publish_outcome(self.context.outcome(&id, JobEnd::Refused { reason }));
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

/// Waits until all of these services are ready, or one fails.
fn await_readiness(
    readiness_receiver: &Receiver<ServiceReadiness>,
    service_ids: &[JobId],
) -> Result<(), ServiceNotReady> {
    let mut missing: Vec<_> = service_ids.iter().collect();
    for (job, readiness) in readiness_receiver {
        missing.retain(|other| **other != job);
        readiness.map_err(|reason| ServiceNotReady { job, reason })?;
    }
    let not_started = |job: &&JobId| {
        let reason = "it could not be started".to_owned();
        ServiceNotReady { job: (*job).clone(), reason }
    };
    missing.first().map(not_started).map_or(Ok(()), Err)
}

fn prepare_job(
    job: &Job,
    environment: &JobExecutionEnvironment,
) -> Result<PreparedJob, OrderStartError> {
    let files_error =
        |source| OrderStartError::Files { directory: environment.directory.clone(), source };
    let job_directory = tempfile::Builder::new().prefix("job-").tempdir_in(&environment.directory);
    let job_directory = job_directory.map_err(files_error)?;
    let [result, table, socket] =
        ["result", "table", "socket"].map(|name| job_directory.path().join(name));
    let files = CommandFiles { result: &result, table: &table, socket: &socket };
    let command_line = job.kind.command_line(&job.options, &files);
    let command_line =
        command_line.map_err(|fault| OrderStartError::Options { job: job.id.clone(), fault })?;
    if let Some(text) = &command_line.table {
        std::fs::write(&table, text).map_err(files_error)?;
    }
    Ok(PreparedJob::new(job.clone(), command_line.argv, environment.clone(), job_directory))
}

#[cfg(test)]
mod tests;
