//! Member's side of a cluster: joins a leader, runs a node as ordered, and forwards the node's
//! entries, run after run until the leader has finished.

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
use super::message::{
    ENTRIES_MAX, LeaderMessage, MemberMessage, NodeReply, PROTOCOL_VERSION, TaskStatus,
    encode_entries, parse_line,
};
use crate::entry::PeriodEntry;
use crate::node::{LINE_MAX, NodeOrder};
use crate::ring::COLLECT_INTERVAL_NS;
use crate::run::child::NodeChildProcess;
use crate::task::TaskWork;

/// Interval at which the node's entries are forwarded.
const FORWARD_INTERVAL: Duration = Duration::from_nanos(COLLECT_INTERVAL_NS);
/// Interval of a member's heartbeats during a run.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of the clock measurements during a run.
const CLOCK_INTERVAL: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest number of queued messages of the leader; then TCP flow control makes the leader wait.
const COMMANDS_MAX: usize = 16;

/// Options of a member.
pub struct MemberOptions<'a> {
    /// Program that calls [`crate::node::serve`] when it is started with `arguments`.
    pub program: PathBuf,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// Address of the leader.
    pub leader: SocketAddr,
    /// Timeout of the attempts to connect to the leader.
    pub wait: Duration,
    /// Name of the node.
    pub name: String,
    /// True if tasks may start programs.
    pub allows_commands: bool,
    /// Offset injected into the node's clock, in ns.
    pub clock_injected_ns: i64,
    /// Measures the offset of this host's clock from the leader's, which replies to NTP at the
    /// address of the leader.
    pub measure_clock: &'a (dyn Fn() -> Result<NodeClockOffset, String> + Sync),
    /// Called when the member has connected to the leader.
    pub on_joined: &'a dyn Fn(),
    /// Returns true if the member must stop.
    pub is_stop_requested: &'a dyn Fn() -> bool,
}

/// Reason for which a member cannot take part in a run, or its part ended early.
#[derive(Debug, Error)]
pub enum MemberError {
    /// The leader cannot be reached.
    #[error("cannot reach the leader at {address}: {why}; start it first, with \
             --listen", why = explain(.error))]
    Unreachable {
        /// Address of the leader.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The leader refuses the member.
    #[error("the leader refused this node: {0}")]
    Refused(String),
    /// The order contains tasks that start programs, which the member does not permit.
    #[error("the leader's tasks start programs; permit it with --allow-commands")]
    CommandsNotAllowed,
    /// The leader cancelled the start; the text is the reason.
    #[error("the run did not begin: {0}")]
    Cancelled(String),
    /// The connection to the leader was lost before or during a run.
    #[error("the connection to the leader was lost")]
    Disconnected,
    /// An operation of the system failed.
    #[error("{why}", why = explain(.0))]
    System(#[from] io::Error),
}

/// Joins the leader and executes its orders until the leader has finished or the member must stop.
/// Returns the number of executed orders.
///
/// # Errors
///
/// The leader is unreachable, refuses the member or cancels the run, the member cannot execute an
/// order, or the connection is lost before or during a run.
pub fn join(member: &MemberOptions<'_>) -> Result<usize, MemberError> {
    let stream = connect(member)?;
    stream.set_nodelay(true)?;
    let read_stream = stream.try_clone()?;
    let (message_sender, commands) = mpsc::sync_channel(COMMANDS_MAX);
    let work = move || {
        let mut lines = BufReader::new(read_stream);
        loop {
            let mut line = String::new();
            let read_line = lines.by_ref().take(LINE_MAX).read_line(&mut line);
            let message = read_line.ok().filter(|len| *len > 0).and_then(|_| parse_line(&line));
            let Some(message) = message else { return };
            if message_sender.send(message).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("leader".into()).spawn(work)?;
    let mut session = MemberSession { member, stream, commands };
    let hello = MemberMessage::Hello {
        protocol: PROTOCOL_VERSION,
        name: member.name.clone(),
        host: Host::read(),
    };
    session.send_message(&hello)?;
    (member.on_joined)();
    let mut runs = 0;
    loop {
        match session.commands.recv_timeout(FORWARD_INTERVAL) {
            Ok(LeaderMessage::Order(order)) => {
                session.execute_order(&order)?;
                runs += 1;
            }
            Ok(LeaderMessage::Refused(reason)) => return Err(MemberError::Refused(reason)),
            Ok(LeaderMessage::CalledOff(why)) => return Err(MemberError::Cancelled(why)),
            // The message may belong to an earlier run.
            Ok(LeaderMessage::Go(_) | LeaderMessage::Stop)
            | Err(mpsc::RecvTimeoutError::Timeout) => {}
            // After a run, this means that the leader has finished.
            Err(mpsc::RecvTimeoutError::Disconnected) if runs > 0 => return Ok(runs),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(MemberError::Disconnected),
        }
        if (member.is_stop_requested)() {
            return Ok(runs);
        }
    }
}

/// Connects to the leader, with retries until [`MemberOptions::wait`] has passed or a stop is
/// requested.
fn connect(member: &MemberOptions<'_>) -> Result<TcpStream, MemberError> {
    let address = member.leader;
    let began = Instant::now();
    loop {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) if began.elapsed() >= member.wait || (member.is_stop_requested)() => {
                return Err(MemberError::Unreachable { address, error });
            }
            Err(_) => thread::sleep(FORWARD_INTERVAL),
        }
    }
}

struct MemberSession<'a> {
    member: &'a MemberOptions<'a>,
    stream: TcpStream,
    commands: Receiver<LeaderMessage>,
}

impl MemberSession<'_> {
    fn send_message(&mut self, message: &MemberMessage) -> io::Result<()> {
        writeln!(self.stream, "{}", serde_json::to_string(message)?)?;
        self.stream.flush()
    }

