//! The result of `horolog host timer`: how late threads wake up that are to run in each period.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, HostConditions, LimitResult, ThreadScheduling};

/// The schema's name and version.
pub const HOST_TIMER_SCHEMA: &str = "horolog.host-timer/1";

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostTimerResult {
    /// [`HOST_TIMER_SCHEMA`].
    pub schema: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine.
    pub host: Host,
    /// What was held still meanwhile.
    pub conditions: HostConditions,
    /// The period of each thread, in ns.
    pub interval_ns: u64,
    /// Periods that were planned for each core.
    pub planned: u64,
    /// One for each core.
    pub cores: Vec<TimerCore>,
    /// The latency above which the run was to end, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub break_above_ns: Option<u64>,
    /// The latency that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken_by: Option<TimerBreak>,
    /// The limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Doubts about the figures.
    pub findings: Vec<Finding>,
}

/// The thread of one core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimerCore {
    /// The core that it was tied to.
    pub core: usize,
    /// How it was scheduled.
    pub scheduling: ThreadScheduling,
    /// What the measurement itself costs.
    pub cost: TimerCost,
    /// Periods whose instant was already past when the thread came to wait for it. They are
    /// measured like all others: their latency counts from their own instant.
    pub missed: u64,
    /// From the instant at which the thread was to wake up to its first reading of the clock, in
    /// ns; absent where there was no period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Distribution>,
    /// The largest of each stretch of the run.
    pub series: Vec<TimerStretch>,
}

/// What of a latency is the measurement's own, in ns, each the median of many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerCost {
    /// One reading of the clock.
    pub clock_ns: u64,
    /// One turn of the loop that has nothing to wait for: reading the clock, counting the latency.
    pub cycle_ns: u64,
    /// Waiting for an instant that is past, and reading the clock: the kernel sets its timer all
    /// the same and is interrupted by it, so that no latency can be much below.
    pub past_ns: u64,
}

/// The largest latency of a stretch of periods.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimerStretch {
    /// When it began, in seconds of the run.
    pub at_s: f64,
    /// The largest latency in it, in ns.
    pub max_ns: u64,
}

/// A latency that was larger than it might be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimerBreak {
    /// The core.
    pub core: usize,
    /// The period, counted from 0.
    pub cycle: u64,
    /// When it was to begin, in seconds of the run.
    pub at_s: f64,
    /// The latency, in ns.
    pub latency_ns: u64,
}
