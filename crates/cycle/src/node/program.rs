//! A program as work: it is started once, is told each release, and marks what it does; see
//! [`crate::mark`]. Its marks carry the kernel's instant of each, so it does not matter when this
//! thread comes to read them.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use horolog_sys::clock::MonotonicClock;
use horolog_sys::namespace::die_with_parent;
use horolog_sys::process::{ProcessHandle, end_group};
use horolog_sys::unix::Handed;
use horolog_time::{Clock, Monotonic, Timestamp};

use super::fault::TaskFault;
use super::periods::{Period, Work, Worked};
use super::system_clock::SystemClock;
use crate::entry::{End, Entry};
use crate::mark::{MARK_MAX, Mark, Phase, Told, VARIABLE};
use crate::task::Program;

/// The number under which a program finds its socket.
pub(super) const NUMBER: i32 = 3;
/// How often it is asked whether the program is still there, while it says nothing.
const LOOK: Duration = Duration::from_millis(20);
/// What a program may take to end when it was told to.
const END_PATIENCE: Duration = Duration::from_millis(500);

/// Why a program is of no use any longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum ProgramFault {
    /// It has ended.
    #[error("it ended before it was told to")]
    Gone,
    /// It took too long.
    #[error("it took longer than --timeout")]
    TooLong,
    /// It said what is no mark.
    #[error(
        "it said what is no mark; they are ready, begin, phase computation|communication|idle|\
         barrier, state NAME, end and end failed"
    )]
    Unreadable,
    /// It said one mark where another was due.
    #[error(
        "it said a mark at the wrong place; the order is ready, then begin to end for each release, \
         none of them before it"
    )]
    Misplaced,
    /// It is in a state that the task does not name.
    #[error("it said a state that is not among the task's states")]
    State,
}

impl ProgramFault {
    const ALL: [Self; 5] =
        [Self::Gone, Self::TooLong, Self::Unreadable, Self::Misplaced, Self::State];

    /// Its number, above 0.
    pub(crate) fn number(self) -> u64 {
        Self::ALL.iter().position(|fault| *fault == self).map_or(0, |at| at as u64 + 1)
    }

    /// The fault of a number.
    pub(crate) fn of(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
    }
}

/// A program of all periods.
pub(crate) struct Marked<'a> {
    child: Child,
    handle: ProcessHandle,
    socket: Handed,
    buffer: [u8; MARK_MAX + 1],
    states: Vec<String>,
    state: Option<u8>,
    timeout: Duration,
    stop: &'a AtomicU64,
    /// What its marks carry the time of.
    pub(crate) clock: SystemClock,
    /// Why it was given up.
    pub(crate) fault: Option<ProgramFault>,
    /// The state that it said and that the task does not name.
    unknown: String,
}

impl<'a> Marked<'a> {
    /// Starts the program and waits until it is ready. It has what this thread has: the core, the
    /// policy and the priority.
    /// It is ended when `stop` is no longer 0.
    pub(crate) fn start(
        program: &Program,
        timeout: Duration,
        stop: &'a AtomicU64,
    ) -> Result<Self, String> {
        let (name, arguments) = match program.words.split_first() {
            Some((name, arguments)) => (name.as_str(), arguments),
            None => ("", &[][..]),
        };
        let mut command = Command::new(name);
        command.args(arguments).env(VARIABLE, NUMBER.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        die_with_parent(&mut command);
        let failed = |error: std::io::Error| format!("'{name}' cannot be started: {error}");
        let (socket, there) = Handed::to(&mut command, NUMBER).map_err(failed)?;
        let mut child = command.spawn().map_err(failed)?;
        drop(there);
        let handle = match ProcessHandle::open(child.id()) {
            Ok(handle) => handle,
            Err(error) => {
                // It is a child of this process, and there.
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(error));
            }
        };
        let mut marked = Self {
            child,
            handle,
            socket,
            buffer: [0; MARK_MAX + 1],
            states: program.states.clone(),
            state: None,
            timeout,
            stop,
            clock: SystemClock::new(),
            fault: None,
            unknown: String::new(),
        };
        match marked.hear(Instant::now() + timeout) {
            Ok((Mark::Ready, _)) => Ok(marked),
            Ok(_) => Err(format!("'{name}': {}", ProgramFault::Misplaced)),
            Err(None) => Err("the run is to end".to_owned()),
            Err(Some(fault)) => Err(format!("'{name}': {fault}; it has to say 'ready' first")),
        }
    }

