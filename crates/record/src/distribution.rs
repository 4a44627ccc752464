//! Measured distribution: percentiles for the reader, and the histogram with which another run can
//! be merged or compared.

use horolog_stats::histogram::{HistogramDecodeError, TooManyValues};
use horolog_stats::{Histogram, SignedHistogram};
use serde::{Deserialize, Serialize};

/// Distribution of times in ns, which are not negative. Percentiles and the standard deviation come
/// from a histogram with a relative error below 1%; count, minimum, maximum and mean are exact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Number of recorded values; never 0, an empty distribution is absent.
    pub count: u64,
    /// Smallest value.
    pub min: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Population standard deviation.
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
    /// Largest value.
    pub max: u64,
    /// Histogram in the V2 encoding of `HdrHistogram`, deflated, in base 64. Empty if it was
    /// omitted to save space.
    pub histogram: String,
}

/// Reasons for which distributions cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum DistributionMergeError {
    /// A distribution has no histogram.
    #[error("a distribution has no histogram")]
    NoHistogram,
    /// A histogram cannot be decoded.
    #[error(transparent)]
    Decode(#[from] HistogramDecodeError),
    /// The histogram's count differs from that of its distribution.
    #[error("a histogram contains {held} values, its distribution states {stated}")]
    Count {
        /// Number of values in the histogram.
        held: u64,
        /// Number of values stated by the distribution.
        stated: u64,
    },
    /// There are too many values.
    #[error(transparent)]
    TooMany(#[from] TooManyValues),
}

impl Distribution {
    /// Merges distributions; `None` if there are none. Count, minimum and maximum are exact, mean
    /// and standard deviation are as exact as those of the inputs, and percentiles come from the
    /// sum of the histograms, as if one program had recorded all values.
    ///
    /// # Errors
    ///
    /// Fails if a histogram is missing, damaged, or of another count than its distribution, or if
    /// there are too many values.
    pub fn merge<'a>(
        all: impl IntoIterator<Item = &'a Self> + Clone,
    ) -> Result<Option<Self>, DistributionMergeError> {
        let mut histogram = Histogram::new();
        for one in all.clone() {
            histogram.try_merge(&one.decode()?)?;
        }
        let Some(merged) = Self::from_histogram(&histogram) else { return Ok(None) };
        let total = merged.count as f64;
        let weight = |one: &Self| one.count as f64 / total;
        let mean: f64 = all.clone().into_iter().map(|one| weight(one) * one.mean).sum();
        // Variance within each distribution, plus the variance of their means.
        let spread = |one: &Self| one.stddev.powi(2) + (one.mean - mean).powi(2);
        let variance: f64 = all.clone().into_iter().map(|one| weight(one) * spread(one)).sum();
        let min = all.clone().into_iter().map(|one| one.min).min().unwrap_or(merged.min);
        let max = all.into_iter().map(|one| one.max).max().unwrap_or(merged.max);
        let within = |value: u64| value.clamp(min, max.max(min));
        Ok(Some(Self {
            count: merged.count,
            min,
            mean,
            stddev: variance.sqrt(),
            p50: within(merged.p50),
            p90: within(merged.p90),
            p99: within(merged.p99),
            p99_9: within(merged.p99_9),
            p99_99: within(merged.p99_99),
            max,
            histogram: merged.histogram,
        }))
    }

    /// Returns the histogram.
    ///
    /// # Errors
    ///
    /// Fails if it is missing, damaged, or of another count than the distribution states.
    pub fn decode(&self) -> Result<Histogram, DistributionMergeError> {
        if self.histogram.is_empty() {
            return Err(DistributionMergeError::NoHistogram);
        }
        let histogram = Histogram::decode(&self.histogram)?;
        match histogram.count() {
            held if held == self.count => Ok(histogram),
            held => Err(DistributionMergeError::Count { held, stated: self.count }),
        }
    }

    /// Returns the distribution of a histogram; `None` if it is empty.
    #[must_use]
    pub fn from_histogram(histogram: &Histogram) -> Option<Self> {
        let summary = histogram.summary()?;
        Some(Self {
            count: summary.count,
            min: summary.min,
            mean: summary.mean,
            stddev: summary.stddev,
            p50: summary.p50,
            p90: summary.p90,
            p99: summary.p99,
            p99_9: summary.p99_9,
            p99_99: summary.p99_99,
            max: summary.max,
            histogram: histogram.encode(),
        })
    }

    /// Returns the distribution of half of each time, such as one-way delays from round trips. Its
    /// extremes and percentiles are rounded down to whole ns, and it has no histogram.
    #[must_use]
    pub fn halved(&self) -> Self {
        Self {
            count: self.count,
            min: self.min / 2,
            mean: self.mean / 2.0,
            stddev: self.stddev / 2.0,
            p50: self.p50 / 2,
            p90: self.p90 / 2,
            p99: self.p99 / 2,
            p99_9: self.p99_9 / 2,
            p99_99: self.p99_99 / 2,
            max: self.max / 2,
            histogram: String::new(),
        }
    }
}

