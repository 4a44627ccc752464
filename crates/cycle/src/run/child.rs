//! A node's process as the collector has it: what it is told, what it answers, and its end, which
//! is no later than this value's.

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
use crate::entry::{Entry, WORDS};
use crate::node::{Answer, LINE_MAX, REGION, Ready, Shared, region_words};
use crate::ring::Reader;

/// What a node may take to end, with its programs, when it is told to.
const END_PATIENCE: Duration = Duration::from_millis(1_500);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(2);

/// How often it is looked whether anybody wants to end, while something is waited for.
const OVER: Duration = Duration::from_millis(20);
/// What is said of a node that was not waited for any longer.
pub(crate) const CALLED_OFF: &str = "the run was ended before it was";

/// Why nothing was said.
pub(crate) enum Silence {
    /// Somebody wants to end.
    Over,
    /// It took too long.
    Long,
    /// Nobody is there to say anything.
    Gone,
}

/// Waits until something is said, as long as nobody wants to end.
pub(crate) fn said<T>(
    from: &Receiver<T>,
    until: Instant,
    is_over: &dyn Fn() -> bool,
) -> Result<T, Silence> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match from.recv_timeout(left.min(OVER)) {
            Ok(message) => return Ok(message),
            Err(RecvTimeoutError::Disconnected) => return Err(Silence::Gone),
            Err(RecvTimeoutError::Timeout) if is_over() => return Err(Silence::Over),
            Err(RecvTimeoutError::Timeout) if left.is_zero() => return Err(Silence::Long),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// A process that runs tasks.
#[derive(Debug)]
pub(crate) struct Child<A = Answer> {
    process: process::Child,
    region: SharedRegion,
    tasks: usize,
    answer: Receiver<A>,
    ended: Option<ExitStatus>,
}

impl<A: DeserializeOwned + Send + 'static> Child<A> {
    /// Starts it and tells it what to do.
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
        region.hand_to(&mut command, REGION);
        let mut process = command.spawn()?;
        let (to, answer) = mpsc::channel();
        if let Some(output) = process.stdout.take() {
            thread::Builder::new().name("node's answer".into()).spawn(move || {
                let mut line = String::new();
                let read = BufReader::new(output.take(LINE_MAX)).read_line(&mut line);
                if let (Ok(_), Ok(answer)) = (read, serde_json::from_str(&line)) {
                    // Nobody waits any longer for one that comes too late.
                    let _ = to.send(answer);
                }
            })?;
        }
        let mut child = Self { process, region, tasks, answer, ended: None };
        child.tell(order)?;
        Ok(child)
    }

    /// Waits for what it says first, as long as nobody wants to end.
    ///
    /// # Errors
    ///
    /// It says nothing.
    pub(crate) fn said(
        &mut self,
        patience: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> Result<A, String> {
        said(&self.answer, Instant::now() + patience, is_over).map_err(|silence| match silence {
            Silence::Over => CALLED_OFF.to_owned(),
            Silence::Long => "it says nothing".to_owned(),
            Silence::Gone => "it ended".to_owned(),
        })
    }
}

impl Child {
    /// Waits until it is ready.
    ///
    /// # Errors
    ///
    /// What it says instead, or that it says nothing.
    pub(crate) fn answer(
        &mut self,
        patience: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Ready, String> {
        match self.said(patience, is_over)? {
            Answer::Ready(ready) if ready.tasks.len() == self.tasks => Ok(ready),
            Answer::Ready(_) => Err("it has other tasks than it was told".to_owned()),
            Answer::Failed(why) => Err(why),
        }
    }
}

impl<A> Child<A> {
    /// Its process, for signals.
    pub(crate) fn handle(&self) -> io::Result<ProcessHandle> {
        // It was not waited for yet, so that the number is still its own, unless it has ended.
        if self.ended.is_some() {
            return Err(io::ErrorKind::NotFound.into());
        }
        ProcessHandle::open(self.process.id())
    }

    /// Ends its process at once.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.process.kill()
    }

    /// Tells it something.
    pub(crate) fn tell(&mut self, what: &impl Serialize) -> io::Result<()> {
        let input = self.process.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(input, "{}", serde_json::to_string(what)?)?;
        input.flush()
    }

    /// Takes what a task has handed over.
    pub(crate) fn take(&mut self, task: usize, put: &mut dyn FnMut(&Entry)) {
        // The rings have the size that a reader wants.
        let Some(mut reader) = Reader::new(self.shared().ring(task)) else { return };
        while let Some(entry) = reader.pop() {
            put(&entry);
        }
    }

    /// Takes what a task has handed over, whatever its words are.
    pub(crate) fn take_words(&self, task: usize, put: &mut dyn FnMut(&[u64; WORDS])) {
        let Some(mut reader) = Reader::new(self.shared().ring(task)) else { return };
        while let Some(words) = reader.pop_words() {
            put(&words);
        }
    }

    /// What a task tells beside its entries.
    pub(crate) fn state(&self, task: usize) -> TaskState {
        let shared = self.shared();
        let reader = Reader::new(shared.ring(task));
        TaskState {
            is_over: shared.is_over(task),
            lost: reader.as_ref().map_or(0, Reader::lost),
            lost_periods: reader.as_ref().map_or(0, Reader::lost_periods),
            latency_ns: shared.latency_ns(task),
            fault: shared.fault(task),
            clock_sets: shared.clock_sets(task),
        }
    }

    /// What is shared with it.
    pub(crate) fn shared(&self) -> Shared<'_> {
        match Shared::new(self.region.words(), self.tasks) {
            Some(shared) => shared,
            // It was made as large as that.
            None => unreachable!("the region has room for all tasks"),
        }
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<String> {
        if self.ended.is_none() {
            // A process that cannot be asked about counts as running, and is ended in time.
            self.ended = self.process.try_wait().ok().flatten();
        }
        self.ended.map(|status| match (status.code(), status.signal()) {
            (Some(code), _) => format!("with status {code}"),
            (None, Some(signal)) => format!("by signal {signal}"),
            (None, None) => "somehow".to_owned(),
        })
    }
}

impl<A> Drop for Child<A> {
    fn drop(&mut self) {
        // Told to end by both ways that it listens to, it ends the programs that it started.
        self.shared().stop();
        drop(self.process.stdin.take());
        let begun = Instant::now();
        while begun.elapsed() < END_PATIENCE && matches!(self.process.try_wait(), Ok(None)) {
            thread::sleep(LOOK);
        }
        // It is over, or is to be: neither call can do more than fail for one that has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
