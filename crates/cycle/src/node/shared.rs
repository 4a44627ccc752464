//! The memory that a node's process and its collector share: beside the rings a few words for each
//! task, which one side writes and the other reads.

use std::sync::atomic::{AtomicU64, Ordering};

use super::fault::{FAULT_WORDS, TaskFault};
use crate::ring::RING_WORDS;

/// The number under which a node's process finds the shared memory.
pub const REGION: i32 = 3;
/// Words of the region before the rings, and for each task.
const HEAD_WORDS: usize = 8;
const STOP: usize = 0;
const TASK_WORDS: usize = FAULT + FAULT_WORDS + RING_WORDS;
/// Of a task's words before its ring.
const IS_OVER: usize = 0;
const LATENCY: usize = 1;
const CLOCK_SETS: usize = 2;
const FAULT: usize = 3;

/// Words of the region of so many tasks.
#[must_use]
pub const fn region_words(tasks: usize) -> usize {
    HEAD_WORDS + tasks * TASK_WORDS
}

/// What the two sides of a region see.
#[derive(Clone, Copy, Debug)]
pub struct Shared<'a>(&'a [AtomicU64]);

impl<'a> Shared<'a> {
    /// A region of so many tasks; `None` where it is too small.
    #[must_use]
    pub fn new(words: &'a [AtomicU64], tasks: usize) -> Option<Self> {
        (words.len() >= region_words(tasks)).then_some(Self(words))
    }

    fn task(self, at: usize) -> &'a [AtomicU64] {
        &self.0[HEAD_WORDS + at * TASK_WORDS..][..TASK_WORDS]
    }

    /// The words of a task's ring.
    #[must_use]
    pub fn ring(self, at: usize) -> &'a [AtomicU64] {
        &self.task(at)[TASK_WORDS - RING_WORDS..]
    }

    /// Tells all tasks to end at their next release.
    pub fn stop(self) {
        self.0[STOP].store(1, Ordering::Relaxed);
    }

    /// The word that is no longer 0 when all tasks are to end.
    pub(crate) const fn stop_word(self) -> &'a AtomicU64 {
        &self.0[STOP]
    }

    pub(crate) fn is_stopped(self) -> bool {
        self.stop_word().load(Ordering::Relaxed) != 0
    }

    pub(crate) fn end(self, at: usize) {
        self.task(at)[IS_OVER].store(1, Ordering::Release);
    }

    /// Whether a task is through, with all entries written.
    #[must_use]
    pub fn is_over(self, at: usize) -> bool {
        self.task(at)[IS_OVER].load(Ordering::Acquire) != 0
    }

    pub(crate) fn tell_latency(self, at: usize, latency_ns: Option<u64>) {
        self.task(at)[LATENCY].store(latency_ns.map_or(0, |ns| ns.max(1)), Ordering::Relaxed);
    }

    pub(super) fn tell_fault(self, at: usize, fault: &TaskFault) {
        for (word, told) in self.task(at)[FAULT..].iter().zip(fault.to_words()) {
            word.store(told, Ordering::Relaxed);
        }
    }

    /// Why a task's command failed or its program was given up: the words of a [`TaskFault`].
    pub(crate) fn fault(self, at: usize) -> [u64; FAULT_WORDS] {
        let words = &self.task(at)[FAULT..];
        std::array::from_fn(|at| words[at].load(Ordering::Relaxed))
    }

    pub(super) fn tell_clock_sets(self, at: usize, sets: u64) {
        self.task(at)[CLOCK_SETS].store(sets, Ordering::Relaxed);
    }

    /// How often a task found that somebody had set the system clock by which its instants came.
    pub(crate) fn clock_sets(self, at: usize) -> u64 {
        self.task(at)[CLOCK_SETS].load(Ordering::Relaxed)
    }

    /// What the shortest message of a task takes to the next node, in ns.
    #[must_use]
    pub fn latency_ns(self, at: usize) -> Option<u64> {
        Some(self.task(at)[LATENCY].load(Ordering::Relaxed)).filter(|ns| *ns > 0)
    }
}
