//! Snapshot of a server's status: counts and their rates per second.

use serde::Serialize;
use serde_json::Value;

use crate::ResponseTimes;

/// Counts of both engines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
struct SnapshotCounts {
    /// Datagrams received as requests by either engine.
    requests: u64,
    /// Replies sent.
    replies: u64,
    /// Replies sent by the socket threads.
    by_sockets: u64,
    /// Replies sent by XDP.
    by_xdp: u64,
    /// Datagrams that the kernel dropped because a receive buffer was full; not part of the
    /// requests.
    dropped: u64,
    /// Requests dropped by rate limits and prefix lists.
    limited: u64,
    /// Requests not answered for any other reason.
    ignored: u64,
    /// Replies in interleaved mode.
    interleaved: u64,
    /// Replies with NTS.
    nts: u64,
    /// Successful NTS-KE exchanges.
    nts_ke: u64,
}

/// Snapshot of the server. Rates are averages since the previous snapshot.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct ServerSnapshot {
    /// Time since the start of the server, in seconds.
    at_s: f64,
    #[serde(flatten)]
    counts: SnapshotCounts,
    request_rate: f64,
    reply_rate: f64,
    unanswered_rate: f64,
    socket_rate: f64,
    xdp_rate: f64,
    dropped_rate: f64,
    limited_rate: f64,
    ignored_rate: f64,
    interleaved_rate: f64,
    nts_rate: f64,
    nts_ke_rate: f64,
    /// Error bound of the served time, in nanoseconds: root dispersion plus half the root delay.
    error_ns: f64,
    page_age_ns: f64,
    /// Absolute offset of the selected source from the system clock, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset_size_ns: Option<f64>,
    /// Quantiles of the socket engine's response times since the previous snapshot; absent without
    /// replies.
    #[serde(skip_serializing_if = "Option::is_none")]
    response_ns: Option<ResponseQuantiles>,
}

/// Median and 99th percentile of response times, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct ResponseQuantiles {
    p50: f64,
    p99: f64,
}

impl ResponseQuantiles {
    /// Returns the quantiles of the response times between two statuses; `None` without replies.
    fn between(earlier: &Value, status: &Value) -> Option<Self> {
        let times =
            ResponseTimes::from_status(status)?.since(&ResponseTimes::from_status(earlier)?);
        Some(Self { p50: times.quantile_ns(0.5)?, p99: times.quantile_ns(0.99)? })
    }
}

/// Reasons for ignoring requests that are due to rate limits and prefix lists.
const LIMIT_REASONS: [&str; 3] = ["limited", "denied", "new_clients"];

impl SnapshotCounts {
    fn from_status(status: &Value) -> Self {
        let count = |pointer: &str| status.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let all = |pointer: &str| -> u64 {
            let object = status.pointer(pointer).and_then(Value::as_object);
            object.map_or(0, |object| object.values().filter_map(Value::as_u64).sum())
        };
        let by_sockets = count("/counters/answered");
        let by_xdp = count("/xdp_counters/answered_ipv4") + count("/xdp_counters/answered_ipv6");
        let dropped_by_xdp = all("/xdp_counters/dropped");
        let limited: u64 =
            LIMIT_REASONS.iter().map(|name| count(&format!("/counters/ignored/{name}"))).sum();
        let others = all("/counters/ignored") - limited;
        Self {
            requests: count("/counters/received") + by_xdp + dropped_by_xdp,
            replies: by_sockets + by_xdp,
            by_sockets,
            by_xdp,
            dropped: count("/counters/dropped"),
            limited: limited + dropped_by_xdp,
            ignored: others + count("/counters/expired") + count("/counters/refused"),
            interleaved: count("/counters/interleaved")
                + count("/xdp_counters/answered_interleaved"),
            nts: count("/counters/nts"),
            nts_ke: count("/nts_ke/counters/established"),
        }
    }
}

