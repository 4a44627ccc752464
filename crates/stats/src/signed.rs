//! Histogram of signed values, such as clock offsets: one [`Histogram`] for values below 0, one for
//! values from 0 on, and the sum of squares for an exact deviation. Buckets far from 0 are too wide
//! to resolve a deviation that is small compared with the mean.

use crate::buckets::{MAX_VALUE, lower_edge, upper_edge};
use crate::histogram::Histogram;

/// Counts of signed values per bucket. Magnitudes above [`MAX_VALUE`] are recorded as that.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SignedHistogram {
    /// Magnitudes of the values below zero.
    negative: Histogram,
    /// Values from zero on.
    positive: Histogram,
    /// Sum of the squares, below 2^125 for [`crate::histogram::MAX_COUNT`] values.
    squares: u128,
    /// Values that were clamped.
    clamped: u64,
}

/// Summary of signed values in one line, in the recorded unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignedSummary {
    /// Number of values.
    pub count: u64,
    /// Smallest value, exact.
    pub min: i64,
    /// Arithmetic mean, exact.
    pub mean: f64,
    /// Population standard deviation, exact.
    pub stddev: f64,
    /// Median.
    pub p50: i64,
    /// 90th percentile.
    pub p90: i64,
    /// 99th percentile.
    pub p99: i64,
    /// 99.9th percentile.
    pub p99_9: i64,
    /// 99.99th percentile.
    pub p99_99: i64,
    /// Largest value, exact.
    pub max: i64,
}

impl SignedHistogram {
    /// Creates an empty histogram: two allocations of 30 KiB.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a histogram from external parts: the magnitudes of the values below zero, the values
    /// from zero on, the sum of the squares of both, and the number of clamped values.
    #[must_use]
    pub const fn from_parts(
        negative: Histogram,
        positive: Histogram,
        squares: u128,
        clamped: u64,
    ) -> Self {
        Self { negative, positive, squares, clamped }
    }

