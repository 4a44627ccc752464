//! What was counted so far by something that runs, for those who look on. Its threads copy what
//! they have counted anyway into memory that is there already, some times a second, and never wait
//! for a reader: one that finds its place being read tells the next time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use horolog_stats::Recorder;
use horolog_time::{Monotonic, Span, Timestamp};

use crate::LookCounts;

/// Between two looks.
pub const LOOK_EVERY: Span = Span::from_ms(500);
/// Between two times that a thread tells, which costs it the copying of two histograms.
const TELL_EVERY: Span = Span::from_ms(250);

/// What was counted so far in a trial or a course.
#[derive(Clone, Debug, Default)]
pub struct SoFar {
    /// All of it.
    pub counts: LookCounts,
    /// What replies took, in ns: all of a trial, or the last interval of a course.
    pub latency: Recorder,
    /// From the intended to the real send instant, in ns, likewise.
    pub lateness: Recorder,
    /// When it was told, by the clock of whoever tells; of several the mean.
    pub told: Option<Timestamp<Monotonic>>,
}

impl SoFar {
    /// Forgets all that was counted and keeps the memory.
    pub fn clear(&mut self) {
        self.counts = LookCounts::default();
        self.latency.clear();
        self.lateness.clear();
    }

    /// Adds what another thread counted.
    pub fn merge(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.latency.merge(&other.latency);
        self.lateness.merge(&other.lateness);
    }
}

/// A place for each of those that count.
#[derive(Debug)]
pub struct Slots(Vec<Mutex<SoFar>>);

impl Slots {
    /// Places for so many.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self((0..count).map(|_| Mutex::default()).collect())
    }

    /// The place of one.
    #[must_use]
    pub fn of(&self, index: usize) -> Option<&Mutex<SoFar>> {
        self.0.get(index)
    }

    /// All together, into memory that is there already.
    pub fn sum(&self, sum: &mut SoFar) {
        sum.clear();
        let (mut told_ns, mut tellers) = (0_i128, 0_i128);
        for slot in &self.0 {
            let slot = entered(slot);
            sum.merge(&slot);
            told_ns += slot.told.map_or(0, |told| i128::from(told.as_ns()));
            tellers += i128::from(slot.told.is_some());
        }
        let mean = told_ns.checked_div(tellers);
        sum.told = mean.map(|ns| Timestamp::from_ns(ns as i64));
    }
}

/// What stands in a place, for whoever may wait.
pub fn entered(slot: &Mutex<SoFar>) -> MutexGuard<'_, SoFar> {
    // Numbers; a writer that died left some of them older than others.
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets a thread tell what it has counted, whenever it is time to.
#[derive(Debug)]
pub struct Telling<'a> {
    slot: &'a Mutex<SoFar>,
    next: Timestamp<Monotonic>,
}

impl<'a> Telling<'a> {
    /// Tells from then on.
    #[must_use]
    pub const fn new(slot: &'a Mutex<SoFar>, begin: Timestamp<Monotonic>) -> Self {
        Self { slot, next: begin }
    }

    /// The memory to tell in where it is time to, and free.
    #[must_use]
    pub fn due(&mut self, now: Timestamp<Monotonic>) -> Option<MutexGuard<'a, SoFar>> {
        if now < self.next {
            return None;
        }
        self.next = now + TELL_EVERY;
        let mut slot = self.slot.try_lock().ok()?;
        slot.told = Some(now);
        Some(slot)
    }
}
