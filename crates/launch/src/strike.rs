//! Starting programs at instants: sleeping until each, by the clock that shows it, and keeping
//! account of how late everything was. It returns the account; nothing is printed.

mod account;
mod conditions;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use horolog_record::{AtEnd, AtResult, Finding};
use horolog_sys::affinity::{set_timer_slack_ns, timer_slack_ns};
use horolog_sys::alarm_clock::{AlarmClock, Wake};
use horolog_sys::clock::realtime_minus_monotonic;
use horolog_sys::start::{At, CallOff};
use horolog_time::Span;

use crate::grid::Grid;
use crate::instant::Instant;
use crate::program::{self, Manner, News, Program, Running};
use crate::signals::{Came, Signals};
use account::Account;
use conditions::Conditions;

/// The least timer slack that can be asked for.
const SLACK_NS: u32 = 1;
/// The system clock was set if it went so far against the monotonic one.
const STEP_MIN: Span = Span::from_ms(1);
/// How long before an instant everything is made ready for it.
const READY_NS: i64 = 1_000_000_000;

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
    /// How long programs that are started at an instant keep the real-time priority that they are
    /// started with, where it is allowed.
    pub head_start: Duration,
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
    Of(usize, News),
    Signal(Came),
}

/// A program from its launch to its end.
struct Launched {
    index: usize,
    call_off: Arc<CallOff>,
    running: Option<Running>,
}

struct Striker {
    options: StrikeOptions,
    clock: AlarmClock,
    signals: Signals,
    to: Sender<Event>,
    events: Receiver<Event>,
    account: Account,
    conditions: Conditions,
    running: Box<dyn FnMut(bool)>,
}

/// Runs to the end of the last instant's programs, or to a signal. `tell` hears first of what could
/// not be arranged for; `running` hears when programs have been started, and when the next instant
/// is waited for.
///
/// # Errors
///
/// The system gives no thread, or does not let the clock be slept by.
pub fn strike(
    options: StrikeOptions,
    tell: impl FnOnce(&[Finding]),
    running: Box<dyn FnMut(bool)>,
) -> io::Result<Struck> {
    let (to, events) = mpsc::channel();
    let signals = Signals::watch(to.clone(), Event::Signal)?;
    let conditions = Conditions::arrange(&options)?;
    tell(conditions.findings());
    let clock = options.first.scale.clock();
    let every = options.every.map(|every| i64::try_from(every.as_nanos()).unwrap_or(i64::MAX));
    let grid = Grid::new(options.first.ns, every, clock.now_ns());
    let first = Instant { ns: grid.instant().unwrap_or(options.first.ns), ..options.first };
    let account = Account::new(&options, first, &conditions);
    let mut striker = Striker { options, clock, signals, to, events, account, conditions, running };
    let end = striker.run(grid)?;
    let signal = striker.signals.came();
    Ok(striker.account.finish(end, signal))
}

impl Striker {
    fn run(&mut self, mut grid: Grid) -> io::Result<AtEnd> {
        let mut left = self.options.count.unwrap_or(u64::MAX);
        while let Some(instant_ns) = grid.instant().filter(|_| left > 0) {
            let before = realtime_minus_monotonic();
            self.meet(instant_ns, || realtime_minus_monotonic().offset - before.offset)?;
            if self.signals.came().is_some() {
                return Ok(AtEnd::Interrupted);
            }
            left -= 1;
            let missed = grid.advance(self.clock.now_ns());
            self.account.missed(if left > 0 { missed } else { 0 });
        }
        Ok(AtEnd::Done)
    }

    /// Waits for an instant, starts what is to be started at it, and waits for its end. `moved`
    /// says how far the system clock was set meanwhile.
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
        let at = At { clock: self.clock, ns: instant_ns, rush: self.conditions.rush() };
        let mut launched = Vec::new();
        for index in 0..at_once {
            launched.push(self.launch(index, Some(at))?);
        }
        self.conditions.hold();
        self.wait(&mut launched, instant_ns, &moved);
        for index in at_once..count {
            if self.signals.came().is_some() {
                break;
            }
            launched.push(self.launch(index, None)?);
            self.wait(&mut launched, instant_ns, &moved);
        }
        Ok(())
    }

    /// Sleeps until the clock shows this, and says what it shows then; `None` where a signal came.
    fn sleep(&self, until_ns: i64) -> io::Result<Option<i64>> {
        let usual_slack_ns = timer_slack_ns()?;
        set_timer_slack_ns(SLACK_NS)?;
        let woken_ns = loop {
            let Some(wake) = self.signals.sleep(|| self.clock.sleep_until_ns(until_ns)) else {
                break None;
            };
            let now_ns = self.clock.now_ns();
            // Interrupted by nobody, or set back at the last moment.
            if wake? == Wake::Reached && now_ns >= until_ns {
                break Some(now_ns);
            }
        };
        // Programs inherit it.
        set_timer_slack_ns(usual_slack_ns)?;
        Ok(woken_ns)
    }

    fn launch(&self, index: usize, at: Option<At>) -> io::Result<Launched> {
        let manner = Manner {
            clock: self.clock,
            at,
            usual: self.conditions.usual(),
            head_start: self.options.head_start,
            own_group: self.options.own_group,
        };
        let program = &self.options.programs[index];
        let tell = move |news| Event::Of(index, news);
        let call_off = program::launch(program, manner, self.to.clone(), tell)?;
        Ok(Launched { index, call_off, running: None })
    }

    /// Waits for all that were launched, and passes signals on to them.
    fn wait(&mut self, launched: &mut Vec<Launched>, instant_ns: i64, moved: &impl Fn() -> Span) {
        while !launched.is_empty() {
            // This thread holds a sender itself, so the channel is never closed.
            let Ok(event) = self.events.recv() else { return };
            match event {
                Event::Of(0, News::Woken(woken_ns)) => {
                    self.account.woken(instant_ns, woken_ns, moved());
                }
                Event::Of(_, News::Woken(_)) => {}
                Event::Of(index, News::Started(running, now_ns)) => {
                    if index == 0 {
                        self.account.started(instant_ns, now_ns);
                        (self.running)(true);
                    }
                    // It came when this one could not be told of it yet.
                    if let Some(came) = self.signals.came() {
                        running.pass_on(came);
                    }
                    let one = launched.iter_mut().find(|one| one.index == index);
                    if let Some(one) = one {
                        one.running = Some(running);
                    }
                }
                Event::Of(index, news) => {
                    launched.retain(|one| one.index != index);
                    self.account.ended(index, &news);
                }
                Event::Signal(came) => {
                    for one in launched.iter() {
                        one.tell(came);
                    }
                }
            }
        }
    }
}

impl Launched {
    fn tell(&self, came: Came) {
        match &self.running {
            Some(running) => running.pass_on(came),
            None => self.call_off.call_off(),
        }
    }
}
