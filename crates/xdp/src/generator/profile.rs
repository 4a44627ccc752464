//! State of load profiles: rate segments, interval counts, and counts of single clients.

use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;

use super::Generator;
use crate::abi::{
    ClientCounts, INVALID_REASONS, LaneCounts, LaneServerOffsetCounts, RATE_SEGMENTS_MAX,
    RateSegment, RawGeneratorConfig, RawHistogram,
};

/// Counts of a generator, read while lanes may be sending; the fields are read one after another,
/// not at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GeneratorCounts {
    /// Requests sent.
    pub sent: u64,
    /// Valid replies within the timeout.
    pub received: u64,
    /// Valid replies after the timeout, and those to requests of earlier trials.
    pub late: u64,
    /// Further replies to a request that already had one.
    pub duplicate: u64,
    /// Valid replies within the timeout whose leap indicator is 3 (unsynchronised).
    pub unsynchronised: u64,
    /// Invalid replies.
    pub invalid: u64,
    /// First PTP delay responses, and Syncs with their `Follow_Up` in two-step mode, within the
    /// timeout; also those of requests that still lack other replies.
    pub ptp_messages: u64,
}

impl Generator {
    /// Sets the rate segments of a lane; those after the first [`crate::RATE_SEGMENTS_MAX`] are
    /// ignored. The generator must be loaded with
    /// [`open_intervals`](super::GeneratorSettings::open_intervals) above 1.
    pub fn set_rate_segments(&self, lane: u32, segments: &[RateSegment]) {
        for (segment, index) in segments.iter().zip(0..RATE_SEGMENTS_MAX as u32) {
            self.rate_segments.write(lane * RATE_SEGMENTS_MAX as u32 + index, segment);
        }
    }

    /// Closes the intervals before interval `number`. A program that is running may still finish a
    /// write to one of them.
    pub fn set_first_interval(&self, number: u64) {
        self.config
            .atomic(0, offset_of!(RawGeneratorConfig, first_interval))
            .store(number, Relaxed);
    }

    /// Returns the number of sets of interval counts of each CPU.
    #[must_use]
    pub const fn intervals(&self) -> u32 {
        self.open_intervals
    }

    fn entry_index(&self, interval: u64, processor: u32) -> u32 {
        (interval as u32 & (self.open_intervals - 1)) * self.processors + processor
    }

    /// Returns the counts of a CPU in an interval.
    #[must_use]
    pub fn interval_counts(&self, number: u64, processor: u32) -> Box<LaneCounts> {
        self.lane_counts.read_boxed(self.entry_index(number, processor))
    }

    /// Returns the offsets measured by a CPU in an interval; empty if offsets are not measured.
    #[must_use]
    pub fn interval_offsets(&self, number: u64, processor: u32) -> Box<LaneServerOffsetCounts> {
        let entry = self.entry_index(number, processor);
        self.offsets.read_boxed(if entry < self.offsets.entries() { entry } else { 0 })
    }

    /// Returns the number of requests with all their replies, including late ones, in the intervals
    /// `first` to `last` on all CPUs, and the longest round trip in them, in ns. At most as many
    /// intervals are read as each CPU has sets of counts.
    #[must_use]
    pub fn answered_and_rtt(&self, first: u64, last: u64) -> (u64, u64) {
        let mut answered = (0, 0);
        for number in first..=last.min(first + u64::from(self.open_intervals - 1)) {
            for entry in (0..self.processors).map(|processor| self.entry_index(number, processor)) {
                let field = |offset| self.lane_counts.atomic(entry, offset).load(Relaxed);
                let longest = offset_of!(LaneCounts, rtt_ns) + offset_of!(RawHistogram, max);
                answered.0 += field(offset_of!(LaneCounts, answered));
                answered.1 = answered.1.max(field(longest));
            }
        }
        answered
    }

    /// Returns the sum of the counts of the intervals `first` to `last` on all CPUs. At most as
    /// many intervals are read as each CPU has sets of counts.
    #[must_use]
    pub fn counts_in_intervals(&self, first: u64, last: u64) -> GeneratorCounts {
        let mut sum = GeneratorCounts::default();
        for number in first..=last.min(first + u64::from(self.open_intervals - 1)) {
            for entry in (0..self.processors).map(|processor| self.entry_index(number, processor)) {
                let field = |offset| self.lane_counts.atomic(entry, offset).load(Relaxed);
                let invalid = offset_of!(LaneCounts, invalid);
                let lateness = offset_of!(LaneCounts, lateness_ns);
                sum.sent += field(lateness + offset_of!(RawHistogram, count));
                sum.received += field(offset_of!(LaneCounts, received));
                sum.late += field(offset_of!(LaneCounts, late))
                    + field(offset_of!(LaneCounts, late_earlier));
                sum.duplicate += field(offset_of!(LaneCounts, duplicate));
                sum.unsynchronised += field(offset_of!(LaneCounts, unsynchronised));
                sum.ptp_messages += field(offset_of!(LaneCounts, delay));
                sum.ptp_messages += field(offset_of!(LaneCounts, sync_follow_up));
                sum.invalid += (0..INVALID_REASONS)
                    .map(|reason| field(invalid + reason * size_of::<u64>()))
                    .sum::<u64>();
            }
        }
        sum
    }

    /// Clears the counts of a closed interval, whose entries a later interval reuses.
    pub fn clear_interval(&self, number: u64) {
        for processor in 0..self.processors {
            let entry = self.entry_index(number, processor);
            self.clear_counts(entry);
            if entry < self.offsets.entries() {
                self.clear_offsets(entry);
            }
        }
    }

    /// Returns the counts of each client; empty if clients are not counted separately.
    pub fn clients(&self) -> impl Iterator<Item = ClientCounts> {
        let count = if self.counts_clients { self.clients.entries() } else { 0 };
        (0..count).map(|client| self.clients.read(client))
    }
}
