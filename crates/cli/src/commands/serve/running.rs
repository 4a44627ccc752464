//! A server while it runs: signals, reloads, the service manager, and the events that are told.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use horolog_server::{ReloadReport, Server, Status, check, status};
use horolog_sys::signal::{BlockedSignals, Signal};
use sd_notify::NotifyState;

use super::events;
use super::log::{Event, Level, Log};
use super::options::{CommandLine, Options};
use crate::failure::Failure;
use crate::output::notify;

/// How often the server is looked after while it runs.
const TICK: Duration = Duration::from_millis(500);
/// How often the counters are told.
const SUMMARY_EVERY: Duration = Duration::from_hours(1);

/// How long the watchdog is fed during a reload: one that takes longer hangs.
const RELOAD_MAX: Duration = Duration::from_mins(1);

/// Serves until a signal ends it.
pub(crate) fn serve(command_line: CommandLine) -> Result<(), Failure> {
    let options = command_line.options()?;
    let wrong = |reason: String| Failure::usage(options.locate(&reason));
    if options.check_only {
        check(&options.config).map_err(|error| wrong(error.to_string()))?;
        return print(&options.to_file());
    }
    let signals = [Signal::Terminate, Signal::Interrupt, Signal::HangUp, Signal::User1];
    let signals = BlockedSignals::block(&signals).map_err(Failure::environment)?;
    status::sweep(options.config.operation.user.as_deref());
    let server = Server::start(&options.config).map_err(|error| match error.into() {
        Failure::Usage(reason) => wrong(reason),
        other => other,
    })?;
    let log = Log(options.log);
    let last = server.status();
    for event in events::start(&last) {
        log.tell(&event);
    }
    notify(&[NotifyState::Ready]);
    let values = options.values;
    Running { server, command_line, values, log, last, summed: Instant::now() }.until_told(&signals)
}

/// A server with what is to be remembered of it.
struct Running {
    server: Server,
    command_line: CommandLine,
    /// The values of the options in force.
    values: BTreeMap<String, Vec<String>>,
    log: Log,
    /// The state that was looked at last.
    last: Status,
    /// When the counters were told last.
    summed: Instant,
}

impl Running {
    fn until_told(mut self, signals: &BlockedSignals) -> Result<(), Failure> {
        loop {
            match signals.wait(TICK).map_err(Failure::environment)? {
                Some(Signal::User1) => print_status(&self.server.status()),
                Some(Signal::HangUp) => self.reload(),
                Some(Signal::Terminate | Signal::Interrupt) => break,
                None if self.server.has_died() => {
                    self.server.stop();
                    let reason = "a thread of the server has ended; see above";
                    return Err(Failure::environment(reason));
                }
                None => self.look(),
            }
        }
        notify(&[NotifyState::Stopping]);
        self.tell_notices();
        let last = self.server.stop();
        self.log.tell(&events::summary(&last));
        self.log.tell(&Event::new(Level::Info, "stop", "stopped"));
        print_status(&last);
        Ok(())
    }

    /// Tells what has changed. Outside of reloads the watchdog is fed from here alone, so it barks
    /// when this thread hangs or any other has ended.
    fn look(&mut self) {
        let now = self.server.status();
        for event in events::changes(&self.last, &now) {
            self.log.tell(&event);
        }
        self.tell_notices();
        if self.summed.elapsed() >= SUMMARY_EVERY {
            self.log.tell(&events::summary(&now));
            self.summed = Instant::now();
        }
        // A clock thread that hangs renews no page.
        if now.clock.renewals > self.last.clock.renewals {
            notify(&[NotifyState::Watchdog]);
        }
        self.last = now;
    }

    /// Tells what threads had to say: of sources of time and of leap seconds.
    fn tell_notices(&self) {
        for notice in self.server.notices() {
            self.log.tell(&Event::new(Level::Warning, "notice", notice));
        }
    }

    /// Takes new options over. A long list may take longer than the watchdog waits, so it is fed
    /// meanwhile, for [`RELOAD_MAX`] at most.
    fn reload(&mut self) {
        let since = NotifyState::monotonic_usec_now();
        notify(&[NotifyState::Reloading, since.unwrap_or(NotifyState::MonotonicUsec(0))]);
        let (server, renewals) = (&self.server, self.last.clock.renewals);
        let (ended, told) = mpsc::channel();
        let taken = thread::scope(|scope| {
            scope.spawn(move || feed_watchdog(server, renewals, &told));
            let taken = self.prepare_and_apply();
            let _ = ended.send(());
            taken
        });
        let event = match taken {
            Ok(taken) => self.note(taken),
            Err(reason) => events::refused(&reason),
        };
        self.log.tell(&event);
        notify(&[NotifyState::Ready]);
    }

    /// Reads all options again and has the server take over those that it can change.
    fn prepare_and_apply(&self) -> Result<(Options, ReloadReport), String> {
        let new = self.command_line.options().map_err(|failure| {
            let reason = failure.to_string();
            self.server.note_refused_reload(&reason);
            reason
        })?;
        let reloaded = self.server.reload(&new.config, new.differences(&self.values));
        let report = reloaded.map_err(|error| new.locate(&error.to_string()))?;
        Ok((new, report))
    }

    /// Notes what is in force now, and tells it.
    fn note(&mut self, (new, report): (Options, ReloadReport)) -> Event {
        // Of what waits for a restart the old values are in force.
        let mut values = new.values;
        for key in &report.restart_needed {
            match self.values.remove(key) {
                Some(old) => values.insert(key.clone(), old),
                None => values.remove(key),
            };
        }
        self.values = values;
        events::reloaded(&report)
    }
}

/// Feeds the watchdog until it is told that a reload has ended, as long as the clock thread renews
/// its page.
fn feed_watchdog(server: &Server, mut renewals: u64, ended: &Receiver<()>) {
    let begun = Instant::now();
    while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        let now = server.status().clock.renewals;
        if now > renewals && begun.elapsed() < RELOAD_MAX {
            notify(&[NotifyState::Watchdog]);
        }
        renewals = now;
    }
}

fn print_status(status: &Status) {
    // Plain data under string keys always serialises; a reader that went away is no reason to stop.
    let text = serde_json::to_string(status).unwrap_or_default();
    let _ = writeln!(io::stdout().lock(), "{text}");
}

fn print(text: &str) -> Result<(), Failure> {
    crate::output::line(text.trim_end())
}
