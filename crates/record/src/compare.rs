//! Record of a comparison of results of one kind.

use serde::{Deserialize, Serialize};

use crate::{Finding, Host};

/// Name and version of the schema.
pub const COMPARE_SCHEMA: &str = "horolog.compare/3";

/// Comparison of two runs, or of two groups of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunsCompareResult {
    /// [`COMPARE_SCHEMA`].
    pub schema: String,
    /// Time of the comparison, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host of the comparison.
    pub host: Host,
    /// Reference run.
    pub earlier: ComparedRun,
    /// Run that is compared with the reference.
    pub later: ComparedRun,
    /// Repetitions of the earlier run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_repeats: Vec<ComparedRun>,
    /// Repetitions of the later run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub later_repeats: Vec<ComparedRun>,
    /// Largest tolerated change for the worse, as a share of the earlier value.
    pub threshold: f64,
    /// Confidence level of the bounds of a change: share of the bootstrap replications between
    /// them.
    pub confidence: f64,
    /// Metrics of both runs, in the order of their names and items.
    pub metrics: Vec<ComparedMetric>,
    /// Metrics that the earlier run or a repetition of it has, but not every run: their names, such
    /// as `rtt of 10,000/s`.
    pub only_earlier: Vec<String>,
    /// Metrics that the later run or a repetition of it has, but not every run.
    pub only_later: Vec<String>,
    /// Other differences: host, command, and textual facts such as target and mode.
    pub conditions: Vec<ComparedCondition>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

impl RunsCompareResult {
    /// Returns the metrics that decide the comparison: those of the measured object.
    pub fn deciding_metrics(&self) -> impl Iterator<Item = &ComparedMetric> + Clone {
        self.metrics.iter().filter(|metric| !metric.informational)
    }
}

/// Run of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedRun {
    /// Reference by which the user named it: number, key, name or file.
    pub reference: String,
    /// Schema of its result.
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
}

/// Metric that both sides have, with its change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedMetric {
    /// Name of the metric, such as `rtt`.
    pub name: String,
    /// Item of the result that the metric is of, such as a trial `10,000/s`; absent if a result has
    /// only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// Kind of metric.
    pub metric: ComparedMetricKind,
    /// Earlier value: a time in ns, a ratio, or a rate per second. For several runs it is the mean;
    /// for offsets of several runs the mean distance from 0. Absent if an attempt failed in a run,
    /// such as a fault that was not detected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<f64>,
    /// Later value, as for `earlier`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub later: Option<f64>,
    /// Lower bound of the change, as a share of the earlier value; for loss ratios their
    /// difference, for offsets the increase of the distance from 0 in ns. Absent if the data do not
    /// suffice: too few values, a single reading, or a search without that bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper bound of the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// Verdict on the change.
    pub verdict: CompareVerdict,
    /// True if the metric describes the measuring side, such as the send lateness of a generator,
    /// and does not decide the comparison.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub informational: bool,
}

/// Kinds of compared metrics. An increase of a time or a ratio is worse, a decrease of a rate, and
/// an increase of an offset's distance from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComparedMetricKind {
    /// Median time.
    P50,
    /// 99th-percentile time.
    P99,
    /// 99.9th-percentile time.
    #[serde(rename = "p99.9")]
    P999,
    /// Ratio of events to trials, such as of lost packets to those sent, or of missed deadlines to
    /// periods.
    Loss,
    /// Rate per second, such as one found by a search or that of a transfer.
    Rate,
    /// Time from a single reading, in ns.
    Time,
    /// Offset between two clocks, in ns.
    Offset,
}

/// Verdict on a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CompareVerdict {
    /// Both bounds are within the threshold.
    Same,
    /// Improvement: both bounds are beyond the threshold.
    Better,
    /// Regression: both bounds are beyond the threshold.
    Worse,
    /// The bounds lie on both sides of the threshold, or an attempt failed equally often on both
    /// sides.
    Unclear,
    /// Too few values for bounds.
    NotEnough,
}

/// Condition that differed between the runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedCondition {
    /// Path in the results.
    pub path: String,
    /// Earlier value.
    pub earlier: String,
    /// Later value.
    pub later: String,
}
