//! Start of programs at instants: sleeps until each, by the clock that shows it, and records all
//! latencies. Returns the result; nothing is printed.

mod conditions;
mod stats;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use horolog_record::{AtEnd, AtResult, Finding};
use horolog_sys::affinity::{set_timer_slack_ns, timer_slack_ns};
use horolog_sys::alarm_clock::{AlarmClock, Wake};
use horolog_sys::clock::realtime_minus_monotonic;
use horolog_sys::spawn::{CancelHandle, StartTime};
use horolog_time::Span;

use crate::grid::InstantGrid;
use crate::instant::Instant;
use crate::program::{self, LaunchOptions, Program, ProgramEvent, StartedProgram};
use crate::signals::{CaughtSignal, Signals};
use conditions::TimedRunConditions;
use stats::RunStats;

/// Smallest timer slack that can be requested.
const SLACK_NS: u32 = 1;
/// Smallest change of the system clock against the monotonic one that counts as a step.
const STEP_MIN: Span = Span::from_ms(1);
/// Lead before an instant at which everything is prepared for it.
const READY_NS: i64 = 1_000_000_000;

/// Programs to start, and their instants.
#[derive(Clone, Debug)]
pub struct TimedRunOptions {
    /// First instant. A single one in the past starts at once, and a series continues with its next
    /// instant.
    pub first: Instant,
    /// Period between instants.
    pub every: Option<Duration>,
    /// Number of instants of a series; without end if absent.
    pub count: Option<u64>,
    /// Programs to start at each instant.
    pub programs: Vec<Program>,
    /// True if all are started at once, instead of each after the end of the one before it.
    pub together: bool,
    /// True if programs get a process group of their own, to which signals are forwarded.
    pub own_group: bool,
    /// Longest time for which programs that are started at an instant keep the real-time priority
    /// that they are started with, if permitted.
    pub head_start: Duration,
    /// Command line, for the record.
    pub command: Vec<String>,
}

/// Outcome of a run.
#[derive(Clone, Debug)]
pub struct TimedRunOutcome {
    /// Result.
    pub result: AtResult,
    /// First exit status that was not 0.
    pub failed: Option<i32>,
    /// Reason why a program could not be started.
    pub not_started: Option<String>,
    /// Signal that ended the run.
    pub signal: Option<CaughtSignal>,
}

enum TimedRunEvent {
    Of(usize, ProgramEvent),
    Signal(CaughtSignal),
}

/// Program from its launch to its end.
struct Launched {
    index: usize,
    cancel: Arc<CancelHandle>,
    running: Option<StartedProgram>,
}

struct TimedRunner {
    options: TimedRunOptions,
    clock: AlarmClock,
    signals: Signals,
    to: Sender<TimedRunEvent>,
    events: Receiver<TimedRunEvent>,
    account: RunStats,
    conditions: TimedRunConditions,
    running: Box<dyn FnMut(bool)>,
}

/// Runs to the end of the last instant's programs, or to a signal. `report_findings` first
/// receives those on refused preparations; `running` is called with true after programs have been
/// started, and with false before the wait for the next instant.
///
/// # Errors
///
/// A thread cannot be created, or the clock cannot be slept by.
pub fn run_timed(
    options: TimedRunOptions,
    report_findings: impl FnOnce(&[Finding]),
    running: Box<dyn FnMut(bool)>,
) -> io::Result<TimedRunOutcome> {
    let (to, events) = mpsc::channel();
    let signals = Signals::watch(to.clone(), TimedRunEvent::Signal)?;
    let conditions = TimedRunConditions::arrange(&options)?;
    report_findings(conditions.findings());
    let clock = options.first.scale.clock();
    let every = options.every.map(|every| i64::try_from(every.as_nanos()).unwrap_or(i64::MAX));
    let grid = InstantGrid::new(options.first.ns, every, clock.now_ns());
    let first = Instant { ns: grid.instant().unwrap_or(options.first.ns), ..options.first };
    let account = RunStats::new(&options, first, &conditions);
    let mut striker =
        TimedRunner { options, clock, signals, to, events, account, conditions, running };
    let end = striker.run(grid)?;
    let signal = striker.signals.caught();
    Ok(striker.account.finish(end, signal))
}

impl TimedRunner {
    fn run(&mut self, mut grid: InstantGrid) -> io::Result<AtEnd> {
        let mut left = self.options.count.unwrap_or(u64::MAX);
        while let Some(instant_ns) = grid.instant().filter(|_| left > 0) {
            let before = realtime_minus_monotonic();
            self.meet(instant_ns, || realtime_minus_monotonic().offset - before.offset)?;
            if self.signals.caught().is_some() {
                return Ok(AtEnd::Interrupted);
            }
            left -= 1;
            let missed = grid.advance(self.clock.now_ns());
            self.account.missed(if left > 0 { missed } else { 0 });
        }
        Ok(AtEnd::Done)
    }

