//! Result of `horolog cycle run`: outcome of each period of periodic tasks, on one node and on
//! several. Times are in ns.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, HostConditions, LimitResult};

/// The schema's name and version.
pub const CYCLE_SCHEMA: &str = "horolog.cycle/2";

/// Result of one run, or of several that are compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleResult {
    /// [`CYCLE_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host from which the run was led.
    pub host: Host,
    /// Signal that releases periods on the nodes.
    pub signal: CycleSignal,
    /// One entry per policy and number of nodes, in the order in which they ran.
    pub runs: Vec<CycleRun>,
    /// Gain from more nodes, if their number varies.
    pub speedups: Vec<CycleSpeedup>,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Signals that release periods on the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CycleSignal {
    /// One clock shared by all nodes, which run on one host.
    Monotonic,
    /// Each node's own clock, synchronised by other means.
    Utc,
    /// One packet per period.
    Packet,
}

/// Scheduling policies of Linux for tasks (sched(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskPolicy {
    /// `SCHED_FIFO`: by priority; among equals until the task waits.
    Fifo,
    /// `SCHED_RR`: by priority; equals take turns.
    Rr,
    /// `SCHED_OTHER`: a fair share.
    Other,
    /// `SCHED_DEADLINE`: earliest deadline first.
    Deadline,
}

impl TaskPolicy {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::Fifo, Self::Rr, Self::Other, Self::Deadline];

    /// Name in files and flags.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Rr => "rr",
            Self::Other => "other",
            Self::Deadline => "deadline",
        }
    }

    /// Returns true if its tasks have a priority.
    #[must_use]
    pub const fn has_priority(self) -> bool {
        matches!(self, Self::Fifo | Self::Rr)
    }

    /// Reads a name.
    ///
    /// # Errors
    ///
    /// Lists the accepted names.
    pub fn parse(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|policy| policy.name() == text);
        named.ok_or_else(|| "write fifo, rr, other or deadline".to_owned())
    }
}

/// One run of all tasks on all nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleRun {
    /// Policy of all tasks, if policies are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<TaskPolicy>,
    /// Packets that released the periods, if the signal was a packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<CycleSignalStats>,
    /// Time from the first release to the last end, in seconds.
    pub elapsed_s: f64,
    /// Nodes, in order.
    pub nodes: Vec<CycleNode>,
    /// Tasks shared by several nodes, and the evenness of their load.
    pub shared: Vec<CycleSharedTask>,
}

/// Time signal sent as packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleSignalStats {
    /// Packets sent.
    pub packets: u64,
    /// Packets not sent.
    pub failed: u64,
    /// From the intended to the actual send time of a packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_ns: Option<Distribution>,
}

/// Results of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleNode {
    /// Name.
    pub name: String,
    /// Host of the node, if it differs from the leader's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Host conditions held constant on the node.
    pub conditions: HostConditions,
    /// Deliberate offset of its clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injected_offset_ns: Option<i64>,
    /// Offset of its clock from the leader's, measured before, during and after the run, in this
    /// order; empty if the leader is on the same host.
    pub clocks: Vec<CycleClock>,
    /// Tasks of the node, in order.
    pub tasks: Vec<CycleTask>,
}

/// Offset of a node's clock from the leader's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleClock {
    /// Offset in ns, positive if ahead.
    pub ahead_ns: i64,
    /// Error bound of the offset, in either direction, in ns.
    pub error_ns: u64,
}

/// Results of one task on one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTask {
    /// Name.
    pub name: String,
    /// Time between releases.
    pub period_ns: u64,
    /// Time from a release to its deadline.
    pub deadline_ns: u64,
    /// Scheduling of the task.
    pub scheduling: TaskScheduling,
    /// Cost of the measurement itself.
    pub cost: CycleCost,
    /// Undisturbed time of a unit of the built-in load; absent without built-in load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit_ns: Option<f64>,
    /// Units of the built-in load per period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<u64>,
    /// Planned periods.
    pub planned: u64,
    /// Periods counted here.
    pub periods: u64,
    /// Periods of these that missed their deadline: start latency and execution together exceed it.
    pub missed: u64,
    /// Periods whose release had passed when the task came to wait for it. They are run and counted
    /// like all others, from their own release.
    pub overrun: u64,
    /// Entries of periods, steps and events that are not counted here: the collector came too late
    /// for them.
    pub uncounted: u64,
    /// Periods not run because the packet that releases them did not arrive.
    #[serde(default)]
    pub unreleased: u64,
    /// Periods with failed work.
    pub failed: u64,
    /// Messages of other nodes that did not arrive in time.
    pub messages_missing: u64,
    /// Abandoned barriers.
    pub barriers_broken: u64,
    /// From release to the task's first instruction (start latency).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_latency_ns: Option<Distribution>,
    /// From the first instruction to the end of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_ns: Option<Distribution>,
    /// From release to the end of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<Distribution>,
    /// Part of the execution spent computing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computation_ns: Option<Distribution>,
    /// Part of the execution during which messages were in transit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub communication_ns: Option<Distribution>,
    /// Part of the execution spent waiting for nodes that lagged behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ns: Option<Distribution>,
    /// Part of the execution spent in barriers after all nodes had arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub barrier_ns: Option<Distribution>,
    /// Cost of a period in addition to computing.
    pub overhead: CycleOverhead,
    /// Aperiodic work that was served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<CycleServed>,
    /// Reason for its command's last failure, or for which its program was abandoned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Periods by the state that the program reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<CycleState>,
    /// Run over time, by interval.
    pub series: Vec<CycleBucket>,
}

