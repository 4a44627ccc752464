//! Program as the work of a task: started once, it receives each release and marks its activities;
//! see [`crate::mark`]. Marks carry the kernel's receive timestamps, so delays of this thread do
//! not change the measurement.

use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use horolog_sys::clock::ClockMonotonic;
use horolog_sys::namespace::die_with_parent;
use horolog_sys::process::{ProcessHandle, kill_group};
use horolog_sys::thread_usage::ContextSwitches;
use horolog_sys::unix::SocketToChild;
use horolog_time::{Clock, Monotonic, Timestamp};

use super::failure::TaskFailure;
use super::periods::{CurrentPeriod, PeriodWork, WorkOutcome};
use super::system_clock::SystemClockConverter;
use crate::entry::{PeriodEntry, PeriodOutcome};
use crate::mark::{MARK_MAX, PeriodPhase, ProgramCommand, ProgramMark, SOCKET_VARIABLE};
use crate::task::TaskProgram;

/// File descriptor number of a program's socket.
pub(super) const SOCKET_FD: i32 = 3;
/// Interval of the checks that a program still runs while it sends no mark.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Grace period for the program to exit after the stop command.
const END_GRACE_PERIOD: Duration = Duration::from_millis(500);

/// Reason for which a program is abandoned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum ProgramFailure {
    /// The program has exited.
    #[error("unexpected end of the program")]
    Exited,
    /// The program exceeded its timeout.
    #[error("no answer within --timeout")]
    TimedOut,
    /// The program sent an unknown mark.
    #[error(
        "unknown mark; marks are ready, begin, phase \
         computation|communication|idle|barrier, state NAME, end and end failed"
    )]
    UnknownMark,
    /// The program sent a mark in the wrong order or before the release, or does not read its
    /// commands.
    #[error("mark out of order; the order is ready, then begin to end for each release")]
    OutOfOrder,
    /// The program reported a state that the task does not list.
    #[error("marked state is not among the task's states")]
    UnknownState,
}

impl ProgramFailure {
    const ALL: [Self; 5] =
        [Self::Exited, Self::TimedOut, Self::UnknownMark, Self::OutOfOrder, Self::UnknownState];

    /// Returns the number of the failure, from 1.
    pub(crate) fn number(self) -> u64 {
        Self::ALL.iter().position(|failure| *failure == self).map_or(0, |at| at as u64 + 1)
    }

    /// Returns the failure with this number, or `None`.
    pub(crate) fn from_number(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
    }
}

/// Program that does the work of all periods.
pub(crate) struct MarkedProgram<'a> {
    child: Child,
    handle: ProcessHandle,
    socket: SocketToChild,
    buffer: [u8; MARK_MAX + 1],
    states: Vec<String>,
    state: Option<u8>,
    timeout: Duration,
    stop: &'a AtomicU64,
    /// Converter of the marks' timestamps.
    pub(crate) clock: SystemClockConverter,
    /// Reason for which the program was abandoned.
    pub(crate) failure: Option<ProgramFailure>,
    /// Reported state that the task does not list.
    unknown_state: String,
}

impl<'a> MarkedProgram<'a> {
    /// Starts the program and waits until it is ready, at most `timeout` and only while `stop` is
    /// 0; the error is the reason. The program inherits the core, policy and priority of this
    /// thread.
    pub(crate) fn start(
        program: &TaskProgram,
        timeout: Duration,
        stop: &'a AtomicU64,
    ) -> Result<Self, String> {
        let (name, arguments) = match program.words.split_first() {
            Some((name, arguments)) => (name.as_str(), arguments),
            None => ("", &[][..]),
        };
        let mut command = Command::new(name);
        command.args(arguments).env(SOCKET_VARIABLE, SOCKET_FD.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        die_with_parent(&mut command);
        let failed = |error: std::io::Error| format!("cannot start '{name}': {error}");
        let (socket, program_socket) =
            SocketToChild::pair(&mut command, SOCKET_FD).map_err(failed)?;
        let mut child = command.spawn().map_err(failed)?;
        drop(program_socket);
        let handle = match ProcessHandle::open(child.id()) {
            Ok(handle) => handle,
            Err(error) => {
                // The process is a child that has not been waited for, so both calls reach it.
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(error));
            }
        };
        let mut started = Self {
            child,
            handle,
            socket,
            buffer: [0; MARK_MAX + 1],
            states: program.states.clone(),
            state: None,
            timeout,
            stop,
            clock: SystemClockConverter::new(),
            failure: None,
            unknown_state: String::new(),
        };
        match started.receive_mark(Instant::now() + timeout) {
            Ok((ProgramMark::Ready, _)) => Ok(started),
            Ok(_) => Err(format!("'{name}': {}", ProgramFailure::OutOfOrder)),
            Err(None) => Err("the run was ended".to_owned()),
            Err(Some(fault)) => Err(format!("'{name}': {fault}; its first mark must be 'ready'")),
        }
    }

