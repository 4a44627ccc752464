//! Progress of a running measurement for observers. Each measuring thread copies its counts into a
//! preallocated slot several times a second and never waits for a reader: if its slot is locked, it
//! publishes when the next publication is due.

use std::sync::{Mutex, MutexGuard, PoisonError};

use horolog_stats::Histogram;
use horolog_time::{Monotonic, Span, Timestamp};

use crate::LiveCounts;

/// Time between two snapshots.
pub const SNAPSHOT_INTERVAL: Span = Span::from_ms(500);
/// Time between two publications of a thread, each of which costs the copying of two histograms.
const PUBLISH_INTERVAL: Span = Span::from_ms(250);

/// Counts so far of a trial or a load profile.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// All counts.
    pub counts: LiveCounts,
    /// Latency of replies, in ns: of a whole trial, or of the last interval of a load profile.
    pub latency: Histogram,
    /// Send lateness (actual minus intended send time), in ns, over the same period.
    pub lateness: Histogram,
    /// Time of publication; for several threads the mean.
    pub published: Option<Timestamp<Monotonic>>,
}

impl Progress {
    /// Resets the counts and both distributions, but not the time of publication; keeps the
    /// allocated memory.
    pub fn clear(&mut self) {
        self.counts = LiveCounts::default();
        self.latency.clear();
        self.lateness.clear();
    }

    /// Adds the counts and distributions of another thread; the time of publication is unchanged.
    pub fn merge(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.latency.merge(&other.latency);
        self.lateness.merge(&other.lateness);
    }
}

/// Progress of all measuring threads, one slot each.
#[derive(Debug)]
pub struct ProgressSlots(Vec<Mutex<Progress>>);

impl ProgressSlots {
    /// Creates `count` slots.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self((0..count).map(|_| Mutex::default()).collect())
    }

    /// Returns the slot of a thread; `None` if there are fewer.
    #[must_use]
    pub fn slot(&self, index: usize) -> Option<&Mutex<Progress>> {
        self.0.get(index)
    }

    /// Stores the sum of all slots in `sum`, whose memory is reused.
    pub fn sum(&self, sum: &mut Progress) {
        sum.clear();
        let (mut published_ns, mut publishers) = (0_i128, 0_i128);
        for slot in &self.0 {
            let slot = lock_slot(slot);
            sum.merge(&slot);
            published_ns += slot.published.map_or(0, |published| i128::from(published.as_ns()));
            publishers += i128::from(slot.published.is_some());
        }
        let mean = published_ns.checked_div(publishers);
        sum.published = mean.map(|ns| Timestamp::from_ns(ns as i64));
    }
}

/// Locks a slot, waiting if necessary.
pub fn lock_slot(slot: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    // A slot contains only numbers: after a panic of the writer some are merely older than others.
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Publisher of a thread's counts, at intervals of 250 ms or more.
#[derive(Debug)]
pub struct ProgressPublisher<'a> {
    slot: &'a Mutex<Progress>,
    next: Timestamp<Monotonic>,
}

impl<'a> ProgressPublisher<'a> {
    /// Creates a publisher that is first due at `begin`.
    #[must_use]
    pub const fn new(slot: &'a Mutex<Progress>, begin: Timestamp<Monotonic>) -> Self {
        Self { slot, next: begin }
    }

    /// Returns the locked slot, marked as published at `now`, if a publication is due and no reader
    /// holds the slot; otherwise `None`. After a publication that was due, the next one is due in
    /// 250 ms, even if the slot was held.
    #[must_use]
    pub fn slot_if_due(&mut self, now: Timestamp<Monotonic>) -> Option<MutexGuard<'a, Progress>> {
        if now < self.next {
            return None;
        }
        self.next = now + PUBLISH_INTERVAL;
        let mut slot = self.slot.try_lock().ok()?;
        slot.published = Some(now);
        Some(slot)
    }
}
