//! A member's side: it joins a leader, runs its node as it is told, and sends on what the node
//! hands over, run after run until the leader is through.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::Host;
use thiserror::Error;

use super::Clock;
use super::message::{ENTRIES_MAX, FromLeader, FromMember, PROTOCOL, TaskState, read, words};
use crate::entry::Entry;
use crate::node::{Answer, LINE_MAX, Order};
use crate::ring::LOOK_NS;
use crate::run::child::Child;
use crate::task::Work;

/// How often what the node handed over is sent on.
const ROUND: Duration = Duration::from_nanos(LOOK_NS);
/// How often a member says that it is there.
const ALIVE: Duration = Duration::from_millis(500);
/// How often its clock is measured while it runs.
const CLOCK: Duration = Duration::from_secs(2);
const CONNECT: Duration = Duration::from_secs(5);
/// What the leader says that waits, at most; it waits with the next then.
const TOLD_MAX: usize = 16;

/// How to be a member.
pub struct Member<'a> {
    /// The program that [`crate::node::serve`]s when it is given `arguments`.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Where the leader listens.
    pub leader: SocketAddr,
    /// How long the leader may take until it listens.
    pub wait: Duration,
    /// What the node is called.
    pub name: String,
    /// Whether tasks may start programs.
    pub allows_commands: bool,
    /// What is added to the clock on purpose, in ns.
    pub clock_injected_ns: i64,
    /// Measures how far the clock is ahead of the leader's, which answers NTP where it listens.
    pub measure: &'a (dyn Fn() -> Result<Clock, String> + Sync),
    /// Is called when the leader is reached.
    pub joined: &'a dyn Fn(),
    /// Whether to end.
    pub is_over: &'a dyn Fn() -> bool,
}

/// Why a member cannot take part, or no longer.
#[derive(Debug, Error)]
pub enum MemberError {
    /// The leader cannot be reached.
    #[error("the leader at {address} cannot be reached: {error}; start it first, with --listen")]
    Unreachable {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The leader does not want it.
    #[error("the leader refuses this node: {0}")]
    Refused(String),
    /// It does not want what the leader asks for.
    #[error("the leader's tasks start programs; allow it with --allow-commands")]
    Command,
    /// Nothing begins.
    #[error("the run does not begin: {0}")]
    CalledOff(String),
    /// The leader is gone in the middle of a run.
    #[error("the leader is gone")]
    Gone,
    /// The system refuses something.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Takes part until the leader is through, or it is to end; says how many runs it took part in.
///
/// # Errors
///
/// When the leader is not there or does not want it, or it cannot do what it is told.
pub fn join(member: &Member<'_>) -> Result<usize, MemberError> {
    let stream = connect(member)?;
    stream.set_nodelay(true)?;
    let reading = stream.try_clone()?;
    let (to, told) = mpsc::sync_channel(TOLD_MAX);
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
    let mut joined = Joined { member, stream, told };
    let hello =
        FromMember::Hello { protocol: PROTOCOL, name: member.name.clone(), host: Host::read() };
    joined.say(&hello)?;
    (member.joined)();
    let mut runs = 0;
    loop {
        match joined.told.recv_timeout(ROUND) {
            Ok(FromLeader::Order(order)) => {
                joined.run(&order)?;
                runs += 1;
            }
            Ok(FromLeader::Refused(reason)) => return Err(MemberError::Refused(reason)),
            Ok(FromLeader::CalledOff(why)) => return Err(MemberError::CalledOff(why)),
            // What is told may be of a run that is over.
            Ok(FromLeader::Go(_) | FromLeader::Stop) | Err(mpsc::RecvTimeoutError::Timeout) => {}
            // Through, if there was anything to go through.
            Err(mpsc::RecvTimeoutError::Disconnected) if runs > 0 => return Ok(runs),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(MemberError::Gone),
        }
        if (member.is_over)() {
            return Ok(runs);
        }
    }
}

/// Connects to the leader once it is there.
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

struct Joined<'a> {
    member: &'a Member<'a>,
    stream: TcpStream,
    told: Receiver<FromLeader>,
}

impl Joined<'_> {
    fn say(&mut self, message: &FromMember) -> io::Result<()> {
        writeln!(self.stream, "{}", serde_json::to_string(message)?)?;
        self.stream.flush()
    }

