//! Counts of replies by either verifier of the generator, for comparison.

use horolog_load::request_tracker::TrialCounts;
use horolog_record::InvalidReplyReason;
use horolog_stats::{Histogram, SignedHistogram};
use horolog_xdp::Generator;

/// Counts of replies.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct ReplyCounts {
    pub(crate) received: u64,
    pub(crate) interleaved: u64,
    pub(crate) delay: u64,
    pub(crate) sync_follow_up: u64,
    pub(crate) duplicate: u64,
    pub(crate) late: u64,
    pub(crate) unsynchronised: u64,
    pub(crate) invalid: [u64; InvalidReplyReason::ALL.len()],
    pub(crate) round_trips: u64,
    /// Measured offsets, the negative ones of these, and those beyond the range of a histogram.
    /// Their values depend on the instant, which differs a little between the verifiers.
    pub(crate) offsets: [u64; 3],
}

fn offsets(histogram: &SignedHistogram) -> [u64; 3] {
    [histogram.count(), histogram.negative().count(), histogram.clamped()]
}

impl ReplyCounts {
    /// Returns the counts of the trackers in Rust.
    pub(crate) fn of_model(counts: &TrialCounts) -> Self {
        let ptp = counts.ptp.unwrap_or_default();
        Self {
            received: counts.received,
            interleaved: counts.interleaved,
            delay: ptp.delay,
            sync_follow_up: ptp.sync_follow_up,
            duplicate: counts.duplicate,
            late: counts.late,
            unsynchronised: counts.server_unsynchronised,
            invalid: counts.invalid,
            round_trips: counts.rtt.count(),
            offsets: counts.offsets.as_ref().map_or([0; 3], |found| offsets(&found.offsets)),
        }
    }

    /// Returns the counts and the response times of the in-kernel program.
    pub(crate) fn of_program(generator: &Generator) -> (Self, Histogram) {
        let (mut sum, mut response) = (Self::default(), Histogram::new());
        for processor in 0..generator.processors() {
            let counts = generator.interval_counts(0, processor);
            let mut invalid = [0; InvalidReplyReason::ALL.len()];
            invalid[..counts.invalid.len()].copy_from_slice(&counts.invalid);
            sum.add(&Self {
                received: counts.received,
                interleaved: counts.interleaved,
                delay: counts.delay,
                sync_follow_up: counts.sync_follow_up,
                duplicate: counts.duplicate,
                late: counts.late + counts.late_earlier,
                unsynchronised: counts.unsynchronised,
                invalid,
                round_trips: counts.rtt_ns.count,
                offsets: [0; 3],
            });
            response.merge(&counts.response_ns.to_histogram());
        }
        for processor in 0..generator.processors() {
            let counts = generator.interval_offsets(0, processor);
            let (negative, positive) = (counts.negative.count, counts.positive.count);
            let one = [negative + positive, negative, counts.clamped];
            sum.add(&Self { offsets: one, ..Self::default() });
        }
        (sum, response)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.interleaved += other.interleaved;
        self.delay += other.delay;
        self.sync_follow_up += other.sync_follow_up;
        self.duplicate += other.duplicate;
        self.late += other.late;
        self.unsynchronised += other.unsynchronised;
        for (sum, count) in self.invalid.iter_mut().zip(other.invalid) {
            *sum += count;
        }
        self.round_trips += other.round_trips;
        for (sum, count) in self.offsets.iter_mut().zip(other.offsets) {
            *sum += count;
        }
    }

    pub(crate) fn invalid_total(&self) -> u64 {
        self.invalid.iter().sum()
    }

    pub(crate) fn total(&self) -> u64 {
        self.received + self.duplicate + self.late + self.invalid_total()
    }
}
