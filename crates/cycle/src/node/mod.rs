//! Node: a process whose threads run the tasks and publish the outcome of each period through
//! shared memory, so that measuring never makes a task wait. It receives its order on standard
//! input and reports on standard output when it is ready.

mod command;
pub mod datagram;
mod failure;
pub(crate) mod mesh;
mod mesh_instrument;
mod order;
mod packet_releases;
pub(crate) mod periods;
mod program;
mod shared;
mod start_gate;
mod steps;
mod system_clock;

use std::io::{self, BufRead, Read, Write};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use command::PeriodicCommand;
use horolog_conditions::HostConditionsGuard;
use horolog_record::TaskSchedulingOutcome;
use horolog_sys::affinity::{self, DeadlineReservation};
use horolog_sys::clock::ClockMonotonic;
use horolog_sys::memfd_shared_memory::MemfdSharedMemory;
use horolog_sys::socket::DatagramSocket;
use horolog_sys::zone::in_zone_of;
use horolog_time::{Clock, Monotonic, Span, Timestamp};
use mesh::Mesh;
use packet_releases::PacketReleaseSource;
use periods::{ClockReleaseTimer, PeriodWork, ReleaseSource, ReleaseTimer};
use program::MarkedProgram;
use serde::Serialize;
use serde::de::DeserializeOwned;
use steps::{PollingServer, SuperstepWork};

use crate::ring::RingWriter;
use crate::synthetic_load::SyntheticLoad;
use crate::task::{Policy, SchedulingSpec, Task, TaskWork};

pub(crate) use failure::{FAILURE_WORDS, TaskFailure};
pub(crate) use mesh_instrument::{MeshTestInstrument, MessageDisposition};
pub use order::{FirstRelease, LINE_MAX, NodeOrder, NodeReady, NodeStartCommand, TaskReady};
pub use shared::{NodeSharedMemory, REGION, region_words};
pub(crate) use start_gate::StartGate;

/// Time before the first release in which nodes send no pings.
const PING_FREE_TIME: Span = Span::from_ms(20);

/// Executes the order on standard input until all periods are over or the run is stopped. A failed
/// preparation is a reply, not an error.
///
/// # Errors
///
/// Standard input has no valid order or start command, the shared memory is missing or too small, a
/// thread cannot be started, or standard output is closed.
pub fn serve() -> io::Result<()> {
    let mut input = io::stdin().lock();
    let order: NodeOrder = read_line(&mut input)?;
    let region = MemfdSharedMemory::from_inherited(REGION)?;
    let tasks = order.set.tasks().len();
    let shared = NodeSharedMemory::new(region.words(), tasks).ok_or(io::ErrorKind::InvalidInput)?;
    let conditions = HostConditionsGuard::apply(order.hold_awake);
    let calibration_lock = Mutex::new(());
    let (sender, ready) = mpsc::channel();
    let gate = StartGate::new();
    thread::scope(|scope| {
        let begun = order.set.tasks().iter().enumerate().try_for_each(|(at, task)| {
            let context = TaskContext {
                order: &order,
                index: at,
                task,
                shared,
                calibration_lock: &calibration_lock,
                gate: &gate,
            };
            let sender = sender.clone();
            let work = move || context.run(&sender);
            thread::Builder::new().name(task.name.clone()).spawn_scoped(scope, work).map(drop)
        });
        let start = begun.and_then(|()| {
            let (conditions, clock_injected_ns) = (conditions.record(), order.clock_injected_ns);
            let ready = collect_ready(&ready, tasks).map(|tasks| NodeReady {
                conditions,
                clock_injected_ns,
                tasks,
            });
            report_ready(&ready, &mut input)
        });
        gate.release_or_cancel(start)
    })
}

fn collect_ready(
    ready: &mpsc::Receiver<(usize, Result<TaskReady, String>)>,
    tasks: usize,
) -> Result<Vec<TaskReady>, String> {
    let mut replies: Vec<Option<TaskReady>> = vec![None; tasks];
    for _ in 0..tasks {
        let (at, reply) = ready.recv().map_err(|_| "a task ended before its start".to_owned())?;
        replies[at] = Some(reply?);
    }
    replies.into_iter().collect::<Option<_>>().ok_or_else(|| "a task replied twice".to_owned())
}

