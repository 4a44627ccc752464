//! What a measurement of this host's scheduler held still, and what it was not allowed to.

use serde::{Deserialize, Serialize};

/// What was arranged for the whole process while it measured; all of it is taken back at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostConditions {
    /// Whether the process's memory was locked into RAM.
    pub memory_locked: bool,
    /// Why it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_error: Option<String>,
    /// The longest wake-up from an idle state that `/dev/cpu_dma_latency` was held at, in µs;
    /// absent where it was left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_dma_latency_us: Option<u32>,
    /// Why that was not to be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_dma_latency_error: Option<String>,
    /// The driver of the idle states; absent where the kernel has none to choose from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_driver: Option<String>,
    /// The idle states of the first processor, by name.
    pub idle_states: Vec<String>,
    /// How long real-time threads may run in each period before the kernel takes the core away
    /// (`sched_rt_runtime_us`), in µs; absent where there is no such bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real_time_runtime_us: Option<u64>,
    /// That period, in µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real_time_period_us: Option<u64>,
}

/// How the measuring threads were scheduled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadScheduling {
    /// The policy in force.
    pub policy: SchedulingPolicy,
    /// The real-time priority, 1 to 99; 0 for an ordinary thread.
    pub priority: u8,
    /// Why a real-time policy that was asked for was not to be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// By how much the kernel may delay timers of an ordinary thread, in ns; it does not apply to
    /// real-time ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer_slack_ns: Option<u64>,
}

/// The scheduling policies that are measured under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulingPolicy {
    /// `SCHED_FIFO`.
    Fifo,
    /// `SCHED_OTHER`.
    Other,
}
