//! Counters of each child and of each group. One thread writes a set of counters and any may read
//! it, so that counting is a load and a store and no locked instruction. If the socket and the XDP
//! engine both relay, each has its own counters, and readers get the sum.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{CopyDrop, PacketRefusal};

/// Counter that only one thread increments.
#[derive(Debug, Default)]
struct SingleWriterCounter(AtomicU64);

impl SingleWriterCounter {
    fn add(&self, more: u64) {
        self.0.store(self.get().wrapping_add(more), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts of a child's counters, or the sum of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChildCounts {
    /// Copies sent.
    pub packets: u64,
    /// Bytes of payload in the copies sent.
    pub bytes: u64,
    /// Copies not sent, in the order of [`CopyDrop::ALL`].
    pub dropped: [u64; CopyDrop::ALL.len()],
}

/// Counts of a group's counters, or the sum of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupCounts {
    /// Packets received.
    pub packets: u64,
    /// Bytes of payload in the packets received.
    pub bytes: u64,
    /// Packets refused, in the order of [`PacketRefusal::ALL`].
    pub refused: [u64; PacketRefusal::ALL.len()],
}

impl std::ops::Add for ChildCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            dropped: std::array::from_fn(|index| self.dropped[index] + other.dropped[index]),
        }
    }
}

impl std::ops::Add for GroupCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            refused: std::array::from_fn(|index| self.refused[index] + other.refused[index]),
        }
    }
}

/// Counters of the copies for one child of one group.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct ChildCounters {
    packets: SingleWriterCounter,
    bytes: SingleWriterCounter,
    dropped: [SingleWriterCounter; CopyDrop::ALL.len()],
}

impl ChildCounters {
    /// Counts a copy of `bytes` of payload that was sent.
    pub fn count_sent(&self, bytes: usize) {
        self.packets.add(1);
        self.bytes.add(bytes as u64);
    }

    /// Counts a copy that was not sent.
    pub fn count_dropped(&self, reason: CopyDrop) {
        self.dropped[reason as usize].add(1);
    }

    /// Adds counts that were taken from other counters, such as those of the XDP programs.
    pub(crate) fn add_counts(&self, counts: &ChildCounts) {
        self.packets.add(counts.packets);
        self.bytes.add(counts.bytes);
        self.dropped.iter().zip(counts.dropped).for_each(|(count, more)| count.add(more));
    }

    /// Returns a copy of the present values.
    #[must_use]
    pub fn counts(&self) -> ChildCounts {
        let dropped = std::array::from_fn(|index| self.dropped[index].get());
        ChildCounts { packets: self.packets.get(), bytes: self.bytes.get(), dropped }
    }
}

/// Counters of the packets of one group.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct GroupCounters {
    packets: SingleWriterCounter,
    bytes: SingleWriterCounter,
    refused: [SingleWriterCounter; PacketRefusal::ALL.len()],
}

impl GroupCounters {
    /// Counts a received packet with `bytes` of payload, relayed or not.
    pub fn count_received(&self, bytes: usize) {
        self.packets.add(1);
        self.bytes.add(bytes as u64);
    }

    /// Counts the refusal of a received packet.
    pub fn count_refused(&self, reason: PacketRefusal) {
        self.refused[reason as usize].add(1);
    }

    /// Adds counts that were taken from other counters, such as those of the XDP programs.
    pub(crate) fn add_counts(&self, counts: &GroupCounts) {
        self.packets.add(counts.packets);
        self.bytes.add(counts.bytes);
        self.refused.iter().zip(counts.refused).for_each(|(count, more)| count.add(more));
    }

    /// Returns a copy of the present values.
    #[must_use]
    pub fn counts(&self) -> GroupCounts {
        let refused = std::array::from_fn(|index| self.refused[index].get());
        GroupCounts { packets: self.packets.get(), bytes: self.bytes.get(), refused }
    }
}
