//! One job as a process: made before its instant, for which it waits itself, listened to, ended
//! when it is time, and its result read. What its end means is decided elsewhere.

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
use horolog_sys::alarm_clock::AlarmClock;
use horolog_sys::process::{ProcessHandle, end_group, signal_group};
use horolog_sys::signal::Signal;
use horolog_sys::start::{CallOff, Recipe, Started, Surroundings, Usual, start};
use tempfile::TempDir;

use super::ending::{Blow, Cause, Ender};
use super::gate;
use super::ready::{Listener, Said, VARIABLE, Waiter};
use super::streams::Streams;
use super::{Common, Means, Wish};
use crate::id::JobId;
use crate::order::{ClockState, Ending, Job, News, Outcome};
use crate::role::RoleKind;

/// How often a process is looked after that has not ended.
const TICK: Duration = Duration::from_millis(100);
/// From one line of progress to the next, at least.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// A result of ten minutes with a point for each 100 ms is a hundredth of this.
const RESULT_BYTES_MAX: u64 = 64 << 20;

/// What the system clock shows: UTC, in ns since 1970.
pub(super) fn now_ns() -> i64 {
    AlarmClock::Realtime.now_ns()
}

/// A job that can be started.
#[derive(Debug)]
pub(super) struct Process {
    job: Job,
    words: Vec<OsString>,
    means: Means,
    /// Goes with the job.
    directory: TempDir,
}

/// One that was started.
struct Begun {
    started: Started,
    handle: ProcessHandle,
    streams: Streams,
    listener: Listener,
}

/// What is to be known while it is watched.
struct Watch<'a> {
    common: &'a Common,
    job: &'a Job,
    waiter: Option<Waiter>,
    /// When it began what it is to do, UTC in ns since 1970.
    started_ns: Option<i64>,
    /// When its time is over, where it is no service.
    until: Option<Instant>,
    ender: Ender,
    told: Option<Instant>,
}

impl Process {
    pub(super) const fn new(
        job: Job,
        words: Vec<OsString>,
        means: Means,
        directory: TempDir,
    ) -> Self {
        Self { job, words, means, directory }
    }

    pub(super) const fn is_service(&self) -> bool {
        self.job.service
    }

    pub(super) const fn id(&self) -> &JobId {
        &self.job.id
    }

    /// Runs it to its end, on a thread that is in no hurry for anything else.
    pub(super) fn run(
        &self,
        common: &Arc<Common>,
        at_ns: Option<i64>,
        deadline: Duration,
        clock: Option<ClockState>,
        waiter: Option<Waiter>,
    ) -> Outcome {
        let run = || self.run_here(common, at_ns, deadline, clock, waiter);
        match &self.means.host {
            None => run(),
            Some(host) => host.run(run).unwrap_or_else(|error| {
                common.outcome(&self.job.id, Ending::Refused { reason: error.to_string() })
            }),
        }
    }

    fn run_here(
        &self,
        common: &Arc<Common>,
        at_ns: Option<i64>,
        deadline: Duration,
        clock: Option<ClockState>,
        waiter: Option<Waiter>,
    ) -> Outcome {
        let mut outcome = common.outcome(&self.job.id, Ending::Abandoned);
        (outcome.intended_ns, outcome.clock) = (at_ns, clock);
        let mut watch = Watch {
            common,
            job: &self.job,
            waiter,
            started_ns: None,
            until: None,
            ender: Ender::default(),
            told: None,
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
            // Called off before its instant.
            Ok(None) => {}
            Err(error) => {
                let message = format!("cannot run it: {error}");
                outcome.ending = Ending::Failed { status: status_of_error(&error), message };
            }
        }
        let failure = match &outcome.ending {
            Ending::Failed { message, .. } => message.clone(),
            _ => "it has ended".to_owned(),
        };
        watch.say(Err(failure));
        outcome
    }

    /// Makes its process, which begins at the instant or at once; `None` where nobody wants it any
    /// more.
    fn begin(&self, common: &Common, at_ns: Option<i64>) -> io::Result<Option<Begun>> {
        if common.wish() >= Wish::Stop {
            return Ok(None);
        }
        let listener = Listener::open(self.directory.path())?;
        let (streams, [output, errors]) = Streams::open()?;
        let told = match at_ns {
            Some(at_ns) => (gate::VARIABLE.into(), gate::value(at_ns, listener.path())),
            None => (VARIABLE.into(), listener.path().into()),
        };
        // The campaign's result is kept, and has this one's in it.
        let unkept = (STORE_VARIABLE.into(), STORE_NONE.into());
        let own = [told, unkept];
        // Another's socket is nothing to it.
        let is_others = |name: &OsStr| {
            [VARIABLE, gate::VARIABLE, STORE_VARIABLE].iter().any(|own| name == *own)
        };
        let others = std::env::vars_os().filter(|(name, _)| !is_others(name));
        let around = Surroundings::new(output, errors, others.chain(own))?;
        let recipe = Recipe::new(self.means.program.as_os_str(), &self.words, true)?.within(around);
        let attempt = start(&recipe, None, Usual::current()?, &CallOff::default())?;
        // With the recipe go the writing ends here, so that the reading ones see an end.
        drop(recipe);
        let Some(started) = attempt.started? else { return Ok(None) };
        let handle = ProcessHandle::open(started.pid())?;
        Ok(Some(Begun { started, handle, streams, listener }))
    }