/// Scheduling of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskScheduling {
    /// Requested policy.
    pub requested: TaskPolicy,
    /// Policy in force.
    pub policy: TaskPolicy,
    /// Real-time priority; 0 if the policy has none.
    pub priority: u8,
    /// Core to which it was pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<usize>,
    /// Reason for which the request could not be granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Measurement overhead of a period, each the median of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleCost {
    /// One reading of the clock.
    pub clock_ns: u64,
    /// All clock readings of a period, and delivery of the values.
    pub period_ns: u64,
}

/// Extra cost of parallel work, as means per period (`W_o` of Hao, Xue and Qin, "Performance and
/// test method for real-time parallel system", 2010, Table 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CycleOverhead {
    /// Part of the communication time that even the shortest messages take.
    pub communication_latency_ns: f64,
    /// Part of the communication time due to the messages' length.
    pub communication_volume_ns: f64,
    /// Waiting for nodes that lagged behind.
    pub idle_ns: f64,
    /// Operating system: start latency, and the excess of computing time over the undisturbed time.
    pub system_ns: f64,
}

/// Events served by a polling server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleServed {
    /// Events served.
    pub events: u64,
    /// Events still waiting at the end.
    pub backlog: u64,
    /// Most events that waited for the next period.
    pub backlog_max: u64,
    /// From the arrival of an event to its service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<Distribution>,
}

/// Periods in which a program reported one state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleState {
    /// Name of the state.
    pub name: String,
    /// Number of periods.
    pub periods: u64,
    /// Periods of these that missed their deadline.
    pub missed: u64,
    /// From the beginning to the end of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_ns: Option<Distribution>,
    /// From release to the end of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<Distribution>,
}

/// Several consecutive periods.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleBucket {
    /// Release of the first of them, in seconds of the run.
    pub at_s: f64,
    /// Mean ratio of execution to period.
    pub ratio_mean: f64,
    /// Largest of these ratios.
    pub ratio_max: f64,
    /// Largest start latency.
    pub start_latency_max_ns: u64,
    /// Deadlines missed.
    pub missed: u64,
}

/// Task shared by several nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleSharedTask {
    /// Name.
    pub task: String,
    /// Periods in which all nodes are counted.
    pub periods: u64,
    /// Ratio of the longest mean computing time to the mean of all, minus one: 0 if all carry the
    /// same load.
    pub imbalance: f64,
    /// For each node, in order, the number of periods in which the others waited for it
    /// (straggler): it waited least itself.
    pub straggler_periods: Vec<u64>,
    /// Longest wait of a node minus the straggler's own wait, mean over all periods.
    pub waited_ns: f64,
    /// From the first node's beginning to the last node's end, mean.
    pub span_ns: f64,
    /// Supersteps by equation (2) of Hao, Xue and Qin, from the same periods.
    pub steps: Vec<CycleStep>,
    /// Sum of that equation over all steps.
    pub predicted_ns: f64,
}

/// Duration of a superstep by equation (2): the mean over the periods of the largest of all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CycleStep {
    /// Computing.
    pub computation_max_ns: f64,
    /// Messages in transit.
    pub communication_max_ns: f64,
    /// Barrier, after all nodes had arrived.
    pub barrier_ns: f64,
}

/// Gain from one number of nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleSpeedup {
    /// Policy of all tasks, if policies are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<TaskPolicy>,
    /// Task of the work.
    #[serde(default)]
    pub task: String,
    /// Number of nodes.
    pub nodes: usize,
    /// Mean time of a period's work, from the first beginning to the last end.
    pub span_ns: f64,
    /// Ratio of the time with the fewest nodes to this time.
    pub speedup: f64,
    /// Ratio of the speed-up to the increase in nodes.
    pub efficiency: f64,
}