    /// Why it was given up, with the state that it said where that was the reason.
    pub(crate) fn fault(&self) -> Option<TaskFault> {
        self.fault.map(|fault| match fault {
            ProgramFault::State => TaskFault::State(self.unknown.clone()),
            fault => TaskFault::Program(fault),
        })
    }

    /// The next mark, and when it was made. The error is a fault, or none where the run is to end.
    fn hear(
        &mut self,
        until: Instant,
    ) -> Result<(Mark<'_>, Timestamp<Monotonic>), Option<ProgramFault>> {
        let (len, said) = loop {
            if self.stop.load(Ordering::Relaxed) != 0 {
                return Err(None);
            }
            // One that says something all the time takes as long as one that says nothing.
            if Instant::now() >= until {
                return Err(Some(ProgramFault::TooLong));
            }
            match self.socket.hear(&mut self.buffer, LOOK) {
                Ok(heard) => break heard,
                // What it said last is read before it counts as gone.
                Err(_) if self.has_ended() => match self.socket.heard(&mut self.buffer) {
                    Ok(heard) => break heard,
                    Err(_) => return Err(Some(ProgramFault::Gone)),
                },
                Err(_) => {}
            }
        };
        let said = self.clock.monotonic(said);
        let mark = Mark::parse(&self.buffer[..len]).ok_or(ProgramFault::Unreadable)?;
        Ok((mark, said))
    }

    fn has_ended(&self) -> bool {
        // One that cannot be asked about counts as running, and is given up in time.
        self.handle.wait(Duration::ZERO).unwrap_or(false)
    }

    fn period(&mut self, period: &Period, entry: &mut Entry) -> Result<(), Option<ProgramFault>> {
        // No mark is taken for an earlier one because the clocks are not known any better.
        let released = MonotonicClock.now() - self.clock.uncertainty();
        let told = Told::Release { cycle: period.cycle, due_ns: period.due.as_ns() };
        self.socket.say(told.to_string().as_bytes()).map_err(|error| match error.kind() {
            // It has not read what it was told before.
            ErrorKind::WouldBlock => ProgramFault::Misplaced,
            _ => ProgramFault::Gone,
        })?;
        let until = Instant::now() + self.timeout;
        let mut course = Course::default();
        loop {
            let (mark, said) = self.hear(until)?;
            if said < released {
                return Err(Some(ProgramFault::Misplaced));
            }
            if let Mark::State(name) = mark {
                let name = name.to_owned();
                let at = self.states.iter().position(|state| *state == name);
                let Some(at) = at else {
                    self.unknown = name;
                    return Err(Some(ProgramFault::State));
                };
                self.state = Some(at as u8);
                entry.state = self.state;
            } else if course.take(mark, said).ok_or(ProgramFault::Misplaced)? {
                course.tell(period.due, entry);
                entry.state = self.state;
                return Ok(());
            }
        }
    }
}

impl Work for Marked<'_> {
    fn run(&mut self, period: &Period, entry: &mut Entry, _: &mut dyn FnMut(&Entry)) -> Worked {
        match self.period(period, entry) {
            Ok(()) => Worked::Marked,
            Err(None) => Worked::Stopped,
            Err(Some(fault)) => {
                self.fault = Some(fault);
                Worked::GivenUp
            }
        }
    }
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        // None of these can do more than fail for a program that has ended by itself.
        let _ = self.socket.say(Told::Stop.to_string().as_bytes());
        let _ = self.handle.wait(END_PATIENCE);
        // With what it started. As long as nobody has waited for it, the number is nobody else's.
        let _ = end_group(self.child.id());
        let _ = self.child.wait();
    }
}

/// What a program has marked of a period so far.
#[derive(Default)]
struct Course {
    begun: Option<Timestamp<Monotonic>>,
    since: Option<(Phase, Timestamp<Monotonic>)>,
    spent_ns: [u64; Phase::ALL.len()],
    ended: Option<Timestamp<Monotonic>>,
    has_failed: bool,
}

impl Course {
    /// Takes a mark; whether the period is over by it, or `None` where it cannot be here.
    fn take(&mut self, mark: Mark<'_>, said: Timestamp<Monotonic>) -> Option<bool> {
        match (mark, self.begun) {
            (Mark::Begin, None) => {
                self.begun = Some(said);
                self.since = Some((Phase::Computation, said));
                Some(false)
            }
            (Mark::Phase(phase), Some(_)) => {
                self.close(said);
                self.since = Some((phase, said));
                Some(false)
            }
            (Mark::End | Mark::Failed, Some(_)) => {
                self.close(said);
                self.ended = Some(said);
                self.has_failed = mark == Mark::Failed;
                Some(true)
            }
            _ => None,
        }
    }

