//! Frequency and Allan deviation of a clock, from a series of offsets. Pure.

use std::time::Duration;

use horolog_record::{AllanDeviation, ClockDrift};
use horolog_stats::{allan, line};

/// Minimum number of points for a fit; two points always lie on a line.
const DRIFT_POINTS_MIN: usize = 3;

/// Fits a line through points (seconds, ns); `None` for too few points.
pub(crate) fn fit_drift(points: &[(f64, f64)]) -> Option<ClockDrift> {
    let line = line::fit_line(points).filter(|_| points.len() >= DRIFT_POINTS_MIN)?;
    // 1 ns/s is 0.001 ppm.
    Some(ClockDrift {
        ppm: line.slope / 1e3,
        error_ppm: line.slope_error / 1e3,
        residual_ns: line.residual,
    })
}

/// Returns the overlapping Allan deviation at octaves of `interval`. `phase_s` has one offset in
/// seconds per interval; `None` for a missing one.
pub(crate) fn allan_deviations(phase_s: &[Option<f64>], interval: Duration) -> Vec<AllanDeviation> {
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
