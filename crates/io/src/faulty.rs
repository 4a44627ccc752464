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

/// Probability of each fault per packet, from 0 to 1, in either direction, with the seed of the
/// random numbers and the length of a delay.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct FaultInjectionPlan {
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
    /// Packets held back until the next one has passed them.
    pub reordered: u64,
    /// Truncated packets.
    pub truncated: u64,
    /// Packets with an inverted bit.
    pub corrupted: u64,
    /// Delayed packets.
    pub delayed: u64,
}

/// Random decision on the faults of each packet, and their counts.
pub(crate) struct FaultDecider {
    plan: FaultInjectionPlan,
    random: SplitMix64,
    counts: FaultCounts,
}

/// Wrapper that injects faults into the packets that a device sends and receives. A delayed packet
/// is delivered by the first call after its delay has passed.
pub struct FaultyDevice<D: BatchDevice> {
    inner: D,
    clock: Arc<dyn Clock<Monotonic> + Send + Sync>,
    decider: FaultDecider,
    sending: TransitQueue<D::Address>,
    receiving: TransitQueue<D::Address>,
    scratch: Batch<D::Address>,
}

impl<D: BatchDevice> FaultyDevice<D> {
    /// Wraps `inner` for up to `slots` packets of `capacity` bytes at a time. Delays are measured
    /// on `clock`.
    pub fn new(
        inner: D,
        plan: FaultInjectionPlan,
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

    /// Passes all packets that are ready to the wrapped device to send; returns the number that it
    /// refused.
    fn flush(&mut self) -> io::Result<usize> {
        self.sending.release_delayed(self.clock.now());
        let mut refused = 0;
        while self.sending.fill(&mut self.scratch) > 0 {
            refused += self.scratch.len() - self.inner.send(&mut self.scratch)?;
        }
        Ok(refused)
    }
}

impl<D: BatchDevice> BatchDevice for FaultyDevice<D> {
    type Address = D::Address;

    fn receive(&mut self, batch: &mut Batch<D::Address>, wait: Duration) -> io::Result<usize> {
        self.flush()?;
        let wait = self.receiving.wait_max(self.clock.now(), wait);
        let count = self.inner.receive(&mut self.scratch, wait)?;
        let now = self.clock.now();
        for packet in self.scratch.iter() {
            self.receiving.enqueue_with_faults(&packet, &mut self.decider, now);
        }
        if count == 0 {
            self.receiving.release_held();
        }
        self.receiving.release_delayed(now);
        batch.clear();
        Ok(self.receiving.fill(batch))
    }

    fn send(&mut self, batch: &mut Batch<D::Address>) -> io::Result<usize> {
        let now = self.clock.now();
        for packet in batch.iter() {
            self.sending.enqueue_with_faults(&packet, &mut self.decider, now);
        }
        // A packet lost on purpose counts as sent: a real sender would not detect the loss.
        Ok(batch.len().saturating_sub(self.flush()?))
    }

    /// Receives the packets that the wrapped device transmitted, with their faults.
    fn receive_transmitted(&mut self, batch: &mut Batch<D::Address>) -> io::Result<usize> {
        self.inner.receive_transmitted(batch)
    }
}

impl<D: BatchDevice> std::fmt::Debug for FaultyDevice<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultyDevice").field("counts", &self.decider.counts).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
