//! Result of `horolog cycle test`: an application of several stages and sources under load, the
//! injected faults, the nodes' detections, and the recovery times. Times are in ns; instants count
//! from the first release.

mod kind;

use serde::{Deserialize, Serialize};

use crate::{
    Distribution, Finding, Host, HostConditions, LimitResult, SearchEndReason,
    TaskSchedulingOutcome,
};

pub use kind::{CycleTestDetectionKind, CycleTestFaultKind, CycleTestGrade, ScorecardCriterion};

/// The schema's name and version.
pub const CYCLE_TEST_SCHEMA: &str = "horolog.cycle-test/2";

/// Result of the test of an application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTestResult {
    /// [`CYCLE_TEST_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host of all nodes.
    pub host: Host,
    /// Application under test.
    pub application: CycleTestApplication,
    /// Run; for a search, the last one at the load found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<CycleTestRunResult>,
    /// Search for the highest load without a deadline miss; absent if not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<CycleTestSearchResult>,
    /// Scorecard (Hao, Xue and Qin, "Performance and test method for real-time parallel system",
    /// 2010, Table 2).
    pub scorecard: Vec<ScorecardRow>,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Application under test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleTestApplication {
    /// Name.
    pub name: String,
    /// Period of the tasks.
    pub period_ns: u64,
    /// Relative deadline: time from a release to the deadline of its work.
    pub deadline_ns: u64,
    /// Number of nodes.
    pub nodes: u16,
    /// Consecutive periods without a miss or a detection on any node that count as recovered.
    pub steady: u32,
    /// Wait for another node above which that node is detected as a straggler.
    pub response_limit_ns: u64,
    /// Number of periods without a message from a node after which the others no longer wait for
    /// it.
    pub node_timeout: u32,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTestRunResult {
    /// Load factor, which scales the report rates and the fixed computation of the stages.
    pub load: f64,
    /// Time from the first release to the end, in seconds.
    pub elapsed_s: f64,
    /// Host conditions in force during the run.
    pub conditions: HostConditions,
    /// Nodes, in order.
    pub nodes: Vec<CycleTestNodeResult>,
    /// Stages of a period, in order.
    pub stages: Vec<CycleTestStageTimes>,
    /// Load imbalance: longest mean computing time of a node divided by the mean of all nodes,
    /// minus 1; 0 if the load is equal. Absent for a single node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imbalance: Option<f64>,
    /// External sources of reports.
    pub sources: Vec<SimulatedSourceResult>,
    /// Results by the state of the periods.
    pub states: Vec<CycleTestStateResult>,
    /// Injected faults, their detections and recovery.
    pub faults: Vec<CycleTestFaultResult>,
    /// All detections of the nodes, regardless of their cause.
    pub detections: Vec<DetectionCountByNode>,
}

/// Results of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTestNodeResult {
    /// Name of the node.
    pub name: String,
    /// Scheduling of the node's task.
    pub scheduling: TaskSchedulingOutcome,
    /// Time of one unit of the built-in load without interference.
    pub unit_ns: f64,
    /// Median of half the round trip of the shortest message to the next node before the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<u64>,
    /// Planned periods.
    pub planned: u64,
    /// Counted periods.
    pub periods: u64,
    /// Periods of these that missed their deadline.
    pub missed: u64,
    /// Periods whose release time had passed before the node began to wait for it.
    pub overrun: u64,
    /// Periods missing from these results because the collector did not read them in time.
    pub uncounted: u64,
    /// From release to the end of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<Distribution>,
    /// Part of the response time spent computing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computation_ns: Option<Distribution>,
    /// Time during which messages were in transit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub communication_ns: Option<Distribution>,
    /// Time spent waiting for slower nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ns: Option<Distribution>,
    /// Reason for the premature end of its process; absent if it did not end early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// Stage of a period: means over all periods of all nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTestStageTimes {
    /// Name.
    pub name: String,
    /// Computing, including work for reports.
    pub computation_ns: f64,
    /// Messages in transit.
    pub communication_ns: f64,
    /// Waiting for others.
    pub idle_ns: f64,
    /// Barriers, after all nodes had arrived.
    pub barrier_ns: f64,
}

/// External source that sends reports to nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimulatedSourceResult {
    /// Name of the source.
    pub name: String,
    /// Reports due; a copy to each of several nodes counts separately.
    pub due: u64,
    /// Reports sent.
    pub sent: u64,
    /// Reports that were not sent although no fault suppressed them: the generator was late, or the
    /// kernel refused them.
    pub send_failed: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Achieved rate, in reports per second.
    pub rate: f64,
    /// Send lateness of the reports that no fault delayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_ns: Option<Distribution>,
}

