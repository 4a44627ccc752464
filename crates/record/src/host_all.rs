//! The result of `horolog host all`: every part that measures this host, one after the other, with
//! a verdict and the worst findings of all of them. Each part's own record is in it whole.

use serde::{Deserialize, Serialize};

use crate::{
    Finding, Host, HostClockResult, HostDelayResult, HostInterruptResult, HostNicResult,
    HostSwitchResult, HostTimerResult, LimitResult,
};

/// The schema's name and version.
pub const HOST_ALL_SCHEMA: &str = "horolog.host-all/1";

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostAllResult {
    /// [`HOST_ALL_SCHEMA`].
    pub schema: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine.
    pub host: Host,
    /// About how long all parts together were to take, in ns.
    pub time_ns: u64,
    /// What the parts' findings come to.
    pub verdict: HostVerdict,
    /// The worst findings of all, three at most, the worst first.
    pub worst: Vec<WorstFinding>,
    /// What became of each part, in the order in which they ran; of the cards, one for each.
    pub parts: Vec<HostPartOutcome>,
    /// The clocks; absent where that part gave nothing, and so below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<HostClockResult>,
    /// The functions by which programs wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<HostDelayResult>,
    /// Wake-ups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer: Option<HostTimerResult>,
    /// Switches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<HostSwitchResult>,
    /// Handlers, and stolen time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt: Option<HostInterruptResult>,
    /// The cards that were looked at.
    pub nics: Vec<HostNicResult>,
    /// The limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Doubts that follow from the parts together; each part's own are in its record.
    pub findings: Vec<Finding>,
}

/// Whether a host is fit for measuring in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostVerdict {
    /// It is.
    Fit,
    /// It is, as long as what the warnings say is borne in mind.
    Doubtful,
    /// It is not.
    Unfit,
    /// What decides it was not measured, and nothing that was says that it is not.
    Unjudged,
}

/// A part: what one of the other commands of `horolog host` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostPart {
    /// `horolog host clock`.
    Clock,
    /// `horolog host delay`.
    Delay,
    /// `horolog host timer`.
    Timer,
    /// `horolog host switch`.
    Switch,
    /// `horolog host interrupt`.
    Interrupt,
    /// `horolog host nic`, of each interface.
    Nic,
}

impl HostPart {
    /// All of them, in the order in which they run.
    pub const ALL: [Self; 6] =
        [Self::Clock, Self::Delay, Self::Timer, Self::Switch, Self::Interrupt, Self::Nic];

    /// Its name in a file and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::Delay => "delay",
            Self::Timer => "timer",
            Self::Switch => "switch",
            Self::Interrupt => "interrupt",
            Self::Nic => "nic",
        }
    }
}

/// What became of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPartOutcome {
    /// Which.
    pub part: HostPart,
    /// The interface, of a card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// What became of it.
    pub state: HostPartState,
    /// What it lacked, or why there is none.
    pub why: Vec<String>,
    /// How long it took, in ns.
    pub took_ns: u64,
}

/// How far a part came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostPartState {
    /// It measured all that it is to measure, as it is to be measured.
    Measured,
    /// It measured, without what it was refused: a privilege, or something that this machine lacks.
    Reduced,
    /// It could not begin.
    Failed,
    /// It was ended before it was through.
    Interrupted,
    /// The run was ended before it began.
    NotBegun,
    /// It was left out, as asked for.
    Skipped,
    /// There is nothing here to look at.
    Absent,
}

/// One of the worst findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorstFinding {
    /// The part that it comes from; absent where it is about several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<HostPart>,
    /// The finding.
    pub finding: Finding,
    /// Findings of the same kind, severity and advice beside it, of this and other parts.
    pub others: usize,
}