    /// Executes the order of one run: starts the node, replies to the leader, and forwards the
    /// node's entries until all tasks have ended, the node has exited, or the leader stops the
    /// start.
    fn execute_order(&mut self, order: &NodeOrder) -> Result<(), MemberError> {
        let starts_process =
            |work: &TaskWork| matches!(work, TaskWork::Command(_) | TaskWork::Program(_));
        if !self.member.allows_commands
            && order.set.tasks().iter().any(|task| starts_process(&task.work))
        {
            let why = "it does not permit commands; join it with --allow-commands".to_owned();
            self.send_message(&MemberMessage::Answer(NodeReply::Failed(why)))?;
            return Err(MemberError::CommandsNotAllowed);
        }
        let local_address = self.stream.local_addr()?;
        let (address, scope) = (local_address.ip(), zone_index(local_address).unwrap_or(0));
        let clock_injected_ns = self.member.clock_injected_ns;
        let order = NodeOrder { address, scope, clock_injected_ns, ..order.clone() };
        let tasks = order.set.tasks().len();
        let mut child: NodeChildProcess =
            NodeChildProcess::start(&self.member.program, &self.member.arguments, &order, tasks)?;
        let reply = match child.await_ready(order.ready_timeout(), self.member.is_stop_requested) {
            Ok(ready) => NodeReply::Ready(ready),
            Err(why) => NodeReply::Failed(why),
        };
        let clock = clock_monitor(self.member).measure_message();
        self.send_message(&clock)?;
        let is_ready = matches!(reply, NodeReply::Ready(_));
        self.send_message(&MemberMessage::Answer(reply))?;
        if is_ready { self.wait_and_collect(&mut child, tasks) } else { Ok(()) }
    }

    fn wait_and_collect(
        &mut self,
        child: &mut NodeChildProcess,
        tasks: usize,
    ) -> Result<(), MemberError> {
        loop {
            match self.commands.recv_timeout(FORWARD_INTERVAL) {
                Ok(LeaderMessage::Go(start)) => {
                    child.send(&start)?;
                    break;
                }
                Ok(LeaderMessage::Stop) => return Ok(()),
                Ok(LeaderMessage::CalledOff(why)) => return Err(MemberError::Cancelled(why)),
                Ok(LeaderMessage::Order(_) | LeaderMessage::Refused(_))
                | Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(MemberError::Disconnected),
            }
            if (self.member.is_stop_requested)() {
                return Ok(());
            }
        }
        let stop = AtomicBool::new(false);
        let (clock_sender, clocks) = mpsc::channel();
        let clock_monitor = clock_monitor(self.member);
        thread::scope(|scope| {
            let clock_thread =
                thread::Builder::new().name("clock".into()).spawn_scoped(scope, || {
                    let mut next = Instant::now() + CLOCK_INTERVAL;
                    while !stop.load(Ordering::Relaxed) {
                        if Instant::now() >= next {
                            // After the end of the run there is no receiver.
                            let _ = clock_sender.send(clock_monitor.measure_message());
                            next = Instant::now() + CLOCK_INTERVAL;
                        }
                        thread::sleep(FORWARD_INTERVAL);
                    }
                });
            let collected = self.collect(child, tasks, &clocks);
            stop.store(true, Ordering::Relaxed);
            clock_thread?;
            collected
        })
    }