    /// Returns the reason for which the program was abandoned, with the reported state if that is
    /// unknown.
    pub(crate) fn failure(&self) -> Option<TaskFailure> {
        self.failure.map(|failure| match failure {
            ProgramFailure::UnknownState => TaskFailure::State(self.unknown_state.clone()),
            failure => TaskFailure::Program(failure),
        })
    }

    /// Receives the next mark before `deadline`, and its time. The error is the failure, or `None`
    /// if the run is stopped.
    fn receive_mark(
        &mut self,
        deadline: Instant,
    ) -> Result<(ProgramMark<'_>, Timestamp<Monotonic>), Option<ProgramFailure>> {
        let (len, received_at) = loop {
            if self.stop.load(Ordering::Relaxed) != 0 {
                return Err(None);
            }
            // Checked before each mark, so that a program cannot extend its timeout by sending
            // marks.
            if Instant::now() >= deadline {
                return Err(Some(ProgramFailure::TimedOut));
            }
            match self.socket.recv(&mut self.buffer, POLL_INTERVAL) {
                Ok(received) => break received,
                // The last marks of an exited program are read first.
                Err(_) if self.has_ended() => match self.socket.try_recv(&mut self.buffer) {
                    Ok(received) => break received,
                    Err(_) => return Err(Some(ProgramFailure::Exited)),
                },
                Err(_) => {}
            }
        };
        let received_at = self.clock.monotonic(received_at);
        let mark = ProgramMark::parse(&self.buffer[..len]).ok_or(ProgramFailure::UnknownMark)?;
        Ok((mark, received_at))
    }

    fn has_ended(&self) -> bool {
        // A program with an unreadable state counts as running, until it times out.
        self.handle.wait(Duration::ZERO).unwrap_or(false)
    }

    fn run_period(
        &mut self,
        period: &CurrentPeriod,
        entry: &mut PeriodEntry,
    ) -> Result<(), Option<ProgramFailure>> {
        // Less the error bound of the conversion, so that no mark seems to precede the release.
        let released = ClockMonotonic.now() - self.clock.error_bound();
        let command =
            ProgramCommand::Release { cycle: period.number, due_ns: period.released_at.as_ns() };
        self.socket.send(command.to_string().as_bytes()).map_err(|error| match error.kind() {
            // The program has not read its earlier commands.
            ErrorKind::WouldBlock => ProgramFailure::OutOfOrder,
            _ => ProgramFailure::Exited,
        })?;
        let deadline = Instant::now() + self.timeout;
        let mut period_marks = PeriodMarks::default();
        loop {
            let (mark, received_at) = self.receive_mark(deadline)?;
            if received_at < released {
                return Err(Some(ProgramFailure::OutOfOrder));
            }
            if let ProgramMark::State(name) = mark {
                let name = name.to_owned();
                let at = self.states.iter().position(|state| *state == name);
                let Some(at) = at else {
                    self.unknown_state = name;
                    return Err(Some(ProgramFailure::UnknownState));
                };
                self.state = Some(at as u8);
                entry.state = self.state;
            } else if period_marks
                .record_mark(mark, received_at)
                .ok_or(ProgramFailure::OutOfOrder)?
            {
                period_marks.fill_entry(period.released_at, entry);
                entry.state = self.state;
                return Ok(());
            }
        }
    }
}

impl PeriodWork for MarkedProgram<'_> {
    fn run(
        &mut self,
        period: &CurrentPeriod,
        entry: &mut PeriodEntry,
        _: &mut dyn FnMut(&PeriodEntry),
    ) -> WorkOutcome {
        match self.run_period(period, entry) {
            Ok(()) => WorkOutcome::Marked,
            Err(None) => WorkOutcome::Stopped,
            Err(Some(failure)) => {
                self.failure = Some(failure);
                WorkOutcome::Abandoned
            }
        }
    }
}

impl Drop for MarkedProgram<'_> {
    fn drop(&mut self) {
        // If the program has already exited, all of these fail, which is harmless.
        let _ = self.socket.send(ProgramCommand::Stop.to_string().as_bytes());
        let _ = self.handle.wait(END_GRACE_PERIOD);
        // Kills the group, including child processes of the program. The group ID cannot be reused
        // before the child is waited for.
        let _ = kill_group(self.child.id());
        let _ = self.child.wait();
    }
}

