//! One direction of a faulty device: packets go in, and come out damaged, late, twice or not at
//! all.

use std::collections::VecDeque;
use std::time::Duration;

use horolog_time::{Monotonic, Timestamp, Utc};

use super::FaultDecider;
use crate::batch::{Batch, BatchPacket, HardwareTime};

#[derive(Clone, Debug)]
struct DelayedPacket<A> {
    bytes: Vec<u8>,
    address: A,
    truncated: bool,
    received_at: Option<Timestamp<Utc>>,
    received_monotonic: Option<Timestamp<Monotonic>>,
    hardware: Option<HardwareTime>,
    wants_timestamp: bool,
}

/// Packets in transit.
#[derive(Debug)]
pub(super) struct TransitQueue<A> {
    /// Packets that may be delivered at once.
    ready: VecDeque<DelayedPacket<A>>,
    /// Packet that waits for the next one to overtake it.
    held: Option<DelayedPacket<A>>,
    /// Packets that are delivered at a set time, in this order.
    late: VecDeque<(Timestamp<Monotonic>, DelayedPacket<A>)>,
}

impl<A> Default for TransitQueue<A> {
    fn default() -> Self {
        Self { ready: VecDeque::new(), held: None, late: VecDeque::new() }
    }
}

impl<A: Copy + Default> TransitQueue<A> {
    /// Takes a packet and decides its faults.
    pub(super) fn pass(
        &mut self,
        packet: &BatchPacket<'_, A>,
        decider: &mut FaultDecider,
        now: Timestamp<Monotonic>,
    ) {
        decider.counts.packets += 1;
        if decider.strikes(|plan| plan.loss) {
            decider.counts.lost += 1;
            return;
        }
        let mut parcel = DelayedPacket {
            bytes: packet.bytes.to_vec(),
            address: packet.address,
            truncated: packet.truncated,
            received_at: packet.received_at,
            received_monotonic: packet.received_monotonic,
            hardware: packet.hardware,
            wants_timestamp: packet.wants_timestamp,
        };
        decider.damage(&mut parcel.bytes);
        if decider.strikes(|plan| plan.duplication) {
            decider.counts.duplicated += 1;
            self.ready.push_back(parcel.clone());
        }
        self.enqueue(parcel, decider, now);
    }

    fn enqueue(
        &mut self,
        mut parcel: DelayedPacket<A>,
        decider: &mut FaultDecider,
        now: Timestamp<Monotonic>,
    ) {
        if decider.strikes(|plan| plan.delay) {
            decider.counts.delayed += 1;
            let delay = decider.plan.delay_by;
            parcel.received_at = parcel.received_at.map(|instant| instant + delay);
            parcel.received_monotonic = parcel.received_monotonic.map(|instant| instant + delay);
            if let Some(time) = &mut parcel.hardware {
                time.ns = time.ns.saturating_add(delay.as_ns());
            }
            self.late.push_back((now + delay, parcel));
        } else if self.held.is_none() && decider.strikes(|plan| plan.reordering) {
            decider.counts.reordered += 1;
            self.held = Some(parcel);
        } else {
            self.ready.push_back(parcel);
            self.release();
        }
    }

    /// Releases the packet that waits for another to overtake it.
    pub(super) fn release(&mut self) {
        self.ready.extend(self.held.take());
    }

    /// Releases the packets whose delay is over.
    pub(super) fn let_out(&mut self, now: Timestamp<Monotonic>) {
        while let Some((_, parcel)) = self.late.pop_front_if(|(due, _)| *due <= now) {
            self.ready.push_back(parcel);
        }
    }

    /// Returns the longest useful wait for another packet: zero if some are ready, otherwise until
    /// the next delayed one at most.
    pub(super) fn wait_max(&self, now: Timestamp<Monotonic>, wait: Duration) -> Duration {
        if !self.ready.is_empty() {
            return Duration::ZERO;
        }
        let until_next = self.late.front().map_or(wait, |(due, _)| {
            Duration::from_nanos(u64::try_from((*due - now).as_ns()).unwrap_or(0))
        });
        wait.min(until_next)
    }

    /// Fills the batch with the ready packets; returns their number.
    pub(super) fn fill(&mut self, batch: &mut Batch<A>) -> usize {
        batch.clear();
        while !batch.is_full() {
            let Some(parcel) = self.ready.pop_front() else { break };
            // The batch has room, and a longer packet is truncated.
            let _ = batch.push_packet(&BatchPacket {
                bytes: &parcel.bytes,
                address: parcel.address,
                truncated: parcel.truncated,
                received_at: parcel.received_at,
                received_monotonic: parcel.received_monotonic,
                hardware: parcel.hardware,
                wants_timestamp: parcel.wants_timestamp,
            });
        }
        batch.len()
    }
}

impl FaultDecider {
    /// Draws a random number for one kind of fault; returns true if it occurs.
    fn strikes(&mut self, probability: impl Fn(&super::FaultPlan) -> f64) -> bool {
        self.random.unit() < probability(&self.plan)
    }

    /// Truncates the packet and inverts bits at random.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        if !bytes.is_empty() && self.strikes(|plan| plan.truncation) {
            self.counts.truncated += 1;
            bytes.truncate(self.random.below(bytes.len()));
        }
        if !bytes.is_empty() && self.strikes(|plan| plan.corruption) {
            self.counts.corrupted += 1;
            let bit = self.random.below(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
