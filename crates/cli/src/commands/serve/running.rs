//! A server while it runs: signals, reloads, the service manager, and the events that are told.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use horolog_server::{Server, Status, check, status};
use horolog_sys::signal::{BlockedSignals, Signal};
use sd_notify::NotifyState;

use super::events;
use super::log::{Event, Level, Log};
use super::options::CommandLine;
use crate::failure::Failure;

/// How often the server is looked after while it runs.
const TICK: Duration = Duration::from_millis(500);
/// How often the counters are told.
const SUMMARY_EVERY: Duration = Duration::from_hours(1);

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
    status::sweep();
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

    /// Tells what has changed. The watchdog is fed from here alone, so it barks when this thread
    /// hangs or any other has ended.
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

    fn reload(&mut self) {
        let since = NotifyState::monotonic_usec_now();
        notify(&[NotifyState::Reloading, since.unwrap_or(NotifyState::MonotonicUsec(0))]);
        let event = match self.take_over() {
            Ok(event) => event,
            Err(reason) => events::refused(&reason),
        };
        self.log.tell(&event);
        notify(&[NotifyState::Ready]);
    }

    /// Reads all options again and takes over those that a running server can change.
    fn take_over(&mut self) -> Result<Event, String> {
        let new = self.command_line.options().map_err(|failure| {
            let reason = failure.to_string();
            self.server.note_refused_reload(&reason);
            reason
        })?;
        let report =
            self.server.reload(&new.config).map_err(|error| new.locate(&error.to_string()))?;
        let mut restart = new.differences(&self.values);
        restart.retain(|key| !report.adopted.contains(&key.as_str()));
        // Of what waits for a restart the old values are in force.
        let mut values = new.values;
        for key in &restart {
            match self.values.remove(key) {
                Some(old) => values.insert(key.clone(), old),
                None => values.remove(key),
            };
        }
        self.values = values;
        self.server.note_restart_needed(restart.clone());
        Ok(events::reloaded(&report, &restart))
    }
}

/// Tells the service manager, where one has asked to be told (sd_notify(3)).
fn notify(states: &[NotifyState<'_>]) {
    // Without a service manager this does nothing, and with one that does not listen nothing helps.
    let _ = sd_notify::notify(states);
}

fn print_status(status: &Status) {
    // Plain data under string keys always serialises; a reader that went away is no reason to stop.
    let text = serde_json::to_string(status).unwrap_or_default();
    let _ = writeln!(io::stdout().lock(), "{text}");
}

fn print(text: &str) -> Result<(), Failure> {
    crate::output::line(text.trim_end())
}
