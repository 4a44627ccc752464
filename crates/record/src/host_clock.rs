//! Result of `horolog host clock`: clocks of this host with their tick, reading costs, relative
//! rates and discipline, and the causes of wake-up latency. Facts that a host lacks or does not
//! report are absent, with a reason if known.

use serde::{Deserialize, Serialize};

use crate::{Finding, Host, LeapState};

/// The schema's name and version.
pub const HOST_CLOCK_SCHEMA: &str = "horolog.host-clock/2";

/// Result for the clocks of one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostClockResult {
    /// [`HOST_CLOCK_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339 in UTC.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host of the run.
    pub host: Host,
    /// Periodic timer interrupt (tick) and its counter (jiffies).
    pub tick: TickFacts,
    /// Clocksource of the kernel's clock.
    pub clocksource: ClocksourceFacts,
    /// All clocks and functions that return the time.
    pub clocks: Vec<ClockFacts>,
    /// Cost of one reading by a bare system call, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_call_ns: Option<f64>,
    /// Duration of the rate measurement, in ns by `CLOCK_MONOTONIC`.
    pub observed_ns: u64,
    /// Monotonicity of the clock across cores; absent on a single core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<CoreMonotonicity>,
    /// Real-time clocks; empty if the host has none.
    pub rtcs: Vec<RtcFacts>,
    /// PTP hardware clocks; empty if the host has none.
    pub phcs: Vec<PhcFacts>,
    /// Discipline of the system clock by the kernel (adjtimex(2)); absent if reading it is not
    /// permitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelDiscipline>,
    /// Causes of wake-up latency.
    pub waking: WakeupFacts,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Periodic timer interrupt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TickFacts {
    /// Ticks per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hz: Option<u32>,
    /// Source of `hz`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_by: Option<TickRateSource>,
    /// Kernel configuration file that states `hz`; absent for other sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_file: Option<String>,
    /// Tick period in ns: 10⁹ / `hz`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick_ns: Option<u64>,
    /// Smallest observed step of the coarse clock, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick_measured_ns: Option<u64>,
    /// Resolution of the coarse clock as reported by the kernel, in ns; equal to its tick period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coarse_resolution_ns: Option<u64>,
    /// Kernel configuration of when cores stop the tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<TickMode>,
    /// True if high-resolution timers are active, which are finer than a tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_resolution: Option<bool>,
    /// `USER_HZ`: unit of times in `/proc`, per second; independent of `hz`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_hz: Option<u32>,
    /// Value of the kernel's `jiffies`, which start 300 seconds before 2³² ticks; absent without
    /// the privilege to read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jiffies: Option<u64>,
    /// Bits of the kernel's `jiffies` (an `unsigned long`).
    pub jiffies_bits: u32,
    /// Days until 32 bits of ticks wrap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrap_32_days: Option<f64>,
    /// Days until 64 bits of ticks wrap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrap_64_days: Option<f64>,
    /// Days from now until the low 32 bits of `jiffies` wrap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_wrap_32_days: Option<f64>,
}

/// Sources of the tick rate `HZ`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TickRateSource {
    /// `CONFIG_HZ` in the configuration of the running kernel.
    Config,
    /// Resolution of the coarse clock as reported by the kernel; the clock advances once per tick.
    Resolution,
    /// Steps of the coarse clock as observed.
    Measured,
}

/// Configurations of when a core stops its tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TickMode {
    /// Never (`CONFIG_HZ_PERIODIC`).
    Periodic,
    /// While they are idle (`CONFIG_NO_HZ_IDLE`).
    Idle,
    /// Also while only one task runs, on cores named at boot (`CONFIG_NO_HZ_FULL`).
    Full,
}

/// Clocksource of the kernel's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClocksourceFacts {
    /// Clocksource in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// Available clocksources.
    pub available: Vec<String>,
    /// CPU flags of the time stamp counter (TSC), such as `constant_tsc`.
    pub tsc_flags: Vec<String>,
}

