//! Tracking of the group's packets whose copies have certainly been made. The kernel takes packets
//! in first and makes the copies of all of them afterwards, so a copy that has not left may still
//! be pending.

use std::time::{Duration, Instant};

/// Packets that a CPU takes in before it makes their copies (NAPI's weight).
const TAKEN_IN: u64 = 64;
/// Upper limit of the time from then until all copies are made.
const GRACE: Duration = Duration::from_millis(100);

/// Earlier counts of a group's packets, by CPU.
#[derive(Clone, Debug)]
pub(super) struct CompletionTracker {
    /// Packets whose copies are made.
    packets: Vec<u64>,
    /// Next such count, and the time at which it was read.
    last_reading: Option<(Instant, Vec<u64>)>,
}

impl CompletionTracker {
    /// Starts with these packet counts, by CPU, while none is in flight.
    pub(super) const fn new(packets: Vec<u64>) -> Self {
        Self { packets, last_reading: None }
    }

    /// Records the present packet counts, if another reading is due.
    pub(super) fn record(&mut self, now: Instant, packets: impl FnOnce() -> Vec<u64>) {
        if let Some((at, then)) = &mut self.last_reading {
            if now.saturating_duration_since(*at) < GRACE {
                return;
            }
            self.packets = std::mem::take(then);
        }
        self.last_reading = Some((now, packets()));
    }

    /// Returns the most packets of these counts whose copies may still be pending.
    pub(super) fn in_flight(&self, packets: &[u64]) -> u64 {
        let settled = self.packets.iter().copied().chain(std::iter::repeat(0));
        let each = packets.iter().zip(settled);
        each.map(|(now, settled)| now.saturating_sub(settled).min(TAKEN_IN)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_in_flight_until_it_was_observed_long_enough_ago() {
        let begun = Instant::now();
        let mut settled = CompletionTracker::new(vec![100, 0]);
        assert_eq!(settled.in_flight(&[100, 0]), 0);
        assert_eq!(settled.in_flight(&[103, 1]), 4);
        settled.record(begun, || vec![103, 1]);
        assert_eq!(settled.in_flight(&[103, 1]), 4, "it was only just seen");
        settled.record(begun + GRACE / 2, || vec![110, 1]);
        assert_eq!(settled.in_flight(&[110, 1]), 11);
        settled.record(begun + GRACE, || vec![110, 1]);
        assert_eq!(settled.in_flight(&[110, 1]), 7);
        settled.record(begun + 2 * GRACE, || vec![110, 1]);
        assert_eq!(settled.in_flight(&[110, 1]), 0);
    }

    #[test]
    fn no_more_are_under_way_than_a_processor_takes_in() {
        assert_eq!(CompletionTracker::new(vec![0, 7]).in_flight(&[1_000_000, 9]), TAKEN_IN + 2);
    }
}
