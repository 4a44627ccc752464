//! Foreign masters of a port, and the selection of the best one (IEEE 1588-2019, clause 9.3).

use std::cmp::Ordering;

use horolog_time::{Monotonic, Span, Timestamp};
use horolog_wire::ptp::message::Grandmaster;
use horolog_wire::ptp::{Announce, Header, PortIdentity};

use crate::compose::interval_from_log;
use crate::refusal::PtpRefusal;

/// Maximum number of foreign masters stored by a port (clause 9.3.2.4.5 requires at least five).
pub const FOREIGN_MASTERS_MAX: usize = 5;
/// Number of Announce intervals after which a master that was received once is removed
/// (`FOREIGN_MASTER_TIME_WINDOW`).
const TIME_WINDOW: i64 = 4;
/// Limits to which a master's Announce interval is clamped, in log2 seconds (annex I.3.2), here and
/// below.
const LOG_INTERVAL_MIN: i8 = -7;
const LOG_INTERVAL_MAX: i8 = 4;
/// Value of `stepsRemoved` from which a master does not qualify (clause 9.3.2.5).
const STEPS_MAX: u16 = 255;

/// Rank of a master by the data set comparison; smaller is better (figures 34 and 35).
///
/// For the same grandmaster, figure 35 compares `stepsRemoved`, then the senders. Its distinction
/// between "better" and "better by topology" only serves a boundary clock to choose between slave
/// and passive ports. A port that is never a slave yields in either case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MasterRank {
    /// Grandmaster data of the Announce message.
    pub grandmaster: Grandmaster,
    /// Value of `stepsRemoved`: number of hops from the grandmaster.
    pub steps_removed: u16,
    /// Port that sent the Announce message.
    pub sender: PortIdentity,
}

impl Ord for MasterRank {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |rank: &Self| {
            let Grandmaster {
                priority1,
                clock_class,
                clock_accuracy,
                variance,
                priority2,
                identity,
            } = rank.grandmaster;
            let quality = (priority1, clock_class, clock_accuracy, variance, priority2, identity);
            (quality, rank.steps_removed, rank.sender.clock, rank.sender.port)
        };
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for MasterRank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Foreign master known from its Announce messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForeignMasterRecord {
    /// Rank of the master by its last Announce message.
    pub rank: MasterRank,
    /// True if a second Announce arrived within the time window (`FOREIGN_MASTER_THRESHOLD`).
    pub qualified: bool,
    /// Receive time of the last Announce message.
    pub last_announce_at: Timestamp<Monotonic>,
    /// Announce interval of the master, or of this port if that is longer.
    interval: Span,
    sequence_id: u16,
}

/// Foreign masters of a port.
#[derive(Clone, Debug)]
pub(crate) struct ForeignMasters {
    own_clock: u64,
    records: Vec<ForeignMasterRecord>,
    log_announce: i8,
    receipt_timeout: i64,
}

impl ForeignMasters {
    /// Creates an empty set for a port of the clock `own_clock`, with the port's Announce interval
    /// in log2 seconds, and the number of missed intervals after which a master times out.
    pub(crate) fn new(own_clock: u64, log_announce: i8, receipt_timeout: u8) -> Self {
        let records = Vec::with_capacity(FOREIGN_MASTERS_MAX);
        Self { own_clock, records, log_announce, receipt_timeout: receipt_timeout.into() }
    }

    /// Removes all masters.
    pub(crate) fn clear(&mut self) {
        self.records.clear();
    }

    /// Stores the sender of an Announce message, or updates its record. Fails if the message does
    /// not qualify a master, or if there is no room for a further record.
    pub(crate) fn process_announce(
        &mut self,
        header: &Header,
        announce: &Announce,
        now: Timestamp<Monotonic>,
    ) -> Result<(), PtpRefusal> {
        let Header { source: sender, sequence_id, log_interval, .. } = *header;
        let (grandmaster, steps_removed) = (announce.grandmaster, announce.steps_removed);
        let longest = log_interval.clamp(LOG_INTERVAL_MIN, LOG_INTERVAL_MAX).max(self.log_announce);
        let interval = interval_from_log(longest);
        if steps_removed >= STEPS_MAX || grandmaster.identity == self.own_clock {
            return Err(PtpRefusal::Unqualified);
        }
        let rank = MasterRank { grandmaster, steps_removed, sender };
        self.expire(now);
        if let Some(known) = self.records.iter_mut().find(|known| known.rank.sender == sender) {
            // A duplicate message does not qualify its master; masters that have timed out are
            // removed already.
            if known.sequence_id != sequence_id {
                known.qualified = true;
                known.sequence_id = sequence_id;
                known.last_announce_at = now;
            }
            (known.rank, known.interval) = (rank, interval);
            return Ok(());
        }
        let record = ForeignMasterRecord {
            rank,
            qualified: false,
            last_announce_at: now,
            interval,
            sequence_id,
        };
        if self.records.len() < FOREIGN_MASTERS_MAX {
            self.records.push(record);
            return Ok(());
        }
        self.replace_worst(record)
    }

    /// Replaces the worst record if the new one has a better rank, otherwise fails. Among the
    /// stored records, those that are not qualified count as worst.
    fn replace_worst(&mut self, record: ForeignMasterRecord) -> Result<(), PtpRefusal> {
        let worst = self.records.iter_mut().max_by_key(|known| (!known.qualified, known.rank));
        match worst {
            Some(worst) if record.rank < worst.rank => {
                *worst = record;
                Ok(())
            }
            _ => Err(PtpRefusal::ForeignMastersFull),
        }
    }

    fn expiry(&self, foreign: &ForeignMasterRecord) -> Timestamp<Monotonic> {
        let intervals = if foreign.qualified { self.receipt_timeout } else { TIME_WINDOW };
        foreign.last_announce_at + Span::from_ns(foreign.interval.as_ns().saturating_mul(intervals))
    }

    /// Removes the masters that have timed out by `now`.
    pub(crate) fn expire(&mut self, now: Timestamp<Monotonic>) {
        let mut records = std::mem::take(&mut self.records);
        records.retain(|foreign| now < self.expiry(foreign));
        self.records = records;
    }

    /// Returns the earliest time at which a master times out; `None` if there is none.
    pub(crate) fn next_expiry(&self) -> Option<Timestamp<Monotonic>> {
        self.records.iter().map(|foreign| self.expiry(foreign)).min()
    }

    /// Returns the best qualified master; `None` if none is qualified.
    pub(crate) fn best(&self) -> Option<&ForeignMasterRecord> {
        self.records.iter().filter(|foreign| foreign.qualified).min_by_key(|foreign| foreign.rank)
    }

    /// Returns all stored records.
    pub(crate) fn records(&self) -> &[ForeignMasterRecord] {
        &self.records
    }
}
