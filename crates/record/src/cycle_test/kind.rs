//! Enumerations of the result of `horolog cycle test`: kinds of faults and detections, rows of the
//! scorecard, and grades.

use serde::{Deserialize, Serialize};

/// Kinds of injected faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CycleTestFaultKind {
    /// A bit of a report is changed.
    DataError,
    /// A report is not sent.
    Lost,
    /// A report is sent late.
    Late,
    /// A message of a node is not sent.
    LostMessage,
    /// A message of a node is sent late.
    LateMessage,
    /// A node is stopped temporarily (`SIGSTOP`).
    Stop,
    /// A node is terminated permanently (`SIGKILL`).
    End,
    /// A node computes more than planned.
    Slow,
}

impl CycleTestFaultKind {
    /// All variants.
    pub const ALL: [Self; 8] = [
        Self::DataError,
        Self::Lost,
        Self::Late,
        Self::LostMessage,
        Self::LateMessage,
        Self::Stop,
        Self::End,
        Self::Slow,
    ];

    /// Name in files and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DataError => "data-error",
            Self::Lost => "lost",
            Self::Late => "late",
            Self::LostMessage => "lost-message",
            Self::LateMessage => "late-message",
            Self::Stop => "stop",
            Self::End => "end",
            Self::Slow => "slow",
        }
    }
}

/// Kinds of detections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CycleTestDetectionKind {
    /// Report with a wrong checksum.
    DataError,
    /// Reports whose sequence numbers never arrived.
    Lost,
    /// Report that was older than allowed when taken.
    Late,
    /// Report whose sequence number had already arrived, or precedes the first received.
    Repeated,
    /// Message from another node for which the wait was abandoned and which never arrived.
    MessageMissing,
    /// Message of another node that was in transit for longer than allowed.
    MessageLate,
    /// Barrier abandoned because a node did not arrive in time.
    BarrierBroken,
    /// Node for which others waited longer than allowed.
    StragglerNode,
    /// Node from which no messages arrive.
    NodeTimeout,
    /// Period that missed its deadline.
    DeadlineMissed,
}

impl CycleTestDetectionKind {
    /// All variants.
    pub const ALL: [Self; 10] = [
        Self::DataError,
        Self::Lost,
        Self::Late,
        Self::Repeated,
        Self::MessageMissing,
        Self::MessageLate,
        Self::BarrierBroken,
        Self::StragglerNode,
        Self::NodeTimeout,
        Self::DeadlineMissed,
    ];

    /// Name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DataError => "data error",
            Self::Lost => "report lost",
            Self::Late => "report late",
            Self::Repeated => "report repeated",
            Self::MessageMissing => "message missing",
            Self::MessageLate => "message late",
            Self::BarrierBroken => "barrier given up",
            Self::StragglerNode => "node awaited",
            Self::NodeTimeout => "node timeout",
            Self::DeadlineMissed => "deadline missed",
        }
    }
}

/// Criteria of the scorecard, one row each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScorecardCriterion {
    /// Operating system: time of a process switch.
    SwitchTime,
    /// Operating system: latency of an interrupt handler.
    InterruptTime,
    /// Middleware: ratio of computing to communication.
    Granularity,
    /// Middleware: balance of the load over the nodes.
    LoadStrategy,
    /// Middleware: latency of a message.
    MessageLatency,
}

impl ScorecardCriterion {
    /// All variants, in the order of Table 2 of the paper (see
    /// [`super::CycleTestResult::scorecard`]).
    pub const ALL: [Self; 5] = [
        Self::SwitchTime,
        Self::InterruptTime,
        Self::Granularity,
        Self::LoadStrategy,
        Self::MessageLatency,
    ];

    /// Name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SwitchTime => "switch time",
            Self::InterruptTime => "interrupt time",
            Self::Granularity => "compute granularity",
            Self::LoadStrategy => "load strategy",
            Self::MessageLatency => "message latency",
        }
    }

    /// Returns the part of the system to which the criterion applies.
    #[must_use]
    pub const fn part(self) -> &'static str {
        match self {
            Self::SwitchTime | Self::InterruptTime => "operating system",
            Self::Granularity | Self::LoadStrategy | Self::MessageLatency => "middleware",
        }
    }

    /// Returns true if the paper treats the criterion as quantitative, with a value in ns;
    /// otherwise as qualitative.
    #[must_use]
    pub const fn is_quantity(self) -> bool {
        !matches!(self, Self::Granularity | Self::LoadStrategy)
    }
}

/// Grades of a criterion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CycleTestGrade {
    /// Best grade.
    Excellent,
    /// Second grade.
    Good,
    /// Third grade.
    Fair,
    /// Worst grade.
    Poor,
}

impl CycleTestGrade {
    /// All variants, best first.
    pub const ALL: [Self; 4] = [Self::Excellent, Self::Good, Self::Fair, Self::Poor];

    /// Name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Excellent => "excellent",
            Self::Good => "good",
            Self::Fair => "fair",
            Self::Poor => "poor",
        }
    }
}
