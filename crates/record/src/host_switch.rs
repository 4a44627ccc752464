//! Result of `horolog host switch`: cost of a switch from one process or thread to another, and of
//! a handover to a peer and back.

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
    /// Host conditions held constant during the run.
    pub conditions: HostConditions,
    /// Scheduling of both sides.
    pub scheduling: ThreadScheduling,
    /// Core of the measuring side, and that of its peer if it runs on another.
    pub cores: Vec<usize>,
    /// Turns per repetition.
    pub turns: u64,
    /// Cost of one clock reading, in ns; it is subtracted from each turn of an exchange.
    pub clock_ns: u64,
    /// Switches by `sched_yield`, by the eight steps of Hao, Xue and Qin 2010, section 4.1.1.
    pub steps: Vec<SwitchSteps>,
    /// Turns that wait for the peer.
    pub exchanges: Vec<SwitchExchange>,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// The eight steps with one kind of peer, on one core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwitchSteps {
    /// Kind of peer.
    pub peer: SwitchPeer,
    /// The repetitions.
    pub repetitions: Vec<StepsRepetition>,
    /// Median of the repetitions' costs per switch, in ns; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_switch_ns: Option<f64>,
    /// Median of the cost as published, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper_ns: Option<f64>,
    /// Reason for which it could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One repetition of the eight steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepsRepetition {
    /// T2 − T1: calls of one side alone, in ns.
    pub loop_ns: u64,
    /// T4 − T3: the same number of turns with the peer, in ns.
    pub turns_ns: u64,
    /// Number of switches away from the measuring side meanwhile, as counted by the kernel; each
    /// turn has one such switch and one back.
    pub switches: u64,
    /// (T4 − T3 − 2 (T2 − T1)) / 2n, in ns: both sides' calls are subtracted, and a turn has two
    /// switches. Absent if negative or if switches are missing.
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
pub enum SwitchPeer {
    /// Separate process.
    Process,
    /// Thread of the same process.
    Thread,
}

/// Mechanisms to hand over a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchMechanism {
    /// A byte through a pipe.
    Pipe,
    /// A word and futex(2).
    Futex,
    /// A count through an eventfd.
    Eventfd,
}

/// Placement of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchPlacement {
    /// One core: each turn has two switches.
    SameCore,
    /// Two cores: each turn wakes both of them.
    AcrossCores,
}

/// Turns that hand over and wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwitchExchange {
    /// Handover mechanism.
    pub mechanism: SwitchMechanism,
    /// Kind of peer.
    pub peer: SwitchPeer,
    /// Placement of the two sides.
    pub placement: SwitchPlacement,
    /// The repetitions.
    pub repetitions: Vec<ExchangeRepetition>,
    /// Median of the repetitions' mean turns, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_mean_ns: Option<f64>,
    /// Median of the repetitions' costs per switch, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_switch_ns: Option<f64>,
    /// All turns of all repetitions: from handing over until the turn returns, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_ns: Option<Distribution>,
    /// Reason for which it could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One repetition of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExchangeRepetition {
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
