//! Result of `horolog host timer`: wake-up latency of threads that run periodically.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, HostConditions, LimitResult, ThreadScheduling};

/// The schema's name and version.
pub const HOST_TIMER_SCHEMA: &str = "horolog.host-timer/2";

/// Result of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostTimerResult {
    /// [`HOST_TIMER_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host of the run.
    pub host: Host,
    /// Host conditions held constant during the run.
    pub conditions: HostConditions,
    /// Period of each thread, in ns.
    pub interval_ns: u64,
    /// Planned periods per core.
    pub planned: u64,
    /// One entry per core.
    pub cores: Vec<TimerCore>,
    /// Latency above which the run ends, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub break_above_ns: Option<u64>,
    /// Latency that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_exceeded: Option<TimerBreak>,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Thread of one core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimerCore {
    /// Core to which it was pinned.
    pub core: usize,
    /// Scheduling of the thread.
    pub scheduling: ThreadScheduling,
    /// Cost of the measurement itself.
    pub cost: TimerCost,
    /// Periods whose intended wake-up had passed when the thread came to wait for it. They are
    /// measured like all others: their latency counts from their own instant.
    pub missed: u64,
    /// From the intended wake-up to the thread's first clock reading, in ns; absent if there was no
    /// period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Distribution>,
    /// Largest latency of each interval of the run.
    pub series: Vec<TimerStretch>,
}

/// Measurement overhead of a latency, in ns, each the median of many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerCost {
    /// One reading of the clock.
    pub clock_ns: u64,
    /// One loop iteration without a wait: reading the clock, counting the latency.
    pub cycle_ns: u64,
    /// Waiting for an instant in the past, and reading the clock: the kernel sets its timer
    /// nevertheless and is interrupted by it, so no latency can be much lower.
    pub past_ns: u64,
}

/// Largest latency in an interval of several periods.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimerStretch {
    /// Start of the interval, in seconds of the run.
    pub at_s: f64,
    /// Largest latency in it, in ns.
    pub max_ns: u64,
}

/// Latency that exceeded its limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimerBreak {
    /// The core.
    pub core: usize,
    /// Period, counted from 0.
    pub cycle: u64,
    /// Intended start of the period, in seconds of the run.
    pub at_s: f64,
    /// Latency, in ns.
    pub latency_ns: u64,
}
