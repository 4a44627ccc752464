//! Recovery of a server: intervals compared with those before an event. Pure.
//!
//! An interval is as before if its share of losses is no larger than the worst of those before, or
//! than one request in a thousand, and its 90th percentile is no more than twice theirs and 100 µs:
//! percentiles of single intervals vary on any host. The server has recovered from the first of
//! [`STEADY`] such intervals in a row.

use std::ops::Range;

use horolog_record::Point;

/// Consecutive intervals that must be as before.
pub const STEADY: usize = 3;

/// Most earlier intervals to compare with.
pub const BEFORE: usize = 10;

/// Loss ratio that counts as none.
const LOSS_MIN: f64 = 0.001;

/// Tolerated increase of a 90th percentile, in ns.
const SLACK_NS: u64 = 100_000;

/// Returns the index of the first interval from `after` on from which on all are as in `before`;
/// `None` if nothing was measured before or it never recovers.
#[must_use]
pub fn recovered(points: &[Point], before: Range<usize>, after: usize) -> Option<usize> {
    let norm = points.get(before)?.iter().filter(|point| point.received > 0);
    let norm: Vec<_> = norm.collect();
    let loss = norm.iter().map(|point| point.loss_ratio()).fold(LOSS_MIN, f64::max);
    let p90 = norm.iter().filter_map(|point| point.rtt_ns).map(|rtt| rtt.p90).max()?;
    let p90 = p90.saturating_mul(2).saturating_add(SLACK_NS);
    let as_before = |point: &Point| {
        point.loss_ratio() <= loss && point.rtt_ns.is_some_and(|rtt| rtt.p90 <= p90)
    };
    // The last interval of a run that was ended early may be empty.
    let measured = points.iter().rposition(|point| point.sent > 0)? + 1;
    (after..measured).find(|&first| {
        let row = &points[first..measured.min(first + STEADY)];
        row.len() == STEADY && row.iter().all(as_before)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use horolog_record::Percentiles;

    /// Intervals of 1000 requests by what they lost and their 90th percentile in µs.
    fn points(intervals: &[(u64, u64)]) -> Vec<Point> {
        let point = |(index, &(lost, us)): (usize, &(u64, u64))| {
            let [p50, p90, p99, p99_9, max] = [us / 2, us, us, us, us].map(|us| us * 1000);
            Point {
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
        assert_eq!(recovered(&points(&all), 0..4, 5), Some(7));
        // What was usual before is usual after.
        all[1] = (5, 8000);
        assert_eq!(recovered(&points(&all), 0..4, 5), Some(5));
    }

    #[test]
    fn one_good_interval_is_no_recovery() {
        let good = (0, 200);
        let bad = (500, 200);
        let wavering = points(&[good, good, bad, good, bad, good, good, bad, good, good]);
        assert_eq!(recovered(&wavering, 0..2, 2), None);
        let late = points(&[good, good, bad, good, bad, good, good, good]);
        assert_eq!(recovered(&late, 0..2, 2), Some(5));
    }

    #[test]
    fn without_a_before_there_is_no_as_before() {
        let good = points(&[(0, 200); 6]);
        assert_eq!(recovered(&good, 0..0, 2), None);
        assert_eq!(recovered(&points(&[(1000, 0), (0, 1), (0, 1), (0, 1)]), 0..1, 1), None);
        assert_eq!(recovered(&good, 0..2, 2), Some(2));
        assert_eq!(recovered(&good, 0..9, 2), None, "beyond the end");
    }
}
