//! How far the timestamps of a server are off: distributions of times of either sign, and how they
//! were taken.

use horolog_stats::SignedRecorder;
use serde::{Deserialize, Serialize};

/// A distribution of times of either sign, in nanoseconds. Count, minimum, maximum, mean and
/// deviation are exact; percentiles come from histograms of under 1% relative error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SignedDistribution {
    /// How many values were recorded; never 0, an empty distribution is absent.
    pub count: u64,
    /// Smallest value.
    pub min: i64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the population.
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
    /// The values from 0 on, encoded as in [`crate::Distribution::histogram`].
    pub histogram: String,
    /// The magnitudes of the values below 0, encoded likewise.
    pub histogram_negative: String,
}

impl SignedDistribution {
    /// What a recorder holds; `None` where it holds nothing.
    #[must_use]
    pub fn of(recorder: &SignedRecorder) -> Option<Self> {
        let summary = recorder.summary()?;
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
            histogram: recorder.positive().to_histogram().encode(),
            histogram_negative: recorder.negative().to_histogram().encode(),
        })
    }
}

/// How the offsets of a run were taken: the local receive timestamp of a reply, less the server's
/// timestamp, less a correction. So they are positive where the server's timestamp is too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffsetMethod {
    /// What was taken off for the way and for the delays of both ends, in ns.
    pub correction_ns: i64,
    /// The server's timestamp was the mean of its receive and transmit timestamps; otherwise the
    /// transmit timestamp.
    pub mean_of_server: bool,
    /// The local timestamps were those of the card; otherwise those of the kernel.
    pub hardware: bool,
}
