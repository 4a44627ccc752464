//! Warnings about a server, derived from its status alone.

use serde::Serialize;

use crate::operation::server_status::ServerStatus;

/// Warning for the live page.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct ServerWarning {
    severity: &'static str,
    message: String,
    advice: &'static str,
}

/// Returns all warnings, the most severe first.
pub(super) fn warnings(status: &ServerStatus) -> Vec<ServerWarning> {
    let mut all = Vec::new();
    let mut add = |severity, message: String, advice| {
        all.push(ServerWarning { severity, message, advice });
    };
    if status.page_expired {
        let message = "clock page expired: no requests are answered".to_owned();
        add("error", message, "the clock thread is stuck: check the log and restart the server");
    } else if !status.synchronised {
        let message = "clock not synchronised: all replies are marked unsynchronised".to_owned();
        add("error", message, "check the sources below and the daemon that steers this clock");
    }
    if let Some(reason) = &status.reload.last_reload_error {
        add("warning", format!("last reload refused: {reason}"), "");
    }
    let dropped = status.counters.dropped;
    if dropped > 0 {
        let message = format!("{dropped} datagrams dropped since the start for lack of room");
        add("warning", message, "the socket threads do not keep up with bursts of requests");
    }
    if let Some(reason) = &status.xdp_unavailable {
        add("note", format!("XDP not available on all interfaces: {reason}"), "");
    }
    for missing in &status.sandbox.missing {
        add("note", format!("sandbox incomplete: {missing}"), "");
    }
    let waiting = status.reload.restart_needed.join(", ");
    if !waiting.is_empty() {
        add("note", format!("options that take effect after a restart: {waiting}"), "");
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::confine::ConfinementStatus;
    use crate::operation::reload::ReloadStatus;
    use crate::operation::server_status::tests::sample;

    #[test]
    fn each_warning_is_reported_and_nothing_else() {
        let mut status = ServerStatus { synchronised: false, ..sample() };
        let found = warnings(&status);
        let severities: Vec<_> = found.iter().map(|warning| warning.severity).collect();
        assert_eq!(severities, ["error", "warning", "warning", "note", "note", "note"]);
        let text = format!("{found:?}");
        for word in ["not synchronised", "no key", "4 datagrams", "no driver", "landlock", ": web"]
        {
            assert!(text.contains(word), "{word}: {text}");
        }
        status.page_expired = true;
        assert!(warnings(&status)[0].message.starts_with("clock page expired"));
        (status.page_expired, status.synchronised) = (false, true);
        (status.reload, status.sandbox) = (ReloadStatus::default(), ConfinementStatus::default());
        (status.counters.dropped, status.xdp_unavailable) = (0, None);
        assert_eq!(warnings(&status), []);
    }
}
