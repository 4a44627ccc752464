//! The result of `horolog host interrupt`: how late handlers run behind a timer's expiry, and how
//! much of a core is taken from a thread that wants all of it.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, HostConditions, LimitResult, ThreadScheduling};

/// The schema's name and version.
pub const HOST_INTERRUPT_SCHEMA: &str = "horolog.host-interrupt/1";

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostInterruptResult {
    /// [`HOST_INTERRUPT_SCHEMA`].
    pub schema: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine.
    pub host: Host,
    /// What was held still meanwhile.
    pub conditions: HostConditions,
    /// Expiries of each repetition.
    pub expiries: u64,
    /// The shortest distance from a handler to the next expiry, in ns.
    pub distance_min_ns: u64,
    /// The longest; between them it is random.
    pub distance_max_ns: u64,
    /// What one reading of the clock costs, in ns: it is in every delay.
    pub clock_ns: u64,
    /// Each core and kind of handler.
    pub handlers: Vec<HandlerDelay>,
    /// What was taken from each core; empty where that was not looked for.
    pub stolen: Vec<StolenCore>,
    /// The limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Doubts about the figures.
    pub findings: Vec<Finding>,
}

/// One kind of handler on one core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HandlerDelay {
    /// The core.
    pub core: usize,
    /// What the handler is.
    pub kind: HandlerKind,
    /// How the thread was scheduled that it ran in, or that armed the kernel's timer.
    pub scheduling: ThreadScheduling,
    /// Each repetition.
    pub repetitions: Vec<HandlerRepetition>,
    /// From the expiry to the first reading of the clock in the handler, in ns, of all repetitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<Distribution>,
    /// Handlers that ran on another core.
    pub elsewhere: u64,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What runs when the timer expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HandlerKind {
    /// A callback in the kernel (`bpf_timer`), in the soft interrupt behind the timer's own.
    Kernel,
    /// A signal handler of a thread that waits (`timer_create`, `sigsuspend`).
    Signal,
    /// A thread that waits in read(2) (`timerfd`).
    Timerfd,
}

/// One repetition.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HandlerRepetition {
    /// Expiries whose handler ran.
    pub count: u64,
    /// The mean of the delays, in ns.
    pub mean_ns: f64,
    /// Their 99th percentile, in ns.
    pub p99_ns: u64,
    /// The largest, in ns.
    pub max_ns: u64,
}

/// What was taken from a thread that spun on one core as an ordinary one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StolenCore {
    /// The core.
    pub core: usize,
    /// How long the thread spun, in ns.
    pub duration_ns: u64,
    /// What one turn of its loop takes when nothing comes between, in ns: the median.
    pub turn_ns: u64,
    /// A turn that took longer than this, in ns, was interrupted: a gap.
    pub threshold_ns: u64,
    /// All of the gaps.
    pub all: StolenPart,
    /// Those in which another thread ran, as the kernel counts switches.
    pub by_threads: StolenPart,
    /// The others: interrupts, system management, the hypervisor.
    pub by_others: StolenPart,
    /// How long each gap was, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_ns: Option<Distribution>,
    /// The longest gaps, the longest first.
    pub longest: Vec<StolenGap>,
    /// How long the thread waited for the core by the scheduler's count (`schedstat`), in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_delay_ns: Option<u64>,
    /// What the hypervisor says that it gave to others (`steal` in `/proc/stat`), in ns, in steps
    /// of a tick of that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal_ns: Option<u64>,
    /// Interrupts that the core took (`/proc/interrupts`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<u64>,
    /// System management interrupts (MSR 0x34 of Intel's processors).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_management: Option<u64>,
}

/// A share of the gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StolenPart {
    /// How many.
    pub gaps: u64,
    /// How long together, in ns.
    pub total_ns: u64,
    /// The longest, in ns.
    pub max_ns: u64,
}

/// One gap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StolenGap {
    /// When it began, in seconds of the run.
    pub at_s: f64,
    /// How long it was, in ns.
    pub length_ns: u64,
    /// Whether another thread ran in it.
    pub by_threads: bool,
}
