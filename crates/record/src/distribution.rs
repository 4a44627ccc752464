//! A measured distribution: the figures that a person reads and the histogram that another run can
//! be merged or compared with.

use horolog_stats::{Histogram, Recorder};
use serde::{Deserialize, Serialize};

/// A distribution of non-negative times in nanoseconds. Percentiles come from a histogram of under
/// 1% relative error; count, minimum, maximum and mean are exact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// How many values were recorded; never 0, an empty distribution is absent.
    pub count: u64,
    /// Smallest value.
    pub min: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the population.
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
    /// All of it: `HdrHistogram`'s V2 encoding, deflated, in base 64; two of them can be merged.
    /// Empty where it was left out to save room.
    pub histogram: String,
}

impl Distribution {
    /// What a histogram holds; `None` where it holds nothing.
    #[must_use]
    pub fn of(histogram: &Histogram) -> Option<Self> {
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

    /// What a recorder holds; `None` where it holds nothing.
    #[must_use]
    pub fn of_recorder(recorder: &Recorder) -> Option<Self> {
        Self::of(&recorder.to_histogram())
    }

    /// Half of each time, such as of a round trip; without a histogram.
    #[must_use]
    pub fn half(&self) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_what_was_recorded_is_half_of_each_figure() {
        let mut recorder = Recorder::new();
        assert_eq!(Distribution::of_recorder(&recorder), None);
        recorder.record(3);
        recorder.record(8);
        let whole = Distribution::of_recorder(&recorder).unwrap();
        assert_eq!((whole.count, whole.min, whole.mean, whole.max), (2, 3, 5.5, 8));
        let half = whole.half();
        assert_eq!((half.count, half.min, half.mean, half.max), (2, 1, 2.75, 4));
        assert!(half.histogram.is_empty() && !whole.histogram.is_empty());
    }
}