impl ServerSnapshot {
    /// Returns the snapshot of `status`, with rates since the previous snapshot `before`, which was
    /// of the status `earlier`.
    pub(super) fn from_status(before: Option<&Self>, earlier: &Value, status: &Value) -> Self {
        let number = |pointer: &str| status.pointer(pointer).and_then(Value::as_f64);
        let (now, at_s) = (SnapshotCounts::from_status(status), number("/uptime_s").unwrap_or(0.0));
        let then = before.map_or(now, |before| before.counts);
        let elapsed_s = before.map_or(0.0, |before| at_s - before.at_s);
        let rate = |count_of: fn(&SnapshotCounts) -> u64| {
            let gained = count_of(&now).saturating_sub(count_of(&then));
            if elapsed_s > 0.0 { gained as f64 / elapsed_s } else { 0.0 }
        };
        let (dispersion, delay) = (number("/root_dispersion_ns"), number("/root_delay_ns"));
        Self {
            at_s,
            counts: now,
            request_rate: rate(|counts| counts.requests),
            reply_rate: rate(|counts| counts.replies),
            unanswered_rate: rate(|counts| counts.limited + counts.ignored),
            socket_rate: rate(|counts| counts.by_sockets),
            xdp_rate: rate(|counts| counts.by_xdp),
            dropped_rate: rate(|counts| counts.dropped),
            limited_rate: rate(|counts| counts.limited),
            ignored_rate: rate(|counts| counts.ignored),
            interleaved_rate: rate(|counts| counts.interleaved),
            nts_rate: rate(|counts| counts.nts),
            nts_ke_rate: rate(|counts| counts.nts_ke),
            error_ns: dispersion.unwrap_or(0.0) + delay.unwrap_or(0.0) / 2.0,
            page_age_ns: number("/page_age_ns").unwrap_or(0.0),
            offset_size_ns: offset_ns(status).map(f64::abs),
            response_ns: ResponseQuantiles::between(earlier, status),
        }
    }
}

/// Returns the offset of the selected source, in nanoseconds.
fn offset_ns(status: &Value) -> Option<f64> {
    let sources = status["sources"].as_array()?;
    let selected = sources.iter().find(|source| source["state"] == "selected")?;
    selected["offset_ns"].as_f64()
}

#[cfg(test)]
mod tests {
    use horolog_time::Span;
    use serde_json::json;

    use super::*;

    fn status(uptime_s: f64, times: u64) -> Value {
        json!({
            "uptime_s": uptime_s, "root_dispersion_ns": 1_000, "root_delay_ns": 500,
            "page_age_ns": 7,
            "sources": [
                { "state": "outvoted", "offset_ns": 9 }, { "state": "selected", "offset_ns": -40 },
            ],
            "counters": {
                "received": 10 * times, "answered": 6 * times, "dropped": times, "expired": times,
                "refused": 0, "nts": 2 * times, "interleaved": 0,
                "ignored": { "mode": times, "limited": 2 * times },
            },
            "xdp_counters": {
                "answered_ipv4": 100 * times, "answered_ipv6": 0, "answered_interleaved": times,
                "dropped": { "denied": 3 * times, "limited": 0 },
            },
            "nts_ke": { "counters": { "established": times, "open": 5 } },
        })
    }

    #[test]
    fn both_bodies_are_added_up_and_rates_are_of_the_time_between() {
        let first = ServerSnapshot::from_status(None, &Value::Null, &status(10.0, 1));
        assert_eq!((first.counts.requests, first.counts.replies), (113, 106));
        assert!(first.request_rate.abs() < 1e-9);
        let second = ServerSnapshot::from_status(Some(&first), &status(10.0, 1), &status(12.0, 3));
        let rates = [
            (second.request_rate, 113.0),
            (second.reply_rate, 106.0),
            (second.unanswered_rate, 7.0),
            (second.socket_rate, 6.0),
            (second.xdp_rate, 100.0),
            (second.dropped_rate, 1.0),
            (second.limited_rate, 5.0),
            (second.ignored_rate, 2.0),
            (second.interleaved_rate, 1.0),
            (second.nts_rate, 2.0),
            (second.nts_ke_rate, 1.0),
        ];
        for (index, (found, expected)) in rates.iter().enumerate() {
            assert!((found - expected).abs() < 1e-9, "{index}: {found}");
        }
        assert_eq!(second.offset_size_ns, Some(40.0));
        assert!((second.error_ns - 1_250.0).abs() < 1e-9);
    }

    #[test]
    fn response_times_are_of_the_replies_between_two_snapshots() {
        let mut times = ResponseTimes::default();
        let mut after = |times_ns: &[i64]| {
            for ns in times_ns {
                times.count(Span::from_ns(*ns));
            }
            json!({ "counters": { "response_times": times } })
        };
        let states = [after(&[700_000_000; 9]), after(&[15_000, 15_000]), after(&[])];
        let snapshot_json = |earlier, status| {
            serde_json::to_value(ServerSnapshot::from_status(None, earlier, status)).unwrap()
        };
        let snapshot = snapshot_json(&states[0], &states[1]);
        assert_eq!(snapshot["response_ns"], json!({ "p50": 15_000.0, "p99": 19_900.0 }));
        // In the first look nothing lies between, and in the last there was no reply.
        for (earlier, status) in [(&Value::Null, &states[0]), (&states[1], &states[2])] {
            assert_eq!(snapshot_json(earlier, status).get("response_ns"), None);
        }
    }

    #[test]
    fn an_empty_status_yields_all_zeros() {
        let snapshot = ServerSnapshot::from_status(None, &Value::Null, &json!(null));
        assert_eq!((snapshot.counts, snapshot.offset_size_ns), (SnapshotCounts::default(), None));
        assert_eq!(snapshot.response_ns, None);
    }
}
