//! Helpers of the host measurements: cost of a clock reading, medians, formatting of values.

use horolog_sys::clock::ClockMonotonic;
use horolog_time::Clock;

/// Number of calls of which the median is taken; with that many a few interrupts do not affect it.
const READING_COUNT: usize = 1_001;

/// Returns the median cost of reading `CLOCK_MONOTONIC`, in ns.
pub(super) fn clock_read_cost_ns() -> u64 {
    median_of_calls(|| ())
}

/// Returns the median duration of a call in ns, including one clock reading.
pub(super) fn median_of_calls(mut call: impl FnMut()) -> u64 {
    let mut durations_ns: Vec<u64> = (0..READING_COUNT)
        .map(|_| {
            let before = ClockMonotonic.now();
            call();
            (ClockMonotonic.now() - before).as_ns().unsigned_abs()
        })
        .collect();
    durations_ns.sort_unstable();
    durations_ns[READING_COUNT / 2]
}

/// Formats a time with its unit (ns, µs, ms or s).
pub(super) fn format_time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.3} s", ns as f64 / 1e9),
    }
}

/// Formats a count with its noun in singular or plural: `1 repetition`, `2 repetitions`.
pub(super) fn format_count(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_unit_of_their_size_and_words_their_number() {
        let of = [40, 14_614, 36_096_000, 2_500_000_000].map(format_time);
        assert_eq!(of, ["40 ns", "14.6 µs", "36.10 ms", "2.500 s"]);
        assert_eq!([0, 1, 2].map(|n| format_count(n, "wait")), ["0 waits", "1 wait", "2 waits"]);
    }

    #[test]
    fn a_call_costs_what_it_takes() {
        let nothing = clock_read_cost_ns();
        let something = median_of_calls(|| {
            std::hint::black_box(
                (0..10_000_u64).fold(0_u64, |sum, at| sum ^ std::hint::black_box(at)),
            );
        });
        assert!(something > nothing, "{something} {nothing}");
    }
}
