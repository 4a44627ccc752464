//! Snapshot of a server's status: counts and their rates per second.

use serde::Serialize;

use crate::operation::server_status::ServerStatus;

/// Counts since the start, over both engines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
struct SnapshotCounts {
    /// Datagrams received as requests by either engine.
    requests: u64,
    /// Replies sent by both engines.
    replies: u64,
    /// Replies sent by the socket threads.
    by_sockets: u64,
    /// Replies sent by XDP.
    by_xdp: u64,
    /// Datagrams that the kernel dropped because a receive buffer was full; not part of the
    /// requests.
    dropped: u64,
    /// Requests dropped by rate limits and prefix lists of both engines.
    limited: u64,
    /// Requests that the socket threads did not answer for a reason other than rate limits and
    /// prefix lists.
    ignored: u64,
    /// Replies in interleaved mode by both engines.
    interleaved: u64,
    /// Replies of the socket threads with NTS.
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
    fn between(earlier: &ServerStatus, status: &ServerStatus) -> Option<Self> {
        let times = status.counters.response_times.since(&earlier.counters.response_times);
        Some(Self { p50: times.quantile_ns(0.5)?, p99: times.quantile_ns(0.99)? })
    }
}

impl SnapshotCounts {
    fn from_status(status: &ServerStatus) -> Self {
        let interleaved_by_xdp = status.xdp_counters.map_or(0, |xdp| xdp.answered_interleaved);
        Self {
            requests: status.requests_received(),
            replies: status.requests_answered(),
            by_sockets: status.counters.answered,
            by_xdp: status.answered_by_xdp(),
            dropped: status.counters.dropped,
            limited: status.requests_limited(),
            ignored: status.requests_ignored(),
            interleaved: status.counters.interleaved + interleaved_by_xdp,
            nts: status.counters.nts,
            nts_ke: status.nts_ke.as_ref().map_or(0, |nts_ke| nts_ke.counters.established),
        }
    }
}

impl ServerSnapshot {
    /// Returns the snapshot of `status`. Its rates are those since the previous snapshot and status
    /// `earlier`, or 0 without these.
    pub(super) fn from_status(
        earlier: Option<(&Self, &ServerStatus)>,
        status: &ServerStatus,
    ) -> Self {
        let (now, at_s) = (SnapshotCounts::from_status(status), status.uptime_s);
        let then = earlier.map_or(now, |(before, _)| before.counts);
        let elapsed_s = earlier.map_or(0.0, |(before, _)| at_s - before.at_s);
        let rate = |count_of: fn(&SnapshotCounts) -> u64| {
            let gained = count_of(&now).saturating_sub(count_of(&then));
            if elapsed_s > 0.0 { gained as f64 / elapsed_s } else { 0.0 }
        };
        let offset_ns = status.selected_source().and_then(|source| source.offset_ns);
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
            error_ns: status.root_dispersion_ns as f64 + status.root_delay_ns as f64 / 2.0,
            page_age_ns: status.page_age_ns as f64,
            offset_size_ns: offset_ns.map(|ns| (ns as f64).abs()),
            response_ns: earlier.and_then(|(_, then)| ResponseQuantiles::between(then, status)),
        }
    }
}

#[cfg(test)]
mod tests {
    use horolog_time::Span;
    use serde_json::{Value, json};

    use super::*;
    use crate::operation::server_status::tests::sample;
    use crate::reply::decide::IgnoreReason;
    use crate::sockets::response_time::ResponseTimeHistogram;

    #[test]
    fn rates_are_of_the_time_between_two_snapshots() {
        let then = sample();
        let first = ServerSnapshot::from_status(None, &then);
        assert_eq!((first.counts.requests, first.counts.replies), (189, 160));
        assert!(first.request_rate.abs() < 1e-9);
        let mut now = ServerStatus { uptime_s: then.uptime_s + 2.0, ..then.clone() };
        let (sockets, xdp) = (&mut now.counters, now.xdp_counters.as_mut().unwrap());
        (sockets.received, sockets.answered, sockets.dropped) = (70, 52, 6);
        (sockets.expired, sockets.nts) = (5, 7);
        for _ in 0..4 {
            sockets.ignored.count(IgnoreReason::Limited);
        }
        (xdp.answered_ipv4, xdp.answered_interleaved, xdp.dropped.denied) = (300, 7, 11);
        now.nts_ke.as_mut().unwrap().counters.established += 2;
        let second = ServerSnapshot::from_status(Some((&first, &then)), &now);
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
        assert_eq!(second.offset_size_ns, Some(250.0));
        assert!((second.error_ns - 1_750.0).abs() < 1e-9);
    }

    #[test]
    fn response_times_are_of_the_replies_between_two_snapshots() {
        let mut times = ResponseTimeHistogram::default();
        let mut after = |times_ns: &[i64]| {
            for ns in times_ns {
                times.count(Span::from_ns(*ns));
            }
            let mut status = sample();
            status.counters.response_times = times;
            status
        };
        let states = [after(&[700_000_000; 9]), after(&[15_000, 15_000]), after(&[])];
        let response_ns = |earlier: Option<&ServerStatus>, status| -> Value {
            let first = ServerSnapshot::from_status(None, status);
            let snapshot = ServerSnapshot::from_status(earlier.map(|then| (&first, then)), status);
            serde_json::to_value(snapshot).unwrap()["response_ns"].take()
        };
        let quantiles = response_ns(Some(&states[0]), &states[1]);
        assert_eq!(quantiles, json!({ "p50": 15_000.0, "p99": 19_900.0 }));
        // Nothing precedes the first snapshot, and there was no reply before the last.
        assert_eq!(response_ns(None, &states[0]), Value::Null);
        assert_eq!(response_ns(Some(&states[1]), &states[2]), Value::Null);
    }
}
