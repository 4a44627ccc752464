//! Conditions that a measurement of this host's scheduler held constant, and those it was not
//! permitted to.

use serde::{Deserialize, Serialize};

/// Settings of the whole process during its measurement; all of them are reverted at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostConditions {
    /// True if the process's memory was locked into RAM.
    pub memory_locked: bool,
    /// Reason for which it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_error: Option<String>,
    /// Longest wake-up from an idle state to which `/dev/cpu_dma_latency` was held, in µs; absent
    /// if unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_dma_latency_us: Option<u32>,
    /// Reason for which that was not possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_dma_latency_error: Option<String>,
    /// Driver of the idle states; absent if the kernel has none to choose from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_driver: Option<String>,
    /// Idle states of the first CPU, by name.
    pub idle_states: Vec<String>,
    /// Time for which real-time threads may run in each period before the kernel takes the core
    /// away (`sched_rt_runtime_us`), in µs; absent without such a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real_time_runtime_us: Option<u64>,
    /// Length of that period, in µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real_time_period_us: Option<u64>,
}

/// Scheduling of the measuring threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadScheduling {
    /// Policy in force.
    pub policy: SchedulingPolicy,
    /// Real-time priority, 1 to 99; 0 for a sched-other thread.
    pub priority: u8,
    /// Reason for which a requested real-time policy was not available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Longest delay of a sched-other thread's timers by the kernel, in ns; it does not apply to
    /// real-time threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer_slack_ns: Option<u64>,
}

/// Scheduling policies of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulingPolicy {
    /// `SCHED_FIFO`.
    Fifo,
    /// `SCHED_OTHER`.
    Other,
}
