//! A device that damages what passes through another, by chance and as often as told: the bad
//! network of tests. The same seed does the same damage. It allocates, and is not for measuring.

mod direction;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use horolog_time::{Clock, Monotonic, Span, SplitMix64};

use crate::batch::Batch;
use crate::device::Device;
use direction::Direction;

/// How often what happens to a packet, each as a probability from 0 to 1, in either direction.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct FaultPlan {
    /// Where the chances start from.
    pub seed: u64,
    /// The packet vanishes.
    pub loss: f64,
    /// The packet comes twice.
    pub duplication: f64,
    /// The packet comes after the one that follows it.
    pub reordering: f64,
    /// The packet loses some of its end, or all of it.
    pub truncation: f64,
    /// One bit of the packet is turned over.
    pub corruption: f64,
    /// The packet comes later by `delay_by`, past others.
    pub delay: f64,
    /// See `delay`.
    pub delay_by: Span,
}

/// What was done to packets, in both directions together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FaultCounts {
    /// Packets that came to be damaged or not.
    pub packets: u64,
    /// Packets that vanished.
    pub lost: u64,
    /// Packets that came twice.
    pub duplicated: u64,
    /// Packets that were held back for the one after them.
    pub reordered: u64,
    /// Packets that were cut.
    pub truncated: u64,
    /// Packets with a bit turned over.
    pub corrupted: u64,
    /// Packets that were delayed.
    pub delayed: u64,
}

/// What decides the fate of packets: the plan, the dice and the account of what was done.
pub(crate) struct Fate {
    plan: FaultPlan,
    random: SplitMix64,
    counts: FaultCounts,
}

/// Wraps a device and damages what it sends and receives. Packets that are late leave and arrive
/// with the next call after their time. See [`Device`] for the rest.
pub struct Faulty<D: Device> {
    inner: D,
    clock: Arc<dyn Clock<Monotonic> + Send + Sync>,
    fate: Fate,
    sending: Direction<D::Address>,
    receiving: Direction<D::Address>,
    scratch: Batch<D::Address>,
}

impl<D: Device> Faulty<D> {
    /// Wraps `inner`, through which up to `slots` packets of `capacity` bytes go at a time. The
    /// clock is the one by which packets are delayed.
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
            fate: Fate { plan, random: SplitMix64::new(plan.seed), counts: FaultCounts::default() },
            sending: Direction::default(),
            receiving: Direction::default(),
            scratch: Batch::new(slots, capacity),
        }
    }

    /// What was done so far.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.fate.counts
    }

    /// The device within.
    #[must_use]
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Hands all that is ready to leave to the device within; returns how many it refused.
    fn flush(&mut self) -> io::Result<usize> {
        self.sending.let_out(self.clock.now());
        let mut refused = 0;
        while self.sending.fill(&mut self.scratch) > 0 {
            refused += self.scratch.len() - self.inner.send(&mut self.scratch)?;
        }
        Ok(refused)
    }
}

impl<D: Device> Device for Faulty<D> {
    type Address = D::Address;

    fn receive(&mut self, batch: &mut Batch<D::Address>, wait: Duration) -> io::Result<usize> {
        self.flush()?;
        let wait = self.receiving.patience(self.clock.now(), wait);
        let count = self.inner.receive(&mut self.scratch, wait)?;
        let now = self.clock.now();
        for packet in self.scratch.iter() {
            self.receiving.pass(&packet, &mut self.fate, now);
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
            self.sending.pass(&packet, &mut self.fate, now);
        }
        // What vanished has left, as far as its sender can tell.
        Ok(batch.len().saturating_sub(self.flush()?))
    }

    /// Of the packets that really left; what befell them before is seen in their bytes.
    fn sent(&mut self, batch: &mut Batch<D::Address>) -> io::Result<usize> {
        self.inner.sent(batch)
    }
}

impl<D: Device> std::fmt::Debug for Faulty<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faulty").field("counts", &self.fate.counts).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
