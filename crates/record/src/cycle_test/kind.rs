//! What is chosen from in the result of `horolog cycle test`: kinds of faults, what nodes notice,
//! the rows of the scorecard, and grades.

use serde::{Deserialize, Serialize};

/// What can be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CycleTestFaultKind {
    /// A bit of a report is not what it was.
    DataError,
    /// A report is not sent.
    Lost,
    /// A report is sent late.
    Late,
    /// A message of a node is not sent.
    LostMessage,
    /// A message of a node is sent late.
    LateMessage,
    /// A node is stopped for a while (`SIGSTOP`).
    Stop,
    /// A node is ended for good (`SIGKILL`).
    End,
    /// A node computes more than it should.
    Slow,
}

impl CycleTestFaultKind {
    /// All of them.
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

    /// Its name in files and tables.
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

/// What nodes notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CycleTestNotice {
    /// A report whose checksum is wrong.
    DataError,
    /// Reports of a source that are missing in its numbers and never came.
    Lost,
    /// A report that was older than allowed when it was taken.
    Late,
    /// A report that came twice, or before the first.
    Repeated,
    /// A message of another node that was given up and never came.
    MessageMissing,
    /// A message of another node that was longer on its way than allowed.
    MessageLate,
    /// A barrier that was given up.
    BarrierBroken,
    /// A node that was waited for longer than allowed.
    NodeAwaited,
    /// A node of which nothing is heard.
    NodeSilent,
    /// A period that was not done by its deadline.
    DeadlineMissed,
}

impl CycleTestNotice {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::DataError,
        Self::Lost,
        Self::Late,
        Self::Repeated,
        Self::MessageMissing,
        Self::MessageLate,
        Self::BarrierBroken,
        Self::NodeAwaited,
        Self::NodeSilent,
        Self::DeadlineMissed,
    ];

    /// Its name in tables.
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
            Self::NodeAwaited => "node awaited",
            Self::NodeSilent => "node silent",
            Self::DeadlineMissed => "deadline missed",
        }
    }
}

/// The rows of the scorecard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CycleTestScale {
    /// Operating system: a switch from one process to another.
    SwitchTime,
    /// Operating system: from an interrupt to its handler.
    InterruptTime,
    /// Middleware: computing to communication.
    Granularity,
    /// Middleware: how evenly nodes are loaded.
    LoadStrategy,
    /// Middleware: what a message takes.
    MessageLatency,
}

impl CycleTestScale {
    /// All of them, in the order of the document's table.
    pub const ALL: [Self; 5] = [
        Self::SwitchTime,
        Self::InterruptTime,
        Self::Granularity,
        Self::LoadStrategy,
        Self::MessageLatency,
    ];

    /// Its name in tables.
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

    /// The part of the system that it is of.
    #[must_use]
    pub const fn part(self) -> &'static str {
        match self {
            Self::SwitchTime | Self::InterruptTime => "operating system",
            Self::Granularity | Self::LoadStrategy | Self::MessageLatency => "middleware",
        }
    }

    /// Whether the document has it as a quantity; else it is graded in quality.
    #[must_use]
    pub const fn is_quantity(self) -> bool {
        !matches!(self, Self::Granularity | Self::LoadStrategy)
    }
}

/// A grade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CycleTestGrade {
    /// The best.
    Excellent,
    /// The second.
    Good,
    /// The third.
    Fair,
    /// The worst.
    Poor,
}

impl CycleTestGrade {
    /// All of them, the best first.
    pub const ALL: [Self; 4] = [Self::Excellent, Self::Good, Self::Fair, Self::Poor];

    /// Its name in tables.
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
