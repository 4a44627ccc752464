//! Error of a server's timestamps: distributions of times of either sign, and their method of
//! measurement.

use horolog_stats::SignedRecorder;
use serde::{Deserialize, Serialize};

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
    /// Returns the distribution of a recorder; `None` if it is empty.
    #[must_use]
    pub fn from_recorder(recorder: &SignedRecorder) -> Option<Self> {
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

/// Method for the offsets of a run: the local receive timestamp of a reply, minus the server's
/// timestamp, minus a correction. They are therefore positive if the server's timestamp is too
/// early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffsetMethod {
    /// Correction for the delays of the path and of both hosts, in ns; it is subtracted.
    pub correction_ns: i64,
    /// True if the server's timestamp was the mean of its receive and transmit timestamps;
    /// otherwise it was the transmit timestamp.
    pub mean_of_server: bool,
    /// True if the local timestamps were those of the NIC; otherwise those of the kernel.
    pub hardware: bool,
}
