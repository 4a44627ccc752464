//! Conditions that were held constant during a measurement of a host's scheduler, and the reasons
//! for those that could not be.

use serde::{Deserialize, Serialize};

/// Conditions on the host during the measurement. Those that the measuring process set (locked
/// memory, idle states) are reverted at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostConditions {
    /// True if the process's memory was locked into RAM.
    pub memory_locked: bool,
    /// Reason why memory could not be locked; absent if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_error: Option<String>,
    /// Longest wake-up from an idle state to which `/dev/cpu_dma_latency` was held, in µs; absent
    /// if unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_dma_latency_us: Option<u32>,
    /// Reason why `/dev/cpu_dma_latency` could not be held; absent if it was, or was not to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_dma_latency_error: Option<String>,
    /// `cpuidle` driver; absent if the kernel has no idle states to choose from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_driver: Option<String>,
    /// Idle states of the first CPU, by name.
    pub idle_states: Vec<String>,
    /// Time for which real-time threads may run in each period before the kernel takes the core
    /// away (`sched_rt_runtime_us`), in µs; absent without such a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real_time_runtime_us: Option<u64>,
    /// Length of that period (`sched_rt_period_us`), in µs.
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
    /// Reason why a requested real-time policy was refused; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Timer slack: longest delay of a sched-other thread's timers by the kernel, in ns; without
    /// effect on real-time threads.
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
