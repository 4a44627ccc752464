//! The masters that a port hears, and which of them is the best (IEEE 1588-2019, clause 9.3).

use std::cmp::Ordering;

use horolog_time::{Monotonic, Span, Timestamp};
use horolog_wire::ptp::message::Grandmaster;
use horolog_wire::ptp::{Announce, Header, PortIdentity};

use super::Refusal;
use super::compose::interval;

/// How many foreign masters a port remembers (clause 9.3.2.4.5 asks for five at least).
pub const FOREIGN_MASTERS_MAX: usize = 5;
/// For how many intervals of Announce a master that was heard once is remembered
/// (`FOREIGN_MASTER_TIME_WINDOW`).
const TIME_WINDOW: i64 = 4;
/// Intervals of Announce that a master is believed to have, log2 of seconds (annex I.3.2).
const LOG_INTERVAL_MIN: i8 = -7;
const LOG_INTERVAL_MAX: i8 = 4;
/// From how many steps on a master is not taken into account (clause 9.3.2.5).
const STEPS_MAX: u16 = 255;

/// What the data set comparison ranks, less being better (figures 34 and 35).
///
/// Where two tell of the same grandmaster, figure 35 goes by steps, then by who sent it. It tells
/// "better" from "better by topology" by where the two were received; that is for a boundary clock,
/// which chooses between a master and a passive port by it. A port that is never a slave yields to
/// either.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rank {
    /// The grandmaster.
    pub grandmaster: Grandmaster,
    /// How far it is.
    pub steps_removed: u16,
    /// Who tells of it.
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

/// A master that was heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Foreign {
    /// What it announces, by which it is ranked.
    pub rank: Rank,
    /// It was heard twice within the time window, and not gone since
    /// (`FOREIGN_MASTER_THRESHOLD`).
    pub qualified: bool,
    /// When it was last heard.
    pub heard: Timestamp<Monotonic>,
    /// Its interval of Announce, or ours where that is longer.
    interval: Span,
    sequence_id: u16,
}

/// The masters that a port hears.
#[derive(Clone, Debug)]
pub(super) struct ForeignMasters {
    own: u64,
    records: Vec<Foreign>,
    log_announce: i8,
    receipt_timeout: i64,
}

impl ForeignMasters {
    /// For a port of the clock `own` with this interval of Announce and after so many without one
    /// a master is gone.
    pub(super) fn new(own: u64, log_announce: i8, receipt_timeout: u8) -> Self {
        let records = Vec::with_capacity(FOREIGN_MASTERS_MAX);
        Self { own, records, log_announce, receipt_timeout: receipt_timeout.into() }
    }

    /// Forgets all of them.
    pub(super) fn forget(&mut self) {
        self.records.clear();
    }

    /// Takes an Announce from another clock into account.
    pub(super) fn hear(
        &mut self,
        header: &Header,
        announce: &Announce,
        now: Timestamp<Monotonic>,
    ) -> Result<(), Refusal> {
        let Header { source: sender, sequence_id, log_interval, .. } = *header;
        let (grandmaster, steps_removed) = (announce.grandmaster, announce.steps_removed);
        let longest = log_interval.clamp(LOG_INTERVAL_MIN, LOG_INTERVAL_MAX).max(self.log_announce);
        let interval = interval(longest);
        if steps_removed >= STEPS_MAX || grandmaster.identity == self.own {
            return Err(Refusal::Unqualified);
        }
        let rank = Rank { grandmaster, steps_removed, sender };
        self.expire(now);
        if let Some(known) = self.records.iter_mut().find(|known| known.rank.sender == sender) {
            // A copy of the same message says nothing new; whoever is known was heard in time.
            if known.sequence_id != sequence_id {
                known.qualified = true;
                known.sequence_id = sequence_id;
                known.heard = now;
            }
            (known.rank, known.interval) = (rank, interval);
            return Ok(());
        }
        let newcomer = Foreign { rank, qualified: false, heard: now, interval, sequence_id };
        if self.records.len() < FOREIGN_MASTERS_MAX {
            self.records.push(newcomer);
            return Ok(());
        }
        self.displace(newcomer)
    }

    /// Puts a newcomer in the place of the worst, if it is better; first in that of one that was
    /// heard but once.
    fn displace(&mut self, newcomer: Foreign) -> Result<(), Refusal> {
        let worst = self.records.iter_mut().max_by_key(|known| (!known.qualified, known.rank));
        match worst {
            Some(worst) if newcomer.rank < worst.rank => {
                *worst = newcomer;
                Ok(())
            }
            _ => Err(Refusal::Crowded),
        }
    }

    fn expiry(&self, foreign: &Foreign) -> Timestamp<Monotonic> {
        let intervals = if foreign.qualified { self.receipt_timeout } else { TIME_WINDOW };
        foreign.heard + Span::from_ns(foreign.interval.as_ns().saturating_mul(intervals))
    }

    /// Forgets those that were not heard in time.
    pub(super) fn expire(&mut self, now: Timestamp<Monotonic>) {
        let mut records = std::mem::take(&mut self.records);
        records.retain(|foreign| now < self.expiry(foreign));
        self.records = records;
    }

    /// When the next is forgotten, if it is not heard before.
    pub(super) fn next_expiry(&self) -> Option<Timestamp<Monotonic>> {
        self.records.iter().map(|foreign| self.expiry(foreign)).min()
    }

    /// The best of those that are qualified.
    pub(super) fn best(&self) -> Option<&Foreign> {
        self.records.iter().filter(|foreign| foreign.qualified).min_by_key(|foreign| foreign.rank)
    }

    /// All that are remembered.
    pub(super) fn records(&self) -> &[Foreign] {
        &self.records
    }
}
