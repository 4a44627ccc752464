//! Ring buffer of entries in shared memory, with one task as its writer and the collector as its
//! reader. The writer never waits: an entry that does not fit is counted as lost. Space is reserved
//! for the entries of periods, since all others refer to them.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::entry::{ENTRY_WORDS, PeriodEntry, PeriodEntryKind};

/// Capacity in entries: one second at 8 kHz without a collection.
pub(crate) const CAPACITY: usize = 8_192;
/// Number of entries that only periods may fill.
const PERIODS_RESERVED: usize = 1_024;
/// Number of waiting entries from which on only those of periods are accepted.
pub(crate) const NON_PERIOD_MAX: usize = CAPACITY - PERIODS_RESERVED;
/// Interval between two collections, in ns.
pub(crate) const COLLECT_INTERVAL_NS: u64 = 20_000_000;
/// Words before the entries: a cache line each for the writer and the reader.
const HEADER_WORDS: usize = 16;
const WRITTEN: usize = 0;
const LOST: usize = 1;
const LOST_PERIODS: usize = 2;
const READ: usize = 8;

/// Size of a ring, in 64-bit words.
pub(crate) const RING_WORDS: usize = HEADER_WORDS + CAPACITY * ENTRY_WORDS;

/// Writing end of a ring, used by the task.
#[derive(Debug)]
pub(crate) struct RingWriter<'a> {
    words: &'a [AtomicU64],
    written: u64,
}

/// Reading end of a ring, used by the collector.
#[derive(Debug)]
pub(crate) struct RingReader<'a> {
    words: &'a [AtomicU64],
    read: u64,
}

fn word_index(count: u64) -> usize {
    HEADER_WORDS + (count % CAPACITY as u64) as usize * ENTRY_WORDS
}

impl<'a> RingWriter<'a> {
    /// Creates a writer of a new ring, [`RING_WORDS`] words that are all 0; `None` for another
    /// number of words.
    #[must_use]
    pub(crate) fn new(words: &'a [AtomicU64]) -> Option<Self> {
        (words.len() == RING_WORDS).then_some(Self { words, written: 0 })
    }

    /// Publishes an entry, or counts it as lost if it does not fit.
    #[inline]
    pub(crate) fn push(&mut self, entry: &PeriodEntry) {
        match entry.kind {
            PeriodEntryKind::Period | PeriodEntryKind::NotReleased => {
                if !self.push_bounded(entry.to_words(), CAPACITY) {
                    self.increment(LOST_PERIODS);
                }
            }
            PeriodEntryKind::Step(_) | PeriodEntryKind::Event => self.push_words(entry.to_words()),
        }
    }

    /// Publishes an event that is encoded in as many words as an entry, or counts it as lost if it
    /// does not fit.
    #[inline]
    pub(crate) fn push_words(&mut self, words: [u64; ENTRY_WORDS]) {
        self.push_bounded(words, NON_PERIOD_MAX);
    }

    /// Publishes words if fewer than `capacity` entries are waiting; otherwise counts them as lost
    /// and returns false.
    #[inline]
    fn push_bounded(&mut self, words: [u64; ENTRY_WORDS], capacity: usize) -> bool {
        let read = self.words[READ].load(Acquire);
        if self.written.wrapping_sub(read) >= capacity as u64 {
            self.increment(LOST);
            return false;
        }
        let index = word_index(self.written);
        for (word, value) in self.words[index..index + ENTRY_WORDS].iter().zip(words) {
            word.store(value, Relaxed);
        }
        self.written = self.written.wrapping_add(1);
        self.words[WRITTEN].store(self.written, Release);
        true
    }

    fn increment(&self, counter: usize) {
        let count = self.words[counter].load(Relaxed);
        self.words[counter].store(count.wrapping_add(1), Relaxed);
    }
}

impl<'a> RingReader<'a> {
    /// Creates a reader of a ring that continues where an earlier reader stopped; `None` if the
    /// number of words is wrong.
    #[must_use]
    pub(crate) fn new(words: &'a [AtomicU64]) -> Option<Self> {
        (words.len() == RING_WORDS).then(|| Self { words, read: words[READ].load(Relaxed) })
    }

    /// Removes and returns the next entry, or `None`. Words that are not an entry, such as the
    /// events of application tests, are skipped; see [`Self::pop_words`].
    pub(crate) fn pop(&mut self) -> Option<PeriodEntry> {
        loop {
            let entry = PeriodEntry::from_words(&self.pop_words()?);
            if entry.is_some() {
                return entry;
            }
        }
    }

