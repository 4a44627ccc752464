//! Accuracy of the functions by which programs on this host wait: overshoot beyond the requested
//! delay under each scheduling and timer slack, and the validity of common claims on this host.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, LimitResult, SchedulingPolicy, TickFacts};

/// The schema's name and version.
pub const HOST_DELAY_SCHEMA: &str = "horolog.host-delay/2";

/// Result for the delays of one host.
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
    /// Median of the time between two consecutive clock readings: the measurement's own cost, which
    /// every overshoot contains.
    pub own_cost_ns: u64,
    /// Settings under which delays were measured.
    pub settings: Vec<DelaySetting>,
    /// Measurements of every function at every delay under every setting.
    pub cells: Vec<DelayCell>,
    /// `nanosleep` under signals.
    pub interrupted: Vec<InterruptedDelay>,
    /// Common claims and their verdicts.
    pub claims: Vec<DelayClaim>,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Settings of the timer slack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DelaySlack {
    /// Slack inherited by this process.
    Default,
    /// Least possible slack, 1 ns.
    Minimal,
}

/// Scheduling and timer slack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelaySetting {
    /// Scheduling policy.
    pub policy: SchedulingPolicy,
    /// Kind of slack.
    pub slack: DelaySlack,
    /// Slack in ns, if the kernel reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slack_ns: Option<u64>,
    /// Reason for which nothing was measured under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Functions to wait by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DelayKind {
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

impl DelayKind {
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

    /// Granularity of a requested delay, in ns.
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
pub struct DelayCell {
    /// Function.
    pub function: DelayKind,
    /// Index of the setting.
    pub setting: usize,
    /// Requested delay.
    pub requested_ns: u64,
    /// Waits that ended too early.
    pub early: u64,
    /// Largest amount by which a wait ended too early.
    pub early_max_ns: u64,
    /// Overshoot, counting early waits as 0; absent if nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overshoot_ns: Option<Distribution>,
    /// CPU time of one wait, in ns; absent if a separate process waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_ns: Option<f64>,
    /// Reason for a missing or incomplete measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Ways in which a program resumes when a signal ends its `nanosleep`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resumption {
    /// No resumption: the wait counts as complete.
    None,
    /// Wait for the remaining time reported by the kernel.
    Remaining,
    /// Wait until the same instant again, by `clock_nanosleep`.
    Absolute,
    /// Wait for the whole delay again.
    Again,
}

/// Delay interrupted by signals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterruptedDelay {
    /// Way in which the program resumes.
    pub resumption: Resumption,
    /// Requested delay.
    pub requested_ns: u64,
    /// Duration; for a wait that never ended, until it was abandoned.
    pub duration_ns: u64,
    /// True if it ended by itself.
    pub ended: bool,
    /// Signals that ended a call.
    pub interruptions: u64,
    /// Calls made.
    pub calls: u64,
    /// CPU time of all calls.
    pub processor_ns: u64,
}

/// Common claim about clocks and delays on Linux.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayClaim {
    /// Stable short name.
    pub id: String,
    /// Text of the claim.
    pub statement: String,
    /// Verdict on this host.
    pub verdict: ClaimVerdict,
    /// Value that decides it, or the reason for its absence.
    pub evidence: String,
}

/// Verdicts on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimVerdict {
    /// The claim holds.
    Holds,
    /// The claim does not hold.
    Fails,
    /// The required values were not measured in this run.
    NotMeasured,
    /// Another command measures it.
    Elsewhere,
}
