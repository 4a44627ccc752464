//! What the terminal and the page say alike of a clock's error log.

use horolog_record::LoggedClock;
use horolog_stats::Spread;

use crate::units::{full_count, mean_ns, signed_mean_ns, signed_ns};

/// What the figures are of.
pub(crate) const NOTE: &str = "Offset: how far the system clock is ahead, of every line that has one. \
                               Time runs from the first line on.";

/// What the offsets are against.
pub(crate) fn clock_name(clock: &LoggedClock) -> String {
    if clock.name.is_empty() { "pulses".to_owned() } else { clock.name.clone() }
}

/// Lines with an offset; mean, deviation and extremes of it; steps.
pub(crate) fn figures(clock: &LoggedClock) -> [String; 6] {
    let steps = full_count(clock.steps.len() as u64);
    let absent = || crate::units::ABSENT.to_owned();
    match Spread::of(clock.offsets.iter().map(|point| point.value.round() as i64)) {
        None => ["0".to_owned(), absent(), absent(), absent(), absent(), steps],
        Some(offset) => [
            full_count(offset.count as u64),
            signed_mean_ns(offset.mean),
            if offset.count < 2 { absent() } else { mean_ns(offset.stddev) },
            signed_ns(offset.min),
            signed_ns(offset.max),
            steps,
        ],
    }
}
