//! Start of programs at instants: sleeps until each, by the clock that shows it, and records the
//! latency of each wake-up and of each start of the first program. Returns the result; nothing is
//! printed.

mod latency_preparations;
mod stats;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use horolog_record::{AtOutcome, AtResult, Finding};
use horolog_sys::affinity::{set_timer_slack_ns, timer_slack_ns};
use horolog_sys::alarm_clock::{SleepClock, SleepEndReason};
use horolog_sys::clock::realtime_minus_monotonic;
use horolog_sys::spawn::{CancelHandle, StartTime};
use horolog_time::Span;

use crate::grid::InstantGrid;
use crate::instant::TimescaleInstant;
use crate::program::{self, LaunchOptions, ProgramLaunchEvent, ProgramSpec, StartedProgram};
use crate::signals::{CaughtSignal, SignalWatcher};
use latency_preparations::LatencyPreparations;
use stats::TimedRunStats;

/// Smallest timer slack that can be requested, in ns.
const TIMER_SLACK_NS: u32 = 1;
/// Smallest change of the system clock against the monotonic one that counts as a step.
const STEP_MIN: Span = Span::from_ms(1);
/// Lead before an instant at which the preparations for it begin, in ns.
const PREPARATION_LEAD_NS: i64 = 1_000_000_000;

/// Programs to start, and their instants.
#[derive(Clone, Debug)]
pub struct TimedRunOptions {
    /// First instant. A single one in the past starts at once, and a series continues with its next
    /// instant.
    pub first: TimescaleInstant,
    /// Period between instants; `None` for a single instant.
    pub every: Option<Duration>,
    /// Number of instants of a series; without end if absent.
    pub count: Option<u64>,
    /// Programs to start at each instant.
    pub programs: Vec<ProgramSpec>,
    /// True if the programs of an instant are started in parallel, instead of one after the other.
    pub in_parallel: bool,
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
    /// Result for the record and the report.
    pub result: AtResult,
    /// First exit status that was not 0, including that of a program that could not be started.
    pub failed: Option<i32>,
    /// Reason why the first program to fail at its start could not be started; `None` if all
    /// started.
    pub not_started: Option<String>,
    /// Signal that ended the run.
    pub signal: Option<CaughtSignal>,
}

enum TimedRunLoopEvent {
    Program(usize, ProgramLaunchEvent),
    Signal(CaughtSignal),
}

/// Program from its launch to its end.
struct LaunchedProgram {
    index: usize,
    cancel: Arc<CancelHandle>,
    running: Option<StartedProgram>,
}

struct TimedRunner {
    options: TimedRunOptions,
    clock: SleepClock,
    signals: SignalWatcher,
    to: Sender<TimedRunLoopEvent>,
    events: Receiver<TimedRunLoopEvent>,
    stats: TimedRunStats,
    preparations: LatencyPreparations,
    report_running: Box<dyn FnMut(bool)>,
}

/// Runs the programs of each instant, to the end of the last ones or to a signal. Before the first
/// wait, `report_findings` receives the findings on refused preparations. `report_running` is
/// called with false before the wait for each instant, and with true once its first program has
/// started.
pub fn run_timed(
    options: TimedRunOptions,
    report_findings: impl FnOnce(&[Finding]),
    report_running: Box<dyn FnMut(bool)>,
) -> io::Result<TimedRunOutcome> {
    let (to, events) = mpsc::channel();
    let signals = SignalWatcher::watch(to.clone(), TimedRunLoopEvent::Signal)?;
    let preparations = LatencyPreparations::apply(&options)?;
    report_findings(preparations.findings());
    let clock = options.first.scale.clock();
    let every = options.every.map(|every| i64::try_from(every.as_nanos()).unwrap_or(i64::MAX));
    let grid = InstantGrid::new(options.first.ns, every, clock.now_ns());
    let first =
        TimescaleInstant { ns: grid.next_instant().unwrap_or(options.first.ns), ..options.first };
    let stats = TimedRunStats::new(&options, first, &preparations);
    let mut runner =
        TimedRunner { options, clock, signals, to, events, stats, preparations, report_running };
    let end = runner.run(grid)?;
    let signal = runner.signals.caught();
    Ok(runner.stats.finish(end, signal))
}

impl TimedRunner {
    fn run(&mut self, mut grid: InstantGrid) -> io::Result<AtOutcome> {
        let mut remaining = self.options.count.unwrap_or(u64::MAX);
        while let Some(instant_ns) = grid.next_instant().filter(|_| remaining > 0) {
            let clock_before = realtime_minus_monotonic();
            self.run_instant(instant_ns, || {
                realtime_minus_monotonic().offset - clock_before.offset
            })?;
            if self.signals.caught().is_some() {
                return Ok(AtOutcome::Interrupted);
            }
            remaining -= 1;
            let missed = grid.advance(self.clock.now_ns());
            self.stats.record_missed(if remaining > 0 { missed } else { 0 });
        }
        Ok(AtOutcome::Done)
    }

