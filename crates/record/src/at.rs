//! Result of `horolog at`: the instants at which programs were started, and their start latency.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host};

/// The schema's name and version.
pub const AT_SCHEMA: &str = "horolog.at/2";

/// Result of one run with one or more instants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtResult {
    /// [`AT_SCHEMA`].
    pub schema: String,
    /// Start of the wait, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host that waited.
    pub host: Host,
    /// First instant as interpreted: RFC 3339 in UTC, or the same form in TAI.
    pub first: String,
    /// Timescale of the instants.
    pub timescale: AtTimescale,
    /// First instant, in ns since 1970 of that timescale.
    pub first_ns: i64,
    /// Time between instants, in ns; absent if only one instant was planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ns: Option<u64>,
    /// End of the run.
    pub end: AtOutcome,
    /// Instants at which the waiting thread woke up to start the programs.
    pub met: u64,
    /// Instants that passed while programs of an earlier one ran, or that a clock step skipped.
    pub missed: u64,
    /// Scheduling of the waiting thread.
    pub scheduling: AtScheduling,
    /// Timer slack of the waiting thread: longest delay of its timers by the kernel, in ns. Without
    /// effect on a real-time thread.
    pub timer_slack_ns: u64,
    /// Time for which programs started at an instant kept the real-time priority they were started
    /// with, in ns; absent if they began with their final scheduling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_start_ns: Option<u64>,
    /// True if the waiting process's memory was locked into RAM around instants.
    #[serde(default)]
    pub memory_locked: bool,
    /// Wake-up latency: from the instant to the first instruction of the waiting thread after it,
    /// in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub woken_late_ns: Option<Distribution>,
    /// Start latency: from the instant until its first program had been started, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_late_ns: Option<Distribution>,
    /// Programs, in the order of the command line.
    pub programs: Vec<AtProgramResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Outcome of a program over all instants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtProgramResult {
    /// Program and its arguments, or the line given to a shell.
    pub program: Vec<String>,
    /// Number of runs that were started and ended.
    pub runs: u64,
    /// Number of runs that could not be started or ended with a status other than 0.
    pub failed: u64,
    /// Last exit status, or the status that stands for a failed start; 128 plus the signal's number
    /// if a signal ended the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_status: Option<i32>,
}

/// Timescales of instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtTimescale {
    /// Coordinated Universal Time, by `CLOCK_REALTIME`.
    Utc,
    /// International Atomic Time, by `CLOCK_TAI`.
    Tai,
}

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtOutcome {
    /// All instants have passed.
    Done,
    /// A signal ended the run.
    Interrupted,
}

/// Scheduling of the waiting thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtScheduling {
    /// `SCHED_FIFO`: runs before all sched-other threads.
    RealTime,
    /// Default scheduling (`SCHED_OTHER`).
    Ordinary,
}