    /// One run.
    fn run(&mut self, order: &Order) -> Result<(), MemberError> {
        let starts = |work: &Work| matches!(work, Work::Command(_) | Work::Program(_));
        if !self.member.allows_commands && order.set.tasks().iter().any(|task| starts(&task.work)) {
            let why =
                "it does not allow commands; give it --allow-commands where it joins".to_owned();
            self.say(&FromMember::Answer(Answer::Failed(why)))?;
            return Err(MemberError::Command);
        }
        let address = self.stream.local_addr()?.ip();
        let clock_injected_ns = self.member.clock_injected_ns;
        let order = Order { address, clock_injected_ns, ..order.clone() };
        let tasks = order.set.tasks().len();
        let mut child: Child =
            Child::start(&self.member.program, &self.member.arguments, &order, tasks)?;
        let answer = match child.answer(order.patience(), self.member.is_over) {
            Ok(ready) => Answer::Ready(ready),
            Err(why) => Answer::Failed(why),
        };
        let clock = measuring(self.member).message();
        self.say(&clock)?;
        let is_ready = matches!(answer, Answer::Ready(_));
        self.say(&FromMember::Answer(answer))?;
        if is_ready { self.wait_and_collect(&mut child, tasks) } else { Ok(()) }
    }

    fn wait_and_collect(&mut self, child: &mut Child, tasks: usize) -> Result<(), MemberError> {
        loop {
            match self.told.recv_timeout(ROUND) {
                Ok(FromLeader::Go(go)) => {
                    child.tell(&go)?;
                    break;
                }
                Ok(FromLeader::Stop) => return Ok(()),
                Ok(FromLeader::CalledOff(why)) => return Err(MemberError::CalledOff(why)),
                Ok(FromLeader::Order(_) | FromLeader::Refused(_))
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
                        // Nobody takes it any longer where the run is over.
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
        child: &mut Child,
        tasks: usize,
        clocks: &Receiver<FromMember>,
    ) -> Result<(), MemberError> {
        let mut alive = Instant::now();
        loop {
            match self.told.try_recv() {
                Ok(FromLeader::Stop) => child.shared().stop(),
                Ok(FromLeader::CalledOff(why)) => return Err(MemberError::CalledOff(why)),
                Ok(_) | Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Err(MemberError::Gone),
            }
            if (self.member.is_over)() {
                child.shared().stop();
            }
            for clock in clocks.try_iter() {
                self.say(&clock)?;
            }
            // Asked before what is left is taken, so that nothing comes behind it.
            let states: Vec<_> = (0..tasks).map(|at| child.state(at)).collect();
            let is_over = states.iter().all(|state| state.is_over);
            let ended = child.ended().filter(|_| !is_over);
            for at in 0..tasks {
                self.send(child, at)?;
            }
            let is_through = is_over || ended.is_some();
            if is_through {
                // The last thing that the leader waits for is the state, so it has this one too.
                self.say(&measuring(self.member).message())?;
            }
            if is_through || alive.elapsed() >= ALIVE {
                alive = Instant::now();
                self.say(&FromMember::State { tasks: with_losses(&states, child), ended })?;
                if is_through {
                    return Ok(());
                }
            }
            thread::sleep(ROUND);
        }
    }

    fn send(&mut self, child: &mut Child, task: usize) -> io::Result<()> {
        let mut entries: Vec<Entry> = Vec::new();
        child.take(task, &mut |entry| entries.push(*entry));
        for some in entries.chunks(ENTRIES_MAX) {
            self.say(&FromMember::Entries { task, words: words(some) })?;
        }
        Ok(())
    }
}

/// States as they were, with what was lost by now.
fn with_losses(states: &[TaskState], child: &Child) -> Vec<TaskState> {
    let now = states.iter().enumerate();
    let lost = |(at, state): (usize, &TaskState)| {
        let TaskState { lost, lost_periods, .. } = child.state(at);
        TaskState { lost, lost_periods, ..*state }
    };
    now.map(lost).collect()
}

#[derive(Clone, Copy)]
struct Measuring<'a> {
    measure: &'a (dyn Fn() -> Result<Clock, String> + Sync),
    injected_ns: i64,
}

impl Measuring<'_> {
    fn message(&self) -> FromMember {
        match (self.measure)() {
            Ok(clock) => {
                let ahead_ns = clock.ahead_ns.saturating_add(self.injected_ns);
                FromMember::Clock(Clock { ahead_ns, ..clock })
            }
            Err(why) => FromMember::ClockUnknown(why),
        }
    }
}

fn measuring<'a>(member: &Member<'a>) -> Measuring<'a> {
    Measuring { measure: member.measure, injected_ns: member.clock_injected_ns }
}
