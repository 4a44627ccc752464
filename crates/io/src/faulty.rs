//! Device that injects random faults at set rates into the traffic of another one: an unreliable
//! network for tests. The same seed yields the same faults. It allocates; not for measurements.

mod direction;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use horolog_time::{Clock, Monotonic, Span, SplitMix64};

use crate::batch::Batch;
use crate::device::BatchDevice;
use direction::TransitQueue;

/// Probability of each fault per packet, from 0 to 1, in either direction.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct FaultPlan {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Packet lost.
    pub loss: f64,
    /// Packet duplicated.
    pub duplication: f64,
    /// Packet delivered after the one that follows it.
    pub reordering: f64,
    /// Packet truncated, possibly to nothing.
    pub truncation: f64,
    /// One bit of the packet inverted.
    pub corruption: f64,
    /// Packet delayed by `delay_by`, past others.
    pub delay: f64,
    /// Delay of a delayed packet.
    pub delay_by: Span,
}

/// Counts of injected faults, in both directions together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FaultCounts {
    /// All packets, with or without faults.
    pub packets: u64,
    /// Lost packets.
    pub lost: u64,
    /// Duplicated packets.
    pub duplicated: u64,
    /// Packets held back for the one after them.
    pub reordered: u64,
    /// Truncated packets.
    pub truncated: u64,
    /// Packets with an inverted bit.
    pub corrupted: u64,
    /// Delayed packets.
    pub delayed: u64,
}

/// Decides the faults of packets: the plan, the random numbers and the counts.
pub(crate) struct FaultDecider {
    plan: FaultPlan,
    random: SplitMix64,
    counts: FaultCounts,
}

/// Wrapper of a device that injects faults into sent and received packets. Delayed packets are sent
/// and received with the next call after their time. See [`BatchDevice`] for the rest.
pub struct Faulty<D: BatchDevice> {
    inner: D,
    clock: Arc<dyn Clock<Monotonic> + Send + Sync>,
    decider: FaultDecider,
    sending: TransitQueue<D::Address>,
    receiving: TransitQueue<D::Address>,
    scratch: Batch<D::Address>,
}

impl<D: BatchDevice> Faulty<D> {
    /// Wraps `inner` for up to `slots` packets of `capacity` bytes at a time. Delays are measured
    /// on `clock`.
    pub fn new(
        inner: D,
        plan: FaultPlan,
        clock: Arc<dyn Clock<Monotonic> + Send + Sync>,
        slots: usize,
        capacity: usize,
    ) -> Self {
        Self {
            inner,
            clock,
            decider: FaultDecider {
                plan,
                random: SplitMix64::new(plan.seed),
                counts: FaultCounts::default(),
            },
            sending: TransitQueue::default(),
            receiving: TransitQueue::default(),
            scratch: Batch::new(slots, capacity),
        }
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.decider.counts
    }

    /// Returns the wrapped device.
    #[must_use]
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Passes all packets that are ready to the wrapped device; returns the number that it refused.
    fn flush(&mut self) -> io::Result<usize> {
        self.sending.let_out(self.clock.now());
        let mut refused = 0;
        while self.sending.fill(&mut self.scratch) > 0 {
            refused += self.scratch.len() - self.inner.send(&mut self.scratch)?;
        }
        Ok(refused)
    }
}

impl<D: BatchDevice> BatchDevice for Faulty<D> {
    type Address = D::Address;

    fn receive(&mut self, batch: &mut Batch<D::Address>, wait: Duration) -> io::Result<usize> {
        self.flush()?;
        let wait = self.receiving.wait_max(self.clock.now(), wait);
        let count = self.inner.receive(&mut self.scratch, wait)?;
        let now = self.clock.now();
        for packet in self.scratch.iter() {
            self.receiving.pass(&packet, &mut self.decider, now);
        }
        if count == 0 {
            self.receiving.release();
        }
        self.receiving.let_out(now);
        batch.clear();
        Ok(self.receiving.fill(batch))
    }

    fn send(&mut self, batch: &mut Batch<D::Address>) -> io::Result<usize> {
        let now = self.clock.now();
        for packet in batch.iter() {
            self.sending.pass(&packet, &mut self.decider, now);
        }
        // A lost packet counts as sent, as it does for its sender.
        Ok(batch.len().saturating_sub(self.flush()?))
    }

    /// Returns the packets that were really sent; their bytes show the faults.
    fn sent(&mut self, batch: &mut Batch<D::Address>) -> io::Result<usize> {
        self.inner.sent(batch)
    }
}

impl<D: BatchDevice> std::fmt::Debug for Faulty<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faulty").field("counts", &self.decider.counts).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
