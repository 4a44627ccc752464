//! What courses take: legs of one rate each, books of intervals, and books of single clients.

use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;

use super::Generator;
use crate::abi::{
    AskedAnswered, GeneratorConfig, INVALID_REASONS, LEGS_MAX, Leg, OffsetTally, RawHistogram,
    Tally,
};

/// What was counted while lanes may be sending. The numbers are not all of the same instant.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counted {
    /// Requests that were sent.
    pub sent: u64,
    /// Valid replies in time.
    pub received: u64,
    /// Valid replies that came too late.
    pub late: u64,
    /// Further replies to a request that was answered.
    pub duplicate: u64,
    /// Invalid replies.
    pub invalid: u64,
}

impl Generator {
    /// Gives a lane its legs, [`crate::LEGS_MAX`] at most; the generator must be loaded with more
    /// than one book.
    pub fn set_legs(&self, lane: u32, legs: &[Leg]) {
        for (leg, index) in legs.iter().zip(0..LEGS_MAX as u32) {
            self.legs.write(lane * LEGS_MAX as u32 + index, leg);
        }
    }

    /// Lets nobody write in books of intervals before this one any more; a program that is running
    /// may still end what it began.
    pub fn set_first_book(&self, number: u64) {
        self.config.atomic(0, offset_of!(GeneratorConfig, first_book)).store(number, Relaxed);
    }

    /// Books of each processor.
    #[must_use]
    pub const fn books(&self) -> u32 {
        self.books
    }

    fn entry(&self, book: u64, processor: u32) -> u32 {
        (book as u32 & (self.books - 1)) * self.processors + processor
    }

    /// What a processor counted in an interval.
    #[must_use]
    pub fn book(&self, number: u64, processor: u32) -> Box<Tally> {
        self.tallies.read_boxed(self.entry(number, processor))
    }

    /// Offsets that a processor took in an interval; all 0 where none are.
    #[must_use]
    pub fn offsets(&self, number: u64, processor: u32) -> Box<OffsetTally> {
        let entry = self.entry(number, processor);
        self.offsets.read_boxed(if entry < self.offsets.entries() { entry } else { 0 })
    }

    /// Requests that got all replies that they are owed so far, late ones included, in the books of
    /// intervals from one up to the other, and the longest round trip in them, in ns.
    #[must_use]
    pub fn answered_in(&self, first: u64, last: u64) -> (u64, u64) {
        let mut found = (0, 0);
        for number in first..=last.min(first + u64::from(self.books - 1)) {
            for entry in (0..self.processors).map(|processor| self.entry(number, processor)) {
                let field = |offset| self.tallies.atomic(entry, offset).load(Relaxed);
                let longest = offset_of!(Tally, rtt_ns) + offset_of!(RawHistogram, max);
                found.0 += field(offset_of!(Tally, answered));
                found.1 = found.1.max(field(longest));
            }
        }
        found
    }

    /// What was counted in the books of intervals from one up to the other.
    #[must_use]
    pub fn counted_in(&self, first: u64, last: u64) -> Counted {
        let mut sum = Counted::default();
        for number in first..=last.min(first + u64::from(self.books - 1)) {
            for entry in (0..self.processors).map(|processor| self.entry(number, processor)) {
                let field = |offset| self.tallies.atomic(entry, offset).load(Relaxed);
                let invalid = offset_of!(Tally, invalid);
                let lateness = offset_of!(Tally, lateness_ns);
                sum.sent += field(lateness + offset_of!(RawHistogram, count));
                sum.received += field(offset_of!(Tally, received));
                sum.late += field(offset_of!(Tally, late)) + field(offset_of!(Tally, late_earlier));
                sum.duplicate += field(offset_of!(Tally, duplicate));
                sum.invalid += (0..INVALID_REASONS)
                    .map(|reason| field(invalid + reason * size_of::<u64>()))
                    .sum::<u64>();
            }
        }
        sum
    }

    /// Readies the place of an interval's book for a later one's.
    pub fn clear_book(&self, number: u64) {
        for processor in 0..self.processors {
            let entry = self.entry(number, processor);
            self.clear_tally(entry);
            if entry < self.offsets.entries() {
                self.clear_offsets(entry);
            }
        }
    }

    /// What each client asked and was answered; nothing where they are not counted apart.
    pub fn clients(&self) -> impl Iterator<Item = AskedAnswered> {
        let count = if self.counts_clients { self.clients.entries() } else { 0 };
        (0..count).map(|client| self.clients.read(client))
    }
}
