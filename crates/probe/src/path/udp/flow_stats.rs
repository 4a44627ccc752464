//! Stats of the replies of one flow in one row: first, late, duplicate and reordered ones, and
//! times. Owned by one thread; recording allocates nothing. Pure.

use horolog_record::{LiveCounts, PathCounts, PathDirectionCounts, Progress};
use horolog_stats::{DuplicateWindow, MarkOutcome, Recorder, SignedRecorder};
use horolog_time::Span;
use horolog_wire::path_probe::{HostLosses, SessionCounts};

use super::codec::ProbeReply;

/// Instants of an exchange at the near end, in ns; the UTC ones are of one clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExchangeTimes {
    /// Latency: from the instant that counts to the reply.
    pub(super) latency: Span,
    /// User transmit time of the request, UTC.
    pub(super) sent_ns: i64,
    /// User receive time of the reply, UTC.
    pub(super) taken_ns: i64,
    /// Kernel transmit timestamp of the request.
    pub(super) left_ns: Option<i64>,
    /// Kernel receive timestamp of the reply.
    pub(super) received_ns: Option<i64>,
}

/// Class of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReplyClass {
    /// First one to its request, in time.
    First,
    /// Warm-up, late or duplicate.
    Other,
}

/// Stats of a flow.
#[derive(Debug)]
pub(super) struct FlowStats {
    /// Number of the first request that counts.
    warm_up: u32,
    timeout: Span,
    pub(super) counts: PathCounts,
    /// Duplicate replies that were duplicated in the forward direction.
    forward_duplicate: u64,
    /// One past the highest number received.
    next: u32,
    /// Far end's count in the first replies; it distinguishes duplicates by direction.
    arrivals_of: Box<[u32]>,
    /// Far end's counts, as of the most recent reply.
    pub(super) counted: Option<SessionCounts>,
    /// Losses of its host, as reported at the end.
    pub(super) far_losses: Option<HostLosses>,
    /// Packets dropped by this host's socket.
    pub(super) dropped: Option<u64>,
    pub(super) rtt: Recorder,
    pub(super) forward: SignedRecorder,
    pub(super) backward: SignedRecorder,
    pub(super) far: Recorder,
    pub(super) host_send: Recorder,
    pub(super) host_receive: Recorder,
    pub(super) wire: Recorder,
    pub(super) class_there: Option<u8>,
    /// Error bound of the far end's clock, from its last reply.
    pub(super) far_error: Option<Span>,
}

/// Numbers stored with the far end's count; a copy arrives soon after the original.
const REMEMBERED: usize = 4_096;

impl FlowStats {
    /// Returns empty stats. Requests below `warm_up` are not counted.
    pub(super) fn new(warm_up: u32, timeout: Span) -> Self {
        Self {
            warm_up,
            timeout,
            counts: PathCounts::default(),
            forward_duplicate: 0,
            next: 0,
            arrivals_of: vec![0; REMEMBERED].into_boxed_slice(),
            counted: None,
            far_losses: None,
            dropped: None,
            rtt: Recorder::new(),
            forward: SignedRecorder::new(),
            backward: SignedRecorder::new(),
            far: Recorder::new(),
            host_send: Recorder::new(),
            host_receive: Recorder::new(),
            wire: Recorder::new(),
            class_there: None,
            far_error: None,
        }
    }

    /// Publishes the counts so far; `sent` is the number of requests sent.
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

    /// Returns true if a request counts.
    pub(super) const fn counts_request(&self, sequence: u32) -> bool {
        sequence >= self.warm_up
    }

    /// Takes a reply. `window` records which requests were sent and which of them were answered.
    pub(super) fn take(
        &mut self,
        reply: &ProbeReply,
        at: &ExchangeTimes,
        window: &DuplicateWindow,
    ) -> ReplyClass {
        if reply.is_warm_up {
            return ReplyClass::Other;
        }
        let mark = window.mark(u64::from(reply.sequence));
        if mark == MarkOutcome::Outside {
            self.counts.invalid += 1;
            return ReplyClass::Other;
        }
        if !self.counts_request(reply.sequence) {
            return ReplyClass::Other;
        }
        if let Some(counted) = reply.counted {
            let known = self.counted.map_or(0, |counted| counted.arrivals);
            if counted.arrivals >= known {
                self.counted = Some(counted);
            }
        }
        if mark == MarkOutcome::Duplicate {
            self.counts.duplicate += 1;
            self.count_copy(reply);
            return ReplyClass::Other;
        }
        self.remember(reply);
        if at.latency > self.timeout {
            self.counts.late += 1;
            return ReplyClass::Other;
        }
        self.counts.received += 1;
        if reply.sequence < self.next {
            self.counts.reordered += 1;
        } else {
            self.next = reply.sequence.saturating_add(1);
        }
        self.record(reply, at);
        ReplyClass::First
    }

    fn remember(&mut self, reply: &ProbeReply) {
        if let Some(arrivals) = reply.arrivals {
            self.arrivals_of[reply.sequence as usize % REMEMBERED] = arrivals;
        }
    }

    /// Counts a copy. A copy that the far end echoed separately was made in the forward direction.
    fn count_copy(&mut self, reply: &ProbeReply) {
        let before = self.arrivals_of[reply.sequence as usize % REMEMBERED];
        if reply.arrivals.is_some_and(|arrivals| arrivals != before) {
            self.forward_duplicate += 1;
        }
    }

    fn record(&mut self, reply: &ProbeReply, at: &ExchangeTimes) {
        let ns = |span: i64| u64::try_from(span).unwrap_or(0);
        self.rtt.record(ns(at.latency.as_ns()));
        let (left, received_ns) =
            (at.left_ns.unwrap_or(at.sent_ns), at.received_ns.unwrap_or(at.taken_ns));
        self.forward.record(reply.received_ns.saturating_sub(left));
        self.backward.record(received_ns.saturating_sub(reply.sent_ns));
        let far = reply.sent_ns.saturating_sub(reply.received_ns);
        self.far.record(ns(far));
        if let (Some(left), Some(received_ns)) = (at.left_ns, at.received_ns) {
            self.host_send.record(ns(left.saturating_sub(at.sent_ns)));
            self.host_receive.record(ns(at.taken_ns.saturating_sub(received_ns)));
            self.wire.record(ns(received_ns.saturating_sub(left).saturating_sub(far)));
        }
        self.class_there = reply.traffic_class.or(self.class_there);
        self.far_error = reply.error.or(self.far_error);
    }

    /// Returns the counts of both directions, by the counts of both ends; `None` if the far end
    /// counts nothing.
    pub(super) fn directions(&self) -> Option<(PathDirectionCounts, PathDirectionCounts)> {
        let counted = self.counted?;
        let PathCounts { sent, received, late, duplicate, reordered, .. } = self.counts;
        let there = u64::from(counted.arrivals).saturating_sub(self.forward_duplicate);
        let behind = u64::from(counted.behind).saturating_sub(self.forward_duplicate);
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

    /// Adds the stats of another flow.
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
        self.far.merge(&other.far);
        self.host_send.merge(&other.host_send);
        self.host_receive.merge(&other.host_receive);
        self.wire.merge(&other.wire);
        self.class_there = self.class_there.or(other.class_there);
        self.far_error = self.far_error.or(other.far_error);
    }
}

#[cfg(test)]
#[path = "flow_stats_tests.rs"]
mod tests;
