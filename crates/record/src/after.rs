//! The result of `horolog after`: what a program waited for, which of it came to hold and when, and
//! what is known of the rest.

use serde::{Deserialize, Serialize};

use crate::{Finding, Host};

/// The schema's name and version.
pub const AFTER_SCHEMA: &str = "horolog.after/1";

/// A whole wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AfterResult {
    /// [`AFTER_SCHEMA`].
    pub schema: String,
    /// When the wait began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine that waited.
    pub host: Host,
    /// How long it was to wait at most, in ns; absent where there was no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<u64>,
    /// How long it waited, in ns.
    pub waited_ns: u64,
    /// How the wait ended.
    pub end: AfterEnd,
    /// What was waited for, in the order in which it was given.
    pub dependencies: Vec<Dependency>,
    /// The program that was to run then; empty where there is none.
    pub program: Vec<String>,
    /// Doubts about it.
    pub findings: Vec<Finding>,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterEnd {
    /// All dependencies hold.
    Held,
    /// The deadline passed before.
    Deadline,
    /// A signal ended it.
    Interrupted,
}

/// One thing that was waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dependency {
    /// What it is.
    pub kind: DependencyKind,
    /// Which one: an address, a path, a name, a time, a command.
    pub target: String,
    /// Whether it held at the end.
    pub held: bool,
    /// From when on it held, in ns since the wait began; absent where it did not hold at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_after_ns: Option<u64>,
    /// How often it was tried.
    pub tries: u64,
    /// How often it held and then did not hold any more.
    pub lost: u64,
    /// What the last try showed; absent where none came to an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
}

/// The kinds of dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DependencyKind {
    /// A time that passes.
    Delay,
    /// A TCP port that takes connections.
    Tcp,
    /// A UDP port that answers.
    Udp,
    /// A file that is there.
    File,
    /// A file system that is mounted.
    Mount,
    /// A name that has an address.
    Dns,
    /// The system clock, synchronised within a bound.
    Clock,
    /// A command that succeeds.
    Command,
}
