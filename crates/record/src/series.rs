//! Run over time: equal intervals, the outages of the server, and its recovery time after an
//! overload.

use horolog_stats::Recorder;
use horolog_stats::loss::loss_ratio;
use serde::{Deserialize, Serialize};

use crate::Distribution;

/// Equal, contiguous intervals, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Length of each interval, in seconds.
    pub interval_s: f64,
    /// Intervals.
    pub points: Vec<Point>,
}

/// One interval. A request and all its outcomes count in the interval of its intended send time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
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
    /// NTP replies of `received` whose server reports that it is not synchronised; absent from
    /// earlier results. Omitted if 0, so that pages hold an hour of intervals.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unsynchronised: u64,
    /// Invalid replies.
    pub invalid: u64,
    /// Round trip, from the intended send time to the receipt of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Percentiles>,
}

impl Point {
    /// Returns the share of sent requests without a valid reply in time, from 0 to 1.
    #[must_use]
    pub fn loss_ratio(&self) -> f64 {
        loss_ratio(self.sent, self.lost).unwrap_or(0.0)
    }
}

/// Percentiles of a distribution without its histogram.
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
    pub fn of_recorder(recorder: &Recorder) -> Option<Self> {
        let summary = recorder.to_histogram().summary()?;
        let (p50, p90, p99, p99_9) = (summary.p50, summary.p90, summary.p99, summary.p99_9);
        Some(Self { p50, p90, p99, p99_9, max: summary.max })
    }

    /// Returns the percentiles of a distribution.
    #[must_use]
    pub const fn of(of: &Distribution) -> Self {
        Self { p50: of.p50, p90: of.p90, p99: of.p99, p99_9: of.p99_9, max: of.max }
    }
}

/// Outage: a time in which requests were sent and none was answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outage {
    /// Index of the trial in which it began.
    pub trial: usize,
    /// Intended send time of the last answered request before it, in seconds since the start of
    /// that trial; 0 if there was none.
    pub from_s: f64,
    /// Intended send time of the first answered request after it, or of the last request of all.
    pub to_s: f64,
    /// True if the server answered again.
    pub ended: bool,
    /// Time in ms until loss and round trip had returned to their previous values, to one interval;
    /// absent if not measured or if they never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_ms: Option<f64>,
}

/// Load beyond the server's capacity, and the recovery from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overload {
    /// Rate before and after, in requests per second.
    pub base_rate: f64,
    /// Rate during the overload.
    pub overload_rate: f64,
    /// Duration of the overload, in seconds.
    pub overload_s: f64,
    /// Replies per second during the overload.
    pub answered_rate: f64,
    /// Time from its end until loss and round trip had returned to their previous values; absent if
    /// they never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_ms: Option<f64>,
    /// Resolution of that time: one interval.
    pub resolution_ms: f64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}
