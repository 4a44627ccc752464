//! Comparison of results of one kind: the record of a comparison, and its judgements.

mod conditions;
mod judge;
mod measured;
mod metrics;
mod paths;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Finding, Host};

pub use paths::{damaged, distributions, numbers};

/// Name and version of the schema.
pub const COMPARE_SCHEMA: &str = "horolog.compare/2";

/// Comparison of two runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompareResult {
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
    /// Run that is judged.
    pub later: ComparedRun,
    /// Repetitions of the earlier run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_repeats: Vec<ComparedRun>,
    /// Repetitions of the later run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub later_repeats: Vec<ComparedRun>,
    /// Largest tolerated change of a metric for the worse, as a share of its earlier value.
    pub threshold: f64,
    /// Share of bootstrap replications between each metric's bounds.
    pub confidence: f64,
    /// Metrics of both runs, in the order of their paths.
    pub metrics: Vec<ComparedMetric>,
    /// Paths that only the earlier run has, or not all of several.
    pub only_earlier: Vec<String>,
    /// Paths that only the later run has, or not all of several.
    pub only_later: Vec<String>,
    /// Other differences: host and command.
    pub conditions: Vec<ComparedCondition>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

impl CompareResult {
    /// Returns the metrics that decide: those of the measured object.
    pub fn deciding(&self) -> impl Iterator<Item = &ComparedMetric> + Clone {
        self.metrics.iter().filter(|figure| !figure.informational)
    }
}

/// Run of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedRun {
    /// Reference as requested: number, key, name or file.
    pub reference: String,
    /// Schema of its result.
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
}

/// Metric of both runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedMetric {
    /// Path in the results, such as `trials[intended_rate=10000].rtt_ns`.
    pub path: String,
    /// Kind of metric.
    pub metric: ComparedMetricKind,
    /// Earlier value: ns, a share, or a rate per second; for several runs the mean, and for their
    /// offsets the mean distance from 0. Absent if an attempt of a run did not succeed, such as a
    /// fault that was not detected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<f64>,
    /// Later value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub later: Option<f64>,
    /// Lower bound of the change: a share of the earlier value; for shares, their difference; for
    /// offsets, the increase of the distance from 0 in ns. Absent if the data do not suffice: too
    /// few values, only one reading, or a search that ended before it found that bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper bound of the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// Verdict on the change.
    pub verdict: CompareVerdict,
    /// True if it describes the measuring side, such as a generator's send lateness, and decides
    /// nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub informational: bool,
}

/// Kinds of compared metrics. Times and shares are worse if larger, rates if smaller, offsets if
/// further from 0.
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
    /// Share of sent packets that was lost; or of the path's object, that was late, invalid,
    /// missed, failed, stalled or retransmitted.
    Loss,
    /// Rate found by a search, between its bounds, or rate of a transfer.
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
    /// Both bounds are beyond it, for the better.
    Better,
    /// Both bounds are beyond it, for the worse.
    Worse,
    /// The bounds lie on both sides of the threshold.
    Unclear,
    /// The values are too few for bounds.
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

/// Common and differing contents of two results.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct ResultComparison {
    /// See [`CompareResult`].
    pub metrics: Vec<ComparedMetric>,
    /// See [`CompareResult`].
    pub only_earlier: Vec<String>,
    /// See [`CompareResult`].
    pub only_later: Vec<String>,
    /// See [`CompareResult`].
    pub conditions: Vec<ComparedCondition>,
}

impl ResultComparison {
    /// Compares results of one kind, one or several on each side. Metrics are compared if all
    /// results have them at the same path: list items are the same if they have the same rate,
    /// length or name. Other differences are those of the first result of each side.
    #[must_use]
    pub fn of(earlier: &[&Value], later: &[&Value], threshold: f64) -> Self {
        let (figures, only_earlier, only_later) = metrics::compare(earlier, later, threshold);
        let conditions = earlier.first().zip(later.first());
        let conditions = conditions
            .map_or_else(Vec::new, |(earlier, later)| conditions::differing(earlier, later));
        Self { metrics: figures, only_earlier, only_later, conditions }
    }
}

#[cfg(test)]
mod tests;
