//! Operation of a running server: signals, reloads, the service manager, and the log of events.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use horolog_server::{CheckError, ReloadReport, Server, ServerStatus, check, status};
use horolog_sys::signal::{BlockedSignals, Signal};
use sd_notify::NotifyState;

use super::events;
use super::log::{EventLog, Level, LogEvent};
use super::options::{ServeCommandLine, ServeOptions};
use crate::failure::CommandFailure;
use crate::output::notify;

/// Interval of the server's checks.
const TICK: Duration = Duration::from_millis(500);
/// Interval at which the counters are logged.
const SUMMARY_EVERY: Duration = Duration::from_hours(1);

/// Longest time for which the watchdog is fed during a reload: one that takes longer hangs.
const RELOAD_MAX: Duration = Duration::from_mins(1);

/// Serves until a signal ends it.
pub(crate) fn serve(command_line: ServeCommandLine) -> Result<(), CommandFailure> {
    let options = command_line.options()?;
    let wrong = |reason: String| CommandFailure::usage(options.locate(&reason));
    if options.check_only {
        let notice = check(&options.config).map_err(|error| match error {
            CheckError::Config(_) => wrong(error.to_string()),
            // A missing resource may become available later.
            error => CommandFailure::environment(options.locate(&error.to_string())),
        })?;
        let log_notice =
            |notice| EventLog(options.log).log(&LogEvent::new(Level::Warning, "notice", notice));
        notice.into_iter().for_each(log_notice);
        return print(&options.to_file());
    }
    let signals = [Signal::Terminate, Signal::Interrupt, Signal::HangUp, Signal::User1];
    let signals = BlockedSignals::block(&signals).map_err(CommandFailure::environment)?;
    status::remove_stale_sockets(options.config.operation.user.as_deref());
    let server = Server::start(&options.config).map_err(|error| match error.into() {
        CommandFailure::Usage(reason) => wrong(reason),
        other => other,
    })?;
    let log = EventLog(options.log);
    let last = server.status();
    for event in events::start(&last) {
        log.log(&event);
    }
    if let Some(missing) = options.missing_ip() {
        log.log(&LogEvent::new(Level::Warning, "notice", missing));
    }
    notify(&[NotifyState::Ready]);
    let values = options.values;
    RunningServer { server, command_line, values, log, last, summed: Instant::now() }
        .run_until_signal(&signals)
}

/// A server with its remembered state.
struct RunningServer {
    server: Server,
    command_line: ServeCommandLine,
    /// The values of the options in force.
    values: BTreeMap<String, Vec<String>>,
    log: EventLog,
    /// The last status snapshot.
    last: ServerStatus,
    /// Time at which the counters were last logged.
    summed: Instant,
}

impl RunningServer {
    fn run_until_signal(mut self, signals: &BlockedSignals) -> Result<(), CommandFailure> {
        loop {
            match signals.wait(TICK).map_err(CommandFailure::environment)? {
                Some(Signal::User1) => print_status(&self.server.status()),
                Some(Signal::HangUp) => self.reload(),
                Some(Signal::Terminate | Signal::Interrupt) => break,
                None if self.server.has_died() => {
                    self.server.stop();
                    let reason = "a thread of the server has exited; see above";
                    return Err(CommandFailure::environment(reason));
                }
                None => self.log_changes(),
            }
        }
        notify(&[NotifyState::Stopping]);
        self.log_notices();
        let last = self.server.stop();
        self.log.log(&events::summary(&last));
        self.log.log(&LogEvent::new(Level::Info, "stop", "stopped"));
        print_status(&last);
        Ok(())
    }

    /// Logs changes. Outside of reloads the watchdog is fed only from here, so it triggers when
    /// this thread hangs or any other has ended.
    fn log_changes(&mut self) {
        let now = self.server.status();
        for event in events::changes(&self.last, &now) {
            self.log.log(&event);
        }
        self.log_notices();
        if self.summed.elapsed() >= SUMMARY_EVERY {
            self.log.log(&events::summary(&now));
            self.summed = Instant::now();
        }
        // A hanging clock thread publishes no clock page.
        if now.clock.page_updates > self.last.clock.page_updates {
            notify(&[NotifyState::Watchdog]);
        }
        self.last = now;
    }

    /// Logs the notices of threads: on time sources and on leap seconds.
    fn log_notices(&self) {
        for notice in self.server.notices() {
            self.log.log(&LogEvent::new(Level::Warning, "notice", notice));
        }
    }

    /// Applies new options. A long list may take longer than the watchdog timeout, so it is fed
    /// meanwhile, for [`RELOAD_MAX`] at most.
    fn reload(&mut self) {
        let since = NotifyState::monotonic_usec_now();
        notify(&[NotifyState::Reloading, since.unwrap_or(NotifyState::MonotonicUsec(0))]);
        let (server, renewals) = (&self.server, self.last.clock.page_updates);
        let (ended, end_receiver) = mpsc::channel();
        let taken = thread::scope(|scope| {
            scope.spawn(move || feed_watchdog(server, renewals, &end_receiver));
            let taken = self.prepare_and_apply();
            let _ = ended.send(());
            taken
        });
        let event = match taken {
            Ok(taken) => self.note(taken),
            Err(reason) => events::refused(&reason),
        };
        self.log.log(&event);
        notify(&[NotifyState::Ready]);
    }

    /// Reads all options again and makes the server apply those that it can change.
    fn prepare_and_apply(&self) -> Result<(ServeOptions, ReloadReport), String> {
        let new = self.command_line.options().map_err(|failure| {
            let reason = failure.to_string();
            self.server.note_refused_reload(&reason);
            reason
        })?;
        let reloaded = self.server.reload(&new.config, new.differences(&self.values));
        let report = reloaded.map_err(|error| new.locate(&error.to_string()))?;
        Ok((new, report))
    }

    /// Records the options in force, and returns the event.
    fn note(&mut self, (new, report): (ServeOptions, ReloadReport)) -> LogEvent {
        // Options that need a restart keep their old values until then.
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

/// Feeds the watchdog until the reload ends, as long as the clock thread publishes page updates.
fn feed_watchdog(server: &Server, mut renewals: u64, ended: &Receiver<()>) {
    let begun = Instant::now();
    while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        let now = server.status().clock.page_updates;
        if now > renewals && begun.elapsed() < RELOAD_MAX {
            notify(&[NotifyState::Watchdog]);
        }
        renewals = now;
    }
}

fn print_status(status: &ServerStatus) {
    // Plain data with string keys always serialises; a closed connection is no reason to stop.
    let text = serde_json::to_string(status).unwrap_or_default();
    let _ = writeln!(io::stdout().lock(), "{text}");
}

fn print(text: &str) -> Result<(), CommandFailure> {
    crate::output::line(text.trim_end())
}
