//! Log events of a server, derived from its status at the start and from the difference of two
//! statuses. Pure.

use horolog_ptp::{PortState, PtpPortStatus};
use horolog_server::{ReloadOutcome, ServerStatus};

use super::log::{LogEvent, LogLevel};

/// Returns the events at the start: addresses and engines, why XDP is not used, the sandbox and
/// what it lacks, an unsynchronised clock, and faulty PTP ports.
pub(crate) fn start_events(status: &ServerStatus) -> Vec<LogEvent> {
    let smeared = status.smear_listen.iter().map(|at| format!("{at} (smeared)"));
    let listen: Vec<String> =
        status.listen.iter().map(ToString::to_string).chain(smeared).collect();
    let threads = match status.threads {
        1 => "1 thread".to_owned(),
        threads => format!("{threads} threads"),
    };
    let each_address = if listen.len() > 1 { " each" } else { "" };
    let sockets = format!(
        "serving at {} by sockets ({threads}{each_address}, {})",
        listen.join(", "),
        status.dispatch.name()
    );
    let mut events = vec![
        LogEvent::new(LogLevel::Info, "start", sockets)
            .with("listen", listen)
            .with("engine", status.engine.clone())
            .with("threads", status.threads)
            .with("dispatch", status.dispatch.name()),
    ];
    for xdp_interface in &status.xdp_interfaces {
        let message =
            format!("serving on {} by XDP ({} mode)", xdp_interface.interface, xdp_interface.mode);
        events.push(
            LogEvent::new(LogLevel::Info, "xdp", message)
                .with("interface", xdp_interface.interface.clone())
                .with("mode", xdp_interface.mode.clone()),
        );
    }
    if let Some(reason) = &status.xdp_unavailable {
        let scope = if status.xdp_interfaces.is_empty() { "" } else { " everywhere" };
        let message = format!("not serving by XDP{scope}: {reason}");
        events.push(LogEvent::new(LogLevel::Warning, "without-xdp", message));
    }
    let sandbox = &status.sandbox;
    if !sandbox.in_force.is_empty() {
        let message = format!("sandbox in force: {}", sandbox.in_force.join(", "));
        events.push(
            LogEvent::new(LogLevel::Info, "sandbox", message)
                .with("in_force", sandbox.in_force.clone())
                .with("user", sandbox.user.clone()),
        );
    }
    if !sandbox.missing.is_empty() {
        let message = format!("not confined by {}", sandbox.missing.join("; "));
        events.push(LogEvent::new(LogLevel::Warning, "sandbox-incomplete", message));
    }
    if status.stratum > 15 && status.calibration.is_some() {
        let message = "waiting for the receiver's time; until then all replies are marked \
                       unsynchronised";
        events.push(LogEvent::new(LogLevel::Info, "unsynchronised", message));
    } else if status.stratum > 15 {
        let message = "no source is synchronised, so all replies are marked unsynchronised; \
                       --local serves the system clock anyway";
        events.push(LogEvent::new(LogLevel::Warning, "unsynchronised", message));
    }
    events.extend(status.ptp.iter().flat_map(|ptp| &ptp.ports).filter_map(faulty_port_event));
    events
}

