//! Progress of connections and summaries of rows for the live view. An unobserved connection does
//! no work for it.

use std::time::Instant;

use horolog_record::{
    LiveCounts, LivePartSummary, Percentiles, Progress, ProgressPublisher, ProgressSlots,
    TcpBandwidthRow, TcpInfoSummary, TcpLatencyRow,
};
use horolog_stats::Histogram;
use horolog_time::{Monotonic, Timestamp};

use super::latency::saturating_ns;

/// Publisher of one connection's progress, several times a second.
pub(super) struct ConnectionProgressPublisher<'a> {
    started_at: Instant,
    publisher: Option<ProgressPublisher<'a>>,
}

impl<'a> ConnectionProgressPublisher<'a> {
    /// Returns the reporter of a connection; without an observer (`slots` is `None`) it does
    /// nothing.
    pub(super) fn new(slots: Option<&'a ProgressSlots>, index: usize) -> Self {
        let begun = Instant::now();
        let slot = slots.and_then(|slots| slots.slot(index));
        Self {
            started_at: begun,
            publisher: slot.map(|slot| ProgressPublisher::new(slot, Timestamp::from_ns(0))),
        }
    }

    /// Publishes round trips if due. Returns true if it published, which takes time.
    pub(super) fn publish_round_trips(&mut self, now: Instant, times: &Histogram) -> bool {
        self.publish(now, |progress| {
            progress.counts = answered_counts(times.count());
            progress.latency.merge(times);
        })
    }

    /// Publishes bytes if due.
    pub(super) fn publish_bytes(&mut self, now: Instant, bytes: u64) {
        self.publish(now, |progress| progress.counts.bytes = bytes);
    }

    fn publish(&mut self, now: Instant, what: impl FnOnce(&mut Progress)) -> bool {
        let Some(publisher) = &mut self.publisher else { return false };
        let since = i64::try_from(saturating_ns(now.saturating_duration_since(self.started_at)));
        let now = Timestamp::<Monotonic>::from_ns(since.unwrap_or(i64::MAX));
        let Some(mut progress) = publisher.slot_if_due(now) else { return false };
        progress.clear();
        what(&mut progress);
        true
    }
}

/// Returns counts of `count` messages that were all answered; an unanswered one would have ended
/// the connection.
fn answered_counts(count: u64) -> LiveCounts {
    LiveCounts { sent: count, received: count, ..LiveCounts::default() }
}

fn retransmitted_segments(tcp: Option<&TcpInfoSummary>) -> Option<u64> {
    tcp.map(|tcp| tcp.retransmitted)
}

/// Returns counts and summary of a latency row. Round trips follow one another on each connection,
/// so the duration is the sum of their times divided by the number of connections, even if the row
/// was ended early.
pub(super) fn latency_row_summary(
    row: &TcpLatencyRow,
    connections: u32,
) -> (LiveCounts, LivePartSummary) {
    let mean_s = row.rtt_ns.as_ref().map_or(0.0, |rtt| rtt.mean / 1e9);
    let achieved_rate = if mean_s > 0.0 { f64::from(connections) / mean_s } else { 0.0 };
    let summary = LivePartSummary {
        achieved_rate,
        duration_s: row.round_trips as f64 * mean_s / f64::from(connections.max(1)),
        sent: row.round_trips,
        received: row.round_trips,
        retransmitted: retransmitted_segments(row.tcp.as_ref()),
        latency_ns: row.rtt_ns.as_ref().map(Percentiles::from_distribution),
        ..LivePartSummary::default()
    };
    (answered_counts(row.round_trips), summary)
}

/// Returns counts and summary of a bandwidth row.
pub(super) fn bandwidth_row_summary(row: &TcpBandwidthRow) -> (LiveCounts, LivePartSummary) {
    let summary = LivePartSummary {
        achieved_rate: row.message_rate,
        duration_s: row.duration_ns as f64 / 1e9,
        byte_rate: Some(row.rate),
        retransmitted: retransmitted_segments(row.tcp.as_ref()),
        ..LivePartSummary::default()
    };
    (LiveCounts { bytes: row.received_bytes, ..LiveCounts::default() }, summary)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_connection_publishes_at_intervals_and_only_if_observed() {
        let slots = ProgressSlots::new(1);
        let (mut watched, mut alone) = (
            ConnectionProgressPublisher::new(Some(&slots), 0),
            ConnectionProgressPublisher::new(None, 0),
        );
        let mut times = Histogram::new();
        times.record(1_000);
        let now = watched.started_at;
        assert!(
            watched.publish_round_trips(now, &times) && !alone.publish_round_trips(now, &times)
        );
        times.record(3_000);
        assert!(
            !watched.publish_round_trips(now + Duration::from_millis(1), &times),
            "it was just now"
        );
        let mut sum = Progress::default();
        slots.sum(&mut sum);
        assert_eq!((sum.counts.received, sum.latency.count()), (1, 1));
        assert!(watched.publish_round_trips(now + Duration::from_secs(1), &times));
        slots.sum(&mut sum);
        assert_eq!((sum.counts.received, sum.latency.count()), (2, 2));
    }
}
