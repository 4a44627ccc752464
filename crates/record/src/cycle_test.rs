//! The result of `horolog cycle test`: an application of several stages and sources under load,
//! what was injected into it, what its nodes noticed, and how soon all was well again. Times are in
//! ns, counted from the first release where they are instants.

mod kind;

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, HostConditions, LimitResult, SearchEnd, TaskScheduling};

pub use kind::{CycleTestFaultKind, CycleTestGrade, CycleTestNotice, CycleTestScale};

/// The schema's name and version.
pub const CYCLE_TEST_SCHEMA: &str = "horolog.cycle-test/1";

/// A test of an application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTestResult {
    /// [`CYCLE_TEST_SCHEMA`].
    pub schema: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine, on which all nodes run.
    pub host: Host,
    /// What was tested.
    pub application: CycleTestApplication,
    /// The run; of a search, the last one at the load that was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<CycleTestRun>,
    /// The search for the largest load without a miss, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<CycleTestSearch>,
    /// The scorecard (Hao, Xue and Qin, "Performance and test method for real-time parallel
    /// system", 2010, Table 2).
    pub scorecard: Vec<CycleTestScore>,
    /// The limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Doubts about the figures.
    pub findings: Vec<Finding>,
}

/// What was tested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleTestApplication {
    /// Its name.
    pub name: String,
    /// From one release to the next.
    pub period_ns: u64,
    /// From a release to when a period's work is to be done.
    pub deadline_ns: u64,
    /// Nodes that run it.
    pub nodes: u16,
    /// Periods in a row in which no node misses or notices anything, for all to be well again.
    pub steady: u32,
    /// Waiting for another node that is noticed.
    pub slow_after_ns: u64,
    /// Periods without a word of a node after which it is not waited for.
    pub silent_after: u32,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTestRun {
    /// By what rates and fixed computation were multiplied.
    pub load: f64,
    /// From the first release to the end, in seconds.
    pub elapsed_s: f64,
    /// What was held still.
    pub conditions: HostConditions,
    /// The nodes, in their order.
    pub nodes: Vec<CycleTestNode>,
    /// The stages of a period, in their order.
    pub stages: Vec<CycleTestStage>,
    /// The most computing of a node to the mean of all, less one: 0 where all bear the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imbalance: Option<f64>,
    /// What outer sources sent.
    pub sources: Vec<CycleTestSource>,
    /// Periods by the state that they were in.
    pub states: Vec<CycleTestState>,
    /// What was injected, and what became of it.
    pub faults: Vec<CycleTestFault>,
    /// All that nodes noticed, whatever it came from.
    pub noticed: Vec<CycleTestNoticed>,
}

/// What one node did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTestNode {
    /// Its name.
    pub name: String,
    /// How it was scheduled.
    pub scheduling: TaskScheduling,
    /// How long a unit of the built-in load takes where nothing disturbs it.
    pub unit_ns: f64,
    /// Half of what the shortest message took to the next node and back before the run, the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<u64>,
    /// Periods that were planned.
    pub planned: u64,
    /// Periods that are counted.
    pub periods: u64,
    /// Of those, how many were not done by their deadline.
    pub missed: u64,
    /// Periods whose release was past when the node came to wait for it.
    pub overrun: u64,
    /// Periods that are not counted here: the collector came too late for them.
    pub uncounted: u64,
    /// From release to the end of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<Distribution>,
    /// What of it was computing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computation_ns: Option<Distribution>,
    /// What messages took on their way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub communication_ns: Option<Distribution>,
    /// Waiting for nodes that were not as far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ns: Option<Distribution>,
    /// How its process ended before its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// A stage of a period: means over all periods of all nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTestStage {
    /// Its name.
    pub name: String,
    /// Computing, with what is done for reports.
    pub computation_ns: f64,
    /// Messages on their way.
    pub communication_ns: f64,
    /// Waiting for others.
    pub idle_ns: f64,
    /// Barriers, once all had arrived.
    pub barrier_ns: f64,
}