/// Marks received from a program in the present period.
#[derive(Default)]
struct PeriodMarks {
    begun: Option<Timestamp<Monotonic>>,
    current_phase: Option<(PeriodPhase, Timestamp<Monotonic>)>,
    spent_ns: [u64; PeriodPhase::ALL.len()],
    ended: Option<Timestamp<Monotonic>>,
    has_failed: bool,
}

impl PeriodMarks {
    /// Records a mark. Returns true if it ends the period, and `None` if it is out of order.
    fn record_mark(
        &mut self,
        mark: ProgramMark<'_>,
        received_at: Timestamp<Monotonic>,
    ) -> Option<bool> {
        match (mark, self.begun) {
            (ProgramMark::Begin, None) => {
                self.begun = Some(received_at);
                self.current_phase = Some((PeriodPhase::Computation, received_at));
                Some(false)
            }
            (ProgramMark::Phase(phase), Some(_)) => {
                self.end_phase(received_at);
                self.current_phase = Some((phase, received_at));
                Some(false)
            }
            (ProgramMark::End | ProgramMark::Failed, Some(_)) => {
                self.end_phase(received_at);
                self.ended = Some(received_at);
                self.has_failed = mark == ProgramMark::Failed;
                Some(true)
            }
            _ => None,
        }
    }

    fn end_phase(&mut self, received_at: Timestamp<Monotonic>) {
        if let Some((phase, since)) = self.current_phase.take() {
            // After a step of the system clock the two times may be out of order.
            self.spent_ns[phase as usize] += (received_at - since).as_ns().max(0).unsigned_abs();
        }
    }

    fn fill_entry(&self, due: Timestamp<Monotonic>, entry: &mut PeriodEntry) {
        let (Some(begun), Some(ended)) = (self.begun, self.ended) else { return };
        entry.start_latency_ns = (begun - due).as_ns().max(0).unsigned_abs();
        entry.execution_ns = (ended - begun).as_ns().max(0).unsigned_abs();
        let [computation, communication, idle, barrier] = self.spent_ns;
        entry.compute_ns = computation;
        entry.communicate_ns = communication;
        entry.idle_ns = idle;
        entry.barrier_ns = barrier;
        if self.has_failed {
            entry.end = PeriodOutcome::Failed;
        }
    }
}

/// Longest wait of the receiving thread for one mark.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Measures how long a program needs to send a mark, in ns, including the wake-up of the receiving
/// thread: the median of the trials in which that thread was woken, or of all if it never was. Both
/// threads have the core, policy and priority of this one, as a program and its receiver do.
pub(crate) fn mark_ns() -> io::Result<u64> {
    let mut trials = mark_trials()?;
    if trials.iter().any(|trial| trial.is_woken) {
        trials.retain(|trial| trial.is_woken);
    }
    trials.sort_unstable_by_key(|trial| trial.duration_ns);
    Ok(trials.get(trials.len() / 2).map_or(0, |trial| trial.duration_ns))
}

/// Measured duration of sending one mark.
#[derive(Clone, Copy, Debug)]
struct MarkCostSample {
    duration_ns: u64,
    /// True if the receiving thread slept and was woken by the mark.
    is_woken: bool,
}

fn mark_trials() -> io::Result<Vec<MarkCostSample>> {
    const TRIALS: usize = 201;
    /// Pause in which the receiving thread falls asleep again.
    const PAUSE: Duration = Duration::from_micros(50);
    let (mut socket, program_socket) = SocketToChild::pair(&mut Command::new(""), SOCKET_FD)?;
    let (result_sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let read = move || -> io::Result<()> {
            let mut buffer = [0; MARK_MAX];
            for _ in 0..TRIALS {
                let before = ContextSwitches::now()?;
                socket.recv(&mut buffer, READ_TIMEOUT)?;
                // Sending fails only after the trials were abandoned.
                let _ = result_sender.send(ContextSwitches::now()?.since(before).voluntary > 0);
            }
            Ok(())
        };
        let reader =
            thread::Builder::new().name("mark's reader".into()).spawn_scoped(scope, read)?;
        let mut trials = Vec::with_capacity(TRIALS);
        for _ in 0..TRIALS {
            thread::sleep(PAUSE);
            let begun = ClockMonotonic.now();
            program_socket.send(b"begin")?;
            let ns = (ClockMonotonic.now() - begun).as_ns().unsigned_abs();
            let Ok(woke) = receiver.recv() else { break };
            trials.push(MarkCostSample { duration_ns: ns, is_woken: woke });
        }
        // The thread does not panic; if it did, the panic would continue here.
        reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(trials)
    })
}

