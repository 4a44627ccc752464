//! The result of `horolog cycle predict`: how long periodic tasks take at worst, by equations over
//! what they do and over what the machine was measured to cost.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, LimitResult, TaskPolicy};

/// The schema's name and version.
pub const CYCLE_PREDICT_SCHEMA: &str = "horolog.cycle-predict/1";

/// A prediction for a set of tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CyclePredictResult {
    /// [`CYCLE_PREDICT_SCHEMA`].
    pub schema: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine that the prediction was made on, and is for.
    pub host: Host,
    /// Nodes that run the set beside each other and send to one another; 1 where there are no
    /// others.
    pub nodes: u32,
    /// The figure of a distribution that is taken for its worst.
    pub worst: CyclePredictWorst,
    /// What was counted for the machine, and where each figure is from.
    pub costs: Vec<CyclePredictCost>,
    /// The tasks, in the order of the file.
    pub tasks: Vec<CyclePredictTask>,
    /// The limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Doubts about the figures.
    pub findings: Vec<Finding>,
}

/// Which figure of a distribution is taken for its worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CyclePredictWorst {
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
    /// The largest.
    Max,
}

impl CyclePredictWorst {
    /// All of them, the least first.
    pub const ALL: [Self; 6] =
        [Self::P50, Self::P90, Self::P99, Self::P99_9, Self::P99_99, Self::Max];

    /// Its name on the command line and in tables.
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

    /// The figure of a distribution, in ns.
    #[must_use]
    pub const fn of(self, times: &Distribution) -> u64 {
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

/// Something that the machine was measured to cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CyclePredictCost {
    /// What costs it.
    pub kind: CyclePredictCostKind,
    /// The core that it was measured on; absent where it is for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<usize>,
    /// How long it is each time, in ns.
    pub ns: u64,
    /// How often it comes: from one to the next, in ns; absent where a task causes it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ns: Option<u64>,
    /// Of interrupts and other threads: those up to this figure of the distribution of gaps, and
    /// above the one before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<CyclePredictWorst>,
    /// Bytes of a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Of a message: half of the round trip, in ns, which the printed equations take; `ns` is all
    /// of it, since nothing says that both ways take as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_ns: Option<u64>,
    /// Where it is from: the file, or that it was measured for this prediction.
    pub source: String,
    /// Which figure it is.
    pub figure: String,
}

/// Kinds of costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CyclePredictCostKind {
    /// A switch from one task to another.
    Switch,
    /// From when a task is to begin to when it begins.
    Release,
    /// The scheduler's tick.
    Scheduler,
    /// What takes the core from every thread: interrupts, system management, a hypervisor.
    Interrupt,
    /// What other threads took from an ordinary one.
    Threads,
    /// A message from one node to another.
    Message,
}

/// A task, and how long it takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CyclePredictTask {
    /// Its name.
    pub name: String,
    /// From one release to the next, in ns.
    pub period_ns: u64,
    /// From a release to when it is to be done, in ns.
    pub deadline_ns: u64,
    /// How it is scheduled.
    pub policy: TaskPolicy,
    /// The real-time priority; 0 where the policy has none.
    pub priority: u8,
    /// The core that it is tied to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<usize>,
    /// What it takes of a core by itself, from 0 on; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<f64>,
    /// Whether it is in time.
    pub verdict: CyclePredictVerdict,
    /// Why there is no bound, where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How the bound was found.
    pub method: CyclePredictMethod,
    /// The safe bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safe: Option<CyclePredictBound>,
    /// Equation (3) as it is printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printed: Option<CyclePredictBound>,
    /// The deadline less the safe bound, in ns; negative where it is missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin_ns: Option<i64>,
    /// The tasks that run before it or in turn with it.
    pub before: Vec<String>,
    /// What a run of it measured, where one is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<CyclePredictMeasured>,
}

/// What runs measured of a task, on all their nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CyclePredictMeasured {
    /// Periods that were counted.
    pub periods: u64,
    /// Of those, how many were not done by their deadline.
    pub missed: u64,
    /// How long its execution was at worst, by the figure that is taken for it, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_ns: Option<u64>,
    /// The longest from a release to the end, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<u64>,
    /// The file.
    pub source: String,
}

/// Whether a task is in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CyclePredictVerdict {
    /// The bound is within the deadline.
    Schedulable,
    /// It is not, or there is none within the period.
    Unschedulable,
    /// A cost that the bound needs is not known.
    Unknown,
}

/// How a bound was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CyclePredictMethod {
    /// The response time by fixed-point iteration.
    Response,
    /// The density of all tasks by deadline: each is through by its deadline.
    Density,
}

/// A bound and what it is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CyclePredictBound {
    /// From the release to the end, in ns.
    pub response_ns: u64,
    /// Rounds of the iteration.
    pub rounds: u64,
    /// What it is the sum of, those that are not 0; empty where the bound is by density.
    pub terms: Vec<CyclePredictTerm>,
    /// The largest of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dominant: Option<CyclePredictTermKind>,
}

/// A part of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CyclePredictTerm {
    /// Which.
    pub kind: CyclePredictTermKind,
    /// How long, in ns.
    pub ns: u64,
}

/// The parts of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CyclePredictTermKind {
    /// The task's own computation.
    Computation,
    /// Its messages.
    Communication,
    /// Its barriers.
    Barrier,
    /// Tasks that run before it.
    Interference,
    /// A task that does not let it go before.
    Blocking,
    /// From its release to its beginning.
    Release,
    /// Switches to it and away from it.
    Switches,
    /// The scheduler's tick.
    Scheduler,
    /// Interrupts and what else takes the core.
    Interrupts,
}

impl CyclePredictTermKind {
    /// All of them, in the order in which they are shown.
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

    /// Its name in tables.
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
    /// How long a part of it is, in ns; 0 where it is none of it.
    #[must_use]
    pub fn term_ns(&self, kind: CyclePredictTermKind) -> u64 {
        self.terms.iter().find(|term| term.kind == kind).map_or(0, |term| term.ns)
    }
}

impl CyclePredictTask {
    /// The share of its deadline that the safe bound takes, from 0 on.
    #[must_use]
    pub fn used(&self) -> Option<f64> {
        let safe = self.safe.as_ref()?;
        Some(safe.response_ns as f64 / self.deadline_ns.max(1) as f64)
    }
}
