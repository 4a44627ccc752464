//! Recovery of a server after an event: compares intervals with those before the event. Does no
//! I/O.
//!
//! An interval counts as recovered if its loss ratio is at most that of the worst interval before
//! the event, or 0.1%, and if its p90 round trip is at most twice the largest one before plus 100
//! µs: percentiles of single intervals vary on any host. The server has recovered at the first of
//! [`INTERVALS_MIN`] such intervals in a row.

use std::ops::Range;

use horolog_record::LoadSeriesPoint;

/// Number of consecutive recovered intervals that is required.
pub const INTERVALS_MIN: usize = 3;

/// Largest number of intervals before the event that are compared.
pub const REFERENCE_INTERVALS_MAX: usize = 10;

/// Largest loss ratio that always counts as recovered.
const LOSS_MIN: f64 = 0.001;

/// Tolerance of the p90 round trip beyond twice the earlier value, in ns.
const P90_INCREASE_MAX_NS: u64 = 100_000;

/// Returns the index of the interval, not before `after`, at which the server has recovered;
/// `before` are the intervals before the event. `None` if there is nothing to compare with, or no
/// recovery.
#[must_use]
pub fn recovery_interval(
    points: &[LoadSeriesPoint],
    before: Range<usize>,
    after: usize,
) -> Option<usize> {
    let reference = points.get(before)?.iter().filter(|point| point.received > 0);
    let reference: Vec<_> = reference.collect();
    let loss = reference.iter().map(|point| point.loss_ratio()).fold(LOSS_MIN, f64::max);
    let p90 = reference.iter().filter_map(|point| point.rtt_ns).map(|rtt| rtt.p90).max()?;
    let p90 = p90.saturating_mul(2).saturating_add(P90_INCREASE_MAX_NS);
    let is_recovered = |point: &LoadSeriesPoint| {
        point.loss_ratio() <= loss && point.rtt_ns.is_some_and(|rtt| rtt.p90 <= p90)
    };
    // Trailing intervals without requests are ignored: a run may have been ended early.
    let measured = points.iter().rposition(|point| point.sent > 0)? + 1;
    (after..measured).find(|&first| {
        let candidates = &points[first..measured.min(first + INTERVALS_MIN)];
        candidates.len() == INTERVALS_MIN && candidates.iter().all(is_recovered)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use horolog_record::Percentiles;

    /// Intervals of 1000 requests by what they lost and their 90th percentile in µs.
    fn points(intervals: &[(u64, u64)]) -> Vec<LoadSeriesPoint> {
        let point = |(index, &(lost, us)): (usize, &(u64, u64))| {
            let [p50, p90, p99, p99_9, max] = [us / 2, us, us, us, us].map(|us| us * 1000);
            LoadSeriesPoint {
                at_s: index as f64,
                trial: 0,
                intended_rate: 1000.0,
                sent: 1000,
                received: 1000 - lost,
                lost,
                late: 0,
                unsynchronised: 0,
                invalid: 0,
                rtt_ns: (lost < 1000).then_some(Percentiles { p50, p90, p99, p99_9, max }),
            }
        };
        intervals.iter().enumerate().map(point).collect()
    }

    #[test]
    fn a_server_has_recovered_when_loss_and_latency_have() {
        let quiet = (0, 200);
        let mut all = vec![quiet; 4];
        all.extend([(600, 9000), (0, 9000), (2, 200), quiet, quiet, quiet, quiet]);
        assert_eq!(recovery_interval(&points(&all), 0..4, 5), Some(7));
        // What was usual before is usual after.
        all[1] = (5, 8000);
        assert_eq!(recovery_interval(&points(&all), 0..4, 5), Some(5));
    }

    #[test]
    fn one_good_interval_is_no_recovery() {
        let good = (0, 200);
        let bad = (500, 200);
        let wavering = points(&[good, good, bad, good, bad, good, good, bad, good, good]);
        assert_eq!(recovery_interval(&wavering, 0..2, 2), None);
        let late = points(&[good, good, bad, good, bad, good, good, good]);
        assert_eq!(recovery_interval(&late, 0..2, 2), Some(5));
    }

    #[test]
    fn without_a_before_there_is_no_as_before() {
        let good = points(&[(0, 200); 6]);
        assert_eq!(recovery_interval(&good, 0..0, 2), None);
        assert_eq!(recovery_interval(&points(&[(1000, 0), (0, 1), (0, 1), (0, 1)]), 0..1, 1), None);
        assert_eq!(recovery_interval(&good, 0..2, 2), Some(2));
        assert_eq!(recovery_interval(&good, 0..9, 2), None, "beyond the end");
    }
}
