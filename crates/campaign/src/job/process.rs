//! Process of one job. It is created before its start time and waits for it by itself
//! ([`start_gate`]). Its supervisor terminates it at the deadline or on request, and reads its
//! result. Its exit status is interpreted by [`TerminationEscalation`].

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use horolog_launch::status_of_error;
use horolog_record::{STORE_NONE, STORE_VARIABLE};
use horolog_sys::alarm_clock::SleepClock;
use horolog_sys::process::{ProcessHandle, kill_group, signal_group};
use horolog_sys::signal::Signal;
use horolog_sys::spawn::{
    CancelHandle, DefaultScheduling, SpawnCommand, SpawnEnvironmentAndStreams, SpawnedProgram,
    spawn,
};
use tempfile::TempDir;

use super::ready::{NOTIFY_VARIABLE, NotifySocket, ProcessNotification, ServiceReadinessSender};
use super::start_gate;
use super::streams::StandardStreamTails;
use super::termination::{EscalationStep, TerminationCause, TerminationEscalation};
use super::{JobExecutionEnvironment, JobGroupSharedState, RequestedJobTermination};
use crate::id::JobId;
use crate::order::{AgentClockOffset, Job, JobEnd, JobOutcome, OrderEvent};
use crate::role::RoleKind;

/// Interval of checks on a running process.
const TICK: Duration = Duration::from_millis(100);
/// Shortest interval between progress events of a job.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Largest size of a result, in bytes: about a hundred times that of a run of ten minutes with a
/// sample per 100 ms.
const RESULT_BYTES_MAX: u64 = 64 << 20;

/// Returns the reading of the system clock: UTC, in ns since 1970.
pub(super) fn utc_ns() -> i64 {
    SleepClock::Realtime.now_ns()
}

/// Prepared job: command line, environment and directory of a process that can be started.
#[derive(Debug)]
pub(super) struct PreparedJob {
    job: Job,
    argv: Vec<OsString>,
    environment: JobExecutionEnvironment,
    /// Directory that is removed with the job.
    directory: TempDir,
}

/// Process of a started job, with its output streams and its notification socket.
struct SpawnedJob {
    program: SpawnedProgram,
    handle: ProcessHandle,
    streams: StandardStreamTails,
    notify_socket: NotifySocket,
}

/// Supervisor of the process of one job.
struct JobSupervisor<'a> {
    context: &'a JobGroupSharedState,
    job: &'a Job,
    readiness_notifier: Option<ServiceReadinessSender>,
    /// Time at which the work of the job began, UTC in ns since 1970; `None` before.
    started_ns: Option<i64>,
    /// Deadline of the job; `None` for a service, whose deadline the group has.
    deadline: Option<Instant>,
    terminator: TerminationEscalation,
    reported_at: Option<Instant>,
}

impl PreparedJob {
    pub(super) const fn new(
        job: Job,
        argv: Vec<OsString>,
        environment: JobExecutionEnvironment,
        directory: TempDir,
    ) -> Self {
        Self { job, argv, environment, directory }
    }

    pub(super) const fn is_service(&self) -> bool {
        self.job.service
    }

    pub(super) const fn id(&self) -> &JobId {
        &self.job.id
    }

    /// Runs the job to its end, in its lab host if it has one; blocks the calling thread.
    pub(super) fn run(
        &self,
        context: &Arc<JobGroupSharedState>,
        at_ns: Option<i64>,
        deadline: Duration,
        clock: Option<AgentClockOffset>,
        readiness_notifier: Option<ServiceReadinessSender>,
    ) -> JobOutcome {
        let run =
            || self.run_in_current_namespace(context, at_ns, deadline, clock, readiness_notifier);
        match &self.environment.host {
            None => run(),
            Some(host) => host.run(run).unwrap_or_else(|error| {
                context.outcome(&self.job.id, JobEnd::Refused { reason: error.to_string() })
            }),
        }
    }