/// Periods in one state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTestStateResult {
    /// Label of the state.
    pub name: String,
    /// Periods of all nodes.
    pub periods: u64,
    /// Periods of these that missed their deadline.
    pub missed: u64,
    /// From release to the end of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<Distribution>,
    /// Execution: from the task's first instruction to the end of its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_ns: Option<Distribution>,
}

/// Injected fault with its detections and recovery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTestFaultResult {
    /// Kind of fault.
    pub kind: CycleTestFaultKind,
    /// Affected source or node; absent if all are affected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Planned start of the injection, in seconds since the start of the run.
    pub at_s: f64,
    /// Duration in seconds; absent if permanent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// State assigned to the periods during the fault; absent if it has none of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Number of injections: reports, messages, periods of a slow node, stops.
    pub injected: u64,
    /// Time of the first injection, in seconds since the start of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_s: Option<f64>,
    /// Detections during the fault that it may have caused, by kind.
    pub detections: Vec<DetectionCount>,
    /// First of these detections; absent if the fault was not detected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detected: Option<CycleTestFirstDetection>,
    /// Time from the end of the fault to recovery; absent without recovery or if nothing was
    /// injected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered_after_ns: Option<u64>,
}

/// First detection of a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleTestFirstDetection {
    /// Time from the first injection.
    pub after_ns: u64,
    /// Node that detected it.
    pub by: String,
    /// Kind of detection.
    pub kind: CycleTestDetectionKind,
}

/// Number of detections of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetectionCount {
    /// Kind of detection.
    pub kind: CycleTestDetectionKind,
    /// Number of detections.
    pub count: u64,
}

/// Detections by one node about one source or node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetectionCountByNode {
    /// Kind of detection.
    pub kind: CycleTestDetectionKind,
    /// Node that detected it.
    pub by: String,
    /// Source or node concerned; absent if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Number of detections.
    pub count: u64,
}

/// Search for the highest load at which no deadline is missed. Loads are factors as in
/// [`CycleTestRunResult::load`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTestSearchResult {
    /// Least load allowed.
    pub from: f64,
    /// Largest load allowed.
    pub to: f64,
    /// Relative distance of the bounds at which the search ends, as a share.
    pub width: f64,
    /// Highest load without a miss; absent if none was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower: Option<f64>,
    /// Lowest load above `lower` with misses; absent if none was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
    /// Reason for the end of the search.
    pub end: SearchEndReason,
    /// Trials of the search, in order.
    pub trials: Vec<CycleTestTrial>,
}

/// One trial of a search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTestTrial {
    /// Load of the trial.
    pub load: f64,
    /// Planned duration, in seconds.
    pub duration_s: f64,
    /// Periods planned for all nodes.
    pub planned: u64,
    /// Periods of these that missed their deadline or did not run, plus the reports that were lost
    /// or too old when read.
    pub missed: u64,
    /// Share of the due reports that were sent.
    pub sent_ratio: f64,
}

/// Row of the scorecard: one criterion with its value and grade.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScorecardRow {
    /// Criterion of the row.
    pub scale: ScorecardCriterion,
    /// Value of a quantitative row, in ns; absent if not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_ns: Option<f64>,
    /// Value of a qualitative row, as a ratio; absent if not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Name and source of the value, or the reason for its absence.
    pub basis: String,
    /// Share by which the row is graded: the value relative to the deadline, communication and
    /// barriers relative to computation, or the excess of one node's computation over the mean.
    /// Absent if not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Upper limits of the share for the grades excellent, good and fair; anything above is poor.
    pub bounds: [f64; 3],
    /// Grade of the criterion; absent if not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grade: Option<CycleTestGrade>,
}

impl CycleTestFaultResult {
    /// Returns true if the application recovered from the fault, or no fault was injected.
    #[must_use]
    pub const fn has_recovered(&self) -> bool {
        self.injected == 0 || self.recovered_after_ns.is_some()
    }

    /// Returns the number of detections of this kind; 0 if there are none.
    #[must_use]
    pub fn detection_count(&self, kind: CycleTestDetectionKind) -> u64 {
        self.detections.iter().find(|one| one.kind == kind).map_or(0, |one| one.count)
    }
}
