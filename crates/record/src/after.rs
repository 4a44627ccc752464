//! Result of `horolog after`: the dependencies that a program waited for, the time after which each
//! held, and the last state of the others.

use serde::{Deserialize, Serialize};

use crate::{Finding, Host};

/// The schema's name and version.
pub const AFTER_SCHEMA: &str = "horolog.after/2";

/// Result of one wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AfterResult {
    /// [`AFTER_SCHEMA`].
    pub schema: String,
    /// Start of the wait, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host that waited.
    pub host: Host,
    /// Deadline of the wait, in ns; absent if there was no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<u64>,
    /// Duration of the wait, in ns.
    pub waited_ns: u64,
    /// End of the wait.
    pub end: AfterOutcome,
    /// Dependencies, in the order of the command line.
    pub dependencies: Vec<AfterDependencyResult>,
    /// Program to run afterwards; empty if there is none.
    pub program: Vec<String>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// End of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterOutcome {
    /// All dependencies were satisfied.
    Held,
    /// The deadline passed first.
    Deadline,
    /// A signal ended the wait.
    Interrupted,
}

/// One dependency of the wait, and its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AfterDependencyResult {
    /// Kind of dependency.
    pub kind: AfterDependencyKind,
    /// Object of the dependency: an address, a path, a name, a time or a command.
    pub target: String,
    /// True if it was satisfied at the end of the wait.
    pub held: bool,
    /// Time in ns from the start of the wait until the dependency was satisfied for good; absent if
    /// it was not satisfied at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub satisfied_after_ns: Option<u64>,
    /// Number of checks.
    pub tries: u64,
    /// Number of times that it was satisfied and then ceased to be.
    pub lost: u64,
    /// Observation of the last completed check; absent if none completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_check: Option<String>,
}

/// Kinds of dependencies of `horolog after`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterDependencyKind {
    /// A delay that elapses.
    Delay,
    /// A TCP port that accepts connections.
    Tcp,
    /// A UDP port that answers.
    Udp,
    /// A file that exists.
    File,
    /// A file system that is mounted.
    Mount,
    /// A name that resolves to an address.
    Dns,
    /// The system clock, synchronised within a bound.
    Clock,
    /// A command that succeeds.
    Command,
}
