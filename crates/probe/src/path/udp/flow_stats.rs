//! Stats of one flow in one row: replies by class, and times. Owned by one thread; recording
//! allocates nothing. Pure.

use horolog_record::{LiveCounts, PathDirectionCounts, PathRequestCounts, Progress};
use horolog_stats::{DuplicateWindow, Histogram, SequenceMarkOutcome, SignedHistogram};
use horolog_time::Span;
use horolog_wire::path_probe::{FarEndHostLosses, SessionCounts};

use super::codec::ProbeReply;

/// Times of an exchange at the near end, in ns; those in UTC are of one clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct NearEndExchangeTimes {
    /// Latency: from the intended send time (open loop) or the send time (ping-pong) to the reply.
    pub(super) latency: Span,
    /// User transmit time of the request, UTC.
    pub(super) user_sent_ns: i64,
    /// User receive time of the reply, UTC.
    pub(super) user_received_ns: i64,
    /// Kernel transmit timestamp of the request.
    pub(super) kernel_sent_ns: Option<i64>,
    /// Kernel receive timestamp of the reply.
    pub(super) kernel_received_ns: Option<i64>,
}

/// Class of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReplyClass {
    /// First reply to its request, within the timeout.
    FirstInTime,
    /// Reply of the warm-up, late, duplicate, or to no request of the window.
    Other,
}

/// Stats of a flow.
#[derive(Debug)]
pub(super) struct FlowStats {
    /// Sequence number of the first counted request.
    warm_up: u32,
    timeout: Span,
    pub(super) counts: PathRequestCounts,
    /// Duplicates that arose on the way to the far end.
    forward_duplicate: u64,
    /// Highest received sequence number plus one.
    next_sequence: u32,
    /// Far end's arrival count in the first reply to each recent request, by sequence number modulo
    /// its length; distinguishes duplicates by direction.
    arrivals_by_sequence: Box<[u32]>,
    /// Far end's counts in the latest reply.
    pub(super) far_counts: Option<SessionCounts>,
    /// Losses at the far end's host, reported at the end of the session.
    pub(super) far_losses: Option<FarEndHostLosses>,
    /// Packets dropped by this host's socket.
    pub(super) dropped: Option<u64>,
    pub(super) rtt: Histogram,
    pub(super) forward: SignedHistogram,
    pub(super) backward: SignedHistogram,
    pub(super) far_residence: Histogram,
    pub(super) host_send: Histogram,
    pub(super) host_receive: Histogram,
    pub(super) wire: Histogram,
    pub(super) request_traffic_class: Option<u8>,
    /// Error bound of the far end's clock in its latest reply.
    pub(super) far_error: Option<Span>,
}

/// Number of recent requests whose arrival count is stored; a duplicate arrives soon after the
/// original.
const ARRIVALS_STORED: usize = 4_096;

impl FlowStats {
    /// Returns empty stats; requests with numbers below `warm_up` are not counted.
    pub(super) fn new(warm_up: u32, timeout: Span) -> Self {
        Self {
            warm_up,
            timeout,
            counts: PathRequestCounts::default(),
            forward_duplicate: 0,
            next_sequence: 0,
            arrivals_by_sequence: vec![0; ARRIVALS_STORED].into_boxed_slice(),
            far_counts: None,
            far_losses: None,
            dropped: None,
            rtt: Histogram::new(),
            forward: SignedHistogram::new(),
            backward: SignedHistogram::new(),
            far_residence: Histogram::new(),
            host_send: Histogram::new(),
            host_receive: Histogram::new(),
            wire: Histogram::new(),
            request_traffic_class: None,
            far_error: None,
        }
    }

    /// Writes the present counts to `progress`; `sent` is the number of requests sent.
    pub(super) fn publish_progress(&self, sent: u64, progress: &mut Progress) {
        progress.clear();
        progress.counts = LiveCounts {
            sent,
            received: self.counts.received,
            late: self.counts.late,
            duplicate: self.counts.duplicate,
            invalid: self.counts.invalid,
            refused: self.counts.refused,
            ..LiveCounts::default()
        };
        progress.latency.merge(&self.rtt);
    }

    /// Returns true if a request is not part of the warm-up.
    pub(super) const fn counts_request(&self, sequence: u32) -> bool {
        sequence >= self.warm_up
    }

