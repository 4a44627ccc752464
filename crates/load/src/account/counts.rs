//! What became of the requests of a trial or an interval, and how the parts of it add up.

use horolog_record::{InvalidReason, LookCounts};
use horolog_stats::Recorder;
use horolog_time::{Monotonic, Timestamp};

use super::{Closed, PtpCounts};
use crate::fairness;
use crate::offset::OffsetCounts;
use crate::silence::{self, Silence};

/// What became of the requests of one trial.
#[derive(Clone, Debug, Default)]
pub struct TrialCounts {
    /// Requests that the schedule held; in the books of an interval, those of them that were left
    /// out.
    pub planned: u64,
    /// Requests that left.
    pub sent: u64,
    /// Requests that the own sending path refused.
    pub refused: u64,
    /// When the first request left.
    pub first_sent: Option<Timestamp<Monotonic>>,
    /// When the last request left.
    pub last_sent: Option<Timestamp<Monotonic>>,
    /// Valid first replies in time.
    pub received: u64,
    /// Those of them that were in interleaved mode.
    pub interleaved: u64,
    /// Requests that left and were authenticated.
    pub nts_sent: u64,
    /// Valid first replies in time to these.
    pub nts_received: u64,
    /// Requests with a cookie that was used before, of clients with a session of their own.
    pub cookies_reused: Option<u64>,
    /// What only PTP counts, where it was asked for.
    pub ptp: Option<PtpCounts>,
    /// Further valid replies to an answered request.
    pub duplicate: u64,
    /// Valid replies that came after the time allowed, and all to requests of an earlier trial.
    pub late: u64,
    /// Those of them that were to requests of an earlier trial, and explain no loss of this one.
    pub late_earlier: u64,
    /// Invalid replies, in the order of [`InvalidReason::ALL`].
    pub invalid: [u64; InvalidReason::ALL.len()],
    /// Replies that the own receive rings or sockets had no room for.
    pub ring_dropped: u64,
    /// ICMP messages that said that nobody listens on the target's port, as far as the engine sees
    /// them.
    pub port_closed: u64,
    /// Received replies of a server that says that it is not synchronised.
    pub server_unsynchronised: u64,
    /// What each client asked and was answered, where that is counted.
    pub clients: Vec<fairness::Asked>,
    /// When the server was silent; `None` in books that know nothing of it.
    pub silences: Option<Vec<Silence>>,
    /// From the intended send instant to the receipt of the reply, in ns.
    pub rtt: Recorder,
    /// The server's transmit less its receive timestamp in basic replies, in ns.
    pub response: Recorder,
    /// From the intended to the real send instant, in ns.
    pub lateness: Recorder,
    /// Offsets of the server's transmit timestamps, where they were asked for.
    pub offsets: Option<OffsetCounts>,
    /// In a mix, what became of each kind of requests; they are among the counts above.
    pub parts: Vec<TrialCounts>,
}

impl TrialCounts {
    /// Requests without a valid reply in time.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Counts a reply to a request of an earlier trial.
    pub(super) fn came_of_earlier_trial(&mut self) {
        self.late += 1;
        self.late_earlier += 1;
    }

    /// The plain numbers of it, for those who look on.
    #[must_use]
    pub fn look(&self) -> LookCounts {
        LookCounts {
            sent: self.sent,
            received: self.received,
            late: self.late,
            duplicate: self.duplicate,
            invalid: self.invalid.iter().sum(),
            refused: self.refused,
            dropped: self.ring_dropped,
            bytes: 0,
        }
    }

    /// The same as the counts of a mix of `count` kinds of requests, of which they are number
    /// `index`.
    #[must_use]
    pub fn as_part(self, index: usize, count: usize) -> Self {
        let mut parts = vec![Self::default(); count];
        parts[index].clone_from(&self);
        Self { parts, ..self }
    }

    /// Turns what the books of intervals hold of the schedule, which is what was left out, into all
    /// that it held.
    pub fn plan_in_full(&mut self) {
        self.planned += self.sent + self.refused;
        self.parts.iter_mut().for_each(Self::plan_in_full);
    }

    /// What all of some books hold.
    #[must_use]
    pub fn sum(books: &[Closed]) -> Self {
        books.iter().fold(Self::default(), |mut sum, (_, counts)| {
            sum.merge(counts);
            sum
        })
    }

    /// Adds what another lane counted in the same trial, or the same one in another interval.
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
        PtpCounts::merge(&mut self.ptp, other.ptp);
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
        self.silences = match (self.silences.take(), &other.silences) {
            (Some(mine), Some(theirs)) => Some(silence::common(&mine, theirs)),
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
