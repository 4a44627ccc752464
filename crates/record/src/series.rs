//! What a run was like over time: equal intervals, the times in which the server was silent, and
//! how long it took to be itself again after an overload.

use horolog_stats::Recorder;
use horolog_stats::loss::loss_ratio;
use serde::{Deserialize, Serialize};

use crate::Distribution;

/// Equal intervals without a gap between them, in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The length of each, in seconds.
    pub interval_s: f64,
    /// The intervals.
    pub points: Vec<Point>,
}

/// One interval. A request and all that became of it count in the interval in which it was due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// When it began, in seconds since the first interval's beginning.
    pub at_s: f64,
    /// The index of the trial that it is a part of.
    pub trial: usize,
    /// Requests that were planned for it, per second.
    pub offered_rate: f64,
    /// Requests that left.
    pub sent: u64,
    /// Valid replies within the time allowed, each request's first one only.
    pub received: u64,
    /// `sent` less `received`.
    pub lost: u64,
    /// Valid replies that came after the time allowed.
    pub late: u64,
    /// Replies that were not valid.
    pub invalid: u64,
    /// Round trip, from the intended send instant to the receipt of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Percentiles>,
}

impl Point {
    /// The share of sent requests that stayed without a valid reply in time, from 0 to 1.
    #[must_use]
    pub fn loss_ratio(&self) -> f64 {
        loss_ratio(self.sent, self.lost).unwrap_or(0.0)
    }
}

/// The figures of a distribution without its histogram.
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
    /// Those of what was recorded; `None` where nothing was.
    #[must_use]
    pub fn of_recorder(recorder: &Recorder) -> Option<Self> {
        let summary = recorder.to_histogram().summary()?;
        let (p50, p90, p99, p99_9) = (summary.p50, summary.p90, summary.p99, summary.p99_9);
        Some(Self { p50, p90, p99, p99_9, max: summary.max })
    }

    /// Those of a distribution.
    #[must_use]
    pub const fn of(of: &Distribution) -> Self {
        Self { p50: of.p50, p90: of.p90, p99: of.p99, p99_9: of.p99_9, max: of.max }
    }
}

/// A time in which requests were sent and none was answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Silence {
    /// The index of the trial in which it began.
    pub trial: usize,
    /// When the last request before it was due that was answered, in seconds since the beginning of
    /// that trial; 0 where none was.
    pub from_s: f64,
    /// When the first request after it was due that was answered, or the last request of all.
    pub to_s: f64,
    /// Whether the server answered again.
    pub ended: bool,
    /// How much later, in ms, loss and round trip were as before, to one interval; absent where
    /// that was not measured or did not happen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_ms: Option<f64>,
}

/// How a server took more than it can, and how it came out of that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overload {
    /// The rate before and after, in requests per second.
    pub base_rate: f64,
    /// The rate in between.
    pub overload_rate: f64,
    /// How long that was held, in seconds.
    pub overload_s: f64,
    /// The replies to it per second.
    pub answered_rate: f64,
    /// How long after its end loss and round trip were as before; absent where they never were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_ms: Option<f64>,
    /// What that was measured to: one interval.
    pub resolution_ms: f64,
}
