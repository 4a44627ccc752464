//! Foreign masters of a port, and the selection of the best (IEEE 1588-2019, clause 9.3).

use std::cmp::Ordering;

use horolog_time::{Monotonic, Span, Timestamp};
use horolog_wire::ptp::message::Grandmaster;
use horolog_wire::ptp::{Announce, Header, PortIdentity};

use super::PtpRefusal;
use super::compose::interval;

/// Maximum number of foreign masters that a port stores (clause 9.3.2.4.5 requires at least five).
pub const FOREIGN_MASTERS_MAX: usize = 5;
/// Number of Announce intervals for which a master received once is stored
/// (`FOREIGN_MASTER_TIME_WINDOW`).
const TIME_WINDOW: i64 = 4;
/// Smallest Announce interval accepted of a master, log2 of seconds (annex I.3.2).
const LOG_INTERVAL_MIN: i8 = -7;
const LOG_INTERVAL_MAX: i8 = 4;
/// Number of steps from which a master is disregarded (clause 9.3.2.5).
const STEPS_MAX: u16 = 255;

/// Rank in the data set comparison; smaller is better (figures 34 and 35).
///
/// If two announce the same grandmaster, figure 35 compares steps, then senders. It distinguishes
/// "better" from "better by topology" by the receiving ports; that is for a boundary clock, which
/// uses it to choose between a master and a passive port. A port that is never a slave yields to
/// either.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rank {
    /// Grandmaster data.
    pub grandmaster: Grandmaster,
    /// Number of steps to the grandmaster.
    pub steps_removed: u16,
    /// Sender of the Announce.
    pub sender: PortIdentity,
}

impl Ord for Rank {
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

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Record of a foreign master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForeignMasterRecord {
    /// Rank by its Announce.
    pub rank: Rank,
    /// True if it was received twice within the time window, and has not timed out since
    /// (`FOREIGN_MASTER_THRESHOLD`).
    pub qualified: bool,
    /// Time of its last Announce.
    pub last_announce_at: Timestamp<Monotonic>,
    /// Its Announce interval, or that of this port if longer.
    interval: Span,
    sequence_id: u16,
}

/// Foreign masters of a port.
#[derive(Clone, Debug)]
pub(super) struct ForeignMasters {
    own: u64,
    records: Vec<ForeignMasterRecord>,
    log_announce: i8,
    receipt_timeout: i64,
}

impl ForeignMasters {
    /// Creates the set for a port of the clock `own`, with its Announce interval and the number of
    /// missed intervals after which a master times out.
    pub(super) fn new(own: u64, log_announce: i8, receipt_timeout: u8) -> Self {
        let records = Vec::with_capacity(FOREIGN_MASTERS_MAX);
        Self { own, records, log_announce, receipt_timeout: receipt_timeout.into() }
    }

    /// Removes all of them.
    pub(super) fn forget(&mut self) {
        self.records.clear();
    }

    /// Processes an Announce from another clock.
    pub(super) fn process_announce(
        &mut self,
        header: &Header,
        announce: &Announce,
        now: Timestamp<Monotonic>,
    ) -> Result<(), PtpRefusal> {
        let Header { source: sender, sequence_id, log_interval, .. } = *header;
        let (grandmaster, steps_removed) = (announce.grandmaster, announce.steps_removed);
        let longest = log_interval.clamp(LOG_INTERVAL_MIN, LOG_INTERVAL_MAX).max(self.log_announce);
        let interval = interval(longest);
        if steps_removed >= STEPS_MAX || grandmaster.identity == self.own {
            return Err(PtpRefusal::Unqualified);
        }
        let rank = Rank { grandmaster, steps_removed, sender };
        self.expire(now);
        if let Some(known) = self.records.iter_mut().find(|known| known.rank.sender == sender) {
            // A copy of the same message carries nothing new; a known master is in time.
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
        self.displace(record)
    }

    /// Replaces the worst record by a new one, if that is better; preferably one received only
    /// once.
    fn displace(&mut self, record: ForeignMasterRecord) -> Result<(), PtpRefusal> {
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

    /// Removes those that timed out.
    pub(super) fn expire(&mut self, now: Timestamp<Monotonic>) {
        let mut records = std::mem::take(&mut self.records);
        records.retain(|foreign| now < self.expiry(foreign));
        self.records = records;
    }

    /// Returns the time of the next removal, unless an Announce arrives before.
    pub(super) fn next_expiry(&self) -> Option<Timestamp<Monotonic>> {
        self.records.iter().map(|foreign| self.expiry(foreign)).min()
    }

    /// Returns the best of the qualified masters.
    pub(super) fn best(&self) -> Option<&ForeignMasterRecord> {
        self.records.iter().filter(|foreign| foreign.qualified).min_by_key(|foreign| foreign.rank)
    }

    /// Returns all stored records.
    pub(super) fn records(&self) -> &[ForeignMasterRecord] {
        &self.records
    }
}
