//! One direction of a faulty device: packets go in, and come out damaged, late,
//! twice or not at all.

use std::collections::VecDeque;
use std::time::Duration;

use horolog_time::{Monotonic, Timestamp, Utc};

use super::Fate;
use crate::batch::{Batch, HardwareTime, Packet};

#[derive(Clone, Debug)]
struct Parcel<A> {
    bytes: Vec<u8>,
    address: A,
    truncated: bool,
    received_at: Option<Timestamp<Utc>>,
    received_monotonic: Option<Timestamp<Monotonic>>,
    hardware: Option<HardwareTime>,
    stamp: bool,
}

/// The packets on their way through.
#[derive(Debug)]
pub(super) struct Direction<A> {
    /// May come out at once.
    ready: VecDeque<Parcel<A>>,
    /// Waits for the next packet to overtake it.
    held: Option<Parcel<A>>,
    /// Come out when their time has come, which is in this order.
    late: VecDeque<(Timestamp<Monotonic>, Parcel<A>)>,
}

impl<A> Default for Direction<A> {
    fn default() -> Self {
        Self { ready: VecDeque::new(), held: None, late: VecDeque::new() }
    }
}

impl<A: Copy + Default> Direction<A> {
    /// Takes a packet in and decides what becomes of it.
    pub(super) fn pass(
        &mut self,
        packet: &Packet<'_, A>,
        fate: &mut Fate,
        now: Timestamp<Monotonic>,
    ) {
        fate.counts.packets += 1;
        if fate.strikes(|plan| plan.loss) {
            fate.counts.lost += 1;
            return;
        }
        let mut parcel = Parcel {
            bytes: packet.bytes.to_vec(),
            address: packet.address,
            truncated: packet.truncated,
            received_at: packet.received_at,
            received_monotonic: packet.received_monotonic,
            hardware: packet.hardware,
            stamp: packet.stamp,
        };
        fate.damage(&mut parcel.bytes);
        if fate.strikes(|plan| plan.duplication) {
            fate.counts.duplicated += 1;
            self.ready.push_back(parcel.clone());
        }
        self.place(parcel, fate, now);
    }

    fn place(&mut self, mut parcel: Parcel<A>, fate: &mut Fate, now: Timestamp<Monotonic>) {
        if fate.strikes(|plan| plan.delay) {
            fate.counts.delayed += 1;
            let delay = fate.plan.delay_by;
            parcel.received_at = parcel.received_at.map(|instant| instant + delay);
            parcel.received_monotonic = parcel.received_monotonic.map(|instant| instant + delay);
            if let Some(time) = &mut parcel.hardware {
                time.ns = time.ns.saturating_add(delay.as_ns());
            }
            self.late.push_back((now + delay, parcel));
        } else if self.held.is_none() && fate.strikes(|plan| plan.reordering) {
            fate.counts.reordered += 1;
            self.held = Some(parcel);
        } else {
            self.ready.push_back(parcel);
            self.release();
        }
    }

    /// Lets the packet go that waits for another to overtake it.
    pub(super) fn release(&mut self) {
        self.ready.extend(self.held.take());
    }

    /// Lets the packets go whose delay is over.
    pub(super) fn let_out(&mut self, now: Timestamp<Monotonic>) {
        while let Some((_, parcel)) = self.late.pop_front_if(|(due, _)| *due <= now) {
            self.ready.push_back(parcel);
        }
    }

    /// How long it makes sense to wait for another packet: not at all when some are ready, and no
    /// longer than until the next late one.
    pub(super) fn patience(&self, now: Timestamp<Monotonic>, wait: Duration) -> Duration {
        if !self.ready.is_empty() {
            return Duration::ZERO;
        }
        let until_next = self.late.front().map_or(wait, |(due, _)| {
            Duration::from_nanos(u64::try_from((*due - now).as_ns()).unwrap_or(0))
        });
        wait.min(until_next)
    }

    /// Fills the batch with what is ready; returns how many packets that is.
    pub(super) fn fill(&mut self, batch: &mut Batch<A>) -> usize {
        batch.clear();
        while !batch.is_full() {
            let Some(parcel) = self.ready.pop_front() else { break };
            // The batch has room, and what is too long for it is cut.
            let _ = batch.push_packet(&Packet {
                bytes: &parcel.bytes,
                address: parcel.address,
                truncated: parcel.truncated,
                received_at: parcel.received_at,
                received_monotonic: parcel.received_monotonic,
                hardware: parcel.hardware,
                stamp: parcel.stamp,
            });
        }
        batch.len()
    }
}

impl Fate {
    /// Throws the dice for one kind of fault.
    fn strikes(&mut self, probability: impl Fn(&super::FaultPlan) -> f64) -> bool {
        self.random.unit() < probability(&self.plan)
    }

    /// Cuts the packet and turns bits over, as the dice fall.
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