/// Reads an order, one line of JSON; the end of the input is an error.
pub(crate) fn read_line<T: DeserializeOwned>(input: &mut impl BufRead) -> io::Result<T> {
    next_line(input)?.ok_or_else(|| {
        io::Error::other(
            "no order on standard input: end of file; \
                                                      start nodes with 'horolog cycle run'",
        )
    })
}

/// Reads the next line of JSON; `None` at the end of the input, by which the sender cancels the
/// run.
fn next_line<T: DeserializeOwned>(input: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = String::new();
    if input.take(LINE_MAX).read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}

/// Reports on standard output, in one line of JSON, that the node is ready or the reason why it is
/// not. Returns the start command; `None` if the node is not ready or the run is cancelled.
pub(crate) fn report_ready<C: DeserializeOwned>(
    ready: &Result<impl Serialize, String>,
    input: &mut impl BufRead,
) -> io::Result<Option<C>> {
    let mut output = io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(ready)?)?;
    output.flush()?;
    if ready.is_ok() { next_line(input) } else { Ok(None) }
}

/// Order, task and shared state with which a task's thread prepares and runs.
struct TaskContext<'a> {
    order: &'a NodeOrder,
    index: usize,
    task: &'a Task,
    shared: NodeSharedMemory<'a>,
    calibration_lock: &'a Mutex<()>,
    gate: &'a StartGate<NodeStartCommand>,
}

/// Task that is ready to run.
struct PreparedTask<'a> {
    work: PreparedWork<'a>,
    /// Socket for release packets, if packets release the task.
    release_socket: Option<DatagramSocket>,
}

