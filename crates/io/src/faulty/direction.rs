//! One direction of a faulty device: packets go in, and come out damaged, late, twice or not at
//! all.

use std::collections::VecDeque;
use std::time::Duration;

use horolog_time::{Monotonic, Timestamp, Utc};

use super::FaultDecider;
use crate::batch::{Batch, BatchPacket, HardwareTimestamp};

#[derive(Clone, Debug)]
struct QueuedPacket<A> {
    bytes: Vec<u8>,
    address: A,
    truncated: bool,
    received_at: Option<Timestamp<Utc>>,
    received_monotonic: Option<Timestamp<Monotonic>>,
    hardware: Option<HardwareTimestamp>,
    wants_timestamp: bool,
}

/// Packets in transit in one direction.
#[derive(Debug)]
pub(super) struct TransitQueue<A> {
    /// Packets that can be delivered now.
    ready: VecDeque<QueuedPacket<A>>,
    /// Packet held back until the next one has overtaken it.
    held: Option<QueuedPacket<A>>,
    /// Delayed packets with their delivery times, in order.
    delayed: VecDeque<(Timestamp<Monotonic>, QueuedPacket<A>)>,
}

impl<A> Default for TransitQueue<A> {
    fn default() -> Self {
        Self { ready: VecDeque::new(), held: None, delayed: VecDeque::new() }
    }
}

impl<A: Copy + Default> TransitQueue<A> {
    /// Enqueues a packet unless it is lost, after it has been truncated, corrupted, duplicated,
    /// delayed or held back as decided by `decider`.
    pub(super) fn enqueue_with_faults(
        &mut self,
        packet: &BatchPacket<'_, A>,
        decider: &mut FaultDecider,
        now: Timestamp<Monotonic>,
    ) {
        decider.counts.packets += 1;
        if decider.draw_fault(|plan| plan.loss) {
            decider.counts.lost += 1;
            return;
        }
        let mut queued = QueuedPacket {
            bytes: packet.bytes.to_vec(),
            address: packet.address,
            truncated: packet.truncated,
            received_at: packet.received_at,
            received_monotonic: packet.received_monotonic,
            hardware: packet.hardware,
            wants_timestamp: packet.wants_timestamp,
        };
        decider.truncate_or_corrupt(&mut queued.bytes);
        if decider.draw_fault(|plan| plan.duplication) {
            decider.counts.duplicated += 1;
            self.ready.push_back(queued.clone());
        }
        self.enqueue_or_delay(queued, decider, now);
    }

    fn enqueue_or_delay(
        &mut self,
        mut queued: QueuedPacket<A>,
        decider: &mut FaultDecider,
        now: Timestamp<Monotonic>,
    ) {
        if decider.draw_fault(|plan| plan.delay) {
            decider.counts.delayed += 1;
            let delay = decider.plan.delay_by;
            queued.received_at = queued.received_at.map(|instant| instant + delay);
            queued.received_monotonic = queued.received_monotonic.map(|instant| instant + delay);
            if let Some(time) = &mut queued.hardware {
                time.ns = time.ns.saturating_add(delay.as_ns());
            }
            self.delayed.push_back((now + delay, queued));
        } else if self.held.is_none() && decider.draw_fault(|plan| plan.reordering) {
            decider.counts.reordered += 1;
            self.held = Some(queued);
        } else {
            self.ready.push_back(queued);
            self.release_held();
        }
    }

    /// Makes the held packet ready, because another one has overtaken it or none came.
    pub(super) fn release_held(&mut self) {
        self.ready.extend(self.held.take());
    }

    /// Makes the packets ready whose delay has passed at `now`.
    pub(super) fn release_delayed(&mut self, now: Timestamp<Monotonic>) {
        while let Some((_, queued)) =
            self.delayed.pop_front_if(|(release_at, _)| *release_at <= now)
        {
            self.ready.push_back(queued);
        }
    }

    /// Returns how long to wait for another packet: zero if some are ready, otherwise `wait`,
    /// limited to the time until the next delayed packet is ready.
    pub(super) fn wait_max(&self, now: Timestamp<Monotonic>, wait: Duration) -> Duration {
        if !self.ready.is_empty() {
            return Duration::ZERO;
        }
        let until_next = self.delayed.front().map_or(wait, |(release_at, _)| {
            Duration::from_nanos(u64::try_from((*release_at - now).as_ns()).unwrap_or(0))
        });
        wait.min(until_next)
    }

    /// Clears the batch and fills it with packets that are ready; returns their number.
    pub(super) fn fill(&mut self, batch: &mut Batch<A>) -> usize {
        batch.clear();
        while !batch.is_full() {
            let Some(queued) = self.ready.pop_front() else { break };
            // The batch has room, and a longer packet is truncated.
            let _ = batch.push_packet(&BatchPacket {
                bytes: &queued.bytes,
                address: queued.address,
                truncated: queued.truncated,
                received_at: queued.received_at,
                received_monotonic: queued.received_monotonic,
                hardware: queued.hardware,
                wants_timestamp: queued.wants_timestamp,
            });
        }
        batch.len()
    }
}

impl FaultDecider {
    /// Returns true, with this fault's probability, if the fault is to be injected.
    fn draw_fault(&mut self, probability: impl Fn(&super::FaultInjectionPlan) -> f64) -> bool {
        self.random.next_f64() < probability(&self.plan)
    }

    /// Truncates the packet and inverts one bit, each with its probability.
    fn truncate_or_corrupt(&mut self, bytes: &mut Vec<u8>) {
        if !bytes.is_empty() && self.draw_fault(|plan| plan.truncation) {
            self.counts.truncated += 1;
            bytes.truncate(self.random.next_below(bytes.len()));
        }
        if !bytes.is_empty() && self.draw_fault(|plan| plan.corruption) {
            self.counts.corrupted += 1;
            let bit = self.random.next_below(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
