//! Process of one job: created before its start time, for which it waits itself, then supervised,
//! terminated when due, and its result read. The meaning of its end is decided elsewhere.

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
    CancelHandle, DefaultScheduling, SpawnCommand, SpawnEnvironment, SpawnedProgram, spawn,
};
use tempfile::TempDir;

use super::ready::{Notification, NotifySocket, ReadinessWaiter, VARIABLE};
use super::start_gate;
use super::streams::Streams;
use super::termination::{EscalationStep, TerminationCause, Terminator};
use super::{ExecutionEnv, GroupContext, JobControl};
use crate::id::JobId;
use crate::order::{AgentClockState, Job, JobEnd, JobOutcome, OrderEvent};
use crate::role::RoleKind;

/// Interval of checks on a running process.
const TICK: Duration = Duration::from_millis(100);
/// Shortest interval between lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Largest size of a result, in bytes: a hundred times that of ten minutes with a point for each
/// 100 ms.
const RESULT_BYTES_MAX: u64 = 64 << 20;

/// Returns the reading of the system clock: UTC, in ns since 1970.
pub(super) fn now_ns() -> i64 {
    SleepClock::Realtime.now_ns()
}

/// Job that can be started.
#[derive(Debug)]
pub(super) struct JobProcess {
    job: Job,
    argv: Vec<OsString>,
    means: ExecutionEnv,
    /// Directory that is removed with the job.
    directory: TempDir,
}

/// Started job.
struct SpawnedJob {
    started: SpawnedProgram,
    handle: ProcessHandle,
    streams: Streams,
    listener: NotifySocket,
}

/// State of the supervision of a process.
struct Supervision<'a> {
    common: &'a GroupContext,
    job: &'a Job,
    waiter: Option<ReadinessWaiter>,
    /// Time at which its work began, UTC in ns since 1970.
    started_ns: Option<i64>,
    /// Deadline, unless it is a service.
    until: Option<Instant>,
    ender: Terminator,
    reported_at: Option<Instant>,
}

impl JobProcess {
    pub(super) const fn new(
        job: Job,
        words: Vec<OsString>,
        means: ExecutionEnv,
        directory: TempDir,
    ) -> Self {
        Self { job, argv: words, means, directory }
    }

    pub(super) const fn is_service(&self) -> bool {
        self.job.service
    }

    pub(super) const fn id(&self) -> &JobId {
        &self.job.id
    }

    /// Runs the job to its end, on a thread without any other urgent work.
    pub(super) fn run(
        &self,
        common: &Arc<GroupContext>,
        at_ns: Option<i64>,
        deadline: Duration,
        clock: Option<AgentClockState>,
        waiter: Option<ReadinessWaiter>,
    ) -> JobOutcome {
        let run = || self.run_here(common, at_ns, deadline, clock, waiter);
        match &self.means.host {
            None => run(),
            Some(host) => host.run(run).unwrap_or_else(|error| {
                common.outcome(&self.job.id, JobEnd::Refused { reason: error.to_string() })
            }),
        }
    }

