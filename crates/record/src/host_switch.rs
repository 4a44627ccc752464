//! Result of `horolog host switch`: cost of a context switch between processes or threads, and of a
//! ping-pong with a peer through a pipe, futex or eventfd.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, HostConditions, LimitResult, ThreadScheduling};

/// The schema's name and version.
pub const HOST_SWITCH_SCHEMA: &str = "horolog.host-switch/2";

/// Result of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostSwitchResult {
    /// [`HOST_SWITCH_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host of the run.
    pub host: Host,
    /// Host conditions in force during the run.
    pub conditions: HostConditions,
    /// Scheduling of the measuring thread and its peer.
    pub scheduling: ThreadScheduling,
    /// Core of the measuring thread, followed by the core of the peer if that is another one.
    pub cores: Vec<usize>,
    /// Turns per repetition.
    pub turns: u64,
    /// Cost of one clock reading, in ns; subtracted from each turn of a ping-pong.
    pub clock_ns: u64,
    /// Switches by `sched_yield`, by the eight steps of Hao, Xue and Qin 2010, section 4.1.1.
    pub steps: Vec<YieldSwitchCost>,
    /// Turns that wait for the peer.
    pub exchanges: Vec<PingPongCost>,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Cost of a switch by `sched_yield` to one kind of peer on the same core, by the method of eight
/// steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct YieldSwitchCost {
    /// Kind of peer.
    pub peer: ContextSwitchPeerKind,
    /// Repetitions, in order.
    pub repetitions: Vec<YieldSwitchRepetition>,
    /// Median cost of a switch over the repetitions, in ns; absent if no repetition has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_switch_ns: Option<f64>,
    /// Median of the cost as published, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper_ns: Option<f64>,
    /// Reason why it could not be measured; absent if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One repetition of the eight steps; T1 to T4 are their clock readings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct YieldSwitchRepetition {
    /// T2 − T1: duration of the `sched_yield` calls of the measuring side without a peer, in ns.
    pub loop_ns: u64,
    /// T4 − T3: duration of the same number of turns with the peer, in ns.
    pub turns_ns: u64,
    /// Number of switches away from the measuring side meanwhile, as counted by the kernel; each
    /// turn has one such switch and one back.
    pub switches: u64,
    /// Cost of a switch: (T4 − T3 − 2 (T2 − T1)) / 2n, in ns, with n turns of two switches each and
    /// the calls of both sides subtracted. Absent if negative or if the kernel counted too few
    /// switches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_switch_ns: Option<f64>,
    /// (T4 − T3 − (T2 − T1)) / n, in ns: T0 as published, which includes two switches and the calls
    /// of one side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper_ns: Option<f64>,
}

/// Kinds of peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContextSwitchPeerKind {
    /// Separate process.
    Process,
    /// Thread of the same process.
    Thread,
}

/// Mechanisms by which a side hands the turn to its peer and waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HandoverMechanism {
    /// A byte through a pipe.
    Pipe,
    /// A word in shared memory and futex(2).
    Futex,
    /// A count through an eventfd.
    Eventfd,
}

/// Placement of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContextSwitchPlacement {
    /// Both on one core: a turn has two context switches.
    SameCore,
    /// On two cores: a turn has two wake-ups.
    AcrossCores,
}

/// Cost of a ping-pong: the measuring side hands the turn to its peer and waits until it returns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PingPongCost {
    /// Mechanism of the handover.
    pub mechanism: HandoverMechanism,
    /// Kind of peer.
    pub peer: ContextSwitchPeerKind,
    /// Placement of the two sides.
    pub placement: ContextSwitchPlacement,
    /// Repetitions, in order.
    pub repetitions: Vec<PingPongRepetition>,
    /// Median of the repetitions' mean turns, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_mean_ns: Option<f64>,
    /// Median of the repetitions' costs per switch, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_switch_ns: Option<f64>,
    /// All turns of all repetitions: from handing over until the turn returns, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_ns: Option<Distribution>,
    /// Reason why it could not be measured; absent if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One repetition of a ping-pong.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PingPongRepetition {
    /// Calls of one side without a peer to take the turn, in ns.
    pub baseline_ns: f64,
    /// Mean of a turn minus the clock reading, in ns.
    pub turn_ns: f64,
    /// Switches away from the measuring side per turn, as counted by the kernel.
    pub switches_per_turn: f64,
    /// Half of a turn minus both sides' calls, in ns; absent if negative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_switch_ns: Option<f64>,
}
