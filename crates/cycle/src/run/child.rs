//! Process of a node as the collector controls it: its order, its replies and its exit. Dropping
//! [`NodeChildProcess`] ends the process.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use horolog_sys::explain::explain;
use horolog_sys::memfd_shared_memory::MemfdSharedMemory;
use horolog_sys::namespace::die_with_parent;
use horolog_sys::process::ProcessHandle;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::cluster::TaskStatus;
use crate::entry::{ENTRY_WORDS, PeriodEntry};
use crate::node::{LINE_MAX, NodeReady, NodeSharedMemory, REGION, region_words};
use crate::ring::RingReader;

/// Grace period of a node and its programs to exit after the request.
const END_GRACE_PERIOD: Duration = Duration::from_millis(1_500);
/// Interval of the checks for the exit of the process.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Interval at which a wait checks for an interruption.
const INTERRUPT_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Reason for which a node cannot start.
#[derive(Debug, Error)]
pub enum NodeStartError {
    /// The node's process could not be started.
    #[error("cannot start {node}: {why}", why = explain(.error))]
    Failed {
        /// The node.
        node: String,
        /// The system's error.
        error: io::Error,
    },
    /// The node did not become ready.
    #[error("{node} is not ready: {reason}")]
    NotReady {
        /// The node.
        node: String,
        /// Reason that the node reported, or that it sent none.
        reason: String,
    },
}

/// Waits for a message until the deadline, unless the user interrupts the run. The error is the
/// reason; `disconnected` is that of a sender that is gone.
pub(crate) fn receive_until<T>(
    from: &Receiver<T>,
    deadline: Instant,
    is_interrupted: &dyn Fn() -> bool,
    disconnected: &str,
) -> Result<T, String> {
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let reason = match from.recv_timeout(remaining.min(INTERRUPT_POLL_INTERVAL)) {
            Ok(message) => return Ok(message),
            Err(RecvTimeoutError::Disconnected) => disconnected,
            Err(_) if is_interrupted() => "the run was interrupted before it was",
            Err(_) if remaining.is_zero() => "it does not answer",
            Err(_) => continue,
        };
        return Err(reason.to_owned());
    }
}

/// Process of a node as a child of this one; it runs the tasks of the node.
#[derive(Debug)]
pub(crate) struct NodeChildProcess<R = NodeReady> {
    process: process::Child,
    region: MemfdSharedMemory,
    tasks: usize,
    reply: Receiver<Result<R, String>>,
    exit_status: Option<ExitStatus>,
}

impl<R: DeserializeOwned + Send + 'static> NodeChildProcess<R> {
    /// Starts the process and sends its order.
    pub(crate) fn start(
        program: &Path,
        arguments: &[String],
        order: &impl Serialize,
        tasks: usize,
    ) -> io::Result<Self> {
        let region = MemfdSharedMemory::create(region_words(tasks))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Own process group: Ctrl-C at the terminal reaches only the collector, which ends the
        // node.
        command.process_group(0);
        die_with_parent(&mut command);
        region.pass_to(&mut command, REGION);
        let mut process = command.spawn()?;
        let (reply_sender, reply) = mpsc::channel();
        if let Some(output) = process.stdout.take() {
            thread::Builder::new().name("node's answer".into()).spawn(move || {
                let mut line = String::new();
                let read = BufReader::new(output.take(LINE_MAX)).read_line(&mut line);
                if let (Ok(_), Ok(reply)) = (read, serde_json::from_str(&line)) {
                    // A reply that is too late has no receiver any longer.
                    let _ = reply_sender.send(reply);
                }
            })?;
        }
        let mut child = Self { process, region, tasks, reply, exit_status: None };
        child.send(order)?;
        Ok(child)
    }

    /// Waits for the report that the node is ready, unless the user interrupts the run.
    ///
    /// # Errors
    ///
    /// The node reported a failure, or nothing; the text is the reason.
    pub(crate) fn await_ready(
        &mut self,
        timeout: Duration,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<R, String> {
        receive_until(&self.reply, Instant::now() + timeout, is_interrupted, "it ended")?
    }
}

impl<R> NodeChildProcess<R> {
    /// Returns a handle of the process, for signals; fails with `NotFound` if the process is known
    /// to have exited.
    pub(crate) fn handle(&self) -> io::Result<ProcessHandle> {
        // The process ID cannot be reused before the process is waited for.
        if self.exit_status.is_some() {
            return Err(io::ErrorKind::NotFound.into());
        }
        ProcessHandle::open(self.process.id())
    }

    /// Kills the process at once.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.process.kill()
    }

    /// Sends a message as a line of JSON.
    pub(crate) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let input = self.process.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(input, "{}", serde_json::to_string(message)?)?;
        input.flush()
    }

    /// Passes the entries that a task has published to `sink`.
    pub(crate) fn take_entries(&mut self, task: usize, sink: &mut dyn FnMut(&PeriodEntry)) {
        // The rings have the size that a reader requires.
        let Some(mut reader) = RingReader::new(self.shared().ring(task)) else { return };
        while let Some(entry) = reader.pop() {
            sink(&entry);
        }
    }

    /// Passes the words that a task has published to `sink`, without decoding them.
    pub(crate) fn take_words(&self, task: usize, sink: &mut dyn FnMut(&[u64; ENTRY_WORDS])) {
        let Some(mut reader) = RingReader::new(self.shared().ring(task)) else { return };
        while let Some(words) = reader.pop_words() {
            sink(&words);
        }
    }

    /// Returns the state of a task that its entries do not carry.
    pub(crate) fn task_state(&self, task: usize) -> TaskStatus {
        let shared = self.shared();
        let reader = RingReader::new(shared.ring(task));
        TaskStatus {
            is_over: shared.has_task_ended(task),
            lost: reader.as_ref().map_or(0, RingReader::lost_count),
            lost_periods: reader.as_ref().map_or(0, RingReader::lost_period_count),
            latency_ns: shared.latency_ns(task),
            fault: shared.failure_words(task),
            clock_sets: shared.clock_steps(task),
        }
    }

    /// Returns the memory shared with the node.
    pub(crate) fn shared(&self) -> NodeSharedMemory<'_> {
        match NodeSharedMemory::new(self.region.words(), self.tasks) {
            Some(shared) => shared,
            // The region was created with this size.
            None => unreachable!("the region has room for all tasks"),
        }
    }

    /// Returns the exit reason if the process has exited.
    pub(crate) fn exit_reason(&mut self) -> Option<String> {
        if self.exit_status.is_none() {
            // If its state cannot be read, the process counts as running, and is killed later.
            self.exit_status = self.process.try_wait().ok().flatten();
        }
        self.exit_status.map(|status| match (status.code(), status.signal()) {
            (Some(code), _) => format!("with status {code}"),
            (None, Some(signal)) => format!("by signal {signal}"),
            (None, None) => "for an unknown reason".to_owned(),
        })
    }
}

impl<R> Drop for NodeChildProcess<R> {
    fn drop(&mut self) {
        // Requests the end by shared memory and by closing standard input. The node then ends its
        // tasks and the programs that it started.
        self.shared().stop();
        drop(self.process.stdin.take());
        let begun = Instant::now();
        while begun.elapsed() < END_GRACE_PERIOD && matches!(self.process.try_wait(), Ok(None)) {
            thread::sleep(POLL_INTERVAL);
        }
        // If the process has already exited, both calls fail, which is harmless.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