    fn collect(
        &mut self,
        child: &mut NodeChildProcess,
        tasks: usize,
        clocks: &Receiver<MemberMessage>,
    ) -> Result<(), MemberError> {
        let mut last_heartbeat = Instant::now();
        loop {
            match self.commands.try_recv() {
                Ok(LeaderMessage::Stop) => child.shared().stop(),
                Ok(LeaderMessage::CalledOff(why)) => return Err(MemberError::Cancelled(why)),
                Ok(_) | Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Err(MemberError::Disconnected),
            }
            if (self.member.is_stop_requested)() {
                child.shared().stop();
            }
            for clock in clocks.try_iter() {
                self.send_message(&clock)?;
            }
            // Read before the entries are sent, so that none can follow the last ones.
            let states: Vec<_> = (0..tasks).map(|at| child.task_state(at)).collect();
            let all_ended = states.iter().all(|state| state.is_over);
            let exit_reason = child.exit_reason().filter(|_| !all_ended);
            for at in 0..tasks {
                self.send_entries(child, at)?;
            }
            let is_finished = all_ended || exit_reason.is_some();
            if is_finished {
                // Sent before the last state, for which the leader waits, so that the leader
                // receives it.
                self.send_message(&clock_monitor(self.member).measure_message())?;
            }
            if is_finished || last_heartbeat.elapsed() >= HEARTBEAT_INTERVAL {
                last_heartbeat = Instant::now();
                self.send_message(&MemberMessage::State {
                    tasks: with_losses(&states, child),
                    ended: exit_reason,
                })?;
                if is_finished {
                    return Ok(());
                }
            }
            thread::sleep(FORWARD_INTERVAL);
        }
    }

    fn send_entries(&mut self, child: &mut NodeChildProcess, task: usize) -> io::Result<()> {
        let mut entries: Vec<PeriodEntry> = Vec::new();
        child.take_entries(task, &mut |entry| entries.push(*entry));
        for chunk in entries.chunks(ENTRIES_MAX) {
            self.send_message(&MemberMessage::Entries { task, words: encode_entries(chunk) })?;
        }
        Ok(())
    }
}

/// Returns the states with the present numbers of lost entries.
fn with_losses(states: &[TaskStatus], child: &NodeChildProcess) -> Vec<TaskStatus> {
    let indexed_states = states.iter().enumerate();
    let with_present_losses = |(at, state): (usize, &TaskStatus)| {
        let TaskStatus { lost, lost_periods, .. } = child.task_state(at);
        TaskStatus { lost, lost_periods, ..*state }
    };
    indexed_states.map(with_present_losses).collect()
}

#[derive(Clone, Copy)]
struct ClockOffsetMeasurer<'a> {
    measure: &'a (dyn Fn() -> Result<NodeClockOffset, String> + Sync),
    injected_ns: i64,
}

impl ClockOffsetMeasurer<'_> {
    fn measure_message(&self) -> MemberMessage {
        match (self.measure)() {
            Ok(clock) => {
                let ahead_ns = clock.ahead_ns.saturating_add(self.injected_ns);
                MemberMessage::Clock(NodeClockOffset { ahead_ns, ..clock })
            }
            Err(why) => MemberMessage::ClockUnknown(why),
        }
    }
}

fn clock_monitor<'a>(member: &MemberOptions<'a>) -> ClockOffsetMeasurer<'a> {
    ClockOffsetMeasurer { measure: member.measure_clock, injected_ns: member.clock_injected_ns }
}