    /// What became of it.
    fn close(
        &self,
        outcome: &mut Outcome,
        watch: &Watch<'_>,
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

    /// The record that it wrote, where its kind writes one.
    fn result(&self, streams: &Streams) -> Result<Option<serde_json::Value>, String> {
        let kind = self.job.kind;
        // A server says at its end what it counted.
        if kind == RoleKind::Serve {
            let last = streams.output.last_line();
            let said = last.and_then(|line| serde_json::from_str(&line).ok());
            let lack = || "it did not say at its end what it had counted".to_owned();
            return said.map(Some).ok_or_else(lack);
        }
        let Some(schema) = kind.schema() else { return Ok(None) };
        let result = read_result(&self.directory.path().join("result"))?;
        let name = result.get("schema").and_then(serde_json::Value::as_str).unwrap_or_default();
        if name.starts_with(schema) {
            Ok(Some(result))
        } else {
            Err(format!("its result is no '{schema}'"))
        }
    }
}

fn read_result(path: &Path) -> Result<serde_json::Value, String> {
    let cannot = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "it wrote no result".to_owned(),
        _ => format!("its result cannot be read: {error}"),
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(cannot)?;
    file.take(RESULT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > RESULT_BYTES_MAX {
        return Err(format!("its result has more than {RESULT_BYTES_MAX} bytes"));
    }
    serde_json::from_slice(&bytes).map_err(|error| format!("its result is no JSON: {error}"))
}

impl Watch<'_> {
    /// Looks after a process until it has ended.
    fn follow(&mut self, begun: &mut Begun) -> io::Result<()> {
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
            if let Some(blow) = self.ender.due(now) {
                // It may have ended just now.
                let _ = strike(blow, begun.started.pid());
            }
        }
    }

    /// It began what it is to do; this counts once.
    fn has_started(&mut self, at_ns: i64) {
        if self.started_ns.is_none() {
            self.started_ns = Some(at_ns);
            self.common.tell(News::Started { job: self.job.id.clone(), at_ns });
        }
    }

    /// Hears whether it is ready or has begun, and how it gets on.
    fn listen(&mut self, now: Instant, begun: &mut Begun) {
        while let Some(said) = begun.listener.hear() {
            match said {
                Said::Ready => self.say(Ok(())),
                Said::Passed(at_ns) => self.has_started(at_ns),
            }
        }
        if self.waiter.as_ref().is_some_and(|waiter| now >= waiter.until) {
            self.say(Err("it did not say so in time".to_owned()));
        }
        let is_time = self.told.is_none_or(|told| now >= told + PROGRESS_EVERY);
        if !self.job.service
            && is_time
            && let Some(text) = begun.streams.output.news()
        {
            self.told = Some(now);
            self.common.tell(News::Progress { job: self.job.id.clone(), text });
        }
    }

    /// Tells who waits for it, once.
    fn say(&mut self, readied: Result<(), String>) {
        if let Some(waiter) = self.waiter.take() {
            // Who waited may have been told of another that is not ready.
            let _ = waiter.to.send((self.job.id.clone(), readied));
        }
    }

    /// Why it is to end, if it is.
    fn cause(&self, now: Instant) -> Option<Cause> {
        match self.common.wish() {
            Wish::Abandon => Some(Cause::Abandoned),
            Wish::Stop if !self.job.service => Some(Cause::Abandoned),
            _ if self.job.service && self.common.is_finished.load(Ordering::SeqCst) => {
                Some(Cause::Finished)
            }
            _ => {
                let until = self.until.unwrap_or_else(|| self.common.services_until());
                (now >= until).then_some(Cause::TimedOut)
            }
        }
    }
}

/// Strikes the process and all that it started.
fn strike(blow: Blow, pid: u32) -> io::Result<()> {
    match blow {
        Blow::Interrupt => signal_group(pid, Signal::Interrupt),
        Blow::Terminate => signal_group(pid, Signal::Terminate),
        Blow::Kill => end_group(pid),
    }
}
