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
    /// Host that controls the run.
    pub host: Host,
    /// Signal that releases periods on the nodes.
    pub signal: ReleaseSignal,
    /// One entry per policy and number of nodes, in the order in which they ran.
    pub runs: Vec<CycleConfigurationResult>,
    /// Speed-up by more nodes; empty unless the number of nodes varies.
    pub speedups: Vec<CycleSpeedup>,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

impl CycleResult {
    /// Returns all tasks of all nodes and runs, each with a label: the name of the node, the number
    /// of nodes if it differs between runs, and the policy if policies are compared.
    pub fn labelled_tasks(&self) -> impl Iterator<Item = (String, &CycleTaskResult)> {
        let counts = || self.runs.iter().map(|run| run.nodes.len());
        let counts_differ = counts().min() != counts().max();
        self.runs.iter().flat_map(move |run| {
            run.nodes.iter().flat_map(move |node| {
                let of =
                    if counts_differ { format!(" of {}", run.nodes.len()) } else { String::new() };
                let under = |policy: TaskSchedulingPolicy| format!(" under {}", policy.name());
                let label =
                    format!("{}{of}{}", node.name, run.policy.map_or_else(String::new, under));
                node.tasks.iter().map(move |task| (label.clone(), task))
            })
        })
    }
}

/// Signals that release periods on the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReleaseSignal {
    /// Shared monotonic clock of one host on which all nodes run.
    Monotonic,
    /// Each node's own clock, synchronised by other means.
    Utc,
    /// One packet per period.
    Packet,
}

/// Scheduling policies of Linux for tasks (sched(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskSchedulingPolicy {
    /// `SCHED_FIFO`: fixed priority; threads of equal priority run until they block.
    Fifo,
    /// `SCHED_RR`: fixed priority; threads of equal priority share the core in time slices.
    Rr,
    /// `SCHED_OTHER`: a fair share.
    Other,
    /// `SCHED_DEADLINE`: earliest deadline first.
    Deadline,
}

impl TaskSchedulingPolicy {
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

    /// Returns true if its tasks have a real-time priority.
    #[must_use]
    pub const fn has_priority(self) -> bool {
        matches!(self, Self::Fifo | Self::Rr)
    }

    /// Parses the name of a policy.
    ///
    /// # Errors
    ///
    /// Returns a text that lists the valid names.
    pub fn parse(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|policy| policy.name() == text);
        named.ok_or_else(|| "write fifo, rr, other or deadline".to_owned())
    }
}

/// Results of all tasks with one policy and one number of nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleConfigurationResult {
    /// Policy of all tasks; absent unless policies are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<TaskSchedulingPolicy>,
    /// Counts of the packets that released the periods; absent for other signals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<ReleaseSignalCounts>,
    /// Time from the first release to the last end, in seconds.
    pub elapsed_s: f64,
    /// Nodes, in order.
    pub nodes: Vec<CycleNodeResult>,
    /// Tasks that several nodes run in parallel, with the balance of their load.
    pub shared: Vec<CycleSharedTaskResult>,
}

/// Counts and lateness of packets that release periods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReleaseSignalCounts {
    /// Packets sent.
    pub packets: u64,
    /// Packets that could not be sent.
    pub failed: u64,
    /// Send lateness: actual minus intended send time of a packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_ns: Option<Distribution>,
}

/// Results of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleNodeResult {
    /// Name of the node.
    pub name: String,
    /// Host of the node; absent if it is the host that controls the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Host conditions in force on the node during the run.
    pub conditions: HostConditions,
    /// Offset of its clock that was injected on purpose; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injected_offset_ns: Option<i64>,
    /// Offset of its clock from that of the controlling host, measured before, during and after the
    /// run, in this order; empty on the same host.
    pub clocks: Vec<CycleClockOffset>,
    /// Tasks of the node, in order.
    pub tasks: Vec<CycleTaskResult>,
}

/// Measured offset of a node's clock from that of the controlling host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleClockOffset {
    /// Offset in ns, positive if ahead.
    pub ahead_ns: i64,
    /// Error bound of the offset (±), in ns.
    pub error_ns: u64,
}

/// Results of one task on one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleTaskResult {
    /// Name of the task.
    pub name: String,
    /// Period of the task.
    pub period_ns: u64,
    /// Relative deadline: time from a release to its deadline.
    pub deadline_ns: u64,
    /// Scheduling of the task.
    pub scheduling: TaskSchedulingOutcome,
    /// Cost of the measurement itself.
    pub cost: CycleMeasurementCost,
    /// Undisturbed time of a unit of the built-in load; absent without built-in load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit_ns: Option<f64>,
    /// Units of the built-in load per period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<u64>,
    /// Planned periods.
    pub planned: u64,
    /// Number of counted periods. The distributions exclude those whose work was abandoned.
    pub periods: u64,
    /// Periods of these whose response time (start latency plus execution) exceeded the deadline.
    pub missed: u64,
    /// Periods whose release time had passed before the task began to wait for it. They run and
    /// count like all others, measured from their own release.
    pub overrun: u64,
    /// Entries of periods, supersteps and events that are missing from these results because the
    /// collector did not read them in time.
    pub uncounted: u64,
    /// Periods not run because the packet that releases them did not arrive.
    #[serde(default)]
    pub unreleased: u64,
    /// Periods in which the work failed or was abandoned.
    pub failed: u64,
    /// Messages from other nodes that did not arrive in time.
    pub messages_missing: u64,
    /// Barriers that were abandoned because a node did not arrive in time.
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
    /// Overhead of parallel work, per period.
    pub overhead: ParallelOverhead,
    /// Aperiodic events that the task served; absent if it serves none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<PollingServerResult>,
    /// Reason for the last failure of its command, or for abandoning its program; absent without
    /// failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Periods by the state that the program reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<ProgramStateResult>,
    /// Time series of the run, by interval.
    pub series: Vec<CycleSeriesPoint>,
}

