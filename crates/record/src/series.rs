//! Time series of a load run in equal intervals, outages of the server, and the recovery time after
//! an overload.

use horolog_stats::Histogram;
use horolog_stats::loss::loss_ratio;
use serde::{Deserialize, Serialize};

use crate::Distribution;

/// Equal, contiguous intervals, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadTimeSeries {
    /// Length of each interval, in seconds.
    pub interval_s: f64,
    /// One point per interval.
    pub points: Vec<LoadSeriesPoint>,
}

/// Counts and latency of one interval. A request and all its outcomes count in the interval of its
/// intended send time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadSeriesPoint {
    /// Start, in seconds since the first interval's start.
    pub at_s: f64,
    /// Index of the trial to which it belongs.
    pub trial: usize,
    /// Intended rate, in requests per second.
    pub intended_rate: f64,
    /// Requests sent.
    pub sent: u64,
    /// Valid replies within the timeout, only the first to each request.
    pub received: u64,
    /// `sent` minus `received`.
    pub lost: u64,
    /// Valid replies after the timeout.
    pub late: u64,
    /// Replies of `received` whose server reports that it is not synchronised (NTP only); absent
    /// from earlier results. Omitted if 0, to keep the JSON of long runs small.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unsynchronised: u64,
    /// Invalid replies.
    pub invalid: u64,
    /// Round trip in ns, from the intended send time to the receipt of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Percentiles>,
}

impl LoadSeriesPoint {
    /// Returns the share of sent requests without a valid reply in time, from 0 to 1; 0 if none was
    /// sent.
    #[must_use]
    pub fn loss_ratio(&self) -> f64 {
        loss_ratio(self.sent, self.lost).unwrap_or(0.0)
    }
}

/// Percentiles of a distribution in ns, without its histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p99_9: u64,
    /// Largest value.
    pub max: u64,
}

impl Percentiles {
    /// Returns the percentiles of the recorded values; `None` if there are none.
    #[must_use]
    pub fn from_histogram(histogram: &Histogram) -> Option<Self> {
        let summary = histogram.summary()?;
        let (p50, p90, p99, p99_9) = (summary.p50, summary.p90, summary.p99, summary.p99_9);
        Some(Self { p50, p90, p99, p99_9, max: summary.max })
    }

    /// Returns the percentiles of a distribution.
    #[must_use]
    pub const fn from_distribution(of: &Distribution) -> Self {
        Self { p50: of.p50, p90: of.p90, p99: of.p99, p99_9: of.p99_9, max: of.max }
    }
}

/// Outage: period of 100 ms or more in which requests were sent and none was answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outage {
    /// Index of the trial in which it began.
    pub trial: usize,
    /// Intended send time of the last answered request before it, in seconds since the start of
    /// that trial; 0 if there was none.
    pub from_s: f64,
    /// Intended send time of the first answered request after the outage, or of the last request
    /// sent if there was none; in seconds like `from_s`.
    pub to_s: f64,
    /// True if the server answered again.
    pub ended: bool,
    /// Time in ms until loss and round trip had returned to their previous values, to one interval;
    /// absent if not measured or if they never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_ms: Option<f64>,
}

/// Outcome of a load beyond the server's capacity, and the recovery from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverloadResult {
    /// Intended rate before and after the overload, in requests per second.
    pub base_rate: f64,
    /// Achieved rate during the overload, in requests per second.
    pub overload_rate: f64,
    /// Duration of the overload, in seconds.
    pub overload_s: f64,
    /// Valid replies within the timeout during the overload, per second.
    pub answered_rate: f64,
    /// Time in ms from the end of the overload until loss and round trip were back at their
    /// previous values; absent if they never were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_ms: Option<f64>,
    /// Resolution of `recovery_ms`: the length of one interval, in ms.
    pub resolution_ms: f64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}
