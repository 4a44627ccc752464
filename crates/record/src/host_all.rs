//! Result of `horolog host all`: the measurements of all other `horolog host` commands (its parts),
//! one after the other, with a verdict and the worst findings of all. It contains the complete
//! result of each part.

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
    /// Verdict on the host, from the findings of all parts.
    pub verdict: HostVerdict,
    /// The worst findings of all parts, at most three, in descending order of severity.
    pub worst_findings: Vec<WorstFinding>,
    /// Outcome of each part, in the order in which they ran; for NICs, one entry each.
    pub parts: Vec<HostMeasurementOutcome>,
    /// Result of `horolog host clock`; absent if that part gave no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<HostClockResult>,
    /// Result of `horolog host delay`; absent if that part gave no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<HostDelayResult>,
    /// Result of `horolog host timer`; absent if that part gave no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer: Option<HostTimerResult>,
    /// Result of `horolog host switch`; absent if that part gave no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<HostSwitchResult>,
    /// Result of `horolog host interrupt`; absent if that part gave no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt: Option<HostInterruptResult>,
    /// Results of `horolog host nic`, one per NIC.
    pub nics: Vec<HostNicResult>,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings about the parts together; those about a single part are in its result.
    pub findings: Vec<Finding>,
}

/// Verdict on a host's fitness for measurements in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostVerdict {
    /// Fit: no part has a finding of severity warning or error.
    Fit,
    /// Fit with the reservations that the warnings state.
    Marginal,
    /// Unfit: a part has a finding of severity error.
    Unfit,
    /// The decisive values were not measured, and no measured value says unfit.
    Unjudged,
}

/// Kinds of measurements that `horolog host all` consists of: those of the other commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostMeasurementKind {
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

impl HostMeasurementKind {
    /// All variants, in the order in which they run.
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

/// Outcome of a part, the measurement of one other command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostMeasurementOutcome {
    /// Part concerned.
    pub part: HostMeasurementKind,
    /// Interface of the NIC; absent for other parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// State of the part.
    pub state: HostMeasurementState,
    /// Prerequisites that were not met, or the reason why there is no result.
    pub reason: Vec<String>,
    /// Duration, in ns.
    pub duration_ns: u64,
}

/// States of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostMeasurementState {
    /// Complete measurement under the intended conditions.
    Measured,
    /// Measurement under restrictions: a privilege was refused, or this host lacks something.
    Reduced,
    /// Failure without a result.
    Failed,
    /// End before completion.
    Interrupted,
    /// Not started, because the run ended first.
    NotBegun,
    /// Skipped on request.
    Skipped,
    /// Nothing to measure on this host, such as no NIC.
    Absent,
}

/// One of the worst findings, representing similar ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorstFinding {
    /// Part that reported it; absent if it concerns several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<HostMeasurementKind>,
    /// Finding.
    pub finding: Finding,
    /// Number of further findings of all parts with the same code, severity and advice.
    pub others: usize,
}