#[cfg(test)]
mod tests {
    use horolog_time::Span;

    use super::*;
    use crate::entry::PeriodEntryKind;

    fn at(us: i64) -> Timestamp<Monotonic> {
        Timestamp::from_ns(1_000_000 + us * 1_000)
    }

    #[test]
    fn the_time_between_marks_belongs_to_the_phase_that_the_first_one_names() {
        let mut period_marks = PeriodMarks::default();
        let marks = [
            (ProgramMark::Begin, 10),
            (ProgramMark::Phase(PeriodPhase::Communication), 110),
            (ProgramMark::Phase(PeriodPhase::Idle), 130),
            (ProgramMark::Phase(PeriodPhase::Computation), 170),
            (ProgramMark::Phase(PeriodPhase::Barrier), 270),
        ];
        for (mark, us) in marks {
            assert_eq!(period_marks.record_mark(mark, at(us)), Some(false), "{mark}");
        }
        assert_eq!(period_marks.record_mark(ProgramMark::End, at(275)), Some(true));
        let mut entry = PeriodEntry::new(PeriodEntryKind::Period, 0);
        period_marks.fill_entry(at(0), &mut entry);
        let us = [
            entry.start_latency_ns,
            entry.execution_ns,
            entry.compute_ns,
            entry.communicate_ns,
            entry.idle_ns,
            entry.barrier_ns,
        ];
        assert_eq!(us.map(|ns| ns / 1_000), [10, 265, 200, 20, 40, 5]);
        assert_eq!(entry.end, PeriodOutcome::Success);
    }

    #[test]
    fn marks_out_of_their_order_are_refused() {
        for mark in [
            ProgramMark::End,
            ProgramMark::Failed,
            ProgramMark::Phase(PeriodPhase::Idle),
            ProgramMark::Ready,
        ] {
            assert_eq!(PeriodMarks::default().record_mark(mark, at(0)), None, "{mark}");
        }
        let mut period_marks = PeriodMarks::default();
        period_marks.record_mark(ProgramMark::Begin, at(0)).unwrap();
        assert_eq!(period_marks.record_mark(ProgramMark::Begin, at(1)), None);
        assert_eq!(period_marks.record_mark(ProgramMark::Ready, at(1)), None);
    }

    fn program(script: &str, states: &[&str]) -> TaskProgram {
        TaskProgram {
            words: ["sh", "-c", script].map(str::to_owned).to_vec(),
            states: states.iter().map(ToString::to_string).collect(),
        }
    }

    static NEVER: AtomicU64 = AtomicU64::new(0);

    fn one(marked: &mut MarkedProgram<'_>) -> (WorkOutcome, PeriodEntry) {
        let mut entry = PeriodEntry::new(PeriodEntryKind::Period, 4);
        let due = ClockMonotonic.now() - Span::from_ms(1);
        let begun = ClockMonotonic.now();
        let period =
            CurrentPeriod { number: 4, released_at: due, started_at: begun, released_ns: 0 };
        (marked.run(&period, &mut entry, &mut |_| ()), entry)
    }

    /// A shell writes each line in a call of its own, but reads byte by byte, which loses the rest
    /// of a datagram.
    const LOOP: &str = "echo ready >&3; while set -- $(dd bs=128 count=1 <&3 2>/dev/null); do \
                        [ $1 = release ] || exit 0; echo begin >&3; ";

    #[test]
    fn a_program_is_released_and_its_marks_report_its_periods() {
        let script = format!("{LOOP} echo state wet >&3; sleep 0.02; echo end >&3; done");
        let mut marked =
            MarkedProgram::start(&program(&script, &["dry", "wet"]), POLL_INTERVAL * 500, &NEVER)
                .unwrap();
        let (worked, entry) = one(&mut marked);
        assert_eq!(
            (worked, entry.state, entry.end),
            (WorkOutcome::Marked, Some(1), PeriodOutcome::Success)
        );
        assert!(entry.start_latency_ns >= 1_000_000 && entry.compute_ns >= 20_000_000, "{entry:?}");
        let (worked, _) = one(&mut marked);
        assert_eq!((worked, marked.clock.steps()), (WorkOutcome::Marked, 0));
    }