/// A source of reports from outside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTestSource {
    /// Its name.
    pub name: String,
    /// Reports that were due, a copy to each of several nodes counted each.
    pub due: u64,
    /// Reports that were sent.
    pub sent: u64,
    /// Reports that were not sent though nothing had them lost: the generator was too late for
    /// them, or the system refused them.
    pub unsent: u64,
    /// What was sent, in bytes.
    pub bytes: u64,
    /// Reports a second that were really sent.
    pub rate: f64,
    /// From when a report was due to when it was sent, of those that nothing delayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_ns: Option<Distribution>,
}

/// Periods that were in one state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTestState {
    /// Its label.
    pub name: String,
    /// Periods of all nodes.
    pub periods: u64,
    /// Of those, how many were not done by their deadline.
    pub missed: u64,
    /// From release to the end of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<Distribution>,
    /// From the task's first own instant to the end of its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_ns: Option<Distribution>,
}

/// A fault that was injected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTestFault {
    /// What.
    pub kind: CycleTestFaultKind,
    /// Of which source or node; absent where of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// From when on it was to be injected, in seconds of the run.
    pub at_s: f64,
    /// For how long; absent where it is for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_s: Option<f64>,
    /// The state of the periods in it, where it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// How often it was really injected: reports, messages, periods of a slow node, stops.
    pub injected: u64,
    /// When it was first, in seconds of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_s: Option<f64>,
    /// What nodes noticed meanwhile that it can be the cause of.
    pub noticed: Vec<CycleTestCount>,
    /// Who noticed it first, and as what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detected: Option<CycleTestDetected>,
    /// From its end to when all was well again; absent where it never was, or nothing was injected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered_after_ns: Option<u64>,
}

/// How a fault was noticed first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleTestDetected {
    /// From when it was first injected.
    pub after_ns: u64,
    /// The node that noticed it.
    pub by: String,
    /// What it noticed.
    pub kind: CycleTestNotice,
}

/// How often something was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleTestCount {
    /// What.
    pub kind: CycleTestNotice,
    /// How often.
    pub count: u64,
}

/// What one node noticed of one source or node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleTestNoticed {
    /// What.
    pub kind: CycleTestNotice,
    /// The node that noticed it.
    pub by: String,
    /// The source or the node that it is of; absent where it is of none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// How often.
    pub count: u64,
}

/// A search for the largest load at which no deadline is missed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTestSearch {
    /// The least load that was allowed.
    pub from: f64,
    /// The largest.
    pub to: f64,
    /// How close the bounds were to be, as a share.
    pub width: f64,
    /// The largest load without a miss, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower: Option<f64>,
    /// The least load with misses above it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
    /// How it ended.
    pub end: SearchEnd,
    /// The runs that it made, in their order.
    pub trials: Vec<CycleTestTrial>,
}

/// One run of a search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTestTrial {
    /// The load.
    pub load: f64,
    /// How long it was to run, in seconds.
    pub duration_s: f64,
    /// Periods that were to be run by all nodes.
    pub planned: u64,
    /// Of those, how many were not done by their deadlines, or not at all; each report that was
    /// lost or too old when it was taken counts as one.
    pub missed: u64,
    /// Reports that were sent of those that were due, as a share.
    pub offered: f64,
}

/// A row of the scorecard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTestScore {
    /// What is judged.
    pub scale: CycleTestScale,
    /// The figure of a row that is a quantity, in ns; absent where it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_ns: Option<f64>,
    /// The figure of a row that is a quality, as a ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Which figure it is, and where it is from; or why there is none.
    pub basis: String,
    /// The share that is graded: of the figure in the deadline, of communication in computing, of
    /// what one node computes above the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Up to which share a grade is excellent, good and fair; what is above is poor.
    pub bounds: [f64; 3],
    /// The grade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grade: Option<CycleTestGrade>,
}

impl CycleTestFault {
    /// Whether all was well again, or there was nothing to recover from.
    #[must_use]
    pub const fn has_recovered(&self) -> bool {
        self.injected == 0 || self.recovered_after_ns.is_some()
    }

    /// How often it was noticed as this.
    #[must_use]
    pub fn noticed_as(&self, kind: CycleTestNotice) -> u64 {
        self.noticed.iter().find(|one| one.kind == kind).map_or(0, |one| one.count)
    }
}
