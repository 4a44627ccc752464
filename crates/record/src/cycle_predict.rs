//! Result of `horolog cycle predict`: worst-case response times of periodic tasks, by equations
//! over their work and the measured costs of the host.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, LimitResult, TaskSchedulingPolicy};

/// The schema's name and version.
pub const CYCLE_PREDICT_SCHEMA: &str = "horolog.cycle-predict/2";

/// Prediction for a set of tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CyclePredictResult {
    /// [`CYCLE_PREDICT_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host that made the prediction and to which it applies.
    pub host: Host,
    /// Number of nodes that run the set in parallel and exchange messages; 1 for a single node.
    pub nodes: u32,
    /// Percentile of a measured distribution that is taken as its worst case.
    pub percentile: CyclePredictPercentile,
    /// Costs of the host, each with its source.
    pub costs: Vec<CyclePredictCost>,
    /// Tasks, in the order of the file.
    pub tasks: Vec<CyclePredictTaskResult>,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Percentiles of a distribution that can be taken as its worst case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CyclePredictPercentile {
    /// The median.
    P50,
    /// The 90th percentile.
    P90,
    /// The 99th percentile.
    P99,
    /// The 99.9th percentile.
    P99_9,
    /// The 99.99th percentile.
    P99_99,
    /// Largest value.
    Max,
}

impl CyclePredictPercentile {
    /// All variants, in ascending order.
    pub const ALL: [Self; 6] =
        [Self::P50, Self::P90, Self::P99, Self::P99_9, Self::P99_99, Self::Max];

    /// Name on the command line and in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P99 => "p99",
            Self::P99_9 => "p99.9",
            Self::P99_99 => "p99.99",
            Self::Max => "max",
        }
    }

    /// Returns this percentile of a distribution, in ns.
    #[must_use]
    pub const fn value_ns(self, times: &Distribution) -> u64 {
        match self {
            Self::P50 => times.p50,
            Self::P90 => times.p90,
            Self::P99 => times.p99,
            Self::P99_9 => times.p99_9,
            Self::P99_99 => times.p99_99,
            Self::Max => times.max,
        }
    }
}

/// Measured cost of the host, such as an interrupt or a context switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CyclePredictCost {
    /// Kind of cost.
    pub kind: CyclePredictCostKind,
    /// Core on which it was measured; absent if it applies to all cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<usize>,
    /// Duration of each occurrence, in ns.
    pub ns: u64,
    /// Time between occurrences, in ns; absent if the task itself causes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ns: Option<u64>,
    /// For interrupts and other threads: gaps up to this percentile of their distribution and above
    /// the previous one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<CyclePredictPercentile>,
    /// Size of the message, in bytes; for messages only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// For messages: half of the round trip, in ns, which the equations as published use. `ns` is
    /// the whole round trip, since the two directions may differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_ns: Option<u64>,
    /// Source: the file, or a measurement for this prediction.
    pub source: String,
    /// Name of the statistic taken, such as a percentile.
    pub statistic: String,
}

/// Kinds of costs of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CyclePredictCostKind {
    /// Switch from one task to another.
    Switch,
    /// Start latency of a task.
    Release,
    /// Scheduler tick.
    Scheduler,
    /// Anything that takes the core from every thread: interrupts, system management, a hypervisor.
    Interrupt,
    /// Time that other threads took from a sched-other thread.
    Threads,
    /// Message from one node to another.
    Message,
}

/// Task with its bounds and the verdict on its deadline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CyclePredictTaskResult {
    /// Name.
    pub name: String,
    /// Period, in ns.
    pub period_ns: u64,
    /// Time from a release to the deadline, in ns.
    pub deadline_ns: u64,
    /// Scheduling policy.
    pub policy: TaskSchedulingPolicy,
    /// Real-time priority; 0 if the policy has none.
    pub priority: u8,
    /// Core to which it is pinned; absent if not pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<usize>,
    /// Core utilisation of the task alone, from 0; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<f64>,
    /// Verdict on its deadline.
    pub verdict: CyclePredictVerdict,
    /// Reason why there is no bound; absent if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Method by which the bound was found.
    pub method: CyclePredictMethod,
    /// Safe bound on the response time; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safe: Option<CyclePredictBound>,
    /// Bound by equation (3) as published; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_published: Option<CyclePredictBound>,
    /// Deadline minus the safe bound, in ns; negative if the deadline can be missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin_ns: Option<i64>,
    /// Names of the other tasks of the same or a higher priority that can run on the same core.
    pub before: Vec<String>,
    /// Measured results of this task, for comparison with its bound; absent if none were supplied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<CyclePredictTaskMeasurement>,
}

