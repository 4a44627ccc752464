//! Duplicate detection: distinguishes the first reply to a request from duplicates, with one bit
//! for each request in flight.
//!
//! The sender opens each sequence number before it sends the request; a receiver marks it when a
//! reply arrives. The bits form a ring, so memory does not grow with the run. Numbers that have
//! left the ring are reported as outside. Lateness is not detected here, since that requires a
//! clock.

use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

/// Number of sequence numbers in a word, which are discarded together.
const WORD_BITS: u64 = 64;

/// Largest size of a window in bits: 2^33, which is 1 GiB.
const MAX_BITS: u64 = 1 << 33;

/// Result of marking a sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceMarkOutcome {
    /// The first reply to this request.
    First,
    /// The request had a reply before.
    Duplicate,
    /// The number was not opened yet, or was opened so long ago that its bit may serve another
    /// request. Nothing was marked.
    Outside,
}

/// Error for a window that would need too much memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a duplicate window over {reach} requests is too large; lower the rate or the late limit")]
pub struct WindowTooLarge {
    /// Requested reach, in requests.
    pub reach: u64,
}

/// Ring of bits over the latest sequence numbers, shared by one sender and any number of receivers.
///
/// # Validity
///
/// A reply is recognised while fewer than `reach` further requests have been opened. Choose `reach`
/// above rate × timeout, and check for lateness first. The ring holds twice the reach: a number is
/// refused as [`SequenceMarkOutcome::Outside`] half a ring before its bit is reused, so a receiver
/// that is preempted between its check and its mark has that margin.
///
/// # Ordering
///
/// Only the sender moves the horizon. It clears a word, then publishes the horizon past it with
/// release ordering, then sends the packets that use the word. A receiver loads the horizon with
/// acquire ordering; whenever it finds its number below, the clearing happened before its mark and
/// cannot erase it. The reply came after the request through the kernel, whose queues order memory,
/// so a receiver does not see a horizon older than the packet that it holds. The marks themselves
/// are atomic read-modify-write operations on one word and need no mutual order.
#[derive(Debug)]
pub struct DuplicateWindow {
    words: Box<[AtomicU64]>,
    /// One past the last sequence number whose word is cleared; a multiple of [`WORD_BITS`].
    horizon: AtomicU64,
}