/// Distribution of signed times, in ns. Count, minimum, maximum, mean and standard deviation are
/// exact; percentiles come from histograms with a relative error below 1%.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SignedDistribution {
    /// Number of recorded values; never 0, an empty distribution is absent.
    pub count: u64,
    /// Smallest value.
    pub min: i64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Population standard deviation.
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
    /// Largest value.
    pub max: i64,
    /// Histogram of the values from 0 on, encoded as [`crate::Distribution::histogram`].
    pub histogram: String,
    /// Histogram of the magnitudes of negative values, in the same encoding.
    pub histogram_negative: String,
}

impl SignedDistribution {
    /// Returns the distribution of a histogram; `None` if it is empty.
    #[must_use]
    pub fn from_histogram(histogram: &SignedHistogram) -> Option<Self> {
        let summary = histogram.summary()?;
        Some(Self {
            count: summary.count,
            min: summary.min,
            mean: summary.mean,
            stddev: summary.stddev,
            p50: summary.p50,
            p90: summary.p90,
            p99: summary.p99,
            p99_9: summary.p99_9,
            p99_99: summary.p99_99,
            max: summary.max,
            histogram: histogram.positive().encode(),
            histogram_negative: histogram.negative().encode(),
        })
    }
}

/// Method for the offsets of a run: the local receive timestamp of a reply, minus the server's
/// timestamp, minus a correction. They are therefore positive if the server's timestamp is too
/// early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimestampOffsetMethod {
    /// Correction for the delays of the path and of both hosts, in ns; it is subtracted.
    pub correction_ns: i64,
    /// True if the server's timestamp was the mean of its receive and transmit timestamps;
    /// otherwise it was the transmit timestamp.
    pub mean_of_server: bool,
    /// True if the local timestamps were those of the NIC; otherwise those of the kernel.
    pub hardware: bool,
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn recorded(values: &[u64]) -> Distribution {
        let mut histogram = Histogram::new();
        for value in values {
            histogram.record(*value);
        }
        Distribution::from_histogram(&histogram).unwrap()
    }

    #[test]
    fn distributions_that_cannot_be_merged_are_refused() {
        assert!(Distribution::merge([]).unwrap().is_none());
        let whole = recorded(&[1, 2, 3]);
        let bare = Distribution { histogram: String::new(), ..whole.clone() };
        assert!(matches!(
            Distribution::merge([&whole, &bare]),
            Err(DistributionMergeError::NoHistogram)
        ));
        let wrong = Distribution { count: 2, ..whole.clone() };
        let error = Distribution::merge([&wrong]).unwrap_err();
        assert_eq!(error.to_string(), "a histogram contains 3 values, its distribution states 2");
        let damaged = Distribution { histogram: "AAAA".into(), ..whole };
        assert!(matches!(Distribution::merge([&damaged]), Err(DistributionMergeError::Decode(_))));
    }

    proptest! {
        /// As if one program had recorded everything.
        #[test]
        fn merging_is_recording_together(
            parts in vec(vec((0_u64..10_000_000_000, 0_u32..30).prop_map(|(v, s)| v >> s), 1..50), 1..6)
        ) {
            let all: Vec<_> = parts.iter().map(|part| recorded(part)).collect();
            let merged = Distribution::merge(&all).unwrap().unwrap();
            let together = recorded(&parts.concat());
            let near = |one: f64, other: f64| (one - other).abs() <= 1e-6 * other.abs() + 1e-6;
            prop_assert!(near(merged.mean, together.mean), "{} {}", merged.mean, together.mean);
            // Deviations come from buckets, each part's from its own.
            let slack = 0.01 * together.max as f64 + 1.0;
            prop_assert!((merged.stddev - together.stddev).abs() <= slack);
            let exact = Distribution {
                mean: together.mean, stddev: together.stddev, ..merged
            };
            prop_assert_eq!(exact, together);
        }
    }

    #[test]
    fn half_of_what_was_recorded_is_half_of_each_figure() {
        let mut histogram = Histogram::new();
        assert_eq!(Distribution::from_histogram(&histogram), None);
        histogram.record(3);
        histogram.record(8);
        let whole = Distribution::from_histogram(&histogram).unwrap();
        assert_eq!((whole.count, whole.min, whole.mean, whole.max), (2, 3, 5.5, 8));
        let half = whole.halved();
        assert_eq!((half.count, half.min, half.mean, half.max), (2, 1, 2.75, 4));
        assert!(half.histogram.is_empty() && !whole.histogram.is_empty());
    }
}