/// Clock or function that returns the time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockFacts {
    /// `CLOCK_...` without the prefix, or the function's name.
    pub name: String,
    /// Reason why the clock could not be read; absent if it could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Resolution as reported by the kernel, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution_ns: Option<u64>,
    /// Smallest observed step forward, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_ns: Option<u64>,
    /// Cost of one reading, in ns: the median of several batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_ns: Option<f64>,
    /// True if it is read through the vDSO without a system call, inferred from its cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_vdso: Option<bool>,
    /// Rate relative to `CLOCK_MONOTONIC`, in ppm; positive if faster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_ppm: Option<f64>,
    /// Error bound of the rate, in ppm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_error_bound_ppm: Option<f64>,
}

/// Monotonicity of a clock that is read on all cores in turn, so that consecutive readings come
/// from different cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreMonotonicity {
    /// Number of cores that were read.
    pub cores: usize,
    /// Readings that followed one on another core.
    pub handoffs: u64,
    /// Readings earlier than a preceding one.
    pub backwards: u64,
    /// Largest of these backward steps, in ns.
    pub backwards_max_ns: u64,
}

/// Real-time clock, which runs while the host is off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RtcFacts {
    /// Name, such as `rtc0`.
    pub name: String,
    /// Name of its driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// True if the kernel set the system clock from this RTC at boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_system_clock: Option<bool>,
    /// Offset of the system clock from the RTC in ns, positive if ahead; measured when the RTC's
    /// second changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_ahead_ns: Option<i64>,
    /// Error bound of that offset, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_bound_ns: Option<u64>,
    /// Reason for a failed reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Properties of a PTP hardware clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhcFacts {
    /// Device, such as `/dev/ptp0`.
    pub device: String,
    /// Name given by its driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_name: Option<String>,
    /// Offset of the system clock (UTC) from the PHC in ns, positive if ahead, without correction
    /// for the timescale of the PHC: a PHC on TAI is itself ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_ahead_ns: Option<i64>,
    /// Error bound of that offset, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_bound_ns: Option<u64>,
    /// Reason for a failed reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// State of the system clock's discipline in the kernel (adjtimex(2)).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelDiscipline {
    /// True if a program disciplines it and has reported so.
    pub synchronised: bool,
    /// Pending leap second.
    pub leap: LeapState,
    /// Frequency correction in force, in parts per billion.
    pub frequency_ppb: f64,
    /// Error bound (`maxerror`) in ns, which grows by 500 ppm until it is set again.
    pub maximum_error_ns: i64,
    /// Estimated error (`esterror`), in ns.
    pub estimated_error_ns: i64,
    /// TAI minus UTC, in seconds; 0 if never set.
    pub tai_offset_s: i32,
}

/// Settings and events that increase wake-up latency.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WakeupFacts {
    /// Timer slack: longest delay of a sched-other thread's timers by the kernel, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer_slack_ns: Option<u64>,
    /// `cpufreq` governors in use, without duplicates.
    pub governors: Vec<String>,
    /// `cpuidle` driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_driver: Option<String>,
    /// Idle states of the first core, lightest first.
    pub idle_states: Vec<IdleState>,
    /// Name of the hypervisor; absent if none is reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<String>,
    /// Share of all cores' time that the hypervisor took during the run (steal).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen_share: Option<f64>,
    /// Offset of `CLOCK_MONOTONIC` in the time namespace of this process, in ns.
    pub namespace_monotonic_ns: i64,
    /// Offset of `CLOCK_BOOTTIME` in the time namespace of this process, in ns.
    pub namespace_boottime_ns: i64,
}

/// Idle state of a core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleState {
    /// Name, such as `C1E`.
    pub name: String,
    /// Exit latency, in ns.
    pub exit_latency_ns: u64,
    /// True if it was disabled.
    pub disabled: bool,
}
