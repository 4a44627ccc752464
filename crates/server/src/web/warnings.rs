//! Warnings about a server, derived from its status alone.

use serde::Serialize;
use serde_json::Value;

/// Warning for the live page.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct ServerWarning {
    severity: &'static str,
    message: String,
    advice: &'static str,
}

/// Returns all warnings, the most severe first.
pub(super) fn warnings(status: &Value) -> Vec<ServerWarning> {
    let mut all = Vec::new();
    let mut add = |severity, message: String, advice| {
        all.push(ServerWarning { severity, message, advice });
    };
    let is = |name: &str, wanted: bool| status[name].as_bool() == Some(wanted);
    if is("page_expired", true) {
        let message = "clock page expired: no requests are answered".to_owned();
        add("error", message, "the clock thread is stuck: check the log and restart the server");
    } else if is("synchronised", false) {
        let message = "clock not synchronised: all replies are marked unsynchronised".to_owned();
        add("error", message, "check the sources below and the daemon that steers this clock");
    }
    if let Some(reason) = status["reload"]["last_reload_error"].as_str() {
        add("warning", format!("last reload refused: {reason}"), "");
    }
    let dropped = status["counters"]["dropped"].as_u64().unwrap_or(0);
    if dropped > 0 {
        let message = format!("{dropped} datagrams dropped since the start for lack of room");
        add("warning", message, "the socket threads do not keep up with bursts of requests");
    }
    if let Some(reason) = status["xdp_unavailable"].as_str() {
        add("note", format!("XDP not available on all interfaces: {reason}"), "");
    }
    for missing in texts(&status["sandbox"]["missing"]) {
        add("note", format!("sandbox incomplete: {missing}"), "");
    }
    let waiting = texts(&status["reload"]["restart_needed"]).collect::<Vec<_>>().join(", ");
    if !waiting.is_empty() {
        add("note", format!("options that take effect after a restart: {waiting}"), "");
    }
    all
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_warning_is_reported_and_nothing_else() {
        let fine = json!({
            "page_expired": false, "synchronised": true, "counters": { "dropped": 0 },
            "sandbox": { "missing": [] }, "reload": { "restart_needed": [] },
        });
        assert_eq!(warnings(&fine), []);
        assert_eq!(warnings(&json!({})), []);
        let wrong = json!({
            "page_expired": false, "synchronised": false, "counters": { "dropped": 7 },
            "sandbox": { "missing": ["landlock: no"] }, "xdp_unavailable": "no driver",
            "reload": { "restart_needed": ["web"], "last_reload_error": "no key" },
        });
        let found = warnings(&wrong);
        let severities: Vec<_> = found.iter().map(|warning| warning.severity).collect();
        assert_eq!(severities, ["error", "warning", "warning", "note", "note", "note"]);
        let text = format!("{found:?}");
        for word in ["not synchronised", "no key", "7 datagrams", "no driver", "landlock", ": web"]
        {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(
            warnings(&json!({ "page_expired": true })).iter().any(|one| one.severity == "error")
        );
    }
}
