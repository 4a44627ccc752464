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
    /// Host conditions in force during the run.
    pub conditions: HostConditions,
    /// Expiries per repetition.
    pub expiries: u64,
    /// Shortest distance from a handler to the next expiry, in ns.
    pub distance_min_ns: u64,
    /// Longest time between a handler and the next expiry, in ns; each is drawn at random between
    /// the two.
    pub distance_max_ns: u64,
    /// Cost of one clock reading, in ns; every measured delay includes one.
    pub clock_ns: u64,
    /// One entry per core and kind of handler.
    pub handlers: Vec<TimerHandlerLatency>,
    /// OS noise of each core; empty if not measured.
    pub os_noise: Vec<OsNoise>,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Latency of one kind of handler on one core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimerHandlerLatency {
    /// Core of the timer.
    pub core: usize,
    /// Kind of handler.
    pub kind: TimerHandlerKind,
    /// Scheduling of the handler's thread, or of the thread that armed the timer if the handler
    /// runs in the kernel.
    pub scheduling: ThreadScheduling,
    /// Repetitions, in order.
    pub repetitions: Vec<TimerHandlerRepetition>,
    /// From the expiry to the first clock reading in the handler, in ns, of all repetitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<Distribution>,
    /// Handlers that ran on another core.
    pub elsewhere: u64,
    /// Reason why it could not be measured; absent if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Handlers of a timer's expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimerHandlerKind {
    /// Kernel callback of a `bpf_timer`, in the softirq after the timer interrupt.
    Kernel,
    /// Signal handler of a thread that waits in `sigsuspend` (`timer_create`).
    Signal,
    /// Thread that waits in read(2) (`timerfd`).
    Timerfd,
}

/// One repetition of a measurement of handler latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimerHandlerRepetition {
    /// Expiries whose handler ran.
    pub count: u64,
    /// Mean of the delays, in ns.
    pub mean_ns: f64,
    /// 99th percentile of the delays, in ns.
    pub p99_ns: u64,
    /// Largest delay, in ns.
    pub max_ns: u64,
}

/// OS noise of one core: time taken from a sched-other thread that spins on it. A gap is an
/// iteration of the loop that takes longer than a threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OsNoise {
    /// Number of the core.
    pub core: usize,
    /// Duration of the spin, in ns.
    pub duration_ns: u64,
    /// Median duration of one loop iteration, in ns.
    pub turn_ns: u64,
    /// Duration of an iteration above which it counts as a gap, in ns.
    pub threshold_ns: u64,
    /// Summary of all gaps.
    pub all: OsNoiseGapSummary,
    /// Gaps in which another thread ran, by the kernel's count of switches.
    pub by_threads: OsNoiseGapSummary,
    /// Other gaps: interrupts, system management, the hypervisor.
    pub by_others: OsNoiseGapSummary,
    /// Length of each gap, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_ns: Option<Distribution>,
    /// The longest gaps, in descending order of length.
    pub longest: Vec<OsNoiseGap>,
    /// Time that the thread was runnable but not running (`schedstat`), in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_delay_ns: Option<u64>,
    /// Time that the hypervisor gave to other guests (`steal` in `/proc/stat`), in ns, with the
    /// resolution of that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal_ns: Option<u64>,
    /// Interrupts on the core (`/proc/interrupts`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<u64>,
    /// System management interrupts (MSR 0x34 of Intel CPUs).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_management: Option<u64>,
}

/// Summary of a group of gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsNoiseGapSummary {
    /// Number of gaps.
    pub gaps: u64,
    /// Total length, in ns.
    pub total_ns: u64,
    /// Longest gap, in ns.
    pub max_ns: u64,
}

/// One gap of OS noise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OsNoiseGap {
    /// Start of the gap, in seconds since the start of the run.
    pub at_s: f64,
    /// Length of the gap, in ns.
    pub length_ns: u64,
    /// True if another thread ran during the gap.
    pub by_threads: bool,
}
