//! The result of `horolog cycle run`: what became of each period of periodic tasks, on one node and
//! on several. Times are in ns.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, HostConditions, LimitResult};

/// The schema's name and version.
pub const CYCLE_SCHEMA: &str = "horolog.cycle/1";

/// A whole run, or several that are compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleResult {
    /// [`CYCLE_SCHEMA`].
    pub schema: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine that the run was led from.
    pub host: Host,
    /// What tells the nodes when a period begins.
    pub signal: CycleSignal,
    /// One for each policy and number of nodes, in the order in which they were run.
    pub runs: Vec<CycleRun>,
    /// What more nodes gained, where their number varies.
    pub speedups: Vec<CycleSpeedup>,
    /// The limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Doubts about the figures.
    pub findings: Vec<Finding>,
}

/// What tells nodes when a period begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CycleSignal {
    /// One clock that all nodes share, since they are on one machine.
    Monotonic,
    /// Each node's own clock, which others keep synchronised.
    Utc,
    /// A packet for each period.
    Packet,
}

/// The scheduling policies of Linux that tasks run under (sched(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskPolicy {
    /// `SCHED_FIFO`: by priority; among equals until it waits.
    Fifo,
    /// `SCHED_RR`: the same, but equals take turns.
    Rr,
    /// `SCHED_OTHER`: a fair share.
    Other,
    /// `SCHED_DEADLINE`: the earliest deadline first.
    Deadline,
}

impl TaskPolicy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Fifo, Self::Rr, Self::Other, Self::Deadline];

    /// Its name in files and flags.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Rr => "rr",
            Self::Other => "other",
            Self::Deadline => "deadline",
        }
    }

    /// Whether tasks of it have a priority.
    #[must_use]
    pub const fn has_priority(self) -> bool {
        matches!(self, Self::Fifo | Self::Rr)
    }

    /// Reads a name.
    ///
    /// # Errors
    ///
    /// What to write instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|policy| policy.name() == text);
        named.ok_or_else(|| "write fifo, rr, other or deadline".to_owned())
    }
}

/// One run of all tasks on all nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleRun {
    /// The policy that all tasks had, where policies are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<TaskPolicy>,
    /// The packets that released the periods, if these did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<CycleSent>,
    /// How long it took from the first release to the last end, in seconds.
    pub elapsed_s: f64,
    /// The nodes, in their order.
    pub nodes: Vec<CycleNode>,
    /// Tasks that several nodes have in common, and how evenly they bear them.
    pub shared: Vec<CycleShared>,
}

/// The time signal as packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleSent {
    /// How many went out.
    pub packets: u64,
    /// How many did not.
    pub failed: u64,
    /// From when one was to be sent to when it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_ns: Option<Distribution>,
}

/// What one node did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleNode {
    /// Its name.
    pub name: String,
    /// Its machine, where it is another one than the run was led from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// What was held still there.
    pub conditions: HostConditions,
    /// By how much its clock was set wrong on purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_injected_ns: Option<i64>,
    /// How far its clock was ahead of the leader's, measured before the run, during it and after,
    /// in this order; none where the leader is on the same machine.
    pub clocks: Vec<CycleClock>,
    /// Its tasks, in their order.
    pub tasks: Vec<CycleTask>,
}

/// How far a node's clock is ahead of the leader's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleClock {
    /// Ahead where it is positive, in ns.
    pub ahead_ns: i64,
    /// By how much that may be wrong, either way, in ns.
    pub error_ns: u64,
}

/// What became of one task on one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTask {
    /// Its name.
    pub name: String,
    /// From one release to the next.
    pub period_ns: u64,
    /// From a release to when its work is to be done.
    pub deadline_ns: u64,
    /// How it was scheduled.
    pub scheduling: TaskScheduling,
    /// What the measuring itself costs.
    pub cost: CycleCost,
    /// How long a unit of the built-in load takes where nothing disturbs it; absent where there is
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit_ns: Option<f64>,
    /// Units of the built-in load in a period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<u64>,
    /// Periods that were planned.
    pub planned: u64,
    /// Periods that are counted here.
    pub periods: u64,
    /// Of those, how many were not done by their deadline: lateness of release and execution
    /// together are longer.
    pub missed: u64,
    /// Periods whose release was past when the task came to wait for it. They are run and counted
    /// all the same, from their own release.
    pub overrun: u64,
    /// Entries, of periods, steps and events, that are not counted here: the collector came too
    /// late for them.
    pub uncounted: u64,
    /// Periods that were not run, since the packet which was to release them did not come.
    #[serde(default)]
    pub unreleased: u64,
    /// Periods whose work failed.
    pub failed: u64,
    /// Messages of other nodes that did not come in time.
    pub messages_missing: u64,
    /// Barriers that were given up.
    pub barriers_broken: u64,
    /// From release to the task's first own instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_ns: Option<Distribution>,
    /// From there to the end of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_ns: Option<Distribution>,
    /// From release to the end of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<Distribution>,
    /// What of the execution was computing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computation_ns: Option<Distribution>,
    /// What of it messages took on their way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub communication_ns: Option<Distribution>,
    /// What of it was waiting for nodes that were not as far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ns: Option<Distribution>,
    /// What of it barriers took once all had arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub barrier_ns: Option<Distribution>,
    /// What the period cost beside computing.
    pub overhead: CycleOverhead,
    /// Aperiodic work that was served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<CycleServed>,
    /// Why its command failed when it last did, or its program was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Its periods by the state that its program said to be in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<CycleState>,
    /// The run, stretch by stretch.
    pub series: Vec<CycleStretch>,
}

