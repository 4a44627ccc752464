//! Result of `horolog host interrupt`: latency of handlers after a timer's expiry, and the time
//! taken from a thread that uses all of a core (OS noise).

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, HostConditions, LimitResult, ThreadScheduling};

/// The schema's name and version.
pub const HOST_INTERRUPT_SCHEMA: &str = "horolog.host-interrupt/2";

/// Result of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostInterruptResult {
    /// [`HOST_INTERRUPT_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host of the run.
    pub host: Host,
    /// Host conditions held constant during the run.
    pub conditions: HostConditions,
    /// Expiries per repetition.
    pub expiries: u64,
    /// Shortest distance from a handler to the next expiry, in ns.
    pub distance_min_ns: u64,
    /// Longest such distance; it is random between the two.
    pub distance_max_ns: u64,
    /// Cost of one clock reading, in ns: every delay includes it.
    pub clock_ns: u64,
    /// One entry per core and kind of handler.
    pub handlers: Vec<HandlerDelay>,
    /// OS noise of each core; empty if not measured.
    pub os_noise: Vec<OsNoise>,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// One kind of handler on one core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HandlerDelay {
    /// The core.
    pub core: usize,
    /// Kind of handler.
    pub kind: HandlerKind,
    /// Scheduling of the thread in which it ran, or that armed the kernel's timer.
    pub scheduling: ThreadScheduling,
    /// The repetitions.
    pub repetitions: Vec<HandlerRepetition>,
    /// From the expiry to the first clock reading in the handler, in ns, of all repetitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<Distribution>,
    /// Handlers that ran on another core.
    pub elsewhere: u64,
    /// Reason for a missing measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Handlers of a timer's expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HandlerKind {
    /// Callback in the kernel (`bpf_timer`), in the soft interrupt after the timer's own.
    Kernel,
    /// Signal handler of a waiting thread (`timer_create`, `sigsuspend`).
    Signal,
    /// Thread that waits in read(2) (`timerfd`).
    Timerfd,
}

/// One repetition.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HandlerRepetition {
    /// Expiries whose handler ran.
    pub count: u64,
    /// Mean of the delays, in ns.
    pub mean_ns: f64,
    /// 99th percentile of the delays, in ns.
    pub p99_ns: u64,
    /// Largest delay, in ns.
    pub max_ns: u64,
}

/// OS noise: time taken from a sched-other thread that spun on one core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OsNoise {
    /// The core.
    pub core: usize,
    /// Duration of the spin, in ns.
    pub duration_ns: u64,
    /// Undisturbed time of one loop iteration, in ns: the median.
    pub turn_ns: u64,
    /// Iteration time in ns above which the loop was interrupted: a gap.
    pub threshold_ns: u64,
    /// All gaps.
    pub all: OsNoiseShare,
    /// Gaps in which another thread ran, by the kernel's count of switches.
    pub by_threads: OsNoiseShare,
    /// Other gaps: interrupts, system management, the hypervisor.
    pub by_others: OsNoiseShare,
    /// Length of each gap, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_ns: Option<Distribution>,
    /// Longest gaps, longest first.
    pub longest: Vec<OsNoiseGap>,
    /// Time for which the thread waited for the core by the scheduler's count (`schedstat`), in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_delay_ns: Option<u64>,
    /// Time that the hypervisor reports as given to others (`steal` in `/proc/stat`), in ns, in
    /// steps of a tick of that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal_ns: Option<u64>,
    /// Interrupts on the core (`/proc/interrupts`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<u64>,
    /// System management interrupts (MSR 0x34 of Intel CPUs).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_management: Option<u64>,
}

/// Group of gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsNoiseShare {
    /// Number of gaps.
    pub gaps: u64,
    /// Total length, in ns.
    pub total_ns: u64,
    /// Longest gap, in ns.
    pub max_ns: u64,
}

/// One gap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OsNoiseGap {
    /// Start of the gap, in seconds of the run.
    pub at_s: f64,
    /// Length of the gap, in ns.
    pub length_ns: u64,
    /// True if another thread ran in it.
    pub by_threads: bool,
}
