//! Texts on the log of a clock's error, shared by the terminal and the HTML report.

use horolog_record::LoggedClock;
use horolog_stats::ExactSummary;

use crate::units::{full_count, mean_ns, signed_mean_ns, signed_ns};

/// Explanation of the metrics.
pub(crate) const NOTE: &str = "Offset: lead of the system clock, from each line that has one. \
                               Time counts from the first line.";

/// Returns the name of the clock with which the system clock is compared.
pub(crate) fn clock_name(clock: &LoggedClock) -> String {
    if clock.name.is_empty() { "pulses".to_owned() } else { clock.name.clone() }
}

/// Returns the cells of a clock: number of lines with an offset; mean, standard deviation and
/// extremes of the offset; number of steps.
pub(crate) fn figures(clock: &LoggedClock) -> [String; 6] {
    let steps = full_count(clock.steps.len() as u64);
    let absent = || crate::units::ABSENT.to_owned();
    match ExactSummary::from_values(clock.offsets.iter().map(|point| point.value.round() as i64)) {
        None => ["0".to_owned(), absent(), absent(), absent(), absent(), steps],
        Some(offset) => [
            full_count(offset.count),
            signed_mean_ns(offset.mean),
            if offset.count < 2 { absent() } else { mean_ns(offset.stddev) },
            signed_ns(offset.min),
            signed_ns(offset.max),
            steps,
        ],
    }
}