impl DuplicateWindow {
    /// Creates a window that recognises a reply until `reach` further requests have been opened.
    pub fn new(reach: u64) -> Result<Self, WindowTooLarge> {
        let bits = reach
            .checked_add(WORD_BITS)
            .and_then(|bits| bits.checked_mul(2)?.checked_next_power_of_two())
            .filter(|&bits| bits <= MAX_BITS)
            .ok_or(WindowTooLarge { reach })?;
        let words = (0..bits / WORD_BITS).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { words, horizon: AtomicU64::new(0) })
    }

    /// Returns how far below the horizon numbers are accepted: half of the ring.
    fn accepted_len(&self) -> u64 {
        self.words.len() as u64 * WORD_BITS / 2
    }

    fn word(&self, seq: u64) -> &AtomicU64 {
        &self.words[(seq / WORD_BITS) as usize & (self.words.len() - 1)]
    }

    /// Opens the sequence number `seq`, before its request is sent.
    ///
    /// Numbers start near 0 and never fall; gaps are allowed. One call in 64 clears a word; the
    /// others only compare. Call it from one thread.
    #[inline]
    pub fn open(&self, seq: u64) {
        let mut horizon = self.horizon.load(Ordering::Relaxed);
        while seq >= horizon {
            self.word(horizon).store(0, Ordering::Relaxed);
            horizon += WORD_BITS;
            self.horizon.store(horizon, Ordering::Release);
        }
    }

    /// Marks the request `seq` as answered, unless its number is outside the window; returns
    /// whether it was answered before.
    #[inline]
    pub fn mark(&self, seq: u64) -> SequenceMarkOutcome {
        let age = self.horizon.load(Ordering::Acquire).checked_sub(seq);
        if !age.is_some_and(|age| (1..=self.accepted_len()).contains(&age)) {
            return SequenceMarkOutcome::Outside;
        }
        let bit = 1 << (seq % WORD_BITS);
        if self.word(seq).fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            SequenceMarkOutcome::First
        } else {
            SequenceMarkOutcome::Duplicate
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::AtomicU64;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn second_reply_is_a_duplicate() {
        let window = DuplicateWindow::new(100).unwrap();
        window.open(0);
        assert_eq!(window.mark(0), SequenceMarkOutcome::First);
        assert_eq!(window.mark(0), SequenceMarkOutcome::Duplicate);
    }

    #[test]
    fn a_number_never_opened_is_outside() {
        let window = DuplicateWindow::new(100).unwrap();
        assert_eq!(window.mark(0), SequenceMarkOutcome::Outside);
        window.open(70);
        assert_eq!(window.mark(128), SequenceMarkOutcome::Outside);
        assert_eq!(window.mark(u64::MAX), SequenceMarkOutcome::Outside);
    }

    #[test]
    fn the_whole_reach_is_recognised_and_nothing_twice_as_old() {
        for reach in [0, 1, 63, 64, 65, 1_000] {
            let window = DuplicateWindow::new(reach).unwrap();
            let newest = 50_003;
            for seq in 0..=newest {
                window.open(seq);
            }
            assert_eq!(window.mark(newest - reach), SequenceMarkOutcome::First, "reach {reach}");
            assert_eq!(
                window.mark(newest - 4 * (reach + 64)),
                SequenceMarkOutcome::Outside,
                "reach {reach}"
            );
        }
    }

    #[test]
    fn half_a_ring_stays_free_for_a_receiver_that_was_stopped() {
        let window = DuplicateWindow::new(64).unwrap();
        assert_eq!(window.words.len() as u64 * WORD_BITS, 256);
        window.open(1_000);
        assert_eq!(window.mark(1_024 - 128), SequenceMarkOutcome::First);
        assert_eq!(window.mark(1_024 - 129), SequenceMarkOutcome::Outside);
    }

    #[test]
    fn an_absurd_reach_is_refused() {
        assert_eq!(DuplicateWindow::new(1 << 40).unwrap_err().reach, 1 << 40);
        assert!(DuplicateWindow::new(u64::MAX).is_err());
    }

    #[test]
    fn sender_and_receiver_threads_agree_on_every_number() {
        let window = DuplicateWindow::new(4_096).unwrap();
        let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
        let total = 300_000;
        let firsts = std::thread::scope(|scope| {
            scope.spawn(|| {
                for seq in 0..total {
                    while seq >= received.load(Ordering::Acquire) + 4_096 {
                        std::thread::yield_now();
                    }
                    window.open(seq);
                    sent.store(seq + 1, Ordering::Release);
                }
            });
            let mut firsts = 0;
            for seq in 0..total {
                while seq >= sent.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                firsts += u64::from(window.mark(seq) == SequenceMarkOutcome::First);
                assert_eq!(window.mark(seq), SequenceMarkOutcome::Duplicate);
                received.store(seq + 1, Ordering::Release);
            }
            firsts
        });
        assert_eq!(firsts, total);
    }

    proptest! {
        /// Replies arrive in any order and number, each within the reach; a set is the reference.
        #[test]
        fn agrees_with_a_set(
            reach in 1_u64..300,
            steps in prop::collection::vec((any::<bool>(), 0_u64..300), 1..3_000),
        ) {
            let window = DuplicateWindow::new(reach).unwrap();
            let mut seen = HashSet::new();
            let mut opened = 0;
            for (open, back) in steps {
                if open || opened == 0 {
                    // A stride that visits many words soon, with some numbers skipped.
                    opened += 1 + back % 3;
                    window.open(opened);
                } else {
                    let seq = opened.saturating_sub(back % (reach + 1));
                    let expected = if seen.insert(seq) { SequenceMarkOutcome::First } else { SequenceMarkOutcome::Duplicate };
                    prop_assert_eq!(window.mark(seq), expected);
                }
            }
        }
    }
}
