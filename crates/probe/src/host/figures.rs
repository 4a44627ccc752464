//! What the measurements of a host share: what a reading of the clock costs, and medians.

use horolog_sys::clock::MonotonicClock;
use horolog_time::Clock;

/// Enough that a few interrupts among them do not show in the median.
const READINGS: usize = 1_001;

/// What one reading of the clock costs, in ns: the median of many.
pub(super) fn clock_ns() -> u64 {
    median_of_calls(|| ())
}

/// What a call takes with the reading of the clock behind it, in ns: the median of many.
pub(super) fn median_of_calls(mut call: impl FnMut()) -> u64 {
    let mut taken: Vec<u64> = (0..READINGS)
        .map(|_| {
            let before = MonotonicClock.now();
            call();
            (MonotonicClock.now() - before).as_ns().unsigned_abs()
        })
        .collect();
    taken.sort_unstable();
    taken[READINGS / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_costs_what_it_takes() {
        let nothing = clock_ns();
        let something = median_of_calls(|| {
            std::hint::black_box(
                (0..10_000_u64).fold(0_u64, |sum, at| sum ^ std::hint::black_box(at)),
            );
        });
        assert!(something > nothing, "{something} {nothing}");
    }
}
