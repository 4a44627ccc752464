//! Member's side of a cluster: it joins a leader, runs its node according to the orders, and
//! forwards the node's entries, run after run until the leader has finished.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::Host;
use horolog_sys::explain::explain;
use horolog_sys::zone::zone_index;
use thiserror::Error;

use super::NodeClockOffset;
use super::message::{ENTRIES_MAX, LeaderMessage, MemberMessage, PROTOCOL, TaskState, read, words};
use crate::entry::PeriodEntry;
use crate::node::{LINE_MAX, NodeOrder, NodeReply};
use crate::ring::COLLECT_INTERVAL_NS;
use crate::run::child::TaskProcess;
use crate::task::TaskWork;

/// Interval at which the node's entries are forwarded.
const ROUND: Duration = Duration::from_nanos(COLLECT_INTERVAL_NS);
/// Interval of a member's state messages.
const ALIVE: Duration = Duration::from_millis(500);
/// Interval of its clock measurements during a run.
const CLOCK: Duration = Duration::from_secs(2);
const CONNECT: Duration = Duration::from_secs(5);
/// Waiting messages of the leader, at most; the leader waits with the next one.
const COMMANDS_MAX: usize = 16;

/// Options of a member.
pub struct Member<'a> {
    /// Program that calls [`crate::node::serve`] when it is started with `arguments`.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Address of the leader.
    pub leader: SocketAddr,
    /// Timeout for the leader to be reachable.
    pub wait: Duration,
    /// Name of the node.
    pub name: String,
    /// True if tasks may start programs.
    pub allows_commands: bool,
    /// Offset injected into the clock, in ns.
    pub clock_injected_ns: i64,
    /// Measures the clock's offset from the leader's, which replies to NTP on its listening
    /// address.
    pub measure: &'a (dyn Fn() -> Result<NodeClockOffset, String> + Sync),
    /// Callback for when the leader is reached.
    pub joined: &'a dyn Fn(),
    /// Returns true if the member is to end.
    pub is_over: &'a dyn Fn() -> bool,
}

