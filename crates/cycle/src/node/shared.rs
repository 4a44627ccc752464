//! Memory shared by a node's process and its collector: a ring for each task, and a few words that
//! one side writes and the other reads.

use std::sync::atomic::{AtomicU64, Ordering};

use super::failure::{FAILURE_WORDS, TaskFailure};
use crate::ring::RING_WORDS;

/// File descriptor number of the shared memory in a node's process.
pub const REGION: i32 = 3;
/// Number of words of the region before those of the tasks.
const HEADER_WORDS: usize = 8;
const STOP_OFFSET: usize = 0;
const TASK_WORDS: usize = FAILURE_OFFSET + FAILURE_WORDS + RING_WORDS;
/// Offset, in a task's words, of the one that is not 0 after its end.
const ENDED_OFFSET: usize = 0;
const LATENCY_OFFSET: usize = 1;
const CLOCK_STEPS_OFFSET: usize = 2;
const FAILURE_OFFSET: usize = 3;

/// Returns the size of the region for this number of tasks, in 64-bit words.
#[must_use]
pub const fn region_words(tasks: usize) -> usize {
    HEADER_WORDS + tasks * TASK_WORDS
}

/// View of the memory that a node's process shares with its collector; both sides use it.
#[derive(Clone, Copy, Debug)]
pub struct NodeSharedMemory<'a>(&'a [AtomicU64]);

impl<'a> NodeSharedMemory<'a> {
    /// Creates the view for this number of tasks; `None` if the region is too small.
    #[must_use]
    pub fn new(words: &'a [AtomicU64], tasks: usize) -> Option<Self> {
        (words.len() >= region_words(tasks)).then_some(Self(words))
    }

    fn task_words(self, at: usize) -> &'a [AtomicU64] {
        &self.0[HEADER_WORDS + at * TASK_WORDS..][..TASK_WORDS]
    }

    /// Returns the words of a task's ring.
    #[must_use]
    pub fn ring(self, at: usize) -> &'a [AtomicU64] {
        &self.task_words(at)[TASK_WORDS - RING_WORDS..]
    }

    /// Requests all tasks to end at their next releases.
    pub fn stop(self) {
        self.0[STOP_OFFSET].store(1, Ordering::Relaxed);
    }

    /// Returns the word that is not 0 when all tasks must end.
    pub(crate) const fn stop_word(self) -> &'a AtomicU64 {
        &self.0[STOP_OFFSET]
    }

    pub(crate) fn is_stopped(self) -> bool {
        self.stop_word().load(Ordering::Relaxed) != 0
    }

    pub(crate) fn mark_task_ended(self, at: usize) {
        self.task_words(at)[ENDED_OFFSET].store(1, Ordering::Release);
    }

    /// Returns true if a task has finished, with all entries written.
    #[must_use]
    pub fn has_task_ended(self, at: usize) -> bool {
        self.task_words(at)[ENDED_OFFSET].load(Ordering::Acquire) != 0
    }

    pub(crate) fn set_latency(self, at: usize, latency_ns: Option<u64>) {
        self.task_words(at)[LATENCY_OFFSET]
            .store(latency_ns.map_or(0, |ns| ns.max(1)), Ordering::Relaxed);
    }

    pub(super) fn set_failure(self, at: usize, failure: &TaskFailure) {
        for (word, value) in self.task_words(at)[FAILURE_OFFSET..].iter().zip(failure.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Returns the words of a [`TaskFailure`], the reason for which a task's command failed or its
    /// program was abandoned; all 0 if there is none.
    pub(crate) fn failure_words(self, at: usize) -> [u64; FAILURE_WORDS] {
        let words = &self.task_words(at)[FAILURE_OFFSET..];
        std::array::from_fn(|at| words[at].load(Ordering::Relaxed))
    }

    pub(super) fn set_clock_steps(self, at: usize, steps: u64) {
        self.task_words(at)[CLOCK_STEPS_OFFSET].store(steps, Ordering::Relaxed);
    }

    /// Returns the number of steps of the system clock that a task detected.
    pub(crate) fn clock_steps(self, at: usize) -> u64 {
        self.task_words(at)[CLOCK_STEPS_OFFSET].load(Ordering::Relaxed)
    }

    /// Returns the median latency of a minimum-size message of a task to the next node, in ns;
    /// `None` if it was not measured.
    #[must_use]
    pub fn latency_ns(self, at: usize) -> Option<u64> {
        Some(self.task_words(at)[LATENCY_OFFSET].load(Ordering::Relaxed)).filter(|ns| *ns > 0)
    }
}
