//! Process of a node from the collector's point of view: its orders, its replies, and its end,
//! which is no later than that of this value.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use horolog_sys::namespace::die_with_parent;
use horolog_sys::process::ProcessHandle;
use horolog_sys::shared_region::SharedRegion;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cluster::TaskState;
use crate::entry::{PeriodEntry, WORDS};
use crate::node::{LINE_MAX, NodeReady, NodeReply, REGION, SharedState, region_words};
use crate::ring::RingReader;

/// Grace period of a node to end, with its programs, after the request.
const END_GRACE_PERIOD: Duration = Duration::from_millis(1_500);
/// Interval of the checks for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Interval of the checks for an interruption during a wait.
const OVER: Duration = Duration::from_millis(20);
/// Reason that is reported for a node whose wait was interrupted.
pub(crate) const CALLED_OFF: &str = "the run was interrupted before it was";

/// Reason for the absence of an answer.
pub(crate) enum NoAnswer {
    /// The user interrupts the run.
    Over,
    /// The timeout is over.
    Long,
    /// The sender is gone.
    Gone,
}

/// Waits for a message, unless the user interrupts the run.
pub(crate) fn receive<T>(
    from: &Receiver<T>,
    until: Instant,
    is_over: &dyn Fn() -> bool,
) -> Result<T, NoAnswer> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match from.recv_timeout(left.min(OVER)) {
            Ok(message) => return Ok(message),
            Err(RecvTimeoutError::Disconnected) => return Err(NoAnswer::Gone),
            Err(RecvTimeoutError::Timeout) if is_over() => return Err(NoAnswer::Over),
            Err(RecvTimeoutError::Timeout) if left.is_zero() => return Err(NoAnswer::Long),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Process that runs tasks.
#[derive(Debug)]
pub(crate) struct TaskProcess<A = NodeReply> {
    process: process::Child,
    region: SharedRegion,
    tasks: usize,
    answer: Receiver<A>,
    ended: Option<ExitStatus>,
}

impl<A: DeserializeOwned + Send + 'static> TaskProcess<A> {
    /// Starts the process and sends its order.
    pub(crate) fn start(
        program: &Path,
        arguments: &[String],
        order: &impl Serialize,
        tasks: usize,
    ) -> io::Result<Self> {
        let region = SharedRegion::create(region_words(tasks))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A group of its own: the terminal's Ctrl-C is for the collector, which ends it in order.
        command.process_group(0);
        die_with_parent(&mut command);
        region.pass_to(&mut command, REGION);
        let mut process = command.spawn()?;
        let (to, answer) = mpsc::channel();
        if let Some(output) = process.stdout.take() {
            thread::Builder::new().name("node's answer".into()).spawn(move || {
                let mut line = String::new();
                let read = BufReader::new(output.take(LINE_MAX)).read_line(&mut line);
                if let (Ok(_), Ok(answer)) = (read, serde_json::from_str(&line)) {
                    // There is no receiver any longer for an answer that is too late.
                    let _ = to.send(answer);
                }
            })?;
        }
        let mut child = Self { process, region, tasks, answer, ended: None };
        child.send(order)?;
        Ok(child)
    }

    /// Waits for its first answer, unless the user interrupts the run.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub(crate) fn receive(
        &mut self,
        timeout: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> Result<A, String> {
        receive(&self.answer, Instant::now() + timeout, is_over).map_err(
            |no_answer| match no_answer {
                NoAnswer::Over => CALLED_OFF.to_owned(),
                NoAnswer::Long => "it does not answer".to_owned(),
                NoAnswer::Gone => "it ended".to_owned(),
            },
        )
    }
}

impl TaskProcess {
    /// Waits until it is ready.
    ///
    /// # Errors
    ///
    /// Its other answer, or the absence of one.
    pub(crate) fn answer(
        &mut self,
        timeout: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> Result<NodeReady, String> {
        match self.receive(timeout, is_over)? {
            NodeReply::Ready(ready) if ready.tasks.len() == self.tasks => Ok(ready),
            NodeReply::Ready(_) => Err("its tasks differ from the order".to_owned()),
            NodeReply::Failed(why) => Err(why),
        }
    }
}

impl<A> TaskProcess<A> {
    /// Returns its process, for signals.
    pub(crate) fn handle(&self) -> io::Result<ProcessHandle> {
        // Until the process was waited for, its number cannot be reused.
        if self.ended.is_some() {
            return Err(io::ErrorKind::NotFound.into());
        }
        ProcessHandle::open(self.process.id())
    }

    /// Kills its process at once.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.process.kill()
    }

    /// Sends a message to it.
    pub(crate) fn send(&mut self, what: &impl Serialize) -> io::Result<()> {
        let input = self.process.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(input, "{}", serde_json::to_string(what)?)?;
        input.flush()
    }

    /// Takes the entries that a task has published.
    pub(crate) fn take(&mut self, task: usize, put: &mut dyn FnMut(&PeriodEntry)) {
        // The rings have the size that a reader requires.
        let Some(mut reader) = RingReader::new(self.shared().ring(task)) else { return };
        while let Some(entry) = reader.pop() {
            put(&entry);
        }
    }

    /// Takes the words that a task has published, whatever their content.
    pub(crate) fn take_words(&self, task: usize, put: &mut dyn FnMut(&[u64; WORDS])) {
        let Some(mut reader) = RingReader::new(self.shared().ring(task)) else { return };
        while let Some(words) = reader.pop_words() {
            put(&words);
        }
    }

    /// Returns the state of a task that its entries do not carry.
    pub(crate) fn state(&self, task: usize) -> TaskState {
        let shared = self.shared();
        let reader = RingReader::new(shared.ring(task));
        TaskState {
            is_over: shared.is_over(task),
            lost: reader.as_ref().map_or(0, RingReader::lost),
            lost_periods: reader.as_ref().map_or(0, RingReader::lost_periods),
            latency_ns: shared.latency_ns(task),
            fault: shared.fault(task),
            clock_sets: shared.clock_sets(task),
        }
    }

    /// Returns the memory shared with it.
    pub(crate) fn shared(&self) -> SharedState<'_> {
        match SharedState::new(self.region.words(), self.tasks) {
            Some(shared) => shared,
            // It was created with this size.
            None => unreachable!("the region has room for all tasks"),
        }
    }

    /// Returns its exit reason, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<String> {
        if self.ended.is_none() {
            // If its state cannot be read it counts as running, and is killed in time.
            self.ended = self.process.try_wait().ok().flatten();
        }
        self.ended.map(|status| match (status.code(), status.signal()) {
            (Some(code), _) => format!("with status {code}"),
            (None, Some(signal)) => format!("by signal {signal}"),
            (None, None) => "for an unknown reason".to_owned(),
        })
    }
}

impl<A> Drop for TaskProcess<A> {
    fn drop(&mut self) {
        // After a request on both of its channels, it ends the programs that it started.
        self.shared().stop();
        drop(self.process.stdin.take());
        let begun = Instant::now();
        while begun.elapsed() < END_GRACE_PERIOD && matches!(self.process.try_wait(), Ok(None)) {
            thread::sleep(POLL_INTERVAL);
        }
        // It has ended or must end: for an ended process both calls fail harmlessly.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