    /// Waits for an instant, starts its programs, and waits for their end. `moved` returns the
    /// change of the system clock meanwhile.
    fn meet(&mut self, instant_ns: i64, moved: impl Fn() -> Span) -> io::Result<()> {
        (self.running)(false);
        let ready_ns = instant_ns.saturating_sub(READY_NS);
        if self.clock.now_ns() < ready_ns {
            self.conditions.rest();
            if self.sleep(ready_ns)?.is_none() {
                return Ok(());
            }
        }
        let count = self.options.programs.len();
        if count == 0 {
            self.conditions.hold();
            if let Some(woken_ns) = self.sleep(instant_ns)? {
                self.account.woken(instant_ns, woken_ns, moved());
            }
            return Ok(());
        }
        let at_once = if self.options.together { count } else { 1 };
        let at = StartTime {
            clock: self.clock,
            ns: instant_ns,
            start_priority: self.conditions.start_priority(),
        };
        let mut launched = Vec::new();
        for index in 0..at_once {
            launched.push(self.launch(index, Some(at))?);
        }
        self.conditions.hold();
        self.wait(&mut launched, instant_ns, &moved);
        for index in at_once..count {
            if self.signals.caught().is_some() {
                break;
            }
            launched.push(self.launch(index, None)?);
            self.wait(&mut launched, instant_ns, &moved);
        }
        Ok(())
    }

    /// Sleeps until this clock reading. Returns the actual reading, or `None` if a signal was
    /// caught.
    fn sleep(&self, until_ns: i64) -> io::Result<Option<i64>> {
        let usual_slack_ns = timer_slack_ns()?;
        set_timer_slack_ns(SLACK_NS)?;
        let woken_ns = loop {
            let Some(wake) = self.signals.sleep(|| self.clock.sleep_until_ns(until_ns)) else {
                break None;
            };
            let now_ns = self.clock.now_ns();
            // Woken without a signal, or the clock was set back at the last moment.
            if wake? == Wake::Reached && now_ns >= until_ns {
                break Some(now_ns);
            }
        };
        // Programs inherit the timer slack.
        set_timer_slack_ns(usual_slack_ns)?;
        Ok(woken_ns)
    }

    fn launch(&self, index: usize, at: Option<StartTime>) -> io::Result<Launched> {
        let options = LaunchOptions {
            clock: self.clock,
            at,
            usual: self.conditions.usual(),
            head_start: self.options.head_start,
            own_group: self.options.own_group,
        };
        let program = &self.options.programs[index];
        let to_event = move |program_event| TimedRunEvent::Of(index, program_event);
        let call_off = program::launch(program, options, self.to.clone(), to_event)?;
        Ok(Launched { index, cancel: call_off, running: None })
    }

    /// Waits for all launched programs, and forwards signals to them.
    fn wait(&mut self, launched: &mut Vec<Launched>, instant_ns: i64, moved: &impl Fn() -> Span) {
        while !launched.is_empty() {
            // This thread holds a sender itself, so the channel is never closed.
            let Ok(event) = self.events.recv() else { return };
            match event {
                TimedRunEvent::Of(0, ProgramEvent::Woken(woken_ns)) => {
                    self.account.woken(instant_ns, woken_ns, moved());
                }
                TimedRunEvent::Of(_, ProgramEvent::Woken(_)) => {}
                TimedRunEvent::Of(index, ProgramEvent::Started(running, now_ns)) => {
                    if index == 0 {
                        self.account.started(instant_ns, now_ns);
                        (self.running)(true);
                    }
                    // A signal caught before this program could receive it.
                    if let Some(caught) = self.signals.caught() {
                        running.pass_on(caught);
                    }
                    let one = launched.iter_mut().find(|one| one.index == index);
                    if let Some(one) = one {
                        one.running = Some(running);
                    }
                }
                TimedRunEvent::Of(index, program_event) => {
                    launched.retain(|one| one.index != index);
                    self.account.ended(index, &program_event);
                }
                TimedRunEvent::Signal(caught) => {
                    for one in launched.iter() {
                        one.pass_on_signal(caught);
                    }
                }
            }
        }
    }
}

impl Launched {
    fn pass_on_signal(&self, caught: CaughtSignal) {
        match &self.running {
            Some(running) => running.pass_on(caught),
            None => self.cancel.cancel(),
        }
    }
}
