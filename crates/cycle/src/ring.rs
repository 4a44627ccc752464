//! Queue of entries in shared words, from one task to one collector. The writer never waits: an
//! entry that finds no room is counted as lost. Room for periods lasts longest, since all other
//! entries of a run refer to them.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::entry::{EntryKind, PeriodEntry, WORDS};

/// Largest number of waiting entries: one second at 8 kHz if the collector sleeps all of it.
pub(crate) const CAPACITY: usize = 8_192;
/// Room reserved for entries of periods.
const OF_PERIODS: usize = 1_024;
/// Room for all other entries: events or steps that a task may publish between two collections.
pub(crate) const NON_PERIOD_MAX: usize = CAPACITY - OF_PERIODS;
/// Interval between two collections, in ns.
pub(crate) const COLLECT_INTERVAL_NS: u64 = 20_000_000;
/// Words before the entries, a cache line for each side.
const HEAD: usize = 16;
const WRITTEN: usize = 0;
const LOST: usize = 1;
const LOST_PERIODS: usize = 2;
const READ: usize = 8;

/// Words of a ring.
pub(crate) const RING_WORDS: usize = HEAD + CAPACITY * WORDS;

/// The end that a task writes.
#[derive(Debug)]
pub(crate) struct RingWriter<'a> {
    words: &'a [AtomicU64],
    written: u64,
}

/// The end that the collector reads.
#[derive(Debug)]
pub(crate) struct RingReader<'a> {
    words: &'a [AtomicU64],
    read: u64,
}

fn word_index(count: u64) -> usize {
    HEAD + (count % CAPACITY as u64) as usize * WORDS
}

impl<'a> RingWriter<'a> {
    /// Writes into words that are all 0, [`RING_WORDS`] of them; `None` for another number.
    #[must_use]
    pub(crate) fn new(words: &'a [AtomicU64]) -> Option<Self> {
        (words.len() == RING_WORDS).then_some(Self { words, written: 0 })
    }

    /// Publishes an entry.
    #[inline]
    pub(crate) fn push(&mut self, entry: &PeriodEntry) {
        match entry.part {
            EntryKind::Period | EntryKind::NotReleased => {
                if !self.put(entry.to_words(), CAPACITY) {
                    self.count(LOST_PERIODS);
                }
            }
            EntryKind::Step(_) | EntryKind::Event => self.push_words(entry.to_words()),
        }
    }

    /// Publishes other content of the same number of words as an entry.
    #[inline]
    pub(crate) fn push_words(&mut self, words: [u64; WORDS]) {
        self.put(words, NON_PERIOD_MAX);
    }

    /// Returns true if there was room, with `most` as the limit of waiting entries.
    #[inline]
    fn put(&mut self, words: [u64; WORDS], most: usize) -> bool {
        let read = self.words[READ].load(Acquire);
        if self.written.wrapping_sub(read) >= most as u64 {
            self.count(LOST);
            return false;
        }
        let index = word_index(self.written);
        for (word, value) in self.words[index..index + WORDS].iter().zip(words) {
            word.store(value, Relaxed);
        }
        self.written = self.written.wrapping_add(1);
        self.words[WRITTEN].store(self.written, Release);
        true
    }

    fn count(&self, what: usize) {
        let count = self.words[what].load(Relaxed);
        self.words[what].store(count.wrapping_add(1), Relaxed);
    }
}

impl<'a> RingReader<'a> {
    /// Reads the entries written into the same words, from where an earlier reader left off.
    #[must_use]
    pub(crate) fn new(words: &'a [AtomicU64]) -> Option<Self> {
        (words.len() == RING_WORDS).then(|| Self { words, read: words[READ].load(Relaxed) })
    }

    /// Takes the next entry, if present. Words that are no entry are skipped; only a program other
    /// than a task of this crate writes such words.
    pub(crate) fn pop(&mut self) -> Option<PeriodEntry> {
        loop {
            let entry = PeriodEntry::from_words(&self.pop_words()?);
            if entry.is_some() {
                return entry;
            }
        }
    }

    /// Takes the next words of any content, if present.
    pub(crate) fn pop_words(&mut self) -> Option<[u64; WORDS]> {
        let waiting = self.words[WRITTEN].load(Acquire).wrapping_sub(self.read);
        if waiting == 0 || waiting > CAPACITY as u64 {
            return None;
        }
        let index = word_index(self.read);
        let mut words = [0; WORDS];
        for (word, shared) in words.iter_mut().zip(&self.words[index..index + WORDS]) {
            *word = shared.load(Relaxed);
        }
        self.read = self.read.wrapping_add(1);
        self.words[READ].store(self.read, Release);
        Some(words)
    }

    /// Returns the number of entries that found no room.
    #[must_use]
    pub(crate) fn lost(&self) -> u64 {
        self.words[LOST].load(Relaxed)
    }

    /// Returns the number of those that were of periods.
    #[must_use]
    pub(crate) fn lost_periods(&self) -> u64 {
        self.words[LOST_PERIODS].load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::EntryKind;

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
                writer.push(&PeriodEntry::new(EntryKind::Period, cycle));
            }
            assert_eq!(reader.lost(), 5 * (round + 1));
            for cycle in first..first + CAPACITY as u64 {
                assert_eq!(reader.pop().unwrap().cycle, cycle);
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
            writer.push(&PeriodEntry::new(EntryKind::Event, cycle));
        }
        assert_eq!((reader.lost(), reader.lost_periods()), (10_000 - NON_PERIOD_MAX as u64, 0));
        for cycle in 0..OF_PERIODS as u64 + 3 {
            writer.push(&PeriodEntry::new(EntryKind::Period, cycle));
        }
        assert_eq!((reader.lost(), reader.lost_periods()), (10_003 - NON_PERIOD_MAX as u64, 3));
        let mut periods = 0;
        while let Some(entry) = reader.pop() {
            periods += usize::from(entry.part == EntryKind::Period);
        }
        assert_eq!(periods, OF_PERIODS);
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
                (0..COUNT)
                    .for_each(|cycle| writer.push(&PeriodEntry::new(EntryKind::Step(3), cycle)));
            });
            let mut next = 0;
            loop {
                let is_over = writing.is_finished();
                while let Some(entry) = reader.pop() {
                    assert!(entry.cycle >= next && entry.part == EntryKind::Step(3));
                    next = entry.cycle + 1;
                    read += 1;
                }
                if is_over {
                    break;
                }
            }
        });
        assert_eq!(read + reader.lost(), COUNT);
    }

    #[test]
    fn invalid_words_of_another_process_are_rejected() {
        let words = words();
        let mut reader = RingReader::new(&words).unwrap();
        words[WRITTEN].store(u64::MAX, Release);
        assert_eq!(reader.pop(), None);
        words[HEAD].store(u64::MAX, Relaxed);
        words[WRITTEN].store(1, Release);
        assert_eq!(reader.pop(), None);
        assert_eq!(words[READ].load(Relaxed), 1);
    }
}