    fn close(&mut self, said: Timestamp<Monotonic>) {
        if let Some((phase, since)) = self.since.take() {
            // Where the system clock was set just then, it is not sure which of two was the first.
            self.spent_ns[phase as usize] += (said - since).as_ns().max(0).unsigned_abs();
        }
    }

    fn tell(&self, due: Timestamp<Monotonic>, entry: &mut Entry) {
        let (Some(begun), Some(ended)) = (self.begun, self.ended) else { return };
        entry.late_ns = (begun - due).as_ns().max(0).unsigned_abs();
        entry.spent_ns = (ended - begun).as_ns().max(0).unsigned_abs();
        let [computation, communication, idle, barrier] = self.spent_ns;
        entry.compute_ns = computation;
        entry.communicate_ns = communication;
        entry.idle_ns = idle;
        entry.barrier_ns = barrier;
        if self.has_failed {
            entry.end = End::Failed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Part;
    use horolog_time::Span;

    fn at(us: i64) -> Timestamp<Monotonic> {
        Timestamp::from_ns(1_000_000 + us * 1_000)
    }

    #[test]
    fn the_time_between_marks_belongs_to_the_phase_that_the_first_one_names() {
        let mut course = Course::default();
        let marks = [
            (Mark::Begin, 10),
            (Mark::Phase(Phase::Communication), 110),
            (Mark::Phase(Phase::Idle), 130),
            (Mark::Phase(Phase::Computation), 170),
            (Mark::Phase(Phase::Barrier), 270),
        ];
        for (mark, us) in marks {
            assert_eq!(course.take(mark, at(us)), Some(false), "{mark}");
        }
        assert_eq!(course.take(Mark::End, at(275)), Some(true));
        let mut entry = Entry::new(Part::Period, 0);
        course.tell(at(0), &mut entry);
        let us = [
            entry.late_ns,
            entry.spent_ns,
            entry.compute_ns,
            entry.communicate_ns,
            entry.idle_ns,
            entry.barrier_ns,
        ];
        assert_eq!(us.map(|ns| ns / 1_000), [10, 265, 200, 20, 40, 5]);
        assert_eq!(entry.end, End::Well);
    }

    #[test]
    fn marks_out_of_their_order_are_refused() {
        for mark in [Mark::End, Mark::Failed, Mark::Phase(Phase::Idle), Mark::Ready] {
            assert_eq!(Course::default().take(mark, at(0)), None, "{mark}");
        }
        let mut course = Course::default();
        course.take(Mark::Begin, at(0)).unwrap();
        assert_eq!(course.take(Mark::Begin, at(1)), None);
        assert_eq!(course.take(Mark::Ready, at(1)), None);
    }

    fn program(script: &str, states: &[&str]) -> Program {
        Program {
            words: ["sh", "-c", script].map(str::to_owned).to_vec(),
            states: states.iter().map(ToString::to_string).collect(),
        }
    }

    static NEVER: AtomicU64 = AtomicU64::new(0);

    fn one(marked: &mut Marked<'_>) -> (Worked, Entry) {
        let mut entry = Entry::new(Part::Period, 4);
        let due = MonotonicClock.now() - Span::from_ms(1);
        let begun = MonotonicClock.now();
        let period = Period { cycle: 4, due, begun, released_ns: 0 };
        (marked.run(&period, &mut entry, &mut |_| ()), entry)
    }

    /// A shell writes each line in a call of its own, but reads byte by byte, which loses the rest
    /// of a datagram.
    const LOOP: &str = "echo ready >&3; while set -- $(dd bs=128 count=1 <&3 2>/dev/null); do \
                        [ $1 = release ] || exit 0; echo begin >&3; ";

    #[test]
    fn a_program_is_released_and_its_periods_are_told_by_its_marks() {
        let script = format!("{LOOP} echo state wet >&3; sleep 0.02; echo end >&3; done");
        let mut marked =
            Marked::start(&program(&script, &["dry", "wet"]), LOOK * 500, &NEVER).unwrap();
        let (worked, entry) = one(&mut marked);
        assert_eq!((worked, entry.state, entry.end), (Worked::Marked, Some(1), End::Well));
        assert!(entry.late_ns >= 1_000_000 && entry.compute_ns >= 20_000_000, "{entry:?}");
        let (worked, _) = one(&mut marked);
        assert_eq!((worked, marked.clock.sets()), (Worked::Marked, 0));
    }

    /// Its marks then seem to be of before its release, or of an hour later.
    #[test]
    fn a_system_clock_that_is_set_spoils_no_period_and_is_noticed() {
        let script = format!("{LOOP} sleep 0.02; echo end >&3; done");
        let mut marked = Marked::start(&program(&script, &[]), LOOK * 500, &NEVER).unwrap();
        for (sets, hours) in [(1, 1), (2, -1)] {
            marked.clock.was_ahead(Span::from_ms(hours * 3_600_000));
            let begun = MonotonicClock.now();
            let (worked, entry) = one(&mut marked);
            assert_eq!((worked, marked.fault), (Worked::Marked, None));
            let taken_ns = (MonotonicClock.now() - begun).as_ns().unsigned_abs() + 1_000_000;
            assert!(entry.response_ns() <= taken_ns, "{entry:?}");
            assert!(entry.compute_ns >= 20_000_000, "{entry:?}");
            assert_eq!(marked.clock.sets(), sets);
        }
    }

    #[test]
    fn a_period_that_went_wrong_is_told_from_a_program_that_did() {
        let script = format!("{LOOP} echo end failed >&3; done");
        let mut marked = Marked::start(&program(&script, &[]), LOOK * 500, &NEVER).unwrap();
        let (worked, entry) = one(&mut marked);
        assert_eq!((worked, entry.end, marked.fault), (Worked::Marked, End::Failed, None));
        for (script, states, fault) in [
            (format!("{LOOP} exit 0; done"), &[][..], ProgramFault::Gone),
            (format!("{LOOP} sleep 600; done"), &[], ProgramFault::TooLong),
            (
                format!("{LOOP} while :; do echo phase idle >&3; done; done"),
                &[],
                ProgramFault::TooLong,
            ),
            (format!("{LOOP} echo hello >&3; done"), &[], ProgramFault::Unreadable),
            (format!("{LOOP} echo begin >&3; done"), &[], ProgramFault::Misplaced),
            (format!("{LOOP} echo state dry >&3; done"), &["wet"], ProgramFault::State),
        ] {
            let mut marked =
                Marked::start(&program(&script, states), Duration::from_millis(300), &NEVER)
                    .unwrap();
            assert_eq!(one(&mut marked).0, Worked::GivenUp, "{script}");
            assert_eq!(marked.fault, Some(fault), "{script}");
            assert_eq!(ProgramFault::of(fault.number()), Some(fault));
            let told = marked.fault();
            let is_told = told.is_some_and(|told| told.to_string().contains("'dry'"));
            assert_eq!(is_told, fault == ProgramFault::State);
        }
        assert_eq!((ProgramFault::of(0), ProgramFault::of(6)), (None, None));
    }

    #[test]
    fn a_program_that_does_not_wait_for_its_release_is_found() {
        let script = "echo ready >&3; while :; do echo begin >&3; echo end >&3; done";
        let mut marked = Marked::start(&program(script, &[]), LOOK * 500, &NEVER).unwrap();
        std::thread::sleep(LOOK);
        assert_eq!(one(&mut marked).0, Worked::GivenUp);
        assert_eq!(marked.fault, Some(ProgramFault::Misplaced));
    }

    #[test]
    fn a_program_in_the_way_of_a_runs_end_is_ended() {
        let stop = AtomicU64::new(0);
        let script = format!("{LOOP} sleep 600; done");
        let mut marked = Marked::start(&program(&script, &[]), LOOK * 500, &stop).unwrap();
        stop.store(1, Ordering::Relaxed);
        assert_eq!((one(&mut marked).0, marked.fault), (Worked::Stopped, None));
    }

    #[test]
    fn a_program_that_is_not_ready_is_named() {
        let soon = Duration::from_millis(100);
        let error = |words: &[&str]| {
            let words = words.iter().map(ToString::to_string).collect();
            Marked::start(&Program { words, states: Vec::new() }, soon, &NEVER).err().unwrap()
        };
        assert!(error(&["/nowhere/at/all"]).contains("cannot be started"));
        assert!(error(&["true"]).contains("it ended"));
        assert!(error(&["sleep", "600"]).contains("has to say 'ready' first"));
        assert!(error(&["sh", "-c", "echo begin >&3; sleep 600"]).contains("wrong place"));
    }
}
