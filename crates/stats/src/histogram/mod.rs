//! Histogram in the layout of [`crate::buckets`]: counting on hot paths, evaluation (extremes,
//! mean, deviation, quantiles), merging, and an encoding for exchange between programs.
//!
//! An empty histogram returns `None` instead of 0 as minimum, mean and quantiles.

mod encoding;

pub use encoding::HistogramDecodeError;

use thiserror::Error;

use crate::buckets::{COUNTS, MAX_VALUE, bucket_index, lower_edge, upper_edge};

/// Largest number of values in a histogram from external data: 2^53, so that counts are exact as
/// `f64` and cannot overflow. At 10^7 values per second it is reached after 28 years.
pub const MAX_COUNT: u64 = 1 << 53;

/// Error for external counts, or two histograms, of more than [`MAX_COUNT`] values together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the histograms exceed {MAX_COUNT} values in total: the data are damaged")]
pub struct TooManyValues;

/// Number of values in each bucket, with their exact number, sum, minimum and maximum.
///
/// Quantiles are less than 1% above the true value, never below it. Values above [`MAX_VALUE`]
/// count as that value. [`record`](Self::record) neither allocates nor fails: each thread of a hot
/// path has its own histogram, which the reader combines by [`merge`](Self::merge).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u64; COUNTS]>,
    count: u64,
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
    /// Creates an empty histogram: one allocation of 30 KiB.
    #[must_use]
    #[expect(clippy::large_stack_arrays, reason = "30 KiB, moved to the heap at once")]
    pub fn new() -> Self {
        Self { counts: Box::new([0; COUNTS]), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    /// Creates a histogram from external counts, such as those of one core in a kernel map, with
    /// the sum and the extremes of the clamped values; an error above [`MAX_COUNT`] values.
    ///
    /// The arguments may have been read at different instants while they changed. Therefore the
    /// number of values is the sum of the counts, and the extremes are clamped to the outermost
    /// non-empty buckets; `min` and `max` may be 0 as long as there is no value.
    pub fn from_raw(
        counts: &[u64; COUNTS],
        sum: u128,
        min: u64,
        max: u64,
    ) -> Result<Self, TooManyValues> {
        let mut raw = Self::new();
        raw.counts.copy_from_slice(counts);
        let total = counts.iter().try_fold(0_u64, |total, &n| total.checked_add(n));
        raw.count = total.filter(|&total| total <= MAX_COUNT).ok_or(TooManyValues)?;
        let used = |n: &u64| *n > 0;
        if let (Some(first), Some(last)) =
            (counts.iter().position(used), counts.iter().rposition(used))
        {
            raw.sum = sum;
            raw.min = min.clamp(lower_edge(first), upper_edge(first));
            raw.max = max.clamp(lower_edge(last), upper_edge(last));
        }
        Ok(raw)
    }

    /// Counts one value, clamped to [`MAX_VALUE`].
    #[inline]
    pub fn record(&mut self, value: u64) {
        let value = value.min(MAX_VALUE);
        self.counts[bucket_index(value)] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds all values of `other`, which was recorded on this host. For external data see
    /// [`try_merge`](Self::try_merge).
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts.iter()) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Adds all values of `other`; an error if both together exceed [`MAX_COUNT`] values, and then
    /// nothing is added.
    pub fn try_merge(&mut self, other: &Self) -> Result<(), TooManyValues> {
        if self.count.saturating_add(other.count) > MAX_COUNT {
            return Err(TooManyValues);
        }
        self.merge(other);
        Ok(())
    }

    /// Returns the values recorded since `earlier`, a previous copy of this histogram. Minimum and
    /// maximum are the edges of the outermost buckets.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = self.counts.clone();
        for (count, before) in counts.iter_mut().zip(earlier.counts.iter()) {
            *count = count.saturating_sub(*before);
        }
        let sum = self.sum.saturating_sub(earlier.sum);
        // Cannot fail: there are no more values than in `self`.
        Self::from_raw(&counts, sum, 0, u64::MAX).unwrap_or_default()
    }

    /// Sets all counts to 0 and keeps the memory.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.count, self.sum, self.min, self.max) = (0, 0, u64::MAX, 0);
    }

    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns true if nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the exact sum of the values, after clamping.
    #[must_use]
    pub fn sum(&self) -> u128 {
        self.sum
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
        (!self.is_empty()).then(|| self.sum as f64 / self.count as f64)
    }

    /// Returns the standard deviation of the values, each taken at the middle of its bucket; `None`
    /// if the histogram is empty.
    #[must_use]
    pub fn stddev(&self) -> Option<f64> {
        let total = self.count as f64;
        // The middle as `HdrHistogram` defines it: half the width above the lower edge.
        let middles = || {
            let buckets = self.non_empty_buckets();
            buckets.map(|(upper, n)| {
                let lower = lower_edge(bucket_index(upper));
                ((lower + (upper + 1 - lower) / 2) as f64, n as f64)
            })
        };
        let mean = middles().fold(0.0, |mean, (middle, n)| mean + middle * n / total);
        let squares = middles().fold(0.0, |sum, (middle, n)| sum + (middle - mean).powi(2) * n);
        (!self.is_empty()).then(|| (squares / total).sqrt())
    }

    /// Returns the bucket that contains the value of this rank, counted from 1 for the smallest.
    pub(crate) fn bucket_of_rank(&self, rank: u64) -> usize {
        let mut cumulative = 0;
        let reaches = |count: &u64| {
            cumulative += count;
            cumulative >= rank
        };
        self.counts.iter().position(reaches).unwrap_or(COUNTS - 1)
    }

    /// Returns the smallest value that at least the share `quantile` of all values does not exceed,
    /// rounded up to the upper edge of its bucket, at most the maximum. `quantile` is clamped to
    /// 0..=1; 0 and NaN return the minimum. `None` if the histogram is empty.
    #[must_use]
    pub fn value_at_quantile(&self, quantile: f64) -> Option<u64> {
        let quantile = quantile.clamp(0.0, 1.0);
        if quantile > 0.0 {
            let rank = (quantile * self.count as f64).ceil() as u64;
            self.max().map(|max| upper_edge(self.bucket_of_rank(rank)).min(max))
        } else {
            self.min()
        }
    }

    /// Returns the number of values in each bucket.
    #[must_use]
    pub fn counts(&self) -> &[u64; COUNTS] {
        &self.counts
    }

    /// Returns the largest value and the count of each non-empty bucket, ascending.
    pub fn non_empty_buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let buckets = self.counts.iter().enumerate();
        buckets.filter(|&(_, &count)| count > 0).map(|(index, &count)| (upper_edge(index), count))
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
        encoding::encode(&self.counts)
    }

    /// Decodes the output of [`encode`](Self::encode), or of another tool with the same layout.
    ///
    /// The format has no sum and no extremes, so they are restored from the buckets: mean, minimum
    /// and maximum are then within 1% like the quantiles.
    pub fn decode(text: &str) -> Result<Self, HistogramDecodeError> {
        encoding::decode(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) fn recorded(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        for &value in values {
            histogram.record(value);
        }
        histogram
    }

    pub(super) fn reference(values: &[u64]) -> hdrhistogram::Histogram<u64> {
        let mut reference = hdrhistogram::Histogram::new_with_bounds(1, MAX_VALUE, 2).unwrap();
        for &value in values {
            reference.saturating_record(value);
        }
        reference
    }

    /// Values over all magnitudes, as latencies are, and some above the layout.
    pub(super) fn values() -> impl Strategy<Value = Vec<u64>> {
        let value = (0..=MAX_VALUE + 9, 0_u32..36).prop_map(|(value, shift)| value >> shift);
        prop::collection::vec(value, 0..200)
    }

    fn assert_is_reference(histogram: &Histogram, reference: &hdrhistogram::Histogram<u64>) {
        let buckets = reference.iter_recorded();
        let buckets = buckets.map(|b| (b.value_iterated_to(), b.count_at_value()));
        assert_eq!(histogram.non_empty_buckets().collect::<Vec<_>>(), buckets.collect::<Vec<_>>());
        assert_eq!(histogram.count(), reference.len());
        let deviations = (histogram.stddev().unwrap_or(0.0), reference.stdev());
        assert_eq!(deviations.0.to_bits(), deviations.1.to_bits(), "{deviations:?}");
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
        let mut counts = Histogram::new().counts;
        counts[5] = MAX_COUNT;
        let full = Histogram::from_raw(&counts, 0, 5, 5).unwrap();
        let mut other = recorded(&[1]);
        assert_eq!(other.try_merge(&full), Err(TooManyValues));
        assert_eq!(other, recorded(&[1]));
        assert_eq!(other.try_merge(&recorded(&[2])), Ok(()));
        assert_eq!(other, recorded(&[1, 2]));
    }

    #[test]
    fn raw_counts_are_checked() {
        let mut counts = Histogram::new().counts;
        counts[bucket_index(1_000)] = u64::MAX;
        assert_eq!(Histogram::from_raw(&counts, 0, 0, 0), Err(TooManyValues));
        counts[bucket_index(2_000)] = 1;
        assert_eq!(Histogram::from_raw(&counts, 0, 0, 0), Err(TooManyValues));
        assert_eq!(Histogram::from_raw(&Histogram::new().counts, 7, 0, 0), Ok(Histogram::new()));
    }

    #[test]
    fn torn_extremes_are_pulled_into_the_buckets_in_use() {
        let mut counts = Histogram::new().counts;
        counts[bucket_index(1_000)] = 2;
        let raw = Histogram::from_raw(&counts, 2_001, 0, u64::MAX).unwrap();
        assert_eq!(raw.count(), 2);
        assert_eq!(raw.min(), Some(lower_edge(bucket_index(1_000))));
        assert_eq!(raw.max(), Some(upper_edge(bucket_index(1_000))));
    }

    proptest! {
        #[test]
        fn quantiles_are_less_than_one_percent_high(values in values(), quantile in 0.0..=1.0_f64) {
            prop_assume!(!values.is_empty());
            let histogram = recorded(&values);
            let mut sorted: Vec<_> = values.iter().map(|&value| value.min(MAX_VALUE)).collect();
            sorted.sort_unstable();
            let rank = (quantile * sorted.len() as f64).ceil() as usize;
            let exact = sorted[rank.saturating_sub(1)];
            let found = histogram.value_at_quantile(quantile).unwrap();
            prop_assert!(found >= exact);
            prop_assert!((found - exact) as f64 <= exact as f64 / 128.0);
        }

        #[test]
        fn moments_are_right(values in values()) {
            prop_assume!(!values.is_empty());
            let values: Vec<_> = values.iter().map(|&value| value.min(MAX_VALUE)).collect();
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
        fn evaluation_is_that_of_the_reference(
            values in values(),
            quantiles in prop::collection::vec(0.0..=1.0_f64, 20),
        ) {
            let (histogram, reference) = (recorded(&values), reference(&values));
            assert_is_reference(&histogram, &reference);
            let Some(max) = histogram.max() else { return Ok(()) };
            for quantile in quantiles.into_iter().chain([0.5, 0.9, 0.99, 0.999, 0.9999, 1.0]) {
                let expected = if quantile > 0.0 {
                    reference.value_at_quantile(quantile).min(max)
                } else {
                    histogram.min().unwrap()
                };
                prop_assert_eq!(histogram.value_at_quantile(quantile), Some(expected));
            }
        }

        #[test]
        fn merging_is_recording_together(a in values(), b in values()) {
            let mut merged = recorded(&a);
            merged.merge(&recorded(&b));
            let mut merged_reference = reference(&a);
            merged_reference.add(reference(&b)).unwrap();
            assert_is_reference(&merged, &merged_reference);
            prop_assert_eq!(&merged, &recorded(&[a, b].concat()));
            merged.clear();
            prop_assert_eq!(merged, Histogram::new());
        }

        #[test]
        fn values_since_a_copy_are_the_later_ones(a in values(), b in values()) {
            let since = recorded(&[a.clone(), b.clone()].concat()).since(&recorded(&a));
            let rest = recorded(&b);
            prop_assert_eq!(since.counts(), rest.counts());
            prop_assert_eq!((since.count(), since.sum()), (rest.count(), rest.sum()));
            prop_assert!(since.min() <= rest.min() && since.max() >= rest.max());
        }

        #[test]
        fn raw_counts_round_trip(values in values()) {
            let histogram = recorded(&values);
            let (min, max) = (histogram.min().unwrap_or(0), histogram.max().unwrap_or(0));
            let raw = Histogram::from_raw(histogram.counts(), histogram.sum(), min, max);
            prop_assert_eq!(raw, Ok(histogram));
        }
    }
}