/// Returns the events for changes between two statuses: expiry of the clock page, synchronisation,
/// steps of the system clock, the first rejected page update, and states of PTP ports.
pub(crate) fn change_events(before: &ServerStatus, now: &ServerStatus) -> Vec<LogEvent> {
    let mut events = Vec::new();
    if before.page_expired != now.page_expired {
        events.push(if now.page_expired {
            let message = "clock page expired, no requests are answered: the clock thread was \
                           not scheduled in time";
            LogEvent::new(LogLevel::Error, "page-expired", message)
        } else {
            LogEvent::new(LogLevel::Info, "page-renewed", "clock page valid again; answering")
        });
    }
    if (before.stratum > 15) != (now.stratum > 15) {
        events.push(if now.stratum > 15 {
            let message = "the clock is no longer synchronised; all replies are marked \
                unsynchronised";
            LogEvent::new(LogLevel::Warning, "unsynchronised", message)
        } else {
            let message = format!("the clock is synchronised; serving at stratum {}", now.stratum);
            LogEvent::new(LogLevel::Info, "synchronised", message).with("stratum", now.stratum)
        });
    }
    if now.clock.steps > before.clock.steps {
        let seconds = now.clock.last_step_ns as f64 / 1e9;
        let message = format!("the system clock was stepped by {seconds} s");
        events.push(
            LogEvent::new(LogLevel::Warning, "clock-step", message)
                .with("step_ns", now.clock.last_step_ns)
                .with("steps", now.clock.steps),
        );
    }
    if now.clock.publish_errors > before.clock.publish_errors && before.clock.publish_errors == 0 {
        let message = "the kernel rejected a clock page; retrying, and counting";
        events.push(LogEvent::new(LogLevel::Warning, "publish-error", message));
    }
    let ports =
        |status: &ServerStatus| status.ptp.iter().flat_map(|ptp| ptp.ports.clone()).collect();
    let (before, now): (Vec<_>, Vec<_>) = (ports(before), ports(now));
    events.extend(now.iter().filter_map(|port| port_change_event(&before, port)));
    events
}

/// Returns the event for a change of a PTP port's state, `None` if it has not changed. For a port
/// that is new in the status, only the state `faulty` is an event.
fn port_change_event(before: &[PtpPortStatus], now: &PtpPortStatus) -> Option<LogEvent> {
    let Some(before) = before.iter().find(|before| before.port == now.port) else {
        // The port's thread has reported its state for the first time.
        return faulty_port_event(now);
    };
    if before.state == now.state {
        return None;
    }
    let (level, why) = match (before.state, now.state) {
        (_, PortState::Faulty) => return faulty_port_event(now),
        (PortState::Faulty, _) => (LogLevel::Info, ": its interface is up again"),
        (_, PortState::Passive) => (LogLevel::Info, ": better master present"),
        _ => (LogLevel::Info, ""),
    };
    Some(port_state_event(now, level, why))
}

/// Returns the event for a PTP port in state `faulty` (IEEE 1588-2019, 9.2.5); `None` in other
/// states.
fn faulty_port_event(port: &PtpPortStatus) -> Option<LogEvent> {
    let why = ": its interface is down, gone or has no carrier";
    (port.state == PortState::Faulty).then(|| port_state_event(port, LogLevel::Warning, why))
}

fn port_state_event(port_status: &PtpPortStatus, level: LogLevel, why: &str) -> LogEvent {
    let PtpPortStatus { port, interface, .. } = port_status;
    let (transport, state) = (port_status.transport.name(), port_status.state.name());
    let message = format!("the PTP port {port} ({interface}, {transport}) is {state}{why}");
    LogEvent::new(level, "ptp-port", message)
        .with("port", *port)
        .with("interface", interface.clone())
        .with("state", state)
}

/// Returns the event with the counters of replies and of packets without one.
pub(crate) fn counters_event(status: &ServerStatus) -> LogEvent {
    let xdp = status.answered_by_xdp();
    let counters = &status.counters;
    let message = format!(
        "answered {} by sockets and {xdp} by XDP; dropped {}, refused {}, expired {}",
        counters.answered, counters.dropped, counters.refused, counters.expired
    );
    LogEvent::new(LogLevel::Info, "counters", message)
        .with("answered_socket", counters.answered)
        .with("answered_xdp", xdp)
        .with("received", counters.received)
        .with("dropped", counters.dropped)
        .with("refused", counters.refused)
        .with("expired", counters.expired)
}

/// Returns the event for a reload that was accepted, with the options that need a restart.
pub(crate) fn reload_event(report: &ReloadOutcome) -> LogEvent {
    let applied = match report.applied.as_slice() {
        [] => "no changes".to_owned(),
        applied => format!("in force: {}", applied.join(", ")),
    };
    let (level, restart_text) = match report.restart_needed.as_slice() {
        [] => (LogLevel::Info, String::new()),
        restart => (LogLevel::Warning, format!("; restart required for: {}", restart.join(", "))),
    };
    LogEvent::new(level, "reload", format!("reloaded, {applied}{restart_text}"))
        .with("applied", report.applied.clone())
        .with("restart_needed", report.restart_needed.clone())
}

