//! Tracking of packets whose copies are certainly complete. The kernel first receives a batch of
//! packets and then makes the copies of all of them, so a copy that has not left yet may still be
//! pending.

use std::time::{Duration, Instant};

/// Most packets that a CPU receives before it makes their copies (NAPI weight).
const NAPI_WEIGHT: u64 = 64;
/// Upper limit of the time from the receipt of a packet until all of its copies are made.
const COPY_TIME_MAX: Duration = Duration::from_millis(100);

/// Tracker of the packet counts of a group, by CPU, up to which all copies are complete.
#[derive(Clone, Debug)]
pub(super) struct CopyCompletionTracker {
    /// Packets whose copies are complete, by CPU.
    completed: Vec<u64>,
    /// Latest packet counts and the time of their reading; their copies are complete after
    /// [`COPY_TIME_MAX`].
    last_reading: Option<(Instant, Vec<u64>)>,
}

impl CopyCompletionTracker {
    /// Creates a tracker with these packet counts, by CPU, none of whose copies is pending.
    pub(super) const fn new(packets: Vec<u64>) -> Self {
        Self { completed: packets, last_reading: None }
    }

    /// Records the result of `packets`, counts by CPU, unless the last reading is younger than
    /// [`COPY_TIME_MAX`]; the counts of that reading then become the complete ones.
    pub(super) fn record(&mut self, now: Instant, packets: impl FnOnce() -> Vec<u64>) {
        if let Some((read_at, earlier)) = &mut self.last_reading {
            if now.saturating_duration_since(*read_at) < COPY_TIME_MAX {
                return;
            }
            self.completed = std::mem::take(earlier);
        }
        self.last_reading = Some((now, packets()));
    }

    /// Returns the upper limit of the number of packets, among these counts by CPU, whose copies
    /// may still be pending.
    pub(super) fn in_flight(&self, packets: &[u64]) -> u64 {
        let completed = self.completed.iter().copied().chain(std::iter::repeat(0));
        let pairs = packets.iter().zip(completed);
        pairs.map(|(now, settled)| now.saturating_sub(settled).min(NAPI_WEIGHT)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_in_flight_until_it_was_observed_long_enough_ago() {
        let begun = Instant::now();
        let mut settled = CopyCompletionTracker::new(vec![100, 0]);
        assert_eq!(settled.in_flight(&[100, 0]), 0);
        assert_eq!(settled.in_flight(&[103, 1]), 4);
        settled.record(begun, || vec![103, 1]);
        assert_eq!(settled.in_flight(&[103, 1]), 4, "it was only just seen");
        settled.record(begun + COPY_TIME_MAX / 2, || vec![110, 1]);
        assert_eq!(settled.in_flight(&[110, 1]), 11);
        settled.record(begun + COPY_TIME_MAX, || vec![110, 1]);
        assert_eq!(settled.in_flight(&[110, 1]), 7);
        settled.record(begun + 2 * COPY_TIME_MAX, || vec![110, 1]);
        assert_eq!(settled.in_flight(&[110, 1]), 0);
    }

    #[test]
    fn no_more_are_under_way_than_a_processor_takes_in() {
        assert_eq!(
            CopyCompletionTracker::new(vec![0, 7]).in_flight(&[1_000_000, 9]),
            NAPI_WEIGHT + 2
        );
    }
}
