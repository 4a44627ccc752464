//! What is counted: for each child and for each group. One thread writes a book and any may read
//! it, so a count is a load and a store and no locked instruction. Where two bodies relay, each has
//! its own books, and who asks gets the sum.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Drop, Refusal};

/// A count that one thread alone adds to.
#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    fn add(&self, more: u64) {
        self.0.store(self.get().wrapping_add(more), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts of a child's book, or the sum of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChildTally {
    /// Copies sent.
    pub packets: u64,
    /// Bytes of payload in them.
    pub bytes: u64,
    /// Copies not sent, in the order of [`Drop::ALL`].
    pub dropped: [u64; Drop::ALL.len()],
}

/// The counts of a group's book, or the sum of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupTally {
    /// Packets received.
    pub packets: u64,
    /// Bytes of payload in them.
    pub bytes: u64,
    /// Packets refused, in the order of [`Refusal::ALL`].
    pub refused: [u64; Refusal::ALL.len()],
}

impl std::ops::Add for ChildTally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            dropped: std::array::from_fn(|at| self.dropped[at] + other.dropped[at]),
        }
    }
}

impl std::ops::Add for GroupTally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            refused: std::array::from_fn(|at| self.refused[at] + other.refused[at]),
        }
    }
}

/// What became of the copies for one child of one group.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct ChildBook {
    packets: Count,
    bytes: Count,
    dropped: [Count; Drop::ALL.len()],
}

impl ChildBook {
    /// Notes a copy of `bytes` of payload that was sent.
    pub fn sent(&self, bytes: usize) {
        self.packets.add(1);
        self.bytes.add(bytes as u64);
    }

    /// Notes a copy that was not sent.
    pub fn dropped(&self, reason: Drop) {
        self.dropped[reason as usize].add(1);
    }

    /// Notes all that another book held.
    pub(crate) fn settle(&self, tally: &ChildTally) {
        self.packets.add(tally.packets);
        self.bytes.add(tally.bytes);
        self.dropped.iter().zip(tally.dropped).for_each(|(count, more)| count.add(more));
    }

    /// What was counted.
    #[must_use]
    pub fn tally(&self) -> ChildTally {
        let dropped = std::array::from_fn(|at| self.dropped[at].get());
        ChildTally { packets: self.packets.get(), bytes: self.bytes.get(), dropped }
    }
}

/// What became of the packets of one group.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct GroupBook {
    packets: Count,
    bytes: Count,
    refused: [Count; Refusal::ALL.len()],
}

impl GroupBook {
    /// Notes a packet with `bytes` of payload, whatever becomes of it.
    pub fn received(&self, bytes: usize) {
        self.packets.add(1);
        self.bytes.add(bytes as u64);
    }

    /// Notes that it was refused.
    pub fn refused(&self, reason: Refusal) {
        self.refused[reason as usize].add(1);
    }

    /// Notes all that another book held.
    pub(crate) fn settle(&self, tally: &GroupTally) {
        self.packets.add(tally.packets);
        self.bytes.add(tally.bytes);
        self.refused.iter().zip(tally.refused).for_each(|(count, more)| count.add(more));
    }

    /// What was counted.
    #[must_use]
    pub fn tally(&self) -> GroupTally {
        let refused = std::array::from_fn(|at| self.refused[at].get());
        GroupTally { packets: self.packets.get(), bytes: self.bytes.get(), refused }
    }
}
