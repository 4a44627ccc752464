//! The result of `horolog host switch`: what it costs to switch from one process or thread to
//! another, and to hand over to one and be handed back to.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, HostConditions, LimitResult, ThreadScheduling};

/// The schema's name and version.
pub const HOST_SWITCH_SCHEMA: &str = "horolog.host-switch/1";

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostSwitchResult {
    /// [`HOST_SWITCH_SCHEMA`].
    pub schema: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine.
    pub host: Host,
    /// What was held still meanwhile.
    pub conditions: HostConditions,
    /// How both sides were scheduled.
    pub scheduling: ThreadScheduling,
    /// The core of the one side, and that of the other where they are on two.
    pub cores: Vec<usize>,
    /// Turns of each repetition.
    pub turns: u64,
    /// What one reading of the clock costs, in ns; it is taken off each turn of an exchange.
    pub clock_ns: u64,
    /// Switches by `sched_yield`, by the eight steps of Hao, Xue and Qin 2010, section 4.1.1.
    pub steps: Vec<SwitchSteps>,
    /// Turns that wait for the other side.
    pub exchanges: Vec<SwitchExchange>,
    /// The limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Doubts about the figures.
    pub findings: Vec<Finding>,
}

/// The eight steps with one kind of partner, on one core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwitchSteps {
    /// What the partner is.
    pub partner: SwitchPartner,
    /// Each repetition.
    pub repetitions: Vec<StepsRepetition>,
    /// The median of the repetitions' figures for each switch, in ns; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_switch_ns: Option<f64>,
    /// The same of the document's own figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document_ns: Option<f64>,
    /// Why it could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One repetition of the eight steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepsRepetition {
    /// T2 − T1: the calls of one side alone, in ns.
    pub loop_ns: u64,
    /// T4 − T3: the same number of turns with the partner, in ns.
    pub turns_ns: u64,
    /// How often the measuring side was switched away from meanwhile, as the kernel counts it; each
    /// turn has one such switch and one back.
    pub switches: u64,
    /// (T4 − T3 − 2 (T2 − T1)) / 2n, in ns: both sides' calls are taken off, and a turn has two
    /// switches. Absent where it is negative or where switches are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_switch_ns: Option<f64>,
    /// (T4 − T3 − (T2 − T1)) / n, in ns: the document's T0, which has two switches in it and the
    /// calls of one side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document_ns: Option<f64>,
}

/// What the partner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchPartner {
    /// A process of its own.
    Process,
    /// A thread of the same process.
    Thread,
}

/// How a turn is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchWay {
    /// A byte through a pipe.
    Pipe,
    /// A word and futex(2).
    Futex,
    /// A count through an eventfd.
    Eventfd,
}

/// Where the two sides are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchPlacement {
    /// On one core: each turn has two switches.
    SameCore,
    /// On two: each turn wakes the one and the other core.
    AcrossCores,
}

/// Turns that hand over and wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwitchExchange {
    /// How.
    pub way: SwitchWay,
    /// With whom.
    pub partner: SwitchPartner,
    /// Where.
    pub placement: SwitchPlacement,
    /// Each repetition.
    pub repetitions: Vec<ExchangeRepetition>,
    /// The median of the repetitions' means of a turn, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_mean_ns: Option<f64>,
    /// The median of their figures for each switch, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_switch_ns: Option<f64>,
    /// All turns of all repetitions: from handing over to being handed back, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_ns: Option<Distribution>,
    /// Why it could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One repetition of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExchangeRepetition {
    /// The calls of one side with nobody to take the turn, in ns.
    pub alone_ns: f64,
    /// The mean of a turn, less the reading of the clock, in ns.
    pub turn_ns: f64,
    /// Switches away from the measuring side for each turn, as the kernel counts them.
    pub switches_per_turn: f64,
    /// Half of a turn less both sides' calls, in ns; absent where it is negative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_switch_ns: Option<f64>,
}