    /// Removes and returns the next words without decoding them, or `None`.
    pub(crate) fn pop_words(&mut self) -> Option<[u64; ENTRY_WORDS]> {
        let waiting = self.words[WRITTEN].load(Acquire).wrapping_sub(self.read);
        if waiting == 0 || waiting > CAPACITY as u64 {
            return None;
        }
        let index = word_index(self.read);
        let mut words = [0; ENTRY_WORDS];
        for (word, shared) in words.iter_mut().zip(&self.words[index..index + ENTRY_WORDS]) {
            *word = shared.load(Relaxed);
        }
        self.read = self.read.wrapping_add(1);
        self.words[READ].store(self.read, Release);
        Some(words)
    }

    /// Returns the number of entries lost because they did not fit.
    #[must_use]
    pub(crate) fn lost_count(&self) -> u64 {
        self.words[LOST].load(Relaxed)
    }

    /// Returns the number of lost entries of periods, which [`Self::lost_count`] includes.
    #[must_use]
    pub(crate) fn lost_period_count(&self) -> u64 {
        self.words[LOST_PERIODS].load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::PeriodEntryKind;

    fn words() -> Vec<AtomicU64> {
        (0..RING_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn entries_come_in_their_order_and_those_without_room_are_counted() {
        let words = words();
        let (mut writer, mut reader) =
            (RingWriter::new(&words).unwrap(), RingReader::new(&words).unwrap());
        assert_eq!(reader.pop(), None);
        for round in 0..3 {
            let first = round * 10_000;
            for cycle in first..first + CAPACITY as u64 + 5 {
                writer.push(&PeriodEntry::new(PeriodEntryKind::Period, cycle));
            }
            assert_eq!(reader.lost_count(), 5 * (round + 1));
            for cycle in first..first + CAPACITY as u64 {
                assert_eq!(reader.pop().unwrap().period, cycle);
            }
            assert_eq!(reader.pop(), None);
            reader = RingReader::new(&words).unwrap();
        }
        assert!(RingWriter::new(&words[1..]).is_none() && RingReader::new(&words[1..]).is_none());
    }

    #[test]
    fn whatever_else_is_handed_over_there_is_room_for_periods() {
        let words = words();
        let (mut writer, mut reader) =
            (RingWriter::new(&words).unwrap(), RingReader::new(&words).unwrap());
        for cycle in 0..10_000 {
            writer.push(&PeriodEntry::new(PeriodEntryKind::Event, cycle));
        }
        assert_eq!(
            (reader.lost_count(), reader.lost_period_count()),
            (10_000 - NON_PERIOD_MAX as u64, 0)
        );
        for cycle in 0..PERIODS_RESERVED as u64 + 3 {
            writer.push(&PeriodEntry::new(PeriodEntryKind::Period, cycle));
        }
        assert_eq!(
            (reader.lost_count(), reader.lost_period_count()),
            (10_003 - NON_PERIOD_MAX as u64, 3)
        );
        let mut periods = 0;
        while let Some(entry) = reader.pop() {
            periods += usize::from(entry.kind == PeriodEntryKind::Period);
        }
        assert_eq!(periods, PERIODS_RESERVED);
    }

    #[test]
    fn two_threads_lose_nothing_that_is_not_counted() {
        const COUNT: u64 = 300_000;
        let words = words();
        let mut reader = RingReader::new(&words).unwrap();
        let mut read = 0;
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let mut writer = RingWriter::new(&words).unwrap();
                (0..COUNT).for_each(|cycle| {
                    writer.push(&PeriodEntry::new(PeriodEntryKind::Step(3), cycle));
                });
            });
            let mut next = 0;
            loop {
                let is_over = writing.is_finished();
                while let Some(entry) = reader.pop() {
                    assert!(entry.period >= next && entry.kind == PeriodEntryKind::Step(3));
                    next = entry.period + 1;
                    read += 1;
                }
                if is_over {
                    break;
                }
            }
        });
        assert_eq!(read + reader.lost_count(), COUNT);
    }

    #[test]
    fn invalid_words_of_another_process_are_rejected() {
        let words = words();
        let mut reader = RingReader::new(&words).unwrap();
        words[WRITTEN].store(u64::MAX, Release);
        assert_eq!(reader.pop(), None);
        words[HEADER_WORDS].store(u64::MAX, Relaxed);
        words[WRITTEN].store(1, Release);
        assert_eq!(reader.pop(), None);
        assert_eq!(words[READ].load(Relaxed), 1);
    }
}
