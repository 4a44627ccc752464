//! Starting programs at instants: sleeping until each, by the clock that shows it, and keeping
//! account of how late everything was. It returns the account; nothing is printed.

mod account;

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use horolog_record::{AtEnd, AtResult, AtScheduling};
use horolog_sys::affinity::{Scheduling, prefer_real_time, set_timer_slack_ns, timer_slack_ns};
use horolog_sys::alarm_clock::Wake;
use horolog_sys::clock::realtime_minus_monotonic;
use horolog_time::Span;

use crate::grid::Grid;
use crate::instant::Instant;
use crate::program::{self, Program, Running};
use crate::signals::{Came, Signals};
use account::Account;

/// Above most that computes, below what the kernel itself has at 50 and more.
const PRIORITY: i32 = 40;
/// The least timer slack that can be asked for.
const SLACK_NS: u32 = 1;
/// The system clock was set if it went so far against the monotonic one.
const STEP_MIN: Span = Span::from_ms(1);

/// What is started, and when.
#[derive(Clone, Debug)]
pub struct StrikeOptions {
    /// The first instant. Where it is past, a single one is met at once, and a series goes on with
    /// its next one.
    pub first: Instant,
    /// From one instant to the next.
    pub every: Option<Duration>,
    /// How many instants of a series; without end where it is absent.
    pub count: Option<u64>,
    /// What is started at each.
    pub programs: Vec<Program>,
    /// Whether all are started at once, and not each when the one before it has ended.
    pub together: bool,
    /// Whether programs get a group of their own, which signals are passed on to.
    pub own_group: bool,
    /// The command that was given, for the record.
    pub command: Vec<String>,
}

/// A run that is over.
#[derive(Clone, Debug)]
pub struct Struck {
    /// What became of it.
    pub result: AtResult,
    /// The first exit status that was not 0.
    pub failed: Option<i32>,
    /// Why a program could not be started.
    pub not_started: Option<String>,
    /// The signal that ended it.
    pub signal: Option<Came>,
}

enum Event {
    Ended(usize, i32),
    Signal(Came),
}

struct Striker {
    options: StrikeOptions,
    signals: Signals,
    to: Sender<Event>,
    events: Receiver<Event>,
    account: Account,
    usual_slack_ns: u32,
}

/// Runs to the end of the last instant's programs, or to a signal.
///
/// # Errors
///
/// The system gives no thread, or does not let the clock be slept by.
pub fn strike(options: StrikeOptions) -> io::Result<Struck> {
    let (to, events) = mpsc::channel();
    let signals = Signals::watch(to.clone(), Event::Signal)?;
    let usual_slack_ns = timer_slack_ns()?;
    let scheduling = match prefer_real_time(PRIORITY) {
        Scheduling::RealTime => AtScheduling::RealTime,
        Scheduling::Ordinary(_) => AtScheduling::Ordinary,
    };
    let now_ns = options.first.scale.clock().now_ns();
    let every = options.every.map(|every| i64::try_from(every.as_nanos()).unwrap_or(i64::MAX));
    let grid = Grid::new(options.first.ns, every, now_ns);
    let first = Instant { ns: grid.instant().unwrap_or(options.first.ns), ..options.first };
    let account = Account::new(&options, first, scheduling, u64::from(SLACK_NS));
    let mut striker = Striker { options, signals, to, events, account, usual_slack_ns };
    let end = striker.run(grid)?;
    let signal = striker.signals.came();
    Ok(striker.account.finish(end, signal))
}

impl Striker {
    fn run(&mut self, mut grid: Grid) -> io::Result<AtEnd> {
        let clock = self.options.first.scale.clock();
        let mut left = self.options.count.unwrap_or(u64::MAX);
        while let Some(instant_ns) = grid.instant().filter(|_| left > 0) {
            let Some(woken_ns) = self.sleep(instant_ns)? else { return Ok(AtEnd::Interrupted) };
            self.account.woken(instant_ns, woken_ns);
            self.meet(instant_ns)?;
            if self.signals.came().is_some() {
                return Ok(AtEnd::Interrupted);
            }
            left -= 1;
            let missed = grid.advance(clock.now_ns());
            self.account.missed(if left > 0 { missed } else { 0 });
        }
        Ok(AtEnd::Done)
    }

    /// Starts what is to be started at an instant, and waits for its end.
    fn meet(&mut self, instant_ns: i64) -> io::Result<()> {
        let mut running = Vec::new();
        for index in 0..self.options.programs.len() {
            self.start(index, instant_ns, &mut running)?;
            if !self.options.together {
                self.wait(&mut running);
                if self.signals.came().is_some() {
                    return Ok(());
                }
            }
        }
        self.wait(&mut running);
        Ok(())
    }

    /// Sleeps until the clock shows the instant, and says what it shows then; `None` where a signal
    /// came.
    fn sleep(&mut self, instant_ns: i64) -> io::Result<Option<i64>> {
        let clock = self.options.first.scale.clock();
        set_timer_slack_ns(SLACK_NS)?;
        let before = realtime_minus_monotonic();
        let woken_ns = loop {
            let Some(wake) = self.signals.sleep(|| clock.sleep_until_ns(instant_ns)) else {
                return Ok(None);
            };
            let now_ns = clock.now_ns();
            // Interrupted by nobody, or set back at the last moment.
            if wake? == Wake::Reached && now_ns >= instant_ns {
                break now_ns;
            }
        };
        // Programs inherit it.
        set_timer_slack_ns(self.usual_slack_ns)?;
        let moved = realtime_minus_monotonic().offset - before.offset;
        if moved.as_ns().unsigned_abs() >= STEP_MIN.as_ns().unsigned_abs() {
            self.account.stepped(moved);
        }
        Ok(Some(woken_ns))
    }

    /// Starts a program; what cannot be started is accounted for.
    fn start(
        &mut self,
        index: usize,
        instant_ns: i64,
        running: &mut Vec<(usize, Running)>,
    ) -> io::Result<()> {
        let own_group = self.options.own_group;
        match program::begin(&self.options.programs[index], own_group) {
            Ok(started) => {
                let now_ns = self.options.first.scale.clock().now_ns();
                if index == 0 {
                    self.account.started(instant_ns, now_ns);
                }
                let tell = move |status| Event::Ended(index, status);
                running.push((index, program::watch(started, own_group, self.to.clone(), tell)?));
            }
            Err(not_started) => self.account.not_started(index, &not_started),
        }
        Ok(())
    }

    /// Waits for all that run, and passes signals on to them.
    fn wait(&mut self, running: &mut Vec<(usize, Running)>) {
        while !running.is_empty() {
            // This thread holds a sender itself, so the channel is never closed.
            let Ok(event) = self.events.recv() else { return };
            match event {
                Event::Ended(index, status) => {
                    running.retain(|(known, _)| *known != index);
                    self.account.ended(index, status);
                }
                Event::Signal(came) => {
                    for (_, program) in running.iter() {
                        program.pass_on(came);
                    }
                }
            }
        }
    }
}
