//! A node: a process of its own whose threads run the tasks and hand over what became of each
//! period through shared memory, so that measuring never makes a task wait. It is told what to do
//! by its standard input, and says by its standard output when it is ready.

mod account;
mod command;
pub mod datagram;
mod fault;
mod gate;
mod mark_cost;
mod meeting;
pub(crate) mod mesh;
mod order;
pub(crate) mod periods;
mod program;
mod schedule;
mod shared;
mod signalled;
mod steps;
mod system_clock;

use std::io::{self, BufRead, Read, Write};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use horolog_conditions::Conditions;
use horolog_sys::affinity::{self, Reservation};
use horolog_sys::clock::MonotonicClock;
use horolog_sys::shared_region::SharedRegion;
use horolog_sys::socket::Socket;
use horolog_time::{Clock, Monotonic, Span, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use account::{Account, Fate};
pub(crate) use fault::{FAULT_WORDS, TaskFault};
pub(crate) use gate::Gate;
pub use order::{Answer, Begin, Go, LINE_MAX, Order, Ready, TaskReady};
pub(crate) use schedule::schedule;
pub use shared::{REGION, Shared, region_words};

use crate::load::Load;
use crate::ring::Writer;
use crate::task::{Task, Work as TaskWork};
use command::Repeated;
use mesh::Mesh;
use periods::{Pace, Releases, Timer, Work};
use program::Marked;
use signalled::Signalled;
use steps::{Server, Steps};

/// Before the first release nobody sends pings any longer.
const QUIET: Span = Span::from_ms(20);

/// Does what standard input says until all periods are over.
///
/// # Errors
///
/// When it is told nothing that it understands, or nobody listens.
pub fn serve() -> io::Result<()> {
    let mut input = io::stdin().lock();
    let order: Order = read_line(&mut input)?;
    let region = SharedRegion::inherited(REGION)?;
    let tasks = order.set.tasks().len();
    let shared = Shared::new(region.words(), tasks).ok_or(io::ErrorKind::InvalidInput)?;
    let conditions = Conditions::arrange(order.hold_awake);
    let calibrating = Mutex::new(());
    let (told, ready) = mpsc::channel();
    let gate = Gate::new();
    thread::scope(|scope| {
        let begun = order.set.tasks().iter().enumerate().try_for_each(|(at, task)| {
            let context =
                Context { order: &order, at, task, shared, calibrating: &calibrating, gate: &gate };
            let told = told.clone();
            let work = move || context.run(&told);
            thread::Builder::new().name(task.name.clone()).spawn_scoped(scope, work).map(drop)
        });
        let told = begun.and_then(|()| {
            let (conditions, clock_injected_ns) = (conditions.record(), order.clock_injected_ns);
            let answer = match collect(&ready, tasks) {
                Ok(tasks) => Answer::Ready(Ready { conditions, clock_injected_ns, tasks }),
                Err(why) => Answer::Failed(why),
            };
            write_line(&answer)?;
            match answer {
                Answer::Ready(_) => next_line::<Go>(&mut input),
                Answer::Failed(_) => Ok(None),
            }
        });
        gate.tell(told)
    })
}

fn collect(
    ready: &mpsc::Receiver<(usize, Result<TaskReady, String>)>,
    tasks: usize,
) -> Result<Vec<TaskReady>, String> {
    let mut answers: Vec<Option<TaskReady>> = vec![None; tasks];
    for _ in 0..tasks {
        let (at, answer) = ready.recv().map_err(|_| "a task ended before it began".to_owned())?;
        answers[at] = Some(answer?);
    }
    answers.into_iter().collect::<Option<_>>().ok_or_else(|| "a task answered twice".to_owned())
}

/// What a node's process is told: a line of JSON.
pub(crate) fn read_line<T: DeserializeOwned>(input: &mut impl BufRead) -> io::Result<T> {
    next_line(input)?.ok_or_else(|| io::Error::other("nobody says what is to be done"))
}

/// The next line that it is told; none where whoever told it is gone, or has called it off.
pub(crate) fn next_line<T: DeserializeOwned>(input: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = String::new();
    if input.take(LINE_MAX).read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}

/// What it answers: likewise.
pub(crate) fn write_line(answer: &impl Serialize) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(answer)?)?;
    output.flush()
}

/// What a task's thread knows.
struct Context<'a> {
    order: &'a Order,
    at: usize,
    task: &'a Task,
    shared: Shared<'a>,
    calibrating: &'a Mutex<()>,
    gate: &'a Gate<Go>,
}

