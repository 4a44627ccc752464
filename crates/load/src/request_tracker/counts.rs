//! Counts of the requests of a trial or an interval, by outcome, and their sums.

use horolog_record::{InvalidReplyReason, LiveCounts};
use horolog_stats::Histogram;
use horolog_time::{Monotonic, Timestamp};

use super::{ClosedInterval, PtpReplyCounts};
use crate::fairness;
use crate::offset::ServerOffsetCounts;
use crate::outage::{self, Outage};

/// Counts of the requests of one trial or interval, by outcome.
#[derive(Clone, Debug, Default)]
pub struct TrialCounts {
    /// Requests in the schedule; in the counts of an interval, the omitted ones.
    pub planned: u64,
    /// Requests sent.
    pub sent: u64,
    /// Requests whose sending failed on this host.
    pub refused: u64,
    /// Send time of the first request.
    pub first_sent: Option<Timestamp<Monotonic>>,
    /// Send time of the last request.
    pub last_sent: Option<Timestamp<Monotonic>>,
    /// Valid first replies in time.
    pub received: u64,
    /// Valid first replies in time in interleaved mode.
    pub interleaved: u64,
    /// Authenticated requests sent.
    pub nts_sent: u64,
    /// Valid first replies in time to authenticated requests.
    pub nts_received: u64,
    /// Requests with a reused cookie, of clients with their own session.
    pub cookies_reused: Option<u64>,
    /// Counts of PTP replies by kind; `None` for NTP.
    pub ptp: Option<PtpReplyCounts>,
    /// Further valid replies to an answered request.
    pub duplicate: u64,
    /// Valid replies after the timeout, and all to requests of an earlier trial.
    pub late: u64,
    /// Replies in `late` to requests of an earlier trial; they explain no loss of this one.
    pub late_earlier: u64,
    /// Invalid replies, in the order of [`InvalidReplyReason::ALL`].
    pub invalid: [u64; InvalidReplyReason::ALL.len()],
    /// Replies that the local receive rings or sockets had no room for.
    pub ring_dropped: u64,
    /// ICMP port-unreachable messages of the target, if the engine receives them.
    pub port_closed: u64,
    /// Received replies of an NTP server that reports itself as unsynchronised, or of a PTP master
    /// that reports its time as not traceable.
    pub server_unsynchronised: u64,
    /// Counts of each client, if they are recorded.
    pub clients: Vec<fairness::ClientReplyCounts>,
    /// Outages of the server; `None` in counts that do not cover them.
    pub outages: Option<Vec<Outage>>,
    /// Time from the intended send time to the receipt of the reply, in ns.
    pub rtt: Histogram,
    /// Response time of the server, in ns: its transmit minus its receive timestamp. An interleaved
    /// reply states that of an earlier reply; of a NetSync Monitor request it is the time to the
    /// Sync.
    pub response: Histogram,
    /// Send lateness, in ns.
    pub lateness: Histogram,
    /// Offsets of the server's transmit timestamps, if they are measured.
    pub offsets: Option<ServerOffsetCounts>,
    /// Counts of each part of a mix, which are included in the counts above.
    pub parts: Vec<TrialCounts>,
}

impl TrialCounts {
    /// Returns the requests without a valid reply in time.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Returns the received replies of an NTP server that reports itself as unsynchronised.
    #[must_use]
    pub const fn unsynchronised(&self) -> u64 {
        // A PTP master with an untraceable clock may be synchronised.
        if self.ptp.is_some() { 0 } else { self.server_unsynchronised }
    }

    /// Counts a reply to a request of an earlier trial.
    pub(super) fn count_stale_reply(&mut self) {
        self.late += 1;
        self.late_earlier += 1;
    }

    /// Returns the counts that the live view shows.
    #[must_use]
    pub fn live_counts(&self) -> LiveCounts {
        LiveCounts {
            sent: self.sent,
            received: self.received,
            late: self.late,
            duplicate: self.duplicate,
            unsynchronised: self.unsynchronised(),
            invalid: self.invalid.iter().sum(),
            refused: self.refused,
            dropped: self.ring_dropped,
            bytes: 0,
        }
    }

    /// Converts the counts of part `index` of a mix of `count` parts to those of the mix.
    #[must_use]
    pub fn as_part(self, index: usize, count: usize) -> Self {
        let mut parts = vec![Self::default(); count];
        parts[index].clone_from(&self);
        Self { parts, ..self }
    }

    /// Adds the requests that were sent or refused to `planned`, which contains only the omitted
    /// ones in interval counts.
    pub fn add_omitted(&mut self) {
        self.planned += self.sent + self.refused;
        self.parts.iter_mut().for_each(Self::add_omitted);
    }

    /// Returns the sum of the intervals.
    #[must_use]
    pub fn sum_intervals(intervals: &[ClosedInterval]) -> Self {
        intervals.iter().fold(Self::default(), |mut sum, (_, counts)| {
            sum.merge(counts);
            sum
        })
    }

    /// Adds the counts of another lane in the same trial, or of the same lane in another interval.
    /// The counts of clients are appended; of outages, only the common periods remain.
    pub fn merge(&mut self, other: &Self) {
        self.planned += other.planned;
        self.sent += other.sent;
        self.refused += other.refused;
        self.first_sent = earliest(self.first_sent, other.first_sent);
        self.last_sent = self.last_sent.max(other.last_sent);
        self.received += other.received;
        self.interleaved += other.interleaved;
        self.nts_sent += other.nts_sent;
        self.nts_received += other.nts_received;
        self.cookies_reused = match (self.cookies_reused, other.cookies_reused) {
            (Some(mine), Some(theirs)) => Some(mine + theirs),
            (mine, theirs) => mine.or(theirs),
        };
        PtpReplyCounts::merge(&mut self.ptp, other.ptp);
        self.duplicate += other.duplicate;
        self.late += other.late;
        self.late_earlier += other.late_earlier;
        for (mine, theirs) in self.invalid.iter_mut().zip(other.invalid) {
            *mine += theirs;
        }
        self.ring_dropped += other.ring_dropped;
        self.port_closed += other.port_closed;
        self.server_unsynchronised += other.server_unsynchronised;
        self.clients.extend_from_slice(&other.clients);
        self.outages = match (self.outages.take(), &other.outages) {
            (Some(mine), Some(theirs)) => Some(outage::common_outages(&mine, theirs)),
            (mine, theirs) => mine.or_else(|| theirs.clone()),
        };
        self.rtt.merge(&other.rtt);
        self.response.merge(&other.response);
        self.lateness.merge(&other.lateness);
        if let Some(theirs) = &other.offsets {
            self.offsets.get_or_insert_default().merge(theirs);
        }
        self.parts.resize_with(self.parts.len().max(other.parts.len()), Self::default);
        for (mine, theirs) in self.parts.iter_mut().zip(&other.parts) {
            mine.merge(theirs);
        }
    }
}

fn earliest(
    a: Option<Timestamp<Monotonic>>,
    b: Option<Timestamp<Monotonic>>,
) -> Option<Timestamp<Monotonic>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