/// Measurements of a task by runs, on all their nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CyclePredictTaskMeasurement {
    /// Periods counted.
    pub periods: u64,
    /// Periods of these that missed their deadline.
    pub missed: u64,
    /// Worst execution time by the chosen percentile, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_ns: Option<u64>,
    /// Longest response time (release to end of work), in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<u64>,
    /// Names of the result files, separated by commas.
    pub source: String,
}

/// Verdict on a task's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CyclePredictVerdict {
    /// The bound is within the deadline.
    Schedulable,
    /// The bound exceeds the deadline, or there is none within the period.
    Unschedulable,
    /// A cost that the bound requires is unknown.
    Unknown,
}

/// Methods of finding a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CyclePredictMethod {
    /// Response time by fixed-point iteration.
    Response,
    /// Density test of all tasks under `SCHED_DEADLINE`: if it passes, each completes by its
    /// deadline.
    Density,
}

/// Bound on a response time, as the sum of its terms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CyclePredictBound {
    /// Bound on the time from release to the end of the work, in ns; the deadline if the bound is
    /// by density.
    pub response_ns: u64,
    /// Number of iterations until the fixed point; 0 if the bound is by density.
    pub rounds: u64,
    /// Non-zero terms of the sum; empty if the bound is by density.
    pub terms: Vec<CyclePredictTerm>,
    /// Kind of the largest term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dominant: Option<CyclePredictTermKind>,
}

/// Term of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CyclePredictTerm {
    /// Kind of term.
    pub kind: CyclePredictTermKind,
    /// Duration, in ns.
    pub ns: u64,
}

/// Terms of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CyclePredictTermKind {
    /// Computation of the task itself.
    Computation,
    /// Messages of the task.
    Communication,
    /// Barriers of the task.
    Barrier,
    /// Interference by tasks that run before it.
    Interference,
    /// Blocking by another task.
    Blocking,
    /// Start latency: from the release to the first instruction.
    Release,
    /// Context switches to the task and away from it.
    Switches,
    /// Scheduler ticks.
    Scheduler,
    /// Interrupts and other events that take the core.
    Interrupts,
}

impl CyclePredictTermKind {
    /// All variants, in display order.
    pub const ALL: [Self; 9] = [
        Self::Computation,
        Self::Communication,
        Self::Barrier,
        Self::Interference,
        Self::Blocking,
        Self::Release,
        Self::Switches,
        Self::Scheduler,
        Self::Interrupts,
    ];

    /// Name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Computation => "computation",
            Self::Communication => "communication",
            Self::Barrier => "barrier",
            Self::Interference => "interference",
            Self::Blocking => "blocking",
            Self::Release => "release",
            Self::Switches => "switches",
            Self::Scheduler => "scheduler",
            Self::Interrupts => "interrupts",
        }
    }
}

impl CyclePredictBound {
    /// Returns the duration of a term, in ns; 0 if the bound does not contain it.
    #[must_use]
    pub fn term_ns(&self, kind: CyclePredictTermKind) -> u64 {
        self.terms.iter().find(|term| term.kind == kind).map_or(0, |term| term.ns)
    }
}

impl CyclePredictTaskResult {
    /// Returns the safe bound as a share of the deadline, above 1 if it exceeds the deadline;
    /// `None` without a bound.
    #[must_use]
    pub fn deadline_share(&self) -> Option<f64> {
        let safe = self.safe.as_ref()?;
        Some(safe.response_ns as f64 / self.deadline_ns.max(1) as f64)
    }
}
