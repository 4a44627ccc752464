//! Operation of a running server: handling of signals, reload of options (SIGHUP), notifications to
//! the service manager, and the event log.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use horolog_server::{ConfigCheckError, ReloadOutcome, Server, ServerStatus, check, status};
use horolog_sys::signal::{BlockedSignals, Signal};
use sd_notify::NotifyState;

use super::events;
use super::log::{EventLogger, LogEvent, LogLevel};
use super::options::{ServeCommandLine, ServeOptions};
use crate::failure::CommandFailure;
use crate::output::notify_service_manager;

/// Interval at which the status of the server is checked, for the event log and the watchdog.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Interval at which the counters are logged.
const SUMMARY_INTERVAL: Duration = Duration::from_hours(1);

/// Longest time for which the watchdog is fed during a reload; a longer reload is taken for a hang.
const RELOAD_WATCHDOG_MAX: Duration = Duration::from_mins(1);

/// Serves until SIGTERM or SIGINT; with `--check`, only checks the options and prints them as a
/// configuration file.
pub(crate) fn serve(command_line: ServeCommandLine) -> Result<(), CommandFailure> {
    let options = command_line.load_options()?;
    let wrong = |reason: String| CommandFailure::usage(options.locate(&reason));
    if options.check_only {
        let notice = check(&options.config).map_err(|error| match error {
            ConfigCheckError::Config(_) => wrong(error.to_string()),
            // A missing resource may become available later.
            error => CommandFailure::environment(options.locate(&error.to_string())),
        })?;
        let log_notice = |notice| {
            EventLogger(options.log).log(&LogEvent::new(LogLevel::Warning, "notice", notice));
        };
        notice.into_iter().for_each(log_notice);
        return print_config(&options.to_toml());
    }
    let signals = [Signal::Terminate, Signal::Interrupt, Signal::HangUp, Signal::User1];
    let signals = BlockedSignals::block(&signals).map_err(CommandFailure::environment)?;
    status::remove_stale_sockets(options.config.operation.user.as_deref());
    let server = Server::start(&options.config).map_err(|error| match error.into() {
        CommandFailure::Usage(reason) => wrong(reason),
        other => other,
    })?;
    let log = EventLogger(options.log);
    let last = server.status();
    for event in events::start_events(&last) {
        log.log(&event);
    }
    if let Some(missing) = options.missing_ip_notice() {
        log.log(&LogEvent::new(LogLevel::Warning, "notice", missing));
    }
    notify_service_manager(&[NotifyState::Ready]);
    let values = options.values;
    RunningServer {
        server,
        command_line,
        values,
        log,
        last_status: last,
        summary_logged: Instant::now(),
    }
    .run_until_signal(&signals)
}

/// Running server, with the options in force and the status at the last check.
struct RunningServer {
    server: Server,
    command_line: ServeCommandLine,
    /// Values of the options in force, by long name.
    values: BTreeMap<String, Vec<String>>,
    log: EventLogger,
    /// Status at the last check, to detect changes.
    last_status: ServerStatus,
    /// Instant at which the counters were last logged.
    summary_logged: Instant,
}

