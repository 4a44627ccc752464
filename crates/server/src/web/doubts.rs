//! What is doubtful about a server, from its state alone: pure.

use serde::Serialize;
use serde_json::Value;

/// One doubt, as the live page takes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Doubt {
    severity: &'static str,
    message: String,
    advice: &'static str,
}

/// All that there are, the worst first.
pub(super) fn doubts(status: &Value) -> Vec<Doubt> {
    let mut all = Vec::new();
    let mut add = |severity, message: String, advice| {
        all.push(Doubt { severity, message, advice });
    };
    let is = |name: &str, wanted: bool| status[name].as_bool() == Some(wanted);
    if is("page_expired", true) {
        let message = "the clock page has expired; nothing is answered".to_owned();
        add("error", message, "the thread that renews it is stuck: see the log, and restart");
    } else if is("synchronised", false) {
        let message = "the clock is not synchronised, and all replies say so".to_owned();
        add("error", message, "see the sources below, and the daemon that keeps this clock");
    }
    if let Some(reason) = status["reload"]["last_reload_error"].as_str() {
        add("warning", format!("the last reload was refused: {reason}"), "");
    }
    let dropped = status["counters"]["dropped"].as_u64().unwrap_or(0);
    if dropped > 0 {
        let message = format!("{dropped} datagrams were dropped since the start, for want of room");
        add("warning", message, "the sockets' threads do not keep up with what comes at once");
    }
    if let Some(reason) = status["without_xdp"].as_str() {
        add("note", format!("XDP does not answer everywhere: {reason}"), "");
    }
    for missing in texts(&status["sandbox"]["missing"]) {
        add("note", format!("the sandbox is not complete: {missing}"), "");
    }
    let waiting = texts(&status["reload"]["restart_needed"]).collect::<Vec<_>>().join(", ");
    if !waiting.is_empty() {
        add("note", format!("changed options wait for a restart: {waiting}"), "");
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
    fn each_doubt_is_told_and_nothing_else() {
        let fine = json!({
            "page_expired": false, "synchronised": true, "counters": { "dropped": 0 },
            "sandbox": { "missing": [] }, "reload": { "restart_needed": [] },
        });
        assert_eq!(doubts(&fine), []);
        assert_eq!(doubts(&json!({})), []);
        let wrong = json!({
            "page_expired": false, "synchronised": false, "counters": { "dropped": 7 },
            "sandbox": { "missing": ["landlock: no"] }, "without_xdp": "no driver",
            "reload": { "restart_needed": ["web"], "last_reload_error": "no key" },
        });
        let found = doubts(&wrong);
        let severities: Vec<_> = found.iter().map(|doubt| doubt.severity).collect();
        assert_eq!(severities, ["error", "warning", "warning", "note", "note", "note"]);
        let text = format!("{found:?}");
        for word in ["not synchronised", "no key", "7 datagrams", "no driver", "landlock", ": web"]
        {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(doubts(&json!({ "page_expired": true })).iter().any(|one| one.severity == "error"));
    }
}