    fn run_here(
        &self,
        common: &Arc<GroupContext>,
        at_ns: Option<i64>,
        deadline: Duration,
        clock: Option<AgentClockState>,
        waiter: Option<ReadinessWaiter>,
    ) -> JobOutcome {
        let mut outcome = common.outcome(&self.job.id, JobEnd::Abandoned);
        (outcome.intended_ns, outcome.clock) = (at_ns, clock);
        let mut watch = Supervision {
            common,
            job: &self.job,
            waiter,
            started_ns: None,
            until: None,
            ender: Terminator::default(),
            reported_at: None,
        };
        let ended = self.begin(common, at_ns).and_then(|begun| {
            let Some(mut begun) = begun else { return Ok(None) };
            match at_ns {
                None => watch.has_started(now_ns()),
                Some(at_ns) => {
                    let ahead_ns = at_ns.saturating_sub(now_ns()).max(0).unsigned_abs();
                    watch.until = Some(Instant::now() + Duration::from_nanos(ahead_ns) + deadline);
                }
            }
            watch.follow(&mut begun)?;
            outcome.started_ns = watch.started_ns;
            let status = begun.started.wait()?;
            outcome.ended_ns = Some(now_ns());
            Ok(Some((status, begun.streams)))
        });
        match ended {
            Ok(Some((status, streams))) => self.close(&mut outcome, &watch, status, &streams),
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
        watch.report_readiness(Err(failure));
        outcome
    }

    /// Creates the process, which begins at the start time or at once; `None` if the job is
    /// cancelled.
    fn begin(&self, common: &GroupContext, at_ns: Option<i64>) -> io::Result<Option<SpawnedJob>> {
        if common.wish() >= JobControl::Stop {
            return Ok(None);
        }
        let listener = NotifySocket::open(self.directory.path())?;
        let (streams, [output, errors]) = Streams::open()?;
        let socket_variable = match at_ns {
            Some(at_ns) => (start_gate::VARIABLE.into(), start_gate::value(at_ns, listener.path())),
            None => (VARIABLE.into(), listener.path().into()),
        };
        // Only the campaign's result, which includes this one, is stored.
        let unkept = (STORE_VARIABLE.into(), STORE_NONE.into());
        let own = [socket_variable, unkept];
        // Sockets of other processes do not apply to it.
        let is_others = |name: &OsStr| {
            [VARIABLE, start_gate::VARIABLE, STORE_VARIABLE].iter().any(|own| name == *own)
        };
        let others = std::env::vars_os().filter(|(name, _)| !is_others(name));
        let around = SpawnEnvironment::new(output, errors, others.chain(own))?;
        let recipe = SpawnCommand::new(self.means.program.as_os_str(), &self.argv, true)?
            .with_environment(around);
        let attempt =
            spawn(&recipe, None, DefaultScheduling::current()?, &CancelHandle::default())?;
        // Drops the write ends together with the command, so that readers see the end of the
        // streams.
        drop(recipe);
        let Some(started) = attempt.started? else { return Ok(None) };
        let handle = ProcessHandle::open(started.pid())?;
        Ok(Some(SpawnedJob { started, handle, streams, listener }))
    }

    /// Records the outcome.
    fn close(
        &self,
        outcome: &mut JobOutcome,
        watch: &Supervision<'_>,
        status: ExitStatus,
        streams: &Streams,
    ) {
        let lack = match self.result(streams) {
            Ok(result) => {
                outcome.result = result;
                None
            }
            Err(lack) => Some(lack),
        };
        let last = streams.errors.last_line();
        outcome.ending = watch.ender.ending(self.job.service, status, last.as_deref(), lack);
        outcome.stderr_tail = streams.errors.text();
    }

    /// Reads the record of the job, if its kind writes one.
    fn result(&self, streams: &Streams) -> Result<Option<serde_json::Value>, String> {
        let kind = self.job.kind;
        // A server prints its counts at its end.
        if kind == RoleKind::Serve {
            let last = streams.output.last_line();
            let counts = last.and_then(|line| serde_json::from_str(&line).ok());
            let lack = || "it did not report its counts at its end".to_owned();
            return counts.map(Some).ok_or_else(lack);
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
    let cannot = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "it wrote no result".to_owned(),
        _ => format!("cannot read its result: {error}"),
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(cannot)?;
    file.take(RESULT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > RESULT_BYTES_MAX {
        return Err(format!("its result exceeds {RESULT_BYTES_MAX} bytes"));
    }
    serde_json::from_slice(&bytes).map_err(|error| format!("its result is not JSON: {error}"))
}

impl Supervision<'_> {
    /// Supervises a process until it has ended.
    fn follow(&mut self, begun: &mut SpawnedJob) -> io::Result<()> {
        loop {
            let has_ended = match begun.handle.wait(TICK) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                ended => ended.unwrap_or(false),
            };
            let now = Instant::now();
            begun.streams.take();
            self.listen(now, begun);
            if has_ended {
                return Ok(());
            }
            if let Some(cause) = self.cause(now) {
                self.ender.end(cause, now);
            }
            if let Some(step) = self.ender.due(now) {
                // The process may have just ended.
                let _ = send_signal(step, begun.started.pid());
            }
        }
    }

    /// Records that the job has begun its work; only the first call counts.
    fn has_started(&mut self, at_ns: i64) {
        if self.started_ns.is_none() {
            self.started_ns = Some(at_ns);
            self.common.publish_event(OrderEvent::Started { job: self.job.id.clone(), at_ns });
        }
    }

    /// Receives notifications that it is ready or has begun, and reads its progress.
    fn listen(&mut self, now: Instant, begun: &mut SpawnedJob) {
        while let Some(notification) = begun.listener.receive() {
            match notification {
                Notification::Ready => self.report_readiness(Ok(())),
                Notification::Started(at_ns) => self.has_started(at_ns),
            }
        }
        if self.waiter.as_ref().is_some_and(|waiter| now >= waiter.until) {
            self.report_readiness(Err("no notification in time".to_owned()));
        }
        let is_time =
            self.reported_at.is_none_or(|reported_at| now >= reported_at + PROGRESS_EVERY);
        if !self.job.service
            && is_time
            && let Some(text) = begun.streams.output.latest_line()
        {
            self.reported_at = Some(now);
            self.common.publish_event(OrderEvent::Progress { job: self.job.id.clone(), text });
        }
    }

    /// Reports readiness to the waiter, once.
    fn report_readiness(&mut self, readied: Result<(), String>) {
        if let Some(waiter) = self.waiter.take() {
            // The waiter may be gone after another service has failed.
            let _ = waiter.to.send((self.job.id.clone(), readied));
        }
    }

    /// Returns the reason to terminate the process, if any.
    fn cause(&self, now: Instant) -> Option<TerminationCause> {
        match self.common.wish() {
            JobControl::Abandon => Some(TerminationCause::Abandoned),
            JobControl::Stop if !self.job.service => Some(TerminationCause::Abandoned),
            _ if self.job.service && self.common.is_finished.load(Ordering::SeqCst) => {
                Some(TerminationCause::Finished)
            }
            _ => {
                let until = self.until.unwrap_or_else(|| self.common.services_until());
                (now >= until).then_some(TerminationCause::TimedOut)
            }
        }
    }
}

/// Signals the process and all that it started.
fn send_signal(step: EscalationStep, pid: u32) -> io::Result<()> {
    match step {
        EscalationStep::Interrupt => signal_group(pid, Signal::Interrupt),
        EscalationStep::Terminate => signal_group(pid, Signal::Terminate),
        EscalationStep::Kill => kill_group(pid),
    }
}