    /// Waits for an instant, starts its programs, and waits for their end. `clock_change` returns
    /// the change of the system clock against the monotonic one since the wait began.
    fn run_instant(&mut self, instant_ns: i64, clock_change: impl Fn() -> Span) -> io::Result<()> {
        (self.report_running)(false);
        let preparation_ns = instant_ns.saturating_sub(PREPARATION_LEAD_NS);
        if self.clock.now_ns() < preparation_ns {
            self.preparations.unlock_memory();
            if self.sleep(preparation_ns)?.is_none() {
                return Ok(());
            }
        }
        let count = self.options.programs.len();
        if count == 0 {
            self.preparations.lock_memory();
            if let Some(woken_ns) = self.sleep(instant_ns)? {
                self.stats.record_wake(instant_ns, woken_ns, clock_change());
            }
            return Ok(());
        }
        let parallel_count = if self.options.in_parallel { count } else { 1 };
        let at = StartTime {
            clock: self.clock,
            ns: instant_ns,
            start_priority: self.preparations.start_priority(),
        };
        let mut launched = Vec::new();
        for index in 0..parallel_count {
            launched.push(self.launch(index, Some(at))?);
        }
        self.preparations.lock_memory();
        self.wait_for_programs(&mut launched, instant_ns, &clock_change);
        for index in parallel_count..count {
            if self.signals.caught().is_some() {
                break;
            }
            launched.push(self.launch(index, None)?);
            self.wait_for_programs(&mut launched, instant_ns, &clock_change);
        }
        Ok(())
    }

    /// Sleeps until this clock reading. Returns the actual reading, or `None` if a signal was
    /// caught.
    fn sleep(&self, until_ns: i64) -> io::Result<Option<i64>> {
        let usual_slack_ns = timer_slack_ns()?;
        set_timer_slack_ns(TIMER_SLACK_NS)?;
        let woken_ns = loop {
            let Some(wake) = self.signals.sleep(|| self.clock.sleep_until_ns(until_ns)) else {
                break None;
            };
            let now_ns = self.clock.now_ns();
            // Woken without a signal, or the clock was set back at the last moment.
            if wake? == SleepEndReason::Reached && now_ns >= until_ns {
                break Some(now_ns);
            }
        };
        // Programs inherit the timer slack.
        set_timer_slack_ns(usual_slack_ns)?;
        Ok(woken_ns)
    }

    fn launch(&self, index: usize, at: Option<StartTime>) -> io::Result<LaunchedProgram> {
        let options = LaunchOptions {
            clock: self.clock,
            at,
            default_scheduling: self.preparations.default_scheduling(),
            head_start: self.options.head_start,
            own_group: self.options.own_group,
        };
        let program = &self.options.programs[index];
        let to_event = move |program_event| TimedRunLoopEvent::Program(index, program_event);
        let cancel = program::launch(program, options, self.to.clone(), to_event)?;
        Ok(LaunchedProgram { index, cancel, running: None })
    }

    /// Waits for the end of all launched programs. A signal is forwarded to those that run and
    /// cancels the start of the others.
    fn wait_for_programs(
        &mut self,
        launched: &mut Vec<LaunchedProgram>,
        instant_ns: i64,
        clock_change: &impl Fn() -> Span,
    ) {
        while !launched.is_empty() {
            // This thread holds a sender itself, so the channel is never closed.
            let Ok(event) = self.events.recv() else { return };
            match event {
                TimedRunLoopEvent::Program(0, ProgramLaunchEvent::Woken(woken_ns)) => {
                    self.stats.record_wake(instant_ns, woken_ns, clock_change());
                }
                TimedRunLoopEvent::Program(_, ProgramLaunchEvent::Woken(_)) => {}
                TimedRunLoopEvent::Program(index, ProgramLaunchEvent::Started(running, now_ns)) => {
                    if index == 0 {
                        self.stats.record_start(instant_ns, now_ns);
                        (self.report_running)(true);
                    }
                    // A signal caught before this program could receive it.
                    if let Some(caught) = self.signals.caught() {
                        running.forward_signal(caught);
                    }
                    let one = launched.iter_mut().find(|one| one.index == index);
                    if let Some(one) = one {
                        one.running = Some(running);
                    }
                }
                TimedRunLoopEvent::Program(index, program_event) => {
                    launched.retain(|one| one.index != index);
                    self.stats.record_last_event(index, &program_event);
                }
                TimedRunLoopEvent::Signal(caught) => {
                    for one in launched.iter() {
                        one.forward_signal(caught);
                    }
                }
            }
        }
    }
}

impl LaunchedProgram {
    fn forward_signal(&self, caught: CaughtSignal) {
        match &self.running {
            Some(running) => running.forward_signal(caught),
            None => self.cancel.cancel(),
        }
    }
}