/// Requested and actual scheduling of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSchedulingOutcome {
    /// Requested policy.
    pub requested: TaskSchedulingPolicy,
    /// Policy in force.
    pub policy: TaskSchedulingPolicy,
    /// Real-time priority; 0 if the policy has none.
    pub priority: u8,
    /// Core to which the task was pinned; absent if not pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<usize>,
    /// Reason why the request could not be granted; absent if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Overhead of the measurement; each value is the median of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleMeasurementCost {
    /// One reading of the clock.
    pub clock_ns: u64,
    /// All clock readings of a period, and delivery of the values.
    pub period_ns: u64,
}

/// Overhead of parallel work, as means per period (`W_o` of Hao, Xue and Qin, "Performance and test
/// method for real-time parallel system", 2010, Table 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ParallelOverhead {
    /// Part of the communication time that even the shortest messages take, plus the time in
    /// barriers after all nodes had arrived.
    pub communication_latency_ns: f64,
    /// Part of the communication time due to the messages' length.
    pub communication_volume_ns: f64,
    /// Waiting for slower nodes.
    pub idle_ns: f64,
    /// Operating system: start latency, and the excess of computing time over the undisturbed time
    /// if that is known.
    pub system_ns: f64,
}

/// Events served by a polling server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PollingServerResult {
    /// Events served.
    pub events: u64,
    /// Events still queued at the end of the run.
    pub backlog: u64,
    /// Most events that waited for the next period.
    pub backlog_max: u64,
    /// From the arrival of an event to its service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<Distribution>,
}

/// Counts and times of the periods in which a program reported one state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramStateResult {
    /// Name of the state.
    pub name: String,
    /// Number of periods.
    pub periods: u64,
    /// Periods of these that missed their deadline.
    pub missed: u64,
    /// Execution: from the first instruction to the end of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_ns: Option<Distribution>,
    /// From release to the end of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<Distribution>,
}

/// Interval of a time series: several consecutive periods.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleSeriesPoint {
    /// Release of the first period, in seconds since the start of the run.
    pub at_s: f64,
    /// Mean ratio of execution to period.
    pub ratio_mean: f64,
    /// Largest ratio of execution time to period.
    pub ratio_max: f64,
    /// Largest start latency.
    pub start_latency_max_ns: u64,
    /// Periods that missed their deadline.
    pub missed: u64,
}

/// Task that several nodes run in parallel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleSharedTaskResult {
    /// Name of the task.
    pub task: String,
    /// Periods that are counted on all nodes.
    pub periods: u64,
    /// Load imbalance: longest mean computing time of a node divided by the mean of all nodes,
    /// minus 1; 0 if the load is equal.
    pub imbalance: f64,
    /// By node: number of periods in which it was the straggler: the node with the shortest wait,
    /// if another one waited longer.
    pub straggler_periods: Vec<u64>,
    /// Mean over all periods of the longest wait of a node minus the straggler's own wait.
    pub waited_ns: f64,
    /// Mean time from the first node's first instruction to the last node's end of work.
    pub span_ns: f64,
    /// Duration of each superstep by equation (2) of Hao, Xue and Qin 2010, computed from the same
    /// periods.
    pub steps: Vec<CycleSuperstepTimes>,
    /// Sum of the terms of equation (2) over all supersteps.
    pub predicted_ns: f64,
}

/// Terms of equation (2) for a superstep: in each period the largest value over all nodes, then the
/// mean over the periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CycleSuperstepTimes {
    /// Computing.
    pub computation_max_ns: f64,
    /// Messages in transit.
    pub communication_max_ns: f64,
    /// Barrier, after all nodes had arrived.
    pub barrier_ns: f64,
}

/// Speed-up with a given number of nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleSpeedup {
    /// Policy of all tasks, if policies are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<TaskSchedulingPolicy>,
    /// Name of the task.
    #[serde(default)]
    pub task: String,
    /// Number of nodes.
    pub nodes: usize,
    /// Mean time of a period's work, from the first beginning to the last end.
    pub span_ns: f64,
    /// Ratio of the time with the fewest nodes to this time.
    pub speedup: f64,
    /// Speed-up divided by the factor by which the number of nodes grew.
    pub efficiency: f64,
}