/// Work of a prepared task; supersteps have a socket for messages if they exchange any.
enum PreparedWork<'a> {
    Steps(Box<SuperstepWork>, Option<DatagramSocket>),
    Server(PollingServer),
    Command(PeriodicCommand<'a>),
    Program(Box<MarkedProgram<'a>>),
}

impl<'a> TaskContext<'a> {
    fn run(&self, sender: &mpsc::Sender<(usize, Result<TaskReady, String>)>) {
        let prepared = self.prepare();
        let (work, reply) = match prepared {
            Ok((work, ready)) => (Some(work), Ok(ready)),
            Err(why) => (None, Err(format!("task '{}': {why}", self.task.name))),
        };
        // The receiver exists as long as this thread does.
        let _ = sender.send((self.index, reply));
        if let Some(work) = work
            && let Some(start) = self.gate.wait(self.shared)
        {
            self.run_task(work, &start);
        }
        self.shared.mark_task_ended(self.index);
    }

    fn prepare(&self) -> Result<(PreparedTask<'a>, TaskReady), String> {
        let core = self.task.schedule.core;
        if let Some(core) = core {
            horolog_conditions::select_cores(&[core]).map_err(|error| error.to_string())?;
            affinity::pin_to_core(core).map_err(|error| format!("core {core}: {error}"))?;
        }
        let (mut load, mut unit_ns) = (SyntheticLoad::default(), None);
        if matches!(self.task.work, TaskWork::Steps(_) | TaskWork::Polling(_)) {
            // One task at a time: two on one core would disturb each other's calibration.
            let _alone = self.calibration_lock.lock().unwrap_or_else(PoisonError::into_inner);
            unit_ns = Some(load.calibrate());
        }
        let of_unit = unit_ns.unwrap_or(1.0);
        let timeout = Duration::from_nanos(self.order.timeout_ns);
        let stop = self.shared.stop_word();
        let (mut units, mut port, mut empty_steps) = (None, None, SuperstepWork::empty());
        let (mut scheduled, mut marks_ns) = (None, 0);
        let prepared = match &self.task.work {
            TaskWork::Steps(steps) => {
                let steps = SuperstepWork::new(load, steps, of_unit, self.task.period_ns);
                (units, empty_steps) = (Some(steps.units()), steps.without_work());
                let socket = self.open_message_socket().map_err(|error| error.to_string())?;
                port = socket.as_ref().map(|(_, port)| *port);
                PreparedWork::Steps(Box::new(steps), socket.map(|(socket, _)| socket))
            }
            TaskWork::Polling(polling) => {
                let seed = u64::from(self.order.node) << 32 | self.index as u64;
                let server = PollingServer::new(load, polling, of_unit, seed);
                units = Some(server.units());
                PreparedWork::Server(server)
            }
            TaskWork::Command(words) => {
                command::check_program(words)?;
                PreparedWork::Command(PeriodicCommand::new(words, timeout, stop))
            }
            TaskWork::Program(program) => {
                // Scheduled before the program starts, so that the program inherits it.
                scheduled = Some(schedule(self.task.schedule, false, None));
                let mark_ns = program::mark_ns().map_err(|error| error.to_string())?;
                // A program sends at least two marks in each period.
                marks_ns = 2 * mark_ns;
                PreparedWork::Program(Box::new(MarkedProgram::start(program, timeout, stop)?))
            }
        };
        let mut cost = periods::measure_overhead(&mut empty_steps);
        cost.period_ns += marks_ns;
        // Largest computation of a period; the units of a polling server are those of one event.
        let times = match &self.task.work {
            TaskWork::Polling(polling) => u64::from(polling.budget),
            _ => 1,
        };
        let compute_ns = units.map(|units| (units.saturating_mul(times) as f64 * of_unit) as u64);
        let scheduling = scheduled.unwrap_or_else(|| {
            // A command's process must inherit the scheduling, so it is not reset on fork.
            let resets = !matches!(self.task.work, TaskWork::Command(_));
            schedule(self.task.schedule, resets, Some(reservation(self.task, compute_ns)))
        });
        let release_socket = self
            .order
            .is_signalled
            .then(|| packet_releases::open_release_socket(self.order.local_address()));
        let release_socket = release_socket.transpose().map_err(|error| error.to_string())?;
        let signal_port = release_socket.as_ref().map(|(_, port)| *port);
        let ready = TaskReady { scheduling, cost, unit_ns, units, port, signal_port };
        Ok((
            PreparedTask {
                work: prepared,
                release_socket: release_socket.map(|(socket, _)| socket),
            },
            ready,
        ))
    }

    /// Opens the socket for messages of other nodes, if there are others and the task communicates.
    fn open_message_socket(&self) -> io::Result<Option<(DatagramSocket, u16)>> {
        let TaskWork::Steps(steps) = &self.task.work else { return Ok(None) };
        let communicates = steps.iter().any(|step| step.message.is_some() || step.barrier);
        (communicates && self.order.nodes > 1)
            .then(|| mesh::open_mesh_socket(self.order.local_address()))
            .transpose()
    }

    fn run_task(&self, prepared: PreparedTask<'_>, start: &NodeStartCommand) {
        // Release packets do not depend on this node's clock.
        let injected_ns = if self.order.is_signalled { 0 } else { self.order.clock_injected_ns };
        let (offset_ns, period_ns) = (self.task.offset_ns, self.task.period_ns);
        let PreparedTask { mut work, release_socket } = prepared;
        let stop = self.shared.stop_word();
        let mut releases =
            ClockReleaseTimer::new(start.begin, offset_ns, period_ns, injected_ns, stop);
        let begin = releases.begin();
        if let PreparedWork::Steps(steps, socket) = &mut work {
            let peers = start.peers.get(self.index).filter(|peers| peers.len() > 1);
            if let Some((socket, peers)) = socket.take().zip(peers) {
                let peers = peers.iter().map(|peer| in_zone_of(*peer, self.order.scope));
                let mut mesh = Mesh::new(socket, self.order.node, peers.collect());
                let latency_ns =
                    mesh.measure_baseline(ping_end(releases.release_time(0))).latency_ns;
                self.shared.set_latency(self.index, latency_ns);
                steps.set_mesh(mesh);
            }
        }
        match release_socket {
            Some(socket) => {
                let token = match start.begin {
                    FirstRelease::Signalled { token, .. } => token,
                    // No release packets are sent in these cases.
                    FirstRelease::Monotonic(_) | FirstRelease::Utc(_) => 0,
                };
                let last = releases.release_time(self.period_count());
                self.run_periods(
                    work,
                    begin,
                    &mut PacketReleaseSource::new(socket, token, last, stop),
                );
            }
            None => self.run_periods(work, begin, &mut releases),
        }
    }

    fn period_count(&self) -> u64 {
        self.order.cycles.get(self.index).copied().unwrap_or(0)
    }

    fn run_periods(
        &self,
        work: PreparedWork<'_>,
        begin: Timestamp<Monotonic>,
        releases: &mut impl ReleaseSource,
    ) {
        let mut clock_steps = 0;
        match work {
            PreparedWork::Steps(mut steps, _) => self.run_work(&mut *steps, begin, releases),
            PreparedWork::Server(mut server) => self.run_work(&mut server, begin, releases),
            PreparedWork::Command(mut command) => {
                self.run_work(&mut command, begin, releases);
                self.record_failure(command.failure.as_ref());
            }
            PreparedWork::Program(mut program) => {
                self.run_work(&mut *program, begin, releases);
                self.record_failure(program.failure().as_ref());
                clock_steps = program.clock.steps();
            }
        }
        // The program's clock and that of the releases are the same one.
        self.shared.set_clock_steps(self.index, clock_steps.max(releases.clock_steps()));
    }

    fn record_failure(&self, failure: Option<&TaskFailure>) {
        if let Some(failure) = failure {
            self.shared.set_failure(self.index, failure);
        }
    }

    fn run_work(
        &self,
        work: &mut impl PeriodWork,
        begin: Timestamp<Monotonic>,
        releases: &mut impl ReleaseSource,
    ) {
        let Some(mut writer) = RingWriter::new(self.shared.ring(self.index)) else { return };
        periods::run((self.period_count(), begin), releases, work, &mut |entry| writer.push(entry));
    }
}

/// Returns the instant at which nodes stop sending pings before the first release, at the earliest
/// now.
pub(crate) fn ping_end(begin: Timestamp<Monotonic>) -> Timestamp<Monotonic> {
    (begin - PING_FREE_TIME).max(ClockMonotonic.now())
}

/// Returns the reservation of a task under `SCHED_DEADLINE`: its worst-case execution time if
/// known, or one and a half times its computation (half the deadline if that is unknown), plus the
/// overhead of the kernel and of measuring; at most the deadline.
fn reservation(task: &Task, compute_ns: Option<u64>) -> DeadlineReservation {
    const OVERHEAD_NS: u64 = 100_000;
    let estimated_ns = compute_ns.map_or(task.deadline_ns / 2, |ns| ns.saturating_mul(3) / 2);
    let runtime_ns = task.worst_ns.unwrap_or(estimated_ns).saturating_add(OVERHEAD_NS);
    DeadlineReservation {
        runtime_ns: runtime_ns.min(task.deadline_ns),
        deadline_ns: task.deadline_ns,
        period_ns: task.period_ns,
    }
}

/// Schedules this thread as requested, if permitted; otherwise it stays under `SCHED_OTHER`, and
/// the result holds the error. With `reset_on_fork` its children run under `SCHED_OTHER`.
/// [`Policy::Deadline`] needs the reservation. The core is only reported, since the thread has
/// already been pinned.
pub(crate) fn schedule(
    requested: SchedulingSpec,
    reset_on_fork: bool,
    reservation: Option<DeadlineReservation>,
) -> TaskSchedulingOutcome {
    let SchedulingSpec { policy, priority, core } = requested;
    let result = match policy {
        Policy::Other => Ok(()),
        Policy::Fifo => {
            affinity::SchedulingParameters::fifo(priority.into(), reset_on_fork).apply()
        }
        Policy::Rr => {
            affinity::SchedulingParameters::round_robin(priority.into(), reset_on_fork).apply()
        }
        Policy::Deadline => reservation
            .map_or_else(|| Err(io::ErrorKind::InvalidInput.into()), affinity::apply_reservation),
    };
    let error = result.err().map(|error| error.to_string());
    let applied = if error.is_some() { Policy::Other } else { policy };
    let priority = if applied.has_priority() { priority } else { 0 };
    TaskSchedulingOutcome { requested: policy, policy: applied, priority, core, error }
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
        assert!(why.starts_with("no order on standard input: end of file"), "{why}");
    }
}