    /// Counts one value; a magnitude above [`MAX_VALUE`] is clamped to it.
    #[inline]
    pub fn record(&mut self, value: i64) {
        let magnitude = value.unsigned_abs();
        let half = if value < 0 { &mut self.negative } else { &mut self.positive };
        half.record(magnitude);
        let clamped_magnitude = u128::from(magnitude.min(MAX_VALUE));
        self.squares += clamped_magnitude * clamped_magnitude;
        self.clamped += u64::from(magnitude > MAX_VALUE);
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.negative.merge(&other.negative);
        self.positive.merge(&other.positive);
        self.squares += other.squares;
        self.clamped += other.clamped;
    }

    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.negative.count() + self.positive.count()
    }

    /// Returns the number of clamped values, whose magnitude was too large.
    #[must_use]
    pub const fn clamped(&self) -> u64 {
        self.clamped
    }

    /// Returns the magnitudes of the values below zero.
    #[must_use]
    pub const fn negative(&self) -> &Histogram {
        &self.negative
    }

    /// Returns the values from zero on.
    #[must_use]
    pub const fn positive(&self) -> &Histogram {
        &self.positive
    }

    /// Returns count, extremes, mean, deviation and usual percentiles; `None` if nothing was
    /// recorded. A percentile is the upper edge of its bucket, at most the maximum: never below the
    /// true value, and less than 1% from it.
    #[must_use]
    pub fn summary(&self) -> Option<SignedSummary> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let below = self.negative.min().zip(self.negative.max());
        let above = self.positive.min().zip(self.positive.max());
        let signed = |magnitude: u64| -(magnitude.cast_signed());
        let min = below
            .map_or_else(|| above.map_or(0, |(min, _)| min.cast_signed()), |(_, max)| signed(max));
        let max = above
            .map_or_else(|| below.map_or(0, |(min, _)| signed(min)), |(_, max)| max.cast_signed());
        let sum = self.positive.sum().cast_signed() - self.negative.sum().cast_signed();
        let mean = sum as f64 / count as f64;
        let at = |quantile| self.value_at_quantile(quantile, count).clamp(min, max);
        Some(SignedSummary {
            count,
            min,
            mean,
            stddev: self.variance(sum, count).sqrt(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max,
        })
    }

    /// Returns the variance from the sum of squares, shifted by an integer near the mean so that no
    /// precision is lost if the deviation is small compared with the mean.
    fn variance(&self, sum: i128, count: u64) -> f64 {
        let n = i128::from(count);
        let reference = sum / n;
        // Σ(v − near)² = Σv² − 2·near·Σv + n·near², all in integers.
        let squares_about_reference =
            self.squares.cast_signed() - 2 * reference * sum + n * reference * reference;
        let rest = (sum - n * reference) as f64 / count as f64;
        (squares_about_reference as f64 / count as f64 - rest * rest).max(0.0)
    }

    /// Returns the upper edge of the bucket that contains the value at `quantile` (0 to 1) of the
    /// `count` values recorded.
    fn value_at_quantile(&self, quantile: f64, count: u64) -> i64 {
        let rank = ((quantile * count as f64).ceil() as u64).clamp(1, count);
        let below = self.negative.count();
        // Ascending values below 0 have descending magnitudes.
        if rank <= below {
            -(lower_edge(self.negative.bucket_of_rank(below - rank + 1)).cast_signed())
        } else {
            upper_edge(self.positive.bucket_of_rank(rank - below)).cast_signed()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn recorded(values: &[i64]) -> SignedHistogram {
        let mut histogram = SignedHistogram::new();
        for &value in values {
            histogram.record(value);
        }
        histogram
    }

    #[test]
    fn nothing_is_not_zero() {
        assert_eq!(SignedHistogram::new().summary(), None);
    }

    #[test]
    fn signs_are_preserved() {
        let summary = recorded(&[-90, -40, 10, 53]).summary().unwrap();
        assert_eq!((summary.min, summary.max, summary.count), (-90, 53, 4));
        assert!((summary.mean + 16.75).abs() < 1e-12);
        assert_eq!((summary.p50, summary.p90), (-40, 53));
    }

    /// Ten microseconds at a mean of five seconds: no bucket is that narrow there.
    #[test]
    fn a_deviation_that_is_small_relative_to_the_mean_is_exact() {
        let values: Vec<_> = (0..1000).map(|n| -5_000_000_000 + (n % 2) * 20_000).collect();
        let summary = recorded(&values).summary().unwrap();
        assert!((summary.stddev - 10_000.0).abs() < 1e-6, "{}", summary.stddev);
        assert!((summary.mean + 4_999_990_000.0).abs() < 1e-3);
    }

    #[test]
    fn what_is_too_large_is_counted_as_such() {
        let histogram = recorded(&[i64::MIN, i64::MAX, 1]);
        assert_eq!(histogram.clamped(), 2);
        let summary = histogram.summary().unwrap();
        assert_eq!((summary.min, summary.max), (-(MAX_VALUE as i64), MAX_VALUE as i64));
    }

    proptest! {
        #[test]
        fn agrees_with_the_sorted_values(
            values in prop::collection::vec((-(1_i64 << 35)..1 << 35, 0_u32..35), 1..300),
        ) {
            let mut values: Vec<i64> = values.iter().map(|(value, shift)| value >> shift).collect();
            let summary = recorded(&values).summary().unwrap();
            values.sort_unstable();
            let n = values.len() as f64;
            let mean = values.iter().map(|v| *v as f64).sum::<f64>() / n;
            let variance = values.iter().map(|v| (*v as f64 - mean).powi(2)).sum::<f64>() / n;
            prop_assert_eq!((summary.min, summary.max), (values[0], values[values.len() - 1]));
            let scale = values.iter().map(|v| v.unsigned_abs()).max().unwrap() as f64 + 1.0;
            prop_assert!((summary.mean - mean).abs() <= scale * 1e-9);
            prop_assert!((summary.stddev - variance.sqrt()).abs() <= scale * 1e-6);
            for (quantile, found) in [(0.5, summary.p50), (0.9, summary.p90), (0.99, summary.p99)] {
                let rank = ((quantile * n).ceil() as usize).clamp(1, values.len());
                let exact = values[rank - 1];
                let within = exact.unsigned_abs() / 100 + 1;
                prop_assert!(found >= exact && found.abs_diff(exact) <= within, "{found} {exact}");
            }
        }

        #[test]
        fn merging_is_recording_together(
            a in prop::collection::vec(any::<i64>(), 0..50),
            b in prop::collection::vec(-100_000_i64..100_000, 0..50),
        ) {
            let mut merged = recorded(&a);
            merged.merge(&recorded(&b));
            prop_assert_eq!(merged, recorded(&[a, b].concat()));
        }
    }
}
