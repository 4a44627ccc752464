//! Which of a group's packets are sure to have had their copies made. The kernel takes packets in
//! first and makes the copies of all of them afterwards, so a copy that has not left may be one
//! that is still to be made.

use std::time::{Duration, Instant};

/// Packets that a processor takes in before it makes their copies (NAPI's weight).
const TAKEN_IN: u64 = 64;
/// Longer than it takes from then until all copies are made.
const GRACE: Duration = Duration::from_millis(100);

/// What a group's packets were once, by processor.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    /// Packets whose copies are made.
    packets: Vec<u64>,
    /// A count that will be so, and when it was taken.
    looked: Option<(Instant, Vec<u64>)>,
}

impl Settled {
    /// So many packets, by processor, while none is on its way.
    pub(super) const fn new(packets: Vec<u64>) -> Self {
        Self { packets, looked: None }
    }

    /// Notes how many packets there are, if it is time to look again.
    pub(super) fn look(&mut self, now: Instant, packets: impl FnOnce() -> Vec<u64>) {
        if let Some((at, then)) = &mut self.looked {
            if now.saturating_duration_since(*at) < GRACE {
                return;
            }
            self.packets = std::mem::take(then);
        }
        self.looked = Some((now, packets()));
    }

    /// Of how many of so many packets copies may still have to be made, at most.
    pub(super) fn under_way(&self, packets: &[u64]) -> u64 {
        let settled = self.packets.iter().copied().chain(std::iter::repeat(0));
        let each = packets.iter().zip(settled);
        each.map(|(now, settled)| now.saturating_sub(settled).min(TAKEN_IN)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_under_way_until_it_was_seen_long_enough_ago() {
        let begun = Instant::now();
        let mut settled = Settled::new(vec![100, 0]);
        assert_eq!(settled.under_way(&[100, 0]), 0);
        assert_eq!(settled.under_way(&[103, 1]), 4);
        settled.look(begun, || vec![103, 1]);
        assert_eq!(settled.under_way(&[103, 1]), 4, "it was only just seen");
        settled.look(begun + GRACE / 2, || vec![110, 1]);
        assert_eq!(settled.under_way(&[110, 1]), 11);
        settled.look(begun + GRACE, || vec![110, 1]);
        assert_eq!(settled.under_way(&[110, 1]), 7);
        settled.look(begun + 2 * GRACE, || vec![110, 1]);
        assert_eq!(settled.under_way(&[110, 1]), 0);
    }

    #[test]
    fn no_more_are_under_way_than_a_processor_takes_in() {
        assert_eq!(Settled::new(vec![0, 7]).under_way(&[1_000_000, 9]), TAKEN_IN + 2);
    }
}
