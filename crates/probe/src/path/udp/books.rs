//! What is counted of the replies of one flow in one row: first ones, late ones, those that came
//! again or behind a later one, and times. One thread has them; recording allocates nothing. Pure.

use horolog_record::{LookCounts, PathCounts, PathDirection, SoFar};
use horolog_stats::{Mark, Recorder, SeenWindow, SignedRecorder};
use horolog_time::Span;
use horolog_wire::path_probe::{Counted, Losses};

use super::codec::Reply;

/// The instants of an exchange that the near end knows, in ns; those in UTC of one clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instants {
    /// From the instant that counts to the reply.
    pub(super) latency: Span,
    /// When the program handed the request over, UTC.
    pub(super) sent_ns: i64,
    /// When the program took the reply, UTC.
    pub(super) taken_ns: i64,
    /// When the request went to the driver, by the kernel.
    pub(super) left_ns: Option<i64>,
    /// When the reply came from the driver, by the kernel.
    pub(super) came_ns: Option<i64>,
}

/// What became of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// The first one to its request, within time.
    First,
    /// Of the warm-up, late, or once more.
    Other,
}

/// The books of a flow.
#[derive(Debug)]
pub(super) struct Books {
    /// Requests from this number on count.
    warm_up: u32,
    timeout: Span,
    pub(super) counts: PathCounts,
    /// Replies that came twice and were made twice on the way there.
    forward_duplicate: u64,
    /// One past the highest number that came.
    next: u32,
    /// The last first reply of those that came twice are told apart by the far end's count.
    arrivals_of: Box<[u32]>,
    /// What the far end counted, as of the reply that knew most.
    pub(super) counted: Option<Counted>,
    /// What its host lost, as it told at the end.
    pub(super) far_losses: Option<Losses>,
    /// What this host's socket dropped.
    pub(super) dropped: Option<u64>,
    pub(super) rtt: Recorder,
    pub(super) forward: SignedRecorder,
    pub(super) backward: SignedRecorder,
    pub(super) far: Recorder,
    pub(super) host_send: Recorder,
    pub(super) host_receive: Recorder,
    pub(super) wire: Recorder,
    pub(super) class_there: Option<u8>,
    /// How far the far end's clock may be off, as its last reply told.
    pub(super) far_error: Option<Span>,
}

/// Numbers that are remembered with the far end's count; a copy comes soon after.
const REMEMBERED: usize = 4_096;

impl Books {
    /// Empty ones. Requests below `warm_up` are not counted.
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

    /// Says what was counted so far, of so many requests that left.
    pub(super) fn so_far(&self, sent: u64, told: &mut SoFar) {
        told.clear();
        told.counts = LookCounts {
            sent,
            received: self.counts.received,
            late: self.counts.late,
            duplicate: self.counts.duplicate,
            invalid: self.counts.invalid,
            refused: self.counts.refused,
            ..LookCounts::default()
        };
        told.latency.merge(&self.rtt);
    }

    /// Whether a request is one of those that count.
    pub(super) const fn counts_request(&self, sequence: u32) -> bool {
        sequence >= self.warm_up
    }

    /// Takes a reply. `seen` knows which requests were sent and which of them were answered.
    pub(super) fn take(&mut self, reply: &Reply, at: &Instants, seen: &SeenWindow) -> Taken {
        if reply.is_warm_up {
            return Taken::Other;
        }
        let mark = seen.mark(u64::from(reply.sequence));
        if mark == Mark::Outside {
            self.counts.invalid += 1;
            return Taken::Other;
        }
        if !self.counts_request(reply.sequence) {
            return Taken::Other;
        }
        if let Some(counted) = reply.counted {
            let known = self.counted.map_or(0, |counted| counted.arrivals);
            if counted.arrivals >= known {
                self.counted = Some(counted);
            }
        }
        if mark == Mark::Duplicate {
            self.counts.duplicate += 1;
            self.count_copy(reply);
            return Taken::Other;
        }
        self.remember(reply);
        if at.latency > self.timeout {
            self.counts.late += 1;
            return Taken::Other;
        }
        self.counts.received += 1;
        if reply.sequence < self.next {
            self.counts.reordered += 1;
        } else {
            self.next = reply.sequence.saturating_add(1);
        }
        self.record(reply, at);
        Taken::First
    }

    fn remember(&mut self, reply: &Reply) {
        if let Some(counted) = reply.counted {
            self.arrivals_of[reply.sequence as usize % REMEMBERED] = counted.arrivals;
        }
    }

    /// A copy that the far end made an echo of was made on the way there.
    fn count_copy(&mut self, reply: &Reply) {
        let before = self.arrivals_of[reply.sequence as usize % REMEMBERED];
        if reply.counted.is_some_and(|counted| counted.arrivals != before) {
            self.forward_duplicate += 1;
        }
    }

    fn record(&mut self, reply: &Reply, at: &Instants) {
        let ns = |span: i64| u64::try_from(span).unwrap_or(0);
        self.rtt.record(ns(at.latency.as_ns()));
        let (left, came) = (at.left_ns.unwrap_or(at.sent_ns), at.came_ns.unwrap_or(at.taken_ns));
        self.forward.record(reply.received_ns.saturating_sub(left));
        self.backward.record(came.saturating_sub(reply.sent_ns));
        let far = reply.sent_ns.saturating_sub(reply.received_ns);
        self.far.record(ns(far));
        if let (Some(left), Some(came)) = (at.left_ns, at.came_ns) {
            self.host_send.record(ns(left.saturating_sub(at.sent_ns)));
            self.host_receive.record(ns(at.taken_ns.saturating_sub(came)));
            self.wire.record(ns(came.saturating_sub(left).saturating_sub(far)));
        }
        self.class_there = reply.traffic_class.or(self.class_there);
        self.far_error = reply.error.or(self.far_error);
    }

    /// What became of datagrams there and back, by what both ends counted; `None` where the far end
    /// counts nothing.
    pub(super) fn directions(&self) -> Option<(PathDirection, PathDirection)> {
        let counted = self.counted?;
        let PathCounts { sent, received, late, duplicate, reordered, .. } = self.counts;
        let there = u64::from(counted.arrivals).saturating_sub(self.forward_duplicate);
        let behind = u64::from(counted.behind).saturating_sub(self.forward_duplicate);
        let forward = PathDirection {
            lost: sent.saturating_sub(there),
            duplicate: self.forward_duplicate,
            reordered: behind,
        };
        let backward = PathDirection {
            lost: there.saturating_sub(received + late),
            duplicate: duplicate.saturating_sub(self.forward_duplicate),
            reordered: reordered.saturating_sub(behind),
        };
        Some((forward, backward))
    }

    /// Adds those of another flow.
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
#[path = "books_tests.rs"]
mod tests;