    fn run_in_current_namespace(
        &self,
        context: &Arc<JobGroupSharedState>,
        at_ns: Option<i64>,
        deadline: Duration,
        clock: Option<AgentClockOffset>,
        readiness_notifier: Option<ServiceReadinessSender>,
    ) -> JobOutcome {
        let mut outcome = context.outcome(&self.job.id, JobEnd::Abandoned);
        (outcome.intended_ns, outcome.clock) = (at_ns, clock);
        let mut supervision = JobSupervisor {
            context,
            job: &self.job,
            readiness_notifier,
            started_ns: None,
            deadline: None,
            terminator: TerminationEscalation::default(),
            reported_at: None,
        };
        let ended = self.spawn_process(context, at_ns).and_then(|spawned| {
            let Some(mut spawned) = spawned else { return Ok(None) };
            match at_ns {
                None => supervision.record_start(utc_ns()),
                Some(at_ns) => {
                    let ahead_ns = at_ns.saturating_sub(utc_ns()).max(0).unsigned_abs();
                    supervision.deadline =
                        Some(Instant::now() + Duration::from_nanos(ahead_ns) + deadline);
                }
            }
            supervision.supervise(&mut spawned)?;
            outcome.started_ns = supervision.started_ns;
            let status = spawned.program.wait()?;
            outcome.ended_ns = Some(utc_ns());
            Ok(Some((status, spawned.streams)))
        });
        match ended {
            Ok(Some((status, streams))) => {
                self.record_end(&mut outcome, &supervision, status, &streams);
            }
            // Cancelled before its start time.
            Ok(None) => {}
            Err(error) => {
                let message = format!("cannot start it: {error}");
                outcome.ending = JobEnd::Failed { status: status_of_error(&error), message };
            }
        }
        let failure = match &outcome.ending {
            JobEnd::Failed { message, .. } => message.clone(),
            _ => "it ended".to_owned(),
        };
        supervision.report_readiness(Err(failure));
        outcome
    }

    /// Creates the process, which begins its work at `at_ns` (UTC, in ns since 1970) or at once.
    /// `None` if the job was cancelled before.
    fn spawn_process(
        &self,
        context: &JobGroupSharedState,
        at_ns: Option<i64>,
    ) -> io::Result<Option<SpawnedJob>> {
        if context.control() >= RequestedJobTermination::Stop {
            return Ok(None);
        }
        let notify_socket = NotifySocket::open(self.directory.path())?;
        let (streams, [output, errors]) = StandardStreamTails::open()?;
        let socket_variable = match at_ns {
            Some(at_ns) => (
                start_gate::START_GATE_VARIABLE.into(),
                start_gate::variable_value(at_ns, notify_socket.path()),
            ),
            None => (NOTIFY_VARIABLE.into(), notify_socket.path().into()),
        };
        // The job stores no run of its own: its result becomes part of the campaign's.
        let no_store = (STORE_VARIABLE.into(), STORE_NONE.into());
        let own_variables = [socket_variable, no_store];
        // Variables set for this process itself are not inherited.
        let is_replaced_variable = |name: &OsStr| {
            [NOTIFY_VARIABLE, start_gate::START_GATE_VARIABLE, STORE_VARIABLE]
                .iter()
                .any(|replaced| name == *replaced)
        };
        let inherited_variables =
            std::env::vars_os().filter(|(name, _)| !is_replaced_variable(name));
        let spawn_environment = SpawnEnvironmentAndStreams::new(
            output,
            errors,
            inherited_variables.chain(own_variables),
        )?;
        let command = SpawnCommand::new(self.environment.program.as_os_str(), &self.argv, true)?
            .with_environment(spawn_environment);
        let attempt =
            spawn(&command, None, DefaultScheduling::current()?, &CancelHandle::default())?;
        // Drops the write ends together with the command, so that readers see the end of the
        // streams.
        drop(command);
        let Some(started) = attempt.started? else { return Ok(None) };
        let handle = ProcessHandle::open(started.pid())?;
        Ok(Some(SpawnedJob { program: started, handle, streams, notify_socket }))
    }

    /// Completes the outcome of an ended process: result, end and standard error.
    fn record_end(
        &self,
        outcome: &mut JobOutcome,
        supervision: &JobSupervisor<'_>,
        status: ExitStatus,
        streams: &StandardStreamTails,
    ) {
        let result_error = match self.job_result(streams) {
            Ok(result) => {
                outcome.result = result;
                None
            }
            Err(error) => Some(error),
        };
        let last = streams.errors.last_line();
        outcome.ending =
            supervision.terminator.job_end(self.job.service, status, last.as_deref(), result_error);
        outcome.stderr_tail = streams.errors.text();
    }