/// How a task was scheduled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskScheduling {
    /// The policy that was asked for.
    pub asked: TaskPolicy,
    /// The policy in force.
    pub policy: TaskPolicy,
    /// The real-time priority; 0 where the policy has none.
    pub priority: u8,
    /// The core that it was tied to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<usize>,
    /// Why what was asked for was not to be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What of a period is the measurement's own, each the median of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleCost {
    /// One reading of the clock.
    pub clock_ns: u64,
    /// All readings of a period, and handing over what was read.
    pub period_ns: u64,
}

/// The extra cost of parallel work, as means of a period (`W_o` of Hao, Xue and Qin, "Performance
/// and test method for real-time parallel system", 2010, Table 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CycleOverhead {
    /// What the shortest messages would have taken as well.
    pub communication_latency_ns: f64,
    /// What messages took because of their length.
    pub communication_volume_ns: f64,
    /// Waiting for nodes that were not as far.
    pub idle_ns: f64,
    /// The operating system: lateness of release, and what computing took longer than where nothing
    /// disturbs it.
    pub system_ns: f64,
}

/// Events that a polling server served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleServed {
    /// How many.
    pub events: u64,
    /// Left waiting at the end.
    pub left: u64,
    /// The most that waited for the next period.
    pub left_max: u64,
    /// From when an event came to when it was served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<Distribution>,
}

/// The periods in which a program said to be in one state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleState {
    /// The state.
    pub name: String,
    /// How many.
    pub periods: u64,
    /// Of those, how many were not done by their deadline.
    pub missed: u64,
    /// From beginning to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_ns: Option<Distribution>,
    /// From release to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<Distribution>,
}

/// Several periods together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleStretch {
    /// When the first of them was released, in seconds of the run.
    pub at_s: f64,
    /// Execution to period, in the mean.
    pub ratio_mean: f64,
    /// The largest of them.
    pub ratio_max: f64,
    /// The largest lateness of release.
    pub lateness_max_ns: u64,
    /// Deadlines missed.
    pub missed: u64,
}

/// A task that several nodes have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleShared {
    /// Its name.
    pub task: String,
    /// Periods in which all nodes are counted.
    pub periods: u64,
    /// The longest mean of computing to the mean of all, less one: 0 where all bear the same.
    pub imbalance: f64,
    /// For each node, in their order, in how many periods the others waited for it: it waited least
    /// itself.
    pub awaited: Vec<u64>,
    /// How much longer than it the one that waited longest did, the mean of all periods.
    pub waited_ns: f64,
    /// From the first node's beginning to the last one's end, the mean.
    pub span_ns: f64,
    /// Equation (2) of Hao, Xue and Qin, from the same periods.
    pub steps: Vec<CycleStep>,
    /// The sum of that over all steps.
    pub predicted_ns: f64,
}

/// What a superstep took, as equation (2) has it: the mean over the periods of the largest of all
/// nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CycleStep {
    /// Computing.
    pub computation_max_ns: f64,
    /// Messages on their way.
    pub communication_max_ns: f64,
    /// The barrier, once all had arrived.
    pub barrier_ns: f64,
}

/// What so many nodes gained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleSpeedup {
    /// The policy that all tasks had, where policies are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<TaskPolicy>,
    /// The task whose work is meant.
    #[serde(default)]
    pub task: String,
    /// How many.
    pub nodes: usize,
    /// What a period's work took, from the first beginning to the last end, in the mean.
    pub span_ns: f64,
    /// That of the fewest nodes to this.
    pub speedup: f64,
    /// The speed-up to how many times more nodes there are.
    pub efficiency: f64,
}
