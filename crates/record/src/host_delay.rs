//! Result of `horolog host delay`: accuracy of the functions by which programs wait on this host.
//! Contains their overshoot beyond the requested delay by scheduling policy and timer slack, and
//! tests common claims.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, LimitResult, SchedulingPolicy, TickFacts};

/// The schema's name and version.
pub const HOST_DELAY_SCHEMA: &str = "horolog.host-delay/2";

/// Accuracy of delays on one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostDelayResult {
    /// [`HOST_DELAY_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339 in UTC.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host of the run.
    pub host: Host,
    /// Periodic timer interrupt.
    pub tick: TickFacts,
    /// Median time between two consecutive clock readings, in ns: the cost of the measurement,
    /// which every overshoot includes.
    pub own_cost_ns: u64,
    /// Settings under which delays were measured.
    pub settings: Vec<DelaySetting>,
    /// One entry per function, delay and setting.
    pub cells: Vec<DelayMeasurement>,
    /// `nanosleep` under signals.
    pub interrupted: Vec<InterruptedDelay>,
    /// Common claims, tested on this host.
    pub claims: Vec<TestedDelayClaim>,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Settings of the timer slack (prctl(2), `PR_SET_TIMERSLACK`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimerSlackSetting {
    /// Slack inherited by this process.
    Default,
    /// Least possible slack, 1 ns.
    Minimal,
}

/// Setting under which delays are measured: scheduling policy and timer slack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelaySetting {
    /// Scheduling policy.
    pub policy: SchedulingPolicy,
    /// Setting of the timer slack.
    pub slack: TimerSlackSetting,
    /// Timer slack in ns; absent if the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slack_ns: Option<u64>,
    /// Reason why nothing was measured under this setting; absent if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Functions by which a program waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitFunction {
    /// sleep(3).
    Sleep,
    /// alarm(2) and pause(2).
    AlarmPause,
    /// usleep(3).
    Usleep,
    /// nanosleep(2).
    Nanosleep,
    /// `clock_nanosleep(2)` for a duration.
    ClockNanosleep,
    /// `clock_nanosleep(2)` until an instant.
    ClockNanosleepAbsolute,
    /// select(2).
    Select,
    /// poll(2).
    Poll,
    /// `epoll_wait`.
    EpollWait,
    /// `epoll_pwait2`.
    EpollPwait2,
    /// Timer file descriptor (`timerfd`).
    Timerfd,
    /// Timeout of an `io_uring`.
    IoUring,
}

impl WaitFunction {
    /// All variants, coarsest first.
    pub const ALL: [Self; 12] = [
        Self::Sleep,
        Self::AlarmPause,
        Self::Poll,
        Self::EpollWait,
        Self::Usleep,
        Self::Select,
        Self::Nanosleep,
        Self::ClockNanosleep,
        Self::ClockNanosleepAbsolute,
        Self::EpollPwait2,
        Self::Timerfd,
        Self::IoUring,
    ];

    /// Name in files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleep",
            Self::AlarmPause => "alarm-pause",
            Self::Usleep => "usleep",
            Self::Nanosleep => "nanosleep",
            Self::ClockNanosleep => "clock-nanosleep",
            Self::ClockNanosleepAbsolute => "clock-nanosleep-absolute",
            Self::Select => "select",
            Self::Poll => "poll",
            Self::EpollWait => "epoll-wait",
            Self::EpollPwait2 => "epoll-pwait2",
            Self::Timerfd => "timerfd",
            Self::IoUring => "io-uring",
        }
    }

    /// Returns the granularity of the function's argument, in ns.
    #[must_use]
    pub const fn unit_ns(self) -> u64 {
        match self {
            Self::Sleep | Self::AlarmPause => 1_000_000_000,
            Self::Poll | Self::EpollWait => 1_000_000,
            Self::Usleep | Self::Select => 1_000,
            _ => 1,
        }
    }
}

/// Measurement of one function at one delay under one setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DelayMeasurement {
    /// Function by which the thread waited.
    pub function: WaitFunction,
    /// Index of the setting in [`HostDelayResult::settings`].
    pub setting: usize,
    /// Requested delay, in ns.
    pub requested_ns: u64,
    /// Number of waits that ended before the requested delay.
    pub early: u64,
    /// Largest time by which a wait ended early, in ns.
    pub early_max_ns: u64,
    /// Overshoot beyond the requested delay in ns, 0 for early waits; absent if nothing was
    /// measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overshoot_ns: Option<Distribution>,
    /// CPU time of one wait, in ns; absent if a separate process waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_ns: Option<f64>,
    /// Reason why the measurement is missing or incomplete; absent if it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Strategies by which a program continues after a signal interrupts its `nanosleep`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterruptedSleepStrategy {
    /// No resumption: the wait counts as complete.
    None,
    /// Wait for the remaining time reported by the kernel.
    Remaining,
    /// Wait until the original end, by `clock_nanosleep` with an absolute time.
    Absolute,
    /// Wait for the whole delay again.
    Again,
}

/// Delay interrupted by signals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterruptedDelay {
    /// Strategy after an interruption.
    pub resumption: InterruptedSleepStrategy,
    /// Requested delay, in ns.
    pub requested_ns: u64,
    /// Actual duration in ns; if the wait never ended, the time after which it was abandoned.
    pub duration_ns: u64,
    /// True if the wait ended; false if it was abandoned.
    pub ended: bool,
    /// Number of calls that a signal interrupted.
    pub interruptions: u64,
    /// Number of calls.
    pub calls: u64,
    /// CPU time of all calls, in ns.
    pub processor_ns: u64,
}

/// Common claim about clocks and delays on Linux.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestedDelayClaim {
    /// Stable short name.
    pub id: String,
    /// Text of the claim.
    pub statement: String,
    /// Verdict on this host.
    pub verdict: DelayClaimVerdict,
    /// Measured value that decides the verdict, or the reason why there is none.
    pub evidence: String,
}

/// Verdicts on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DelayClaimVerdict {
    /// The claim holds.
    Holds,
    /// The claim does not hold.
    Fails,
    /// The required values were not measured in this run.
    NotMeasured,
    /// Not decided here: another command measures the required values.
    Elsewhere,
}