/// Returns the event for a reload that was refused.
pub(crate) fn reload_refused_event(reason: &str) -> LogEvent {
    let message = format!("reload refused, configuration unchanged: {reason}");
    LogEvent::new(LogLevel::Error, "reload-refused", message).with("reason", reason)
}

#[cfg(test)]
mod tests {
    use horolog_server::{ClockTrust, EngineSelection, Server, ServerConfig};

    use super::*;
    use crate::commands::status::sample_status;

    /// The state of a server that has just been started, on the loopback interface.
    fn status() -> ServerStatus {
        let listen = vec!["127.0.0.1:0".parse().unwrap()];
        let (engine, trust) = (EngineSelection::Socket, ClockTrust::Local);
        let config = ServerConfig { listen, engine, trust, ..ServerConfig::default() };
        Server::start(&config).unwrap().stop()
    }

    fn names(events: &[LogEvent]) -> Vec<&str> {
        events.iter().map(|event| event.name).collect()
    }

    #[test]
    fn only_changes_are_logged() {
        let before = ServerStatus { page_expired: false, ..status() };
        assert_eq!(change_events(&before, &before), []);
        let mut now = before.clone();
        now.stratum = 16;
        now.page_expired = true;
        now.clock.steps += 1;
        now.clock.publish_errors += 1;
        let wanted = ["page-expired", "unsynchronised", "clock-step", "publish-error"];
        assert_eq!(names(&change_events(&before, &now)), wanted);
        assert_eq!(names(&change_events(&now, &before)), ["page-renewed", "synchronised"]);
        let more = ServerStatus { clock: before.clock, ..now.clone() };
        assert_eq!(change_events(&more, &more), []);
    }

    #[test]
    fn change_of_a_ptp_port_is_logged() {
        use PortState::{Faulty, Listening, Master};

        let ptp = sample_status().ptp.unwrap();
        let port = |state| PtpPortStatus { state, ..ptp.ports[0].clone() };
        let change = |from, to| port_change_event(&[port(from)], &port(to));
        assert_eq!(change(Master, Master), None);
        let down = change(Master, Faulty).unwrap();
        assert_eq!((down.level, down.name), (LogLevel::Warning, "ptp-port"));
        assert!(down.message.starts_with("the PTP port 1 (eth0, udp4) is faulty: its interface"));
        let found = |state| port_change_event(&[], &port(state)).map(|event| event.level);
        assert_eq!((found(Faulty), found(Listening)), (Some(LogLevel::Warning), None));
        assert!(change(Faulty, Listening).unwrap().message.ends_with("up again"));
        assert_eq!(change(Listening, Master).unwrap().level, LogLevel::Info);
    }

    #[test]
    fn start_logs_missing_features() {
        let mut status = ServerStatus { stratum: 16, ..status() };
        status.xdp_unavailable = Some("no BPF".into());
        status.sandbox.missing = vec!["landlock: none".into()];
        let events = start_events(&status);
        let wanted = ["start", "without-xdp", "sandbox-incomplete", "unsynchronised"];
        assert_eq!(names(&events), wanted);
        assert!(events[1].message.ends_with("not serving by XDP: no BPF"), "{:?}", events[1]);
    }

    #[test]
    fn reload_logs_settings_that_need_a_restart() {
        let mut report = ReloadOutcome { applied: vec!["listen"], ..ReloadOutcome::default() };
        assert_eq!(reload_event(&report).level, LogLevel::Info);
        report.restart_needed = vec!["threads".to_owned()];
        let event = reload_event(&report);
        assert_eq!(event.level, LogLevel::Warning);
        assert!(event.message.contains("listen") && event.message.contains("threads"));
        assert!(reload_refused_event("no such key").message.ends_with("no such key"));
    }
}
