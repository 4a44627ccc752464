//! Result of `horolog host all`: all measurements of this host, one after the other, with a verdict
//! and the worst findings of all of them. It contains each part's complete record.

use serde::{Deserialize, Serialize};

use crate::{
    Finding, Host, HostClockResult, HostDelayResult, HostInterruptResult, HostNicResult,
    HostSwitchResult, HostTimerResult, LimitResult,
};

/// The schema's name and version.
pub const HOST_ALL_SCHEMA: &str = "horolog.host-all/2";

/// Result of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostAllResult {
    /// [`HOST_ALL_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host of the run.
    pub host: Host,
    /// Approximate planned duration of all parts together, in ns.
    pub time_ns: u64,
    /// Verdict from the parts' findings.
    pub verdict: HostVerdict,
    /// Worst findings of all, at most three, worst first.
    pub worst_findings: Vec<WorstFinding>,
    /// Outcome of each part, in the order in which they ran; for NICs, one entry each.
    pub parts: Vec<HostPartOutcome>,
    /// Clocks; absent if that part gave no result, as for the fields below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<HostClockResult>,
    /// Functions by which programs wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<HostDelayResult>,
    /// Wake-ups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer: Option<HostTimerResult>,
    /// Process and thread switches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<HostSwitchResult>,
    /// Handlers, and OS noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt: Option<HostInterruptResult>,
    /// NICs examined.
    pub nics: Vec<HostNicResult>,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings that follow from the parts together; each part's own are in its record.
    pub findings: Vec<Finding>,
}

/// Verdict on a host's fitness for measurements in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostVerdict {
    /// The host is fit.
    Fit,
    /// The host is fit, subject to the warnings.
    Marginal,
    /// The host is unfit.
    Unfit,
    /// The decisive values were not measured, and no measured value says unfit.
    Unjudged,
}

/// Parts: the measurements of the other commands of `horolog host`.
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
    /// `horolog host nic`, for each interface.
    Nic,
}

impl HostPart {
    /// All variants, in execution order.
    pub const ALL: [Self; 6] =
        [Self::Clock, Self::Delay, Self::Timer, Self::Switch, Self::Interrupt, Self::Nic];

    /// Name in files and on the command line.
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

/// Outcome of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPartOutcome {
    /// Part concerned.
    pub part: HostPart,
    /// Interface, for a NIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// State of the part.
    pub state: HostPartState,
    /// Missing prerequisites, or the reason for a missing result.
    pub reason: Vec<String>,
    /// Duration, in ns.
    pub duration_ns: u64,
}

/// States of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostPartState {
    /// Complete measurement under the intended conditions.
    Measured,
    /// Measurement under restrictions: a privilege was refused, or this host lacks something.
    Reduced,
    /// Failure to begin.
    Failed,
    /// End before completion.
    Interrupted,
    /// End of the run before the part began.
    NotBegun,
    /// Omission on request.
    Skipped,
    /// Nothing to examine on this host.
    Absent,
}

/// One of the worst findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorstFinding {
    /// Part that reported it; absent if it is about several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<HostPart>,
    /// Finding.
    pub finding: Finding,
    /// Number of further findings of the same kind, severity and advice, of this and other parts.
    pub others: usize,
}
