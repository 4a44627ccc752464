//! The result of `horolog at`: the instants that programs were started at, and how late they were.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host};

/// The schema's name and version.
pub const AT_SCHEMA: &str = "horolog.at/1";

/// A whole run, of one instant or of many.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtResult {
    /// [`AT_SCHEMA`].
    pub schema: String,
    /// When it began to wait, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine that waited.
    pub host: Host,
    /// The first instant as it is read: RFC 3339 in UTC, or the same in TAI.
    pub first: String,
    /// What instants are counted by.
    pub timescale: AtTimescale,
    /// The first instant, in ns since 1970 of that timescale.
    pub first_ns: i64,
    /// From one instant to the next, in ns; absent where there was to be one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ns: Option<u64>,
    /// How it ended.
    pub end: AtEnd,
    /// Instants that were met.
    pub met: u64,
    /// Instants that passed while programs of an earlier one ran or the clock was set over them.
    pub missed: u64,
    /// How what waited was scheduled.
    pub scheduling: AtScheduling,
    /// By how much the kernel might delay its timer, in ns; of no effect where it is real-time.
    pub timer_slack_ns: u64,
    /// How long programs that were started at an instant kept the real-time priority that they were
    /// started with, in ns; absent where they began with the scheduling that they were to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_start_ns: Option<u64>,
    /// Whether the waiting process's memory was locked into RAM around instants.
    #[serde(default)]
    pub memory_locked: bool,
    /// From the instant to the first instruction after it, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub woken_late_ns: Option<Distribution>,
    /// From the instant until its first program had been started, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_late_ns: Option<Distribution>,
    /// The programs, in the order in which they were given.
    pub programs: Vec<AtProgram>,
    /// Doubts about the figures.
    pub findings: Vec<Finding>,
}

/// What became of a program over all instants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtProgram {
    /// The program and its arguments, or the line that was given to a shell.
    pub program: Vec<String>,
    /// How often it was started.
    pub runs: u64,
    /// How often it could not be started or ended with another status than 0.
    pub failed: u64,
    /// Its last exit status; 128 and the signal's number where one ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_status: Option<i32>,
}

/// The timescales.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtTimescale {
    /// Coordinated Universal Time, by `CLOCK_REALTIME`.
    Utc,
    /// International Atomic Time, by `CLOCK_TAI`.
    Tai,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtEnd {
    /// All instants are over.
    Done,
    /// A signal ended it.
    Interrupted,
}

/// How a thread was scheduled while it waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtScheduling {
    /// Before all ordinary threads (`SCHED_FIFO`).
    RealTime,
    /// As others are.
    Ordinary,
}
