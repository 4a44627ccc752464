//! Frequency and Allan deviation of a clock, from a series of offsets. Pure.

use std::time::Duration;

use horolog_record::{AllanDeviation, ClockDrift};
use horolog_stats::{allan, line};

/// Least points for a fit; a line through two points always fits.
const DRIFT_POINTS_MIN: usize = 3;

/// Fits a line through points of seconds and ns.
pub(crate) fn drift(points: &[(f64, f64)]) -> Option<ClockDrift> {
    let line = line::fit_line(points).filter(|_| points.len() >= DRIFT_POINTS_MIN)?;
    // A nanosecond in a second is a thousandth of a part per million.
    Some(ClockDrift {
        ppm: line.slope / 1e3,
        error_ppm: line.slope_error / 1e3,
        residual_ns: line.residual,
    })
}

/// Returns the overlapping Allan deviation of offsets in seconds, one per interval, at octaves of
/// the interval.
pub(crate) fn allan(phase_s: &[Option<f64>], interval: Duration) -> Vec<AllanDeviation> {
    let interval_s = interval.as_secs_f64();
    allan::octave_deviations(phase_s)
        .into_iter()
        .map(|point| AllanDeviation {
            tau_s: point.samples as f64 * interval_s,
            deviation: point.deviation / interval_s,
            terms: point.terms as u64,
        })
        .collect()
}