    /// Its marks then seem to be of before its release, or of an hour later.
    #[test]
    fn a_system_clock_that_is_set_spoils_no_period_and_is_noticed() {
        let script = format!("{LOOP} sleep 0.02; echo end >&3; done");
        let mut marked =
            MarkedProgram::start(&program(&script, &[]), POLL_INTERVAL * 500, &NEVER).unwrap();
        for (sets, hours) in [(1, 1), (2, -1)] {
            marked.clock.was_ahead(Span::from_ms(hours * 3_600_000));
            let begun = ClockMonotonic.now();
            let (worked, entry) = one(&mut marked);
            assert_eq!((worked, marked.failure), (WorkOutcome::Marked, None));
            let taken_ns = (ClockMonotonic.now() - begun).as_ns().unsigned_abs() + 1_000_000;
            assert!(entry.response_ns() <= taken_ns, "{entry:?}");
            assert!(entry.compute_ns >= 20_000_000, "{entry:?}");
            assert_eq!(marked.clock.steps(), sets);
        }
    }

    #[test]
    fn a_failed_period_is_distinguished_from_a_failed_program() {
        let script = format!("{LOOP} echo end failed >&3; done");
        let mut marked =
            MarkedProgram::start(&program(&script, &[]), POLL_INTERVAL * 500, &NEVER).unwrap();
        let (worked, entry) = one(&mut marked);
        assert_eq!(
            (worked, entry.end, marked.failure),
            (WorkOutcome::Marked, PeriodOutcome::Failed, None)
        );
        for (script, states, fault) in [
            (format!("{LOOP} exit 0; done"), &[][..], ProgramFailure::Exited),
            (format!("{LOOP} sleep 600; done"), &[], ProgramFailure::TimedOut),
            (
                format!("{LOOP} while :; do echo phase idle >&3; done; done"),
                &[],
                ProgramFailure::TimedOut,
            ),
            (format!("{LOOP} echo hello >&3; done"), &[], ProgramFailure::UnknownMark),
            (format!("{LOOP} echo begin >&3; done"), &[], ProgramFailure::OutOfOrder),
            (format!("{LOOP} echo state dry >&3; done"), &["wet"], ProgramFailure::UnknownState),
        ] {
            let mut marked =
                MarkedProgram::start(&program(&script, states), Duration::from_millis(300), &NEVER)
                    .unwrap();
            assert_eq!(one(&mut marked).0, WorkOutcome::Abandoned, "{script}");
            assert_eq!(marked.failure, Some(fault), "{script}");
            assert_eq!(ProgramFailure::from_number(fault.number()), Some(fault));
            let reported = marked.failure();
            let is_named = reported.is_some_and(|failure| failure.to_string().contains("'dry'"));
            assert_eq!(is_named, fault == ProgramFailure::UnknownState);
        }
        assert_eq!((ProgramFailure::from_number(0), ProgramFailure::from_number(6)), (None, None));
    }

    #[test]
    fn a_program_that_does_not_wait_for_its_release_is_found() {
        let script = "echo ready >&3; while :; do echo begin >&3; echo end >&3; done";
        let mut marked =
            MarkedProgram::start(&program(script, &[]), POLL_INTERVAL * 500, &NEVER).unwrap();
        std::thread::sleep(POLL_INTERVAL);
        assert_eq!(one(&mut marked).0, WorkOutcome::Abandoned);
        assert_eq!(marked.failure, Some(ProgramFailure::OutOfOrder));
    }

    #[test]
    fn a_program_in_the_way_of_a_runs_end_is_ended() {
        let stop = AtomicU64::new(0);
        let script = format!("{LOOP} sleep 600; done");
        let mut marked =
            MarkedProgram::start(&program(&script, &[]), POLL_INTERVAL * 500, &stop).unwrap();
        stop.store(1, Ordering::Relaxed);
        assert_eq!((one(&mut marked).0, marked.failure), (WorkOutcome::Stopped, None));
    }

    #[test]
    fn a_program_that_is_not_ready_is_named() {
        let soon = Duration::from_millis(100);
        let error = |words: &[&str]| {
            let words = words.iter().map(ToString::to_string).collect();
            MarkedProgram::start(&TaskProgram { words, states: Vec::new() }, soon, &NEVER)
                .err()
                .unwrap()
        };
        assert!(error(&["/nowhere/at/all"]).contains("cannot start"));
        assert!(error(&["true"]).contains("unexpected end"));
        assert!(error(&["sleep", "600"]).contains("must be 'ready'"));
        assert!(error(&["sh", "-c", "echo begin >&3; sleep 600"]).contains("out of order"));
    }

    #[test]
    fn the_cost_of_a_mark_has_waking_its_reader_in_it() {
        let trials = mark_trials().unwrap();
        let woke = trials.iter().filter(|trial| trial.is_woken).count();
        assert!(2 * woke > trials.len(), "{woke} of {}", trials.len());
        assert!(mark_ns().unwrap() > 0);
    }
}
