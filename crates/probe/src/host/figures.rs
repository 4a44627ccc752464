//! Shared helpers of the host measurements: cost of a clock reading, medians, and values in words.

use horolog_sys::clock::MonotonicClock;
use horolog_time::Clock;

/// Readings, enough that a few interrupts among them do not show in the median.
const READINGS: usize = 1_001;

/// Returns the cost of one clock reading in ns: the median of many.
pub(super) fn clock_ns() -> u64 {
    median_of_calls(|| ())
}

/// Returns the time of a call including the clock reading after it, in ns: the median of many.
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

/// Formats a time in words.
pub(super) fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.3} s", ns as f64 / 1e9),
    }
}

/// Formats a number of items: `1 repetition`, `2 repetitions`.
pub(super) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_unit_of_their_size_and_words_their_number() {
        let of = [40, 14_614, 36_096_000, 2_500_000_000].map(time);
        assert_eq!(of, ["40 ns", "14.6 µs", "36.10 ms", "2.500 s"]);
        assert_eq!([0, 1, 2].map(|n| counted(n, "wait")), ["0 waits", "1 wait", "2 waits"]);
    }

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