    /// Reads the result of the job; `Ok(None)` if its kind writes none, or the reason why it is
    /// missing or invalid.
    fn job_result(
        &self,
        streams: &StandardStreamTails,
    ) -> Result<Option<serde_json::Value>, String> {
        let kind = self.job.kind;
        // A server prints its counts at its end.
        if kind == RoleKind::Serve {
            let last_line = streams.output.last_line();
            let counts = last_line.and_then(|line| serde_json::from_str(&line).ok());
            let no_counts = || "it did not report its counts at its end".to_owned();
            return counts.map(Some).ok_or_else(no_counts);
        }
        let Some(schema) = kind.schema() else { return Ok(None) };
        let result = read_result(&self.directory.path().join("result"))?;
        let name = result.get("schema").and_then(serde_json::Value::as_str).unwrap_or_default();
        if name.starts_with(schema) {
            Ok(Some(result))
        } else {
            Err(format!("its result is not of '{schema}'"))
        }
    }
}

fn read_result(path: &Path) -> Result<serde_json::Value, String> {
    let read_error = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "it wrote no result".to_owned(),
        _ => format!("cannot read its result: {error}"),
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(read_error)?;
    file.take(RESULT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(read_error)?;
    if bytes.len() as u64 > RESULT_BYTES_MAX {
        return Err(format!("its result exceeds {RESULT_BYTES_MAX} bytes"));
    }
    serde_json::from_slice(&bytes).map_err(|error| format!("its result is not JSON: {error}"))
}

impl JobSupervisor<'_> {
    /// Supervises a process until it has ended.
    fn supervise(&mut self, spawned: &mut SpawnedJob) -> io::Result<()> {
        loop {
            let has_ended = match spawned.handle.wait(TICK) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                ended => ended.unwrap_or(false),
            };
            let now = Instant::now();
            spawned.streams.read_available();
            self.process_notifications(now, spawned);
            if has_ended {
                return Ok(());
            }
            if let Some(cause) = self.termination_cause(now) {
                self.terminator.request_termination(cause, now);
            }
            if let Some(step) = self.terminator.next_due_step(now) {
                // The process may have just ended.
                let _ = send_signal(step, spawned.program.pid());
            }
        }
    }

    /// Records that the job has begun its work; only the first call counts.
    fn record_start(&mut self, at_ns: i64) {
        if self.started_ns.is_none() {
            self.started_ns = Some(at_ns);
            self.context.publish_event(OrderEvent::Started { job: self.job.id.clone(), at_ns });
        }
    }

    /// Processes the notifications of the process, the timeout of its readiness, and its progress
    /// output.
    fn process_notifications(&mut self, now: Instant, spawned: &mut SpawnedJob) {
        while let Some(notification) = spawned.notify_socket.receive() {
            match notification {
                ProcessNotification::Ready => self.report_readiness(Ok(())),
                ProcessNotification::Started(at_ns) => self.record_start(at_ns),
            }
        }
        if self.readiness_notifier.as_ref().is_some_and(|waiter| now >= waiter.deadline) {
            self.report_readiness(Err("no notification in time".to_owned()));
        }
        let is_time =
            self.reported_at.is_none_or(|reported_at| now >= reported_at + PROGRESS_INTERVAL);
        if !self.job.service
            && is_time
            && let Some(text) = spawned.streams.output.take_new_line()
        {
            self.reported_at = Some(now);
            self.context.publish_event(OrderEvent::Progress { job: self.job.id.clone(), text });
        }
    }

    /// Reports readiness to the waiter, once.
    fn report_readiness(&mut self, readiness: Result<(), String>) {
        if let Some(notifier) = self.readiness_notifier.take() {
            // The waiter may be gone after another service has failed.
            let _ = notifier.sender.send((self.job.id.clone(), readiness));
        }
    }

    /// Returns the reason to terminate the process, if any.
    fn termination_cause(&self, now: Instant) -> Option<TerminationCause> {
        match self.context.control() {
            RequestedJobTermination::Abandon => Some(TerminationCause::Abandoned),
            RequestedJobTermination::Stop if !self.job.service => Some(TerminationCause::Abandoned),
            _ if self.job.service && self.context.is_finished.load(Ordering::SeqCst) => {
                Some(TerminationCause::Finished)
            }
            _ => {
                let until = self.deadline.unwrap_or_else(|| self.context.service_deadline());
                (now >= until).then_some(TerminationCause::TimedOut)
            }
        }
    }
}

/// Sends the signal of a step to the process group of the job.
fn send_signal(step: EscalationStep, pid: u32) -> io::Result<()> {
    match step {
        EscalationStep::Interrupt => signal_group(pid, Signal::Interrupt),
        EscalationStep::Terminate => signal_group(pid, Signal::Terminate),
        EscalationStep::Kill => kill_group(pid),
    }
}