/// Reason for which a member cannot take part, or not any longer.
#[derive(Debug, Error)]
pub enum MemberError {
    /// The leader cannot be reached.
    #[error("cannot reach the leader at {address}: {why}; start it first, with \
             --listen", why = explain(.error))]
    Unreachable {
        /// Its address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The leader refuses the member.
    #[error("the leader refused this node: {0}")]
    Refused(String),
    /// The member refuses the leader's order.
    #[error("the leader's tasks start programs; permit it with --allow-commands")]
    Command,
    /// The start was cancelled.
    #[error("the run did not begin: {0}")]
    Cancelled(String),
    /// The connection to the leader was lost during a run.
    #[error("the connection to the leader was lost")]
    Gone,
    /// The system refuses an operation.
    #[error("{why}", why = explain(.0))]
    System(#[from] io::Error),
}

/// Takes part until the leader has finished, or the member is to end; returns its number of runs.
///
/// # Errors
///
/// If the leader is unreachable or refuses the member, or the member cannot execute an order.
pub fn join(member: &Member<'_>) -> Result<usize, MemberError> {
    let stream = connect(member)?;
    stream.set_nodelay(true)?;
    let reading = stream.try_clone()?;
    let (to, commands) = mpsc::sync_channel(COMMANDS_MAX);
    let work = move || {
        let mut lines = BufReader::new(reading);
        loop {
            let mut line = String::new();
            let read_line = lines.by_ref().take(LINE_MAX).read_line(&mut line);
            let message = read_line.ok().filter(|len| *len > 0).and_then(|_| read(&line));
            let Some(message) = message else { return };
            if to.send(message).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("leader".into()).spawn(work)?;
    let mut joined = MemberSession { member, stream, commands };
    let hello =
        MemberMessage::Hello { protocol: PROTOCOL, name: member.name.clone(), host: Host::read() };
    joined.send_message(&hello)?;
    (member.joined)();
    let mut runs = 0;
    loop {
        match joined.commands.recv_timeout(ROUND) {
            Ok(LeaderMessage::Order(order)) => {
                joined.run(&order)?;
                runs += 1;
            }
            Ok(LeaderMessage::Refused(reason)) => return Err(MemberError::Refused(reason)),
            Ok(LeaderMessage::CalledOff(why)) => return Err(MemberError::Cancelled(why)),
            // The message may belong to a run that is over.
            Ok(LeaderMessage::Go(_) | LeaderMessage::Stop)
            | Err(mpsc::RecvTimeoutError::Timeout) => {}
            // The leader has finished, if there was any run.
            Err(mpsc::RecvTimeoutError::Disconnected) if runs > 0 => return Ok(runs),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(MemberError::Gone),
        }
        if (member.is_over)() {
            return Ok(runs);
        }
    }
}

/// Connects to the leader, with retries until its timeout.
fn connect(member: &Member<'_>) -> Result<TcpStream, MemberError> {
    let address = member.leader;
    let began = Instant::now();
    loop {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => return Ok(stream),
            Err(error) if began.elapsed() >= member.wait || (member.is_over)() => {
                return Err(MemberError::Unreachable { address, error });
            }
            Err(_) => thread::sleep(ROUND),
        }
    }
}

struct MemberSession<'a> {
    member: &'a Member<'a>,
    stream: TcpStream,
    commands: Receiver<LeaderMessage>,
}

impl MemberSession<'_> {
    fn send_message(&mut self, message: &MemberMessage) -> io::Result<()> {
        writeln!(self.stream, "{}", serde_json::to_string(message)?)?;
        self.stream.flush()
    }

    /// Executes one run.
    fn run(&mut self, order: &NodeOrder) -> Result<(), MemberError> {
        let starts = |work: &TaskWork| matches!(work, TaskWork::Command(_) | TaskWork::Program(_));
        if !self.member.allows_commands && order.set.tasks().iter().any(|task| starts(&task.work)) {
            let why = "it does not permit commands; join it with --allow-commands".to_owned();
            self.send_message(&MemberMessage::Answer(NodeReply::Failed(why)))?;
            return Err(MemberError::Command);
        }
        let own = self.stream.local_addr()?;
        let (address, scope) = (own.ip(), zone_index(own).unwrap_or(0));
        let clock_injected_ns = self.member.clock_injected_ns;
        let order = NodeOrder { address, scope, clock_injected_ns, ..order.clone() };
        let tasks = order.set.tasks().len();
        let mut child: TaskProcess =
            TaskProcess::start(&self.member.program, &self.member.arguments, &order, tasks)?;
        let answer = match child.answer(order.ready_timeout(), self.member.is_over) {
            Ok(ready) => NodeReply::Ready(ready),
            Err(why) => NodeReply::Failed(why),
        };
        let clock = measuring(self.member).message();
        self.send_message(&clock)?;
        let is_ready = matches!(answer, NodeReply::Ready(_));
        self.send_message(&MemberMessage::Answer(answer))?;
        if is_ready { self.wait_and_collect(&mut child, tasks) } else { Ok(()) }
    }

    fn wait_and_collect(
        &mut self,
        child: &mut TaskProcess,
        tasks: usize,
    ) -> Result<(), MemberError> {
        loop {
            match self.commands.recv_timeout(ROUND) {
                Ok(LeaderMessage::Go(go)) => {
                    child.send(&go)?;
                    break;
                }
                Ok(LeaderMessage::Stop) => return Ok(()),
                Ok(LeaderMessage::CalledOff(why)) => return Err(MemberError::Cancelled(why)),
                Ok(LeaderMessage::Order(_) | LeaderMessage::Refused(_))
                | Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(MemberError::Gone),
            }
            if (self.member.is_over)() {
                return Ok(());
            }
        }
        let ends = AtomicBool::new(false);
        let (to, clocks) = mpsc::channel();
        let clock = measuring(self.member);
        thread::scope(|scope| {
            let measuring = thread::Builder::new().name("clock".into()).spawn_scoped(scope, || {
                let mut next = Instant::now() + CLOCK;
                while !ends.load(Ordering::Relaxed) {
                    if Instant::now() >= next {
                        // There is no receiver any longer if the run is over.
                        let _ = to.send(clock.message());
                        next = Instant::now() + CLOCK;
                    }
                    thread::sleep(ROUND);
                }
            });
            let collected = self.collect(child, tasks, &clocks);
            ends.store(true, Ordering::Relaxed);
            measuring?;
            collected
        })
    }

    fn collect(
        &mut self,
        child: &mut TaskProcess,
        tasks: usize,
        clocks: &Receiver<MemberMessage>,
    ) -> Result<(), MemberError> {
        let mut alive = Instant::now();
        loop {
            match self.commands.try_recv() {
                Ok(LeaderMessage::Stop) => child.shared().stop(),
                Ok(LeaderMessage::CalledOff(why)) => return Err(MemberError::Cancelled(why)),
                Ok(_) | Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Err(MemberError::Gone),
            }
            if (self.member.is_over)() {
                child.shared().stop();
            }
            for clock in clocks.try_iter() {
                self.send_message(&clock)?;
            }
            // Read before the remaining entries are taken, so that none can follow.
            let states: Vec<_> = (0..tasks).map(|at| child.state(at)).collect();
            let is_over = states.iter().all(|state| state.is_over);
            let ended = child.ended().filter(|_| !is_over);
            for at in 0..tasks {
                self.send(child, at)?;
            }
            let is_through = is_over || ended.is_some();
            if is_through {
                // The leader waits for the state last, so it will have received this as well.
                self.send_message(&measuring(self.member).message())?;
            }
            if is_through || alive.elapsed() >= ALIVE {
                alive = Instant::now();
                self.send_message(&MemberMessage::State {
                    tasks: with_losses(&states, child),
                    ended,
                })?;
                if is_through {
                    return Ok(());
                }
            }
            thread::sleep(ROUND);
        }
    }

    fn send(&mut self, child: &mut TaskProcess, task: usize) -> io::Result<()> {
        let mut entries: Vec<PeriodEntry> = Vec::new();
        child.take(task, &mut |entry| entries.push(*entry));
        for some in entries.chunks(ENTRIES_MAX) {
            self.send_message(&MemberMessage::Entries { task, words: words(some) })?;
        }
        Ok(())
    }
}

/// Returns the states with the present number of lost entries.
fn with_losses(states: &[TaskState], child: &TaskProcess) -> Vec<TaskState> {
    let now = states.iter().enumerate();
    let lost = |(at, state): (usize, &TaskState)| {
        let TaskState { lost, lost_periods, .. } = child.state(at);
        TaskState { lost, lost_periods, ..*state }
    };
    now.map(lost).collect()
}

#[derive(Clone, Copy)]
struct ClockMonitor<'a> {
    measure: &'a (dyn Fn() -> Result<NodeClockOffset, String> + Sync),
    injected_ns: i64,
}

impl ClockMonitor<'_> {
    fn message(&self) -> MemberMessage {
        match (self.measure)() {
            Ok(clock) => {
                let ahead_ns = clock.ahead_ns.saturating_add(self.injected_ns);
                MemberMessage::Clock(NodeClockOffset { ahead_ns, ..clock })
            }
            Err(why) => MemberMessage::ClockUnknown(why),
        }
    }
}

fn measuring<'a>(member: &Member<'a>) -> ClockMonitor<'a> {
    ClockMonitor { measure: member.measure, injected_ns: member.clock_injected_ns }
}
