//! Histograms: evaluation of recorded values (extremes, mean, deviation, quantiles), merging, and
//! an encoding for exchange between programs.
//!
//! For counting on a hot path see [`crate::recorder`]. An empty histogram returns `None` instead of
//! 0 as minimum, mean and quantiles.

mod encoding;

pub use encoding::HistogramDecodeError;

use thiserror::Error;

use crate::buckets::{self, MAX_VALUE};
use crate::recorder::{MAX_COUNT, Recorder};

/// Significant decimal digits of the layout.
const SIGNIFICANT_DIGITS: u8 = 2;

/// Error for two histograms that together would hold more than [`MAX_COUNT`] values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the histograms exceed {MAX_COUNT} values in total: the data are damaged")]
pub struct TooManyValues;

/// Histogram in the layout of [`crate::buckets`], with its exact sum and extremes.
///
/// Count, minimum, maximum and mean of recorded values are exact; quantiles are less than 1% above
/// the true value, never below it. Values above [`MAX_VALUE`] count as that value.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    inner: hdrhistogram::Histogram<u64>,
    sum: u128,
    min: u64,
    max: u64,
}

/// Summary of a histogram in one line, in the recorded unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HistogramSummary {
    /// Number of values.
    pub count: u64,
    /// Smallest value, exact.
    pub min: u64,
    /// Arithmetic mean, exact.
    pub mean: f64,
    /// Population standard deviation, computed from the buckets.
    pub stddev: f64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p99_9: u64,
    /// 99.99th percentile.
    pub p99_99: u64,
    /// Largest value, exact.
    pub max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// Creates an empty histogram.
    #[must_use]
    #[expect(
        clippy::expect_used,
        clippy::missing_panics_doc,
        reason = "the bounds are constants that every test constructs"
    )]
    pub fn new() -> Self {
        let inner = hdrhistogram::Histogram::new_with_bounds(1, MAX_VALUE, SIGNIFICANT_DIGITS)
            .expect("1 < MAX_VALUE and 2 digits are valid bounds");
        Self { inner, sum: 0, min: u64::MAX, max: 0 }
    }

    pub(crate) fn from_recorder(recorder: &Recorder) -> Self {
        let mut histogram = Self::new();
        for (bucket, &count) in recorder.counts().iter().enumerate().filter(|&(_, &n)| n > 0) {
            histogram.inner.saturating_record_n(buckets::lower_edge(bucket), count);
        }
        if let (Some(min), Some(max)) = (recorder.min(), recorder.max()) {
            (histogram.sum, histogram.min, histogram.max) = (recorder.sum(), min, max);
        }
        histogram
    }

    /// Counts one value. Hot paths use [`Recorder`] instead, which is several times cheaper.
    pub fn record(&mut self, value: u64) {
        let value = value.min(MAX_VALUE);
        self.inner.saturating_record(value);
        self.sum += u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds all values of `other`; an error if both together exceed [`MAX_COUNT`] values, and then
    /// nothing is added.
    pub fn merge(&mut self, other: &Self) -> Result<(), TooManyValues> {
        if self.count().saturating_add(other.count()) > MAX_COUNT {
            return Err(TooManyValues);
        }
        // The inner error cannot occur, since all histograms have the same range.
        self.inner.add(&other.inner).map_err(|_| TooManyValues)?;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        Ok(())
    }

    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.inner.len()
    }

    /// Returns true if nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Returns the smallest value; `None` if the histogram is empty.
    #[must_use]
    pub fn min(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.min)
    }

    /// Returns the largest value; `None` if the histogram is empty.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.max)
    }

    /// Returns the arithmetic mean; `None` if the histogram is empty.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.sum as f64 / self.count() as f64)
    }

    /// Returns the standard deviation of the values, each taken at the middle of its bucket; `None`
    /// if the histogram is empty.
    #[must_use]
    pub fn stddev(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.inner.stdev())
    }

    /// Returns the smallest value that at least the share `quantile` of all values does not exceed,
    /// rounded up to the upper edge of its bucket, at most the maximum. `quantile` is clamped to
    /// 0..=1; 0 and NaN return the minimum. `None` if the histogram is empty.
    #[must_use]
    pub fn value_at_quantile(&self, quantile: f64) -> Option<u64> {
        let quantile = quantile.clamp(0.0, 1.0);
        if quantile > 0.0 {
            self.max().map(|max| self.inner.value_at_quantile(quantile).min(max))
        } else {
            self.min()
        }
    }

    /// Returns the largest value and the count of each non-empty bucket, ascending.
    pub fn non_empty_buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.inner.iter_recorded().map(|step| {
            let upper = self.inner.highest_equivalent(step.value_iterated_to());
            (upper, step.count_since_last_iteration())
        })
    }

    /// Returns count, extremes, mean, deviation and usual percentiles; `None` if the histogram is
    /// empty.
    #[must_use]
    pub fn summary(&self) -> Option<HistogramSummary> {
        Some(HistogramSummary {
            count: self.count(),
            min: self.min()?,
            mean: self.mean()?,
            stddev: self.stddev()?,
            p50: self.value_at_quantile(0.5)?,
            p90: self.value_at_quantile(0.9)?,
            p99: self.value_at_quantile(0.99)?,
            p99_9: self.value_at_quantile(0.999)?,
            p99_99: self.value_at_quantile(0.9999)?,
            max: self.max()?,
        })
    }

    /// Encodes the histogram as text in the interchange format of `HdrHistogram` (V2, DEFLATE,
    /// base64), which its tools can read. The exact sum and extremes are not part of it.
    #[must_use]
    pub fn encode(&self) -> String {
        encoding::encode(&self.inner)
    }

    /// Decodes the output of [`encode`](Self::encode), or of another tool with the same layout.
    ///
    /// The format has no sum and no extremes, so they are restored from the buckets: mean, minimum
    /// and maximum are then within 1% like the quantiles.
    pub fn decode(text: &str) -> Result<Self, HistogramDecodeError> {
        encoding::decode(text).map(|recorder| Self::from_recorder(&recorder))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn recorded(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        for &value in values {
            histogram.record(value);
        }
        histogram
    }

    /// Values over all magnitudes, as latencies are.
    fn values() -> impl Strategy<Value = Vec<u64>> {
        let value = (0..=MAX_VALUE, 0_u32..36).prop_map(|(value, shift)| value >> shift);
        prop::collection::vec(value, 1..200)
    }

    #[test]
    fn an_empty_histogram_has_no_statistics() {
        let empty = Histogram::new();
        assert_eq!((empty.min(), empty.max(), empty.mean()), (None, None, None));
        assert_eq!((empty.stddev(), empty.value_at_quantile(0.5)), (None, None));
        assert_eq!(empty.summary(), None);
    }

    #[test]
    fn zero_is_a_value() {
        let summary = recorded(&[0]).summary().unwrap();
        assert_eq!((summary.count, summary.min, summary.p99_99, summary.max), (1, 0, 0, 0));
    }

    #[test]
    fn one_value_repeated_has_no_deviation_and_its_own_quantiles() {
        let summary = recorded(&[1_000_003; 9]).summary().unwrap();
        assert!(summary.stddev.abs() < 1e-6);
        assert!((summary.mean - 1_000_003.0).abs() < 1e-9);
        assert_eq!((summary.min, summary.p50, summary.max), (1_000_003, 1_000_003, 1_000_003));
    }

    #[test]
    fn buckets_hold_all_values_in_order() {
        let buckets: Vec<_> = recorded(&[5, 1_000_000, 5, 77]).non_empty_buckets().collect();
        assert_eq!(buckets[..2], [(5, 2), (77, 1)]);
        let (upper, count) = buckets[2];
        assert!(count == 1 && (1_000_000..1_008_000).contains(&upper), "{upper}");
    }

    #[test]
    fn merging_past_the_limit_is_refused() {
        let mut counts = vec![0; buckets::COUNTS];
        counts[5] = MAX_COUNT;
        let full = Recorder::from_raw(&counts, 0, 5, 5).unwrap().to_histogram();
        let mut other = recorded(&[1]);
        assert_eq!(other.merge(&full), Err(TooManyValues));
        assert_eq!(other, recorded(&[1]));
    }

    proptest! {
        #[test]
        fn quantiles_are_less_than_one_percent_high(values in values(), quantile in 0.0..=1.0_f64) {
            let histogram = recorded(&values);
            let mut sorted = values;
            sorted.sort_unstable();
            let rank = (quantile * sorted.len() as f64).ceil() as usize;
            let exact = sorted[rank.saturating_sub(1)];
            let found = histogram.value_at_quantile(quantile).unwrap();
            prop_assert!(found >= exact);
            prop_assert!((found - exact) as f64 <= exact as f64 / 128.0);
        }

        #[test]
        fn moments_are_right(values in values()) {
            let histogram = recorded(&values);
            let n = values.len() as f64;
            let mean = values.iter().map(|&v| v as f64).sum::<f64>() / n;
            let variance = values.iter().map(|&v| (v as f64 - mean).powi(2)).sum::<f64>() / n;
            prop_assert!((histogram.mean().unwrap() - mean).abs() <= 1e-9 * mean);
            prop_assert_eq!(histogram.min(), values.iter().copied().min());
            prop_assert_eq!(histogram.max(), values.iter().copied().max());
            // Each value moves by at most half a bucket, and with it the deviation.
            let half_bucket = *values.iter().max().unwrap() as f64 / 256.0 + 1.0;
            prop_assert!((histogram.stddev().unwrap() - variance.sqrt()).abs() <= half_bucket);
        }

        #[test]
        fn recorder_and_histogram_agree(values in values()) {
            let mut recorder = Recorder::new();
            for &value in &values {
                recorder.record(value);
            }
            prop_assert_eq!(recorder.to_histogram().summary(), recorded(&values).summary());
        }

        #[test]
        fn merging_is_recording_together(a in values(), b in values()) {
            let mut merged = recorded(&a);
            merged.merge(&recorded(&b)).unwrap();
            let together: Vec<u64> = a.into_iter().chain(b).collect();
            prop_assert_eq!(merged.summary(), recorded(&together).summary());
        }
    }
}
