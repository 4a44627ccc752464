//! What this host's clocks are and do: the tick behind them, what each costs to read, how fast they
//! run against each other, what steers them, and what delays the wake-up of who waits for them.
//! What a machine does not have or does not tell is absent, with the reason where there is one.

use serde::{Deserialize, Serialize};

use crate::{Finding, Host, LeapState};

/// The schema's name and version.
pub const HOST_CLOCK_SCHEMA: &str = "horolog.host-clock/1";

/// The clocks of one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostClockResult {
    /// [`HOST_CLOCK_SCHEMA`].
    pub schema: String,
    /// When the run began, as RFC 3339 in UTC.
    pub started: String,
    /// The command line.
    pub command: Vec<String>,
    /// The machine.
    pub host: Host,
    /// The periodic timer interrupt and what it counts.
    pub tick: TickFacts,
    /// Where the kernel's clock gets its time from.
    pub clocksource: ClocksourceFacts,
    /// Every clock and function that tells the time.
    pub clocks: Vec<ClockFacts>,
    /// Cost of one reading by a bare system call, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_call_ns: Option<f64>,
    /// For how long the rates were watched, in ns by `CLOCK_MONOTONIC`.
    pub watched_ns: u64,
    /// Whether the clock ever went back from one core to another; absent with one core alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<CoreOrder>,
    /// Real-time clocks; empty where the machine has none.
    pub rtcs: Vec<RtcFacts>,
    /// PTP hardware clocks; empty where the machine has none.
    pub phcs: Vec<PhcFacts>,
    /// The kernel's discipline of the system clock; absent where it may not be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelDiscipline>,
    /// What makes a wake-up late.
    pub waking: WakingFacts,
    /// Doubts.
    pub findings: Vec<Finding>,
}

/// The periodic timer interrupt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TickFacts {
    /// Ticks per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hz: Option<u32>,
    /// How that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_by: Option<HzSource>,
    /// The file that says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_file: Option<String>,
    /// Time from one tick to the next: 10⁹ over `hz`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick_ns: Option<u64>,
    /// The smallest step in which the coarse clock was seen to move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick_measured_ns: Option<u64>,
    /// What the kernel states as the coarse clock's resolution, which is its tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coarse_resolution_ns: Option<u64>,
    /// Whether idle or busy cores go without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<TickMode>,
    /// Whether timers are finer than a tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_resolution: Option<bool>,
    /// The unit of times in `/proc`, per second; a convention, not the timer's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_hz: Option<u32>,
    /// Ticks that the kernel has counted, from 300 seconds before 2³²; absent without privilege.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jiffies: Option<u64>,
    /// Bits of the kernel's `jiffies` (an `unsigned long`).
    pub jiffies_bits: u32,
    /// Days in which 32 bits of ticks are through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrap_32_days: Option<f64>,
    /// Days in which 64 bits of ticks are through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrap_64_days: Option<f64>,
    /// Days until the low 32 bits are 0 again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_wrap_32_days: Option<f64>,
}

/// How the number of ticks per second is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HzSource {
    /// `CONFIG_HZ` of the kernel's own configuration.
    Config,
    /// The stated resolution of the coarse clock, which moves once a tick.
    Resolution,
    /// The steps in which the coarse clock was seen to move.
    Measured,
}

/// When cores go without the tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TickMode {
    /// Never (`CONFIG_HZ_PERIODIC`).
    Periodic,
    /// While they are idle (`CONFIG_NO_HZ_IDLE`).
    Idle,
    /// Also while one task alone runs, on cores named at boot (`CONFIG_NO_HZ_FULL`).
    Full,
}

/// Where the kernel's clock gets its time from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClocksourceFacts {
    /// The one in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// Those that could be.
    pub available: Vec<String>,
    /// What the processor says of its time stamp counter, such as `constant_tsc`.
    pub tsc_flags: Vec<String>,
}

/// A clock or a function that tells the time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockFacts {
    /// `CLOCK_...` without the prefix, or the function's name.
    pub name: String,
    /// Why there is nothing to tell of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What it states as its resolution, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution_ns: Option<u64>,
    /// The smallest step forward that was seen, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_ns: Option<u64>,
    /// Cost of one reading, in ns: the median of several batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_ns: Option<f64>,
    /// Whether it is read without a system call, judged by its cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_vdso: Option<bool>,
    /// How much faster than `CLOCK_MONOTONIC` it ran, in ppm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_ppm: Option<f64>,
    /// The rate is off by no more than this, in ppm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_doubt_ppm: Option<f64>,
}

/// A clock read on all cores in turn, each reading after one of another core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreOrder {
    /// Cores that took part.
    pub cores: usize,
    /// Readings that followed one of another core.
    pub handed_over: u64,
    /// Readings that were earlier than one that came before.
    pub backwards: u64,
    /// The worst of these, in ns.
    pub backwards_max_ns: u64,
}

/// A real-time clock, which runs while the machine is off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RtcFacts {
    /// Such as `rtc0`.
    pub name: String,
    /// Its driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Whether the kernel set the system clock by it at boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_system_clock: Option<bool>,
    /// How far the system clock is ahead of it, in ns, taken at the change of its second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_ahead_ns: Option<i64>,
    /// That is off by no more than this, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt_ns: Option<u64>,
    /// Why it was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A PTP hardware clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhcFacts {
    /// Such as `/dev/ptp0`.
    pub device: String,
    /// What its driver calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_name: Option<String>,
    /// How far the system clock is ahead of it as it stands, in ns; one on TAI is ahead itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_ahead_ns: Option<i64>,
    /// That is off by no more than this, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt_ns: Option<u64>,
    /// Why it was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What the kernel knows of the system clock's discipline (adjtimex(2)).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelDiscipline {
    /// Some program disciplines it and has said so.
    pub synchronised: bool,
    /// The leap second to come.
    pub leap: LeapState,
    /// Correction of its frequency, in parts per billion.
    pub frequency_ppb: f64,
    /// Bound of its error, growing by 500 ppm since it was last given.
    pub maximum_error_ns: i64,
    /// The estimate of its error.
    pub estimated_error_ns: i64,
    /// TAI minus UTC; 0 where nobody set it.
    pub tai_offset_s: i32,
}

/// What makes a wake-up late.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WakingFacts {
    /// By how much timers of an ordinary thread may be late to join others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer_slack_ns: Option<u64>,
    /// Who chooses the processors' frequency; one entry for each kind in use.
    pub governors: Vec<String>,
    /// Who puts idle cores to sleep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_driver: Option<String>,
    /// How deep: the idle states of the first core, the lightest first.
    pub idle_states: Vec<IdleState>,
    /// What the machine runs under, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<String>,
    /// Share of all cores' time that the hypervisor took during the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen_share: Option<f64>,
    /// How far a time namespace moves `CLOCK_MONOTONIC` for this process, in ns.
    pub namespace_monotonic_ns: i64,
    /// The same for `CLOCK_BOOTTIME`.
    pub namespace_boottime_ns: i64,
}

/// A state in which a core may idle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleState {
    /// Its name, such as `C1E`.
    pub name: String,
    /// Time that it takes to leave it, in ns.
    pub exit_latency_ns: u64,
    /// Whether it was switched off.
    pub disabled: bool,
}
