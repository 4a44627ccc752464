//! Memory that a node's process and its collector share: the rings, and a few words for each task
//! that one side writes and the other reads.

use std::sync::atomic::{AtomicU64, Ordering};

use super::failure::{FAILURE_WORDS, TaskFailure};
use crate::ring::RING_WORDS;

/// File descriptor number of the shared memory in a node's process.
pub const REGION: i32 = 3;
/// Words of the region before the rings, and for each task.
const HEAD_WORDS: usize = 8;
const STOP: usize = 0;
const TASK_WORDS: usize = FAULT + FAILURE_WORDS + RING_WORDS;
/// Of a task's words before its ring.
const IS_OVER: usize = 0;
const LATENCY: usize = 1;
const CLOCK_SETS: usize = 2;
const FAULT: usize = 3;

/// Returns the words of the region of this number of tasks.
#[must_use]
pub const fn region_words(tasks: usize) -> usize {
    HEAD_WORDS + tasks * TASK_WORDS
}

/// View of a region, the same for its two sides.
#[derive(Clone, Copy, Debug)]
pub struct SharedState<'a>(&'a [AtomicU64]);

impl<'a> SharedState<'a> {
    /// Makes the view of a region of this number of tasks; `None` if it is too small.
    #[must_use]
    pub fn new(words: &'a [AtomicU64], tasks: usize) -> Option<Self> {
        (words.len() >= region_words(tasks)).then_some(Self(words))
    }

    fn task(self, at: usize) -> &'a [AtomicU64] {
        &self.0[HEAD_WORDS + at * TASK_WORDS..][..TASK_WORDS]
    }

    /// Returns the words of a task's ring.
    #[must_use]
    pub fn ring(self, at: usize) -> &'a [AtomicU64] {
        &self.task(at)[TASK_WORDS - RING_WORDS..]
    }

    /// Requests all tasks to end at their next release.
    pub fn stop(self) {
        self.0[STOP].store(1, Ordering::Relaxed);
    }

    /// Returns the word that is no longer 0 when all tasks are to end.
    pub(crate) const fn stop_word(self) -> &'a AtomicU64 {
        &self.0[STOP]
    }

    pub(crate) fn is_stopped(self) -> bool {
        self.stop_word().load(Ordering::Relaxed) != 0
    }

    pub(crate) fn end(self, at: usize) {
        self.task(at)[IS_OVER].store(1, Ordering::Release);
    }

    /// Returns true if a task has finished, with all entries written.
    #[must_use]
    pub fn is_over(self, at: usize) -> bool {
        self.task(at)[IS_OVER].load(Ordering::Acquire) != 0
    }

    pub(crate) fn set_latency(self, at: usize, latency_ns: Option<u64>) {
        self.task(at)[LATENCY].store(latency_ns.map_or(0, |ns| ns.max(1)), Ordering::Relaxed);
    }

    pub(super) fn set_failure(self, at: usize, fault: &TaskFailure) {
        for (word, value) in self.task(at)[FAULT..].iter().zip(fault.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Returns the reason for which a task's command failed or its program was abandoned: the words
    /// of a [`TaskFailure`].
    pub(crate) fn fault(self, at: usize) -> [u64; FAILURE_WORDS] {
        let words = &self.task(at)[FAULT..];
        std::array::from_fn(|at| words[at].load(Ordering::Relaxed))
    }

    pub(super) fn set_clock_steps(self, at: usize, sets: u64) {
        self.task(at)[CLOCK_SETS].store(sets, Ordering::Relaxed);
    }

    /// Returns the number of steps of the releasing system clock that a task detected.
    pub(crate) fn clock_sets(self, at: usize) -> u64 {
        self.task(at)[CLOCK_SETS].load(Ordering::Relaxed)
    }

    /// Returns the latency of a task's shortest message to the next node, in ns.
    #[must_use]
    pub fn latency_ns(self, at: usize) -> Option<u64> {
        Some(self.task(at)[LATENCY].load(Ordering::Relaxed)).filter(|ns| *ns > 0)
    }
}