/// A task that is ready.
struct Prepared<'a> {
    work: PreparedWork<'a>,
    /// Where its releases come in, if they are packets.
    signal: Option<Socket>,
}

/// Its work.
enum PreparedWork<'a> {
    Steps(Box<Steps>, Option<Socket>),
    Server(Server),
    Command(Repeated<'a>),
    Program(Box<Marked<'a>>),
}

impl<'a> Context<'a> {
    fn run(&self, told: &mpsc::Sender<(usize, Result<TaskReady, String>)>) {
        let prepared = self.prepare();
        let (work, answer) = match prepared {
            Ok((work, ready)) => (Some(work), Ok(ready)),
            Err(why) => (None, Err(format!("task '{}': {why}", self.task.name))),
        };
        // Whoever waits for it is there as long as this thread is.
        let _ = told.send((self.at, answer));
        if let Some(work) = work
            && let Some(go) = self.gate.wait(self.shared)
        {
            self.work(work, &go);
        }
        self.shared.end(self.at);
    }

    fn prepare(&self) -> Result<(Prepared<'a>, TaskReady), String> {
        let core = self.task.schedule.core;
        if let Some(core) = core {
            horolog_conditions::cores(&[core]).map_err(|error| error.to_string())?;
            affinity::pin_to_core(core).map_err(|error| format!("core {core}: {error}"))?;
        }
        let (mut load, mut unit_ns) = (Load::default(), None);
        if matches!(self.task.work, TaskWork::Steps(_) | TaskWork::Polling(_)) {
            // One after the other: two on one core would find each other in their figures.
            let _alone = self.calibrating.lock().unwrap_or_else(PoisonError::into_inner);
            unit_ns = Some(load.calibrate());
        }
        let of_unit = unit_ns.unwrap_or(1.0);
        let timeout = Duration::from_nanos(self.order.timeout_ns);
        let stop = self.shared.stop_word();
        let (mut units, mut port, mut hollow) = (None, None, Steps::nothing());
        let (mut scheduled, mut marks_ns) = (None, 0);
        let prepared = match &self.task.work {
            TaskWork::Steps(steps) => {
                let steps = Steps::new(load, steps, of_unit, self.task.period_ns);
                (units, hollow) = (Some(steps.units()), steps.hollow());
                let socket = self.socket().map_err(|error| error.to_string())?;
                port = socket.as_ref().map(|(_, port)| *port);
                PreparedWork::Steps(Box::new(steps), socket.map(|(socket, _)| socket))
            }
            TaskWork::Polling(polling) => {
                let seed = u64::from(self.order.node) << 32 | self.at as u64;
                let server = Server::new(load, polling, of_unit, seed);
                units = Some(server.units());
                PreparedWork::Server(server)
            }
            TaskWork::Command(words) => {
                command::check(words)?;
                PreparedWork::Command(Repeated::new(words, timeout, stop))
            }
            TaskWork::Program(program) => {
                // First this thread, so that the program is scheduled as it is.
                scheduled = Some(schedule(self.task.schedule, false, None));
                let mark_ns = mark_cost::mark_ns().map_err(|error| error.to_string())?;
                // It makes two marks at least.
                marks_ns = 2 * mark_ns;
                PreparedWork::Program(Box::new(Marked::start(program, timeout, stop)?))
            }
        };
        let mut cost = periods::cost(&mut hollow);
        cost.period_ns += marks_ns;
        // What a period computes at most; a server's units are those of one event.
        let times = match &self.task.work {
            TaskWork::Polling(polling) => u64::from(polling.budget),
            _ => 1,
        };
        let compute_ns = units.map(|units| (units.saturating_mul(times) as f64 * of_unit) as u64);
        let scheduling = scheduled.unwrap_or_else(|| {
            // What a command starts is to have what the task has.
            let resets = !matches!(self.task.work, TaskWork::Command(_));
            schedule(self.task.schedule, resets, Some(reservation(self.task, compute_ns)))
        });
        let signal = self.order.is_signalled.then(|| signalled::open(self.order.address));
        let signal = signal.transpose().map_err(|error| error.to_string())?;
        let signal_port = signal.as_ref().map(|(_, port)| *port);
        let ready = TaskReady { scheduling, cost, unit_ns, units, port, signal_port };
        Ok((Prepared { work: prepared, signal: signal.map(|(socket, _)| socket) }, ready))
    }

    /// Where messages of other nodes come in, if there are others and something to say.
    fn socket(&self) -> io::Result<Option<(Socket, u16)>> {
        let TaskWork::Steps(steps) = &self.task.work else { return Ok(None) };
        let meets = steps.iter().any(|step| step.message.is_some() || step.barrier);
        (meets && self.order.nodes > 1).then(|| mesh::open(self.order.address)).transpose()
    }

    fn work(&self, prepared: Prepared<'_>, go: &Go) {
        // Packets are expected when they are, whatever this node's clock shows.
        let injected_ns = if self.order.is_signalled { 0 } else { self.order.clock_injected_ns };
        let (offset_ns, period_ns) = (self.task.offset_ns, self.task.period_ns);
        let Prepared { mut work, signal } = prepared;
        let stop = self.shared.stop_word();
        let mut pace = Releases::new(go.begin, offset_ns, period_ns, injected_ns, stop);
        let begin = pace.begin();
        if let PreparedWork::Steps(steps, socket) = &mut work {
            let peers = go.peers.get(self.at).filter(|peers| peers.len() > 1);
            if let Some((socket, peers)) = socket.take().zip(peers) {
                let mut mesh = Mesh::new(socket, self.order.node, peers.clone());
                let latency_ns = mesh.acquaint(before(pace.due(0))).latency_ns;
                self.shared.tell_latency(self.at, latency_ns);
                steps.join(mesh);
            }
        }
        match signal {
            Some(socket) => {
                let token = match go.begin {
                    Begin::Signalled { token, .. } => token,
                    // Nobody sends any then.
                    Begin::Monotonic(_) | Begin::Utc(_) => 0,
                };
                let last = pace.due(self.cycles());
                self.run_periods(work, begin, &mut Signalled::new(socket, token, last, stop));
            }
            None => self.run_periods(work, begin, &mut pace),
        }
    }

    fn cycles(&self) -> u64 {
        self.order.cycles.get(self.at).copied().unwrap_or(0)
    }

    fn run_periods(
        &self,
        work: PreparedWork<'_>,
        begin: Timestamp<Monotonic>,
        pace: &mut impl Pace,
    ) {
        let mut sets = 0;
        match work {
            PreparedWork::Steps(mut steps, _) => self.run_each(&mut *steps, begin, pace),
            PreparedWork::Server(mut server) => self.run_each(&mut server, begin, pace),
            PreparedWork::Command(mut command) => {
                self.run_each(&mut command, begin, pace);
                self.tell_fault(command.fault.as_ref());
            }
            PreparedWork::Program(mut program) => {
                self.run_each(&mut *program, begin, pace);
                self.tell_fault(program.fault().as_ref());
                sets = program.clock.sets();
            }
        }
        // Both see the same clock.
        self.shared.tell_clock_sets(self.at, sets.max(pace.clock_sets()));
    }

    fn tell_fault(&self, fault: Option<&TaskFault>) {
        if let Some(fault) = fault {
            self.shared.tell_fault(self.at, fault);
        }
    }

    fn run_each(&self, work: &mut impl Work, begin: Timestamp<Monotonic>, pace: &mut impl Pace) {
        let Some(mut writer) = Writer::new(self.shared.ring(self.at)) else { return };
        periods::run((self.cycles(), begin), pace, work, &mut |entry| writer.push(entry));
    }
}

/// When nodes leave off sending pings.
pub(crate) fn before(begin: Timestamp<Monotonic>) -> Timestamp<Monotonic> {
    (begin - QUIET).max(MonotonicClock.now())
}

/// The time that a task under `SCHED_DEADLINE` asks for: its longest execution if that is known,
/// else a half more than its computing, and what the kernel and the measuring take.
fn reservation(task: &Task, compute_ns: Option<u64>) -> Reservation {
    const OWN_NS: u64 = 100_000;
    let usual_ns = compute_ns.map_or(task.deadline_ns / 2, |ns| ns.saturating_mul(3) / 2);
    let runtime_ns = task.worst_ns.unwrap_or(usual_ns).saturating_add(OWN_NS);
    Reservation {
        runtime_ns: runtime_ns.min(task.deadline_ns),
        deadline_ns: task.deadline_ns,
        period_ns: task.period_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that does not begin closes the pipe, which is no fault of the node.
    #[test]
    fn a_pipe_that_closes_calls_off_what_was_to_begin() {
        let (mut none, mut half, mut some) = (&b""[..], &b"{"[..], &b"7\n"[..]);
        assert!(matches!(next_line::<u8>(&mut none), Ok(None)));
        assert!(next_line::<u8>(&mut half).is_err());
        assert!(matches!(next_line::<u8>(&mut some), Ok(Some(7))));
        let why = read_line::<u8>(&mut none).unwrap_err().to_string();
        assert_eq!(why, "nobody says what is to be done");
    }
}