impl RunningServer {
    fn run_until_signal(mut self, signals: &BlockedSignals) -> Result<(), CommandFailure> {
        loop {
            match signals.wait(CHECK_INTERVAL).map_err(CommandFailure::environment)? {
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
        notify_service_manager(&[NotifyState::Stopping]);
        self.log_notices();
        let last = self.server.stop();
        self.log.log(&events::counters_event(&last));
        self.log.log(&LogEvent::new(LogLevel::Info, "stop", "stopped"));
        print_status(&last);
        Ok(())
    }

    /// Logs changes of the status and, once per [`SUMMARY_INTERVAL`], the counters. Feeds the
    /// watchdog of the service manager if the clock thread has updated the clock page. Except
    /// during reloads it is fed only here, so it also triggers if this thread hangs.
    fn log_changes(&mut self) {
        let now = self.server.status();
        for event in events::change_events(&self.last_status, &now) {
            self.log.log(&event);
        }
        self.log_notices();
        if self.summary_logged.elapsed() >= SUMMARY_INTERVAL {
            self.log.log(&events::counters_event(&now));
            self.summary_logged = Instant::now();
        }
        // A clock thread that hangs makes no page updates.
        if now.clock.page_updates > self.last_status.clock.page_updates {
            notify_service_manager(&[NotifyState::Watchdog]);
        }
        self.last_status = now;
    }

    /// Logs notices from the server's threads, which concern time sources and leap seconds.
    fn log_notices(&self) {
        for notice in self.server.notices() {
            self.log.log(&LogEvent::new(LogLevel::Warning, "notice", notice));
        }
    }

    /// Reads all options again, applies them and logs the outcome. A second thread feeds the
    /// watchdog for at most [`RELOAD_WATCHDOG_MAX`], because a reload with long lists of prefixes
    /// may exceed the watchdog timeout.
    fn reload(&mut self) {
        let since = NotifyState::monotonic_usec_now();
        notify_service_manager(&[
            NotifyState::Reloading,
            since.unwrap_or(NotifyState::MonotonicUsec(0)),
        ]);
        let (server, page_updates) = (&self.server, self.last_status.clock.page_updates);
        let (end_sender, end_receiver) = mpsc::channel();
        let outcome = thread::scope(|scope| {
            scope.spawn(move || feed_watchdog(server, page_updates, &end_receiver));
            let outcome = self.prepare_and_apply();
            let _ = end_sender.send(());
            outcome
        });
        let event = match outcome {
            Ok(applied) => self.record_reload(applied),
            Err(reason) => events::reload_refused_event(&reason),
        };
        self.log.log(&event);
        notify_service_manager(&[NotifyState::Ready]);
    }

    /// Reads all options again and applies those that can change without a restart. Returns the new
    /// options and the report on which were applied, or the reason for which the reload was
    /// refused.
    fn prepare_and_apply(&self) -> Result<(ServeOptions, ReloadOutcome), String> {
        let new = self.command_line.load_options().map_err(|failure| {
            let reason = failure.to_string();
            self.server.note_refused_reload(&reason);
            reason
        })?;
        let reloaded = self.server.reload(&new.config, new.differences(&self.values));
        let report = reloaded.map_err(|error| new.locate(&error.to_string()))?;
        Ok((new, report))
    }

    /// Stores the values of the options in force after a reload, and returns the event for the log.
    fn record_reload(&mut self, (new, report): (ServeOptions, ReloadOutcome)) -> LogEvent {
        // Options that need a restart remain in force with their old values.
        let mut values = new.values;
        for key in &report.restart_needed {
            match self.values.remove(key) {
                Some(old) => values.insert(key.clone(), old),
                None => values.remove(key),
            };
        }
        self.values = values;
        events::reload_event(&report)
    }
}

/// Feeds the watchdog until the reload ends, for at most [`RELOAD_WATCHDOG_MAX`], and only while
/// the clock thread makes page updates. `page_updates` is their number so far.
fn feed_watchdog(server: &Server, mut page_updates: u64, end_receiver: &Receiver<()>) {
    let started = Instant::now();
    while end_receiver.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let now = server.status().clock.page_updates;
        if now > page_updates && started.elapsed() < RELOAD_WATCHDOG_MAX {
            notify_service_manager(&[NotifyState::Watchdog]);
        }
        page_updates = now;
    }
}

fn print_status(status: &ServerStatus) {
    // Serialisation of this type cannot fail. A closed standard output does not end the server.
    let text = serde_json::to_string(status).unwrap_or_default();
    let _ = writeln!(io::stdout().lock(), "{text}");
}

fn print_config(text: &str) -> Result<(), CommandFailure> {
    crate::output::print_line(text.trim_end())
}
