//! State of load profiles: rate segments, interval counts, and counts of single clients.

use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;

use super::Generator;
use crate::abi::{
    ClientCounts, GeneratorConfig, INVALID_REASONS, LaneCounts, LaneOffsetCounts,
    RATE_SEGMENTS_MAX, RateSegment, RawHistogram,
};

/// Counts while lanes may be sending. The numbers are not all of the same instant.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GeneratorCounts {
    /// Requests sent.
    pub sent: u64,
    /// Valid replies in time.
    pub received: u64,
    /// Valid replies that arrived too late.
    pub late: u64,
    /// Further replies to a request that was answered.
    pub duplicate: u64,
    /// Of the valid replies in time, those with "unsynchronised".
    pub unsynchronised: u64,
    /// Invalid replies.
    pub invalid: u64,
    /// PTP delay responses and Syncs, also to requests with further replies outstanding.
    pub parts: u64,
}

impl Generator {
    /// Sets a lane's rate segments, [`crate::RATE_SEGMENTS_MAX`] at most; the generator must be
    /// loaded with more than one set of interval counts.
    pub fn set_rate_segments(&self, lane: u32, segments: &[RateSegment]) {
        for (segment, index) in segments.iter().zip(0..RATE_SEGMENTS_MAX as u32) {
            self.rate_segments.write(lane * RATE_SEGMENTS_MAX as u32 + index, segment);
        }
    }

    /// Closes the intervals before this one; a running program may still complete its current
    /// write.
    pub fn set_first_interval(&self, number: u64) {
        self.config.atomic(0, offset_of!(GeneratorConfig, first_interval)).store(number, Relaxed);
    }

    /// Returns the number of interval counts of each CPU.
    #[must_use]
    pub const fn intervals(&self) -> u32 {
        self.open_intervals
    }

    fn entry(&self, interval: u64, processor: u32) -> u32 {
        (interval as u32 & (self.open_intervals - 1)) * self.processors + processor
    }

    /// Returns the counts of a CPU in an interval.
    #[must_use]
    pub fn interval(&self, number: u64, processor: u32) -> Box<LaneCounts> {
        self.lane_counts.read_boxed(self.entry(number, processor))
    }

    /// Returns the offsets of a CPU in an interval; all 0 if none are measured.
    #[must_use]
    pub fn offsets(&self, number: u64, processor: u32) -> Box<LaneOffsetCounts> {
        let entry = self.entry(number, processor);
        self.offsets.read_boxed(if entry < self.offsets.entries() { entry } else { 0 })
    }

    /// Returns the requests answered in full so far, late ones included, in the intervals from
    /// `first` up to `last`, and the longest round trip in them, in ns.
    #[must_use]
    pub fn answered_in(&self, first: u64, last: u64) -> (u64, u64) {
        let mut found = (0, 0);
        for number in first..=last.min(first + u64::from(self.open_intervals - 1)) {
            for entry in (0..self.processors).map(|processor| self.entry(number, processor)) {
                let field = |offset| self.lane_counts.atomic(entry, offset).load(Relaxed);
                let longest = offset_of!(LaneCounts, rtt_ns) + offset_of!(RawHistogram, max);
                found.0 += field(offset_of!(LaneCounts, answered));
                found.1 = found.1.max(field(longest));
            }
        }
        found
    }

    /// Returns the counts of the intervals from `first` up to `last`.
    #[must_use]
    pub fn counted_in(&self, first: u64, last: u64) -> GeneratorCounts {
        let mut sum = GeneratorCounts::default();
        for number in first..=last.min(first + u64::from(self.open_intervals - 1)) {
            for entry in (0..self.processors).map(|processor| self.entry(number, processor)) {
                let field = |offset| self.lane_counts.atomic(entry, offset).load(Relaxed);
                let invalid = offset_of!(LaneCounts, invalid);
                let lateness = offset_of!(LaneCounts, lateness_ns);
                sum.sent += field(lateness + offset_of!(RawHistogram, count));
                sum.received += field(offset_of!(LaneCounts, received));
                sum.late += field(offset_of!(LaneCounts, late))
                    + field(offset_of!(LaneCounts, late_earlier));
                sum.duplicate += field(offset_of!(LaneCounts, duplicate));
                sum.unsynchronised += field(offset_of!(LaneCounts, unsynchronised));
                sum.parts += field(offset_of!(LaneCounts, delay));
                sum.parts += field(offset_of!(LaneCounts, sync_follow_up));
                sum.invalid += (0..INVALID_REASONS)
                    .map(|reason| field(invalid + reason * size_of::<u64>()))
                    .sum::<u64>();
            }
        }
        sum
    }

    /// Prepares the entry of an interval for a later one.
    pub fn clear_interval(&self, number: u64) {
        for processor in 0..self.processors {
            let entry = self.entry(number, processor);
            self.clear_counts(entry);
            if entry < self.offsets.entries() {
                self.clear_offsets(entry);
            }
        }
    }

    /// Returns the requests and replies of each client; nothing if they are not counted separately.
    pub fn clients(&self) -> impl Iterator<Item = ClientCounts> {
        let count = if self.counts_clients { self.clients.entries() } else { 0 };
        (0..count).map(|client| self.clients.read(client))
    }
}
