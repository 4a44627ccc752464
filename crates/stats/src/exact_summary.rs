//! Summary of signed values, such as offsets: mean, standard deviation, root mean square, extremes
//! and percentiles, computed exactly from all values. On a hot path, count into a
//! [`crate::Histogram`] instead.

use serde::{Deserialize, Serialize};

/// Summary of a set of values, in their unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ExactSummary {
    /// Number of values; never 0.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Population standard deviation.
    pub stddev: f64,
    /// Root mean square, which is √(mean² + stddev²).
    pub rms: f64,
    /// Smallest value.
    pub min: i64,
    /// 1st percentile.
    pub p1: i64,
    /// 5th percentile.
    pub p5: i64,
    /// Median.
    pub p50: i64,
    /// 95th percentile.
    pub p95: i64,
    /// 99th percentile.
    pub p99: i64,
    /// Largest value.
    pub max: i64,
}

impl ExactSummary {
    /// Computes the summary of these values; `None` if there are none.
    #[must_use]
    pub fn from_values(values: impl IntoIterator<Item = i64>) -> Option<Self> {
        let mut sorted: Vec<_> = values.into_iter().collect();
        sorted.sort_unstable();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let count = sorted.len() as f64;
        // Sums are taken in 128-bit integers around an integer near the mean, so that large values
        // with small differences lose no precision.
        let sum: i128 = sorted.iter().map(|&value| i128::from(value)).sum();
        let reference = sum.div_euclid(sorted.len() as i128);
        let distances = || sorted.iter().map(|&value| (i128::from(value) - reference) as f64);
        let remainder = distances().sum::<f64>() / count;
        let variance =
            distances().map(|distance| (distance - remainder).powi(2)).sum::<f64>() / count;
        let mean = reference as f64 + remainder;
        let percentile = |percent| sorted[nearest_rank(sorted.len(), percent)];
        Some(Self {
            count: sorted.len() as u64,
            mean,
            stddev: variance.sqrt(),
            rms: mean.hypot(variance.sqrt()),
            min,
            p1: percentile(1),
            p5: percentile(5),
            p50: percentile(50),
            p95: percentile(95),
            p99: percentile(99),
            max,
        })
    }
}

/// Returns the index in sorted order of the smallest value that at least `percent` percent of
/// `count` values do not exceed (nearest-rank percentile).
fn nearest_rank(count: usize, percent: usize) -> usize {
    (count * percent).div_ceil(100).max(1) - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_hundred_values_are_their_own_percentiles() {
        let spread = ExactSummary::from_values((1..=100).rev()).unwrap();
        assert_eq!((spread.min, spread.p1, spread.p5), (1, 1, 5));
        assert_eq!((spread.p50, spread.p95, spread.p99, spread.max), (50, 95, 99, 100));
        assert!((spread.mean - 50.5).abs() < 1e-12);
        // (n² − 1) / 12, and (n + 1) (2 n + 1) / 6.
        assert!((spread.stddev.powi(2) - 833.25).abs() < 1e-9);
        assert!((spread.rms.powi(2) - 3_383.5).abs() < 1e-9);
    }

    #[test]
    fn one_value_has_no_deviation_and_none_has_nothing() {
        let spread = ExactSummary::from_values([-7]).unwrap();
        assert_eq!((spread.count, spread.min, spread.p50, spread.max), (1, -7, -7, -7));
        assert!((spread.mean, spread.stddev, spread.rms) == (-7.0, 0.0, 7.0));
        assert_eq!(ExactSummary::from_values([]), None);
    }

    #[test]
    fn values_that_are_far_from_0_differ_by_as_little() {
        let decades = 1_700_000_000_000_000_000;
        let spread = ExactSummary::from_values([decades - 3, decades + 3]).unwrap();
        assert!((spread.stddev - 3.0).abs() < 1e-9, "{}", spread.stddev);
        let ends = ExactSummary::from_values([i64::MIN, i64::MAX]).unwrap();
        assert!((ends.stddev / 2_f64.powi(63) - 1.0).abs() < 1e-9, "{}", ends.stddev);
    }

    /// Two values with the mean and the deviation that Liu, Wu and Wang state of 10,000 samples
    /// (16.5 and 6.93 µs): their third figure, 17.9 µs, is the root mean square.
    #[test]
    fn the_root_mean_square_is_what_the_literature_states() {
        let spread = ExactSummary::from_values([16_500 - 6_930, 16_500 + 6_930]).unwrap();
        assert!((spread.mean - 16_500.0).abs() < 1e-9 && (spread.stddev - 6_930.0).abs() < 1e-9);
        assert!((spread.rms - 17_900.0).abs() < 50.0, "{}", spread.rms);
    }

    proptest! {
        #[test]
        fn figures_are_in_order(values in prop::collection::vec(any::<i64>(), 1..300)) {
            let s = ExactSummary::from_values(values.iter().copied()).unwrap();
            prop_assert!([s.min, s.p1, s.p5, s.p50, s.p95, s.p99, s.max].is_sorted());
            prop_assert!(s.stddev >= 0.0 && s.rms >= 0.0 && s.mean.is_finite());
            let within = s.mean >= s.min as f64 - 1e3 && s.mean <= s.max as f64 + 1e3;
            prop_assert!(within, "{:?}", s);
        }

        #[test]
        fn squares_add_up(values in prop::collection::vec(-1_000_000_i64..1_000_000, 1..300)) {
            let s = ExactSummary::from_values(values.iter().copied()).unwrap();
            let sum = s.mean.powi(2) + s.stddev.powi(2);
            prop_assert!((s.rms.powi(2) - sum).abs() <= 1e-6 * sum.max(1.0), "{:?}", s);
        }
    }
}