    /// Counts a reply, and records its times if it is the first and in time. `window` holds the
    /// requests that were sent and which of them were answered.
    pub(super) fn record_reply(
        &mut self,
        reply: &ProbeReply,
        times: &NearEndExchangeTimes,
        window: &DuplicateWindow,
    ) -> ReplyClass {
        if reply.is_warm_up {
            return ReplyClass::Other;
        }
        let mark = window.mark(u64::from(reply.sequence));
        if mark == SequenceMarkOutcome::Outside {
            self.counts.invalid += 1;
            return ReplyClass::Other;
        }
        if !self.counts_request(reply.sequence) {
            return ReplyClass::Other;
        }
        if let Some(counted) = reply.counts {
            let known = self.far_counts.map_or(0, |counted| counted.arrivals);
            if counted.arrivals >= known {
                self.far_counts = Some(counted);
            }
        }
        if mark == SequenceMarkOutcome::Duplicate {
            self.counts.duplicate += 1;
            self.count_duplicate(reply);
            return ReplyClass::Other;
        }
        self.store_arrivals(reply);
        if times.latency > self.timeout {
            self.counts.late += 1;
            return ReplyClass::Other;
        }
        self.counts.received += 1;
        if reply.sequence < self.next_sequence {
            self.counts.reordered += 1;
        } else {
            self.next_sequence = reply.sequence.saturating_add(1);
        }
        self.record_times(reply, times);
        ReplyClass::FirstInTime
    }

    fn store_arrivals(&mut self, reply: &ProbeReply) {
        if let Some(arrivals) = reply.arrivals {
            self.arrivals_by_sequence[reply.sequence as usize % ARRIVALS_STORED] = arrivals;
        }
    }

    /// Counts a duplicate; one with another arrival count was echoed separately, so it arose in the
    /// forward direction.
    fn count_duplicate(&mut self, reply: &ProbeReply) {
        let before = self.arrivals_by_sequence[reply.sequence as usize % ARRIVALS_STORED];
        if reply.arrivals.is_some_and(|arrivals| arrivals != before) {
            self.forward_duplicate += 1;
        }
    }

    fn record_times(&mut self, reply: &ProbeReply, times: &NearEndExchangeTimes) {
        let ns = |span: i64| u64::try_from(span).unwrap_or(0);
        self.rtt.record(ns(times.latency.as_ns()));
        let (left, received_ns) = (
            times.kernel_sent_ns.unwrap_or(times.user_sent_ns),
            times.kernel_received_ns.unwrap_or(times.user_received_ns),
        );
        self.forward.record(reply.received_ns.saturating_sub(left));
        self.backward.record(received_ns.saturating_sub(reply.sent_ns));
        let far = reply.sent_ns.saturating_sub(reply.received_ns);
        self.far_residence.record(ns(far));
        if let (Some(left), Some(received_ns)) = (times.kernel_sent_ns, times.kernel_received_ns) {
            self.host_send.record(ns(left.saturating_sub(times.user_sent_ns)));
            self.host_receive.record(ns(times.user_received_ns.saturating_sub(received_ns)));
            self.wire.record(ns(received_ns.saturating_sub(left).saturating_sub(far)));
        }
        self.request_traffic_class = reply.traffic_class.or(self.request_traffic_class);
        self.far_error = reply.error.or(self.far_error);
    }

    /// Returns forward and backward counts, from the counts of both ends; `None` if the far end
    /// reports none.
    pub(super) fn direction_counts(&self) -> Option<(PathDirectionCounts, PathDirectionCounts)> {
        let counted = self.far_counts?;
        let PathRequestCounts { sent, received, late, duplicate, reordered, .. } = self.counts;
        let there = u64::from(counted.arrivals).saturating_sub(self.forward_duplicate);
        let behind = u64::from(counted.out_of_order).saturating_sub(self.forward_duplicate);
        let forward = PathDirectionCounts {
            lost: sent.saturating_sub(there),
            duplicate: self.forward_duplicate,
            reordered: behind,
        };
        let backward = PathDirectionCounts {
            lost: there.saturating_sub(received + late),
            duplicate: duplicate.saturating_sub(self.forward_duplicate),
            reordered: reordered.saturating_sub(behind),
        };
        Some((forward, backward))
    }

    /// Adds counts and times of another flow, except those that tell directions and losses at both
    /// hosts, which [`super::row::FlowSums`] adds.
    pub(super) fn merge(&mut self, other: &Self) {
        let (all, more) = (&mut self.counts, &other.counts);
        all.sent += more.sent;
        all.received += more.received;
        all.late += more.late;
        all.duplicate += more.duplicate;
        all.reordered += more.reordered;
        all.invalid += more.invalid;
        all.refused += more.refused;
        self.rtt.merge(&other.rtt);
        self.forward.merge(&other.forward);
        self.backward.merge(&other.backward);
        self.far_residence.merge(&other.far_residence);
        self.host_send.merge(&other.host_send);
        self.host_receive.merge(&other.host_receive);
        self.wire.merge(&other.wire);
        self.request_traffic_class = self.request_traffic_class.or(other.request_traffic_class);
        self.far_error = self.far_error.or(other.far_error);
    }
}

#[cfg(test)]
#[path = "flow_stats_tests.rs"]
mod tests;
