//! Result of `horolog host timer`: wake-up latency of one periodic thread per core (compare
//! cyclictest).

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
    /// Host conditions in force during the run.
    pub conditions: HostConditions,
    /// Period of each thread, in ns.
    pub interval_ns: u64,
    /// Planned periods per core.
    pub planned: u64,
    /// One entry per core.
    pub cores: Vec<CoreWakeupLatency>,
    /// Latency above which the run ends, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub break_above_ns: Option<u64>,
    /// Latency that ended the run; absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_exceeded: Option<LatencyAboveThreshold>,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Wake-up latency of the thread on one core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoreWakeupLatency {
    /// Core to which it was pinned.
    pub core: usize,
    /// Scheduling of the thread.
    pub scheduling: ThreadScheduling,
    /// Cost of the measurement itself.
    pub cost: TimerMeasurementCost,
    /// Periods whose intended wake-up had passed before the thread began to wait for it. They are
    /// measured like all others, from their own intended wake-up.
    pub missed: u64,
    /// From the intended wake-up to the thread's first clock reading, in ns; absent if there was no
    /// period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Distribution>,
    /// Time series of the largest latency.
    pub series: Vec<TimerIntervalMaximum>,
}

/// Overhead of the measurement, in ns; each value is the median of many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerMeasurementCost {
    /// One reading of the clock.
    pub clock_ns: u64,
    /// One loop iteration without a wait: reading the clock and counting the latency.
    pub cycle_ns: u64,
    /// A wait for an instant in the past, plus a clock reading: the kernel programs its timer and
    /// takes the interrupt nevertheless, so this is about the lowest possible latency.
    pub past_ns: u64,
}

/// Interval of several periods with its largest latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimerIntervalMaximum {
    /// Start of the interval, in seconds since the start of the run.
    pub at_s: f64,
    /// Largest latency in the interval, in ns.
    pub max_ns: u64,
}

/// Latency that exceeded [`HostTimerResult::break_above_ns`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyAboveThreshold {
    /// Core of the thread.
    pub core: usize,
    /// Number of the period, from 0.
    pub cycle: u64,
    /// Intended start of the period, in seconds since the start of the run.
    pub at_s: f64,
    /// Latency, in ns.
    pub latency_ns: u64,
}
