//! What the functions deliver by which programs on this host wait: how much later than asked for
//! they return, under each scheduling and timer slack, and which of the things that are commonly
//! said of them hold here.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, LimitResult, SchedulingPolicy, TickFacts};

/// The schema's name and version.
pub const HOST_DELAY_SCHEMA: &str = "horolog.host-delay/1";

/// The delays of one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostDelayResult {
    /// [`HOST_DELAY_SCHEMA`].
    pub schema: String,
    /// When the run began, as RFC 3339 in UTC.
    pub started: String,
    /// The command line.
    pub command: Vec<String>,
    /// The machine.
    pub host: Host,
    /// The periodic timer interrupt.
    pub tick: TickFacts,
    /// What two readings of the clock around nothing show, the median: the measurement's own cost,
    /// which is in every overshoot.
    pub own_cost_ns: u64,
    /// The settings under which delays were measured.
    pub settings: Vec<DelaySetting>,
    /// Every function at every delay under every setting.
    pub cells: Vec<DelayCell>,
    /// `nanosleep` under signals.
    pub interrupted: Vec<InterruptedDelay>,
    /// What is commonly said, and what holds.
    pub claims: Vec<Claim>,
    /// The limits that the run was held against.
    pub limits: Vec<LimitResult>,
    /// Doubts.
    pub findings: Vec<Finding>,
}

/// By how much the kernel may delay timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DelaySlack {
    /// As this process inherited it.
    Default,
    /// The least there is, 1 ns.
    Minimal,
}

/// A scheduling and a timer slack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelaySetting {
    /// The scheduling.
    pub policy: SchedulingPolicy,
    /// Which slack.
    pub slack: DelaySlack,
    /// The same in ns, where the kernel tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slack_ns: Option<u64>,
    /// Why nothing was measured under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A function to wait by.
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
    /// `clock_nanosleep(2)` for a time.
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
    /// A timer's descriptor.
    Timerfd,
    /// A timeout of an `io_uring`.
    IoUring,
}

impl DelayKind {
    /// All of them, the coarsest first.
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

    /// Its name in a file and on the command line.
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

    /// The step in which a delay can be asked for, in ns.
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

/// One function at one delay under one setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DelayCell {
    /// The function.
    pub function: DelayKind,
    /// The index of the setting.
    pub setting: usize,
    /// The delay that was asked for.
    pub requested_ns: u64,
    /// Waits that ended before their time.
    pub early: u64,
    /// By how much at most.
    pub early_max_ns: u64,
    /// By how much later they ended, the early ones by 0; absent where nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overshoot_ns: Option<Distribution>,
    /// Processor time of one wait, in ns; absent where a process of its own waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_ns: Option<f64>,
    /// Why nothing, or less, was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a program goes on when a signal ends its `nanosleep`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resumption {
    /// Not at all: it takes the wait for done.
    None,
    /// It waits for what the kernel says is left.
    Remaining,
    /// It waits for the same instant again, by `clock_nanosleep`.
    Absolute,
    /// It asks for the whole delay again.
    Again,
}

/// A delay that signals interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterruptedDelay {
    /// How the program goes on.
    pub resumption: Resumption,
    /// The delay that was asked for.
    pub requested_ns: u64,
    /// How long it took; of one that never came to an end, until it was given up.
    pub took_ns: u64,
    /// Whether it came to an end by itself.
    pub ended: bool,
    /// Signals that ended a call.
    pub interruptions: u64,
    /// Calls that were made.
    pub calls: u64,
    /// Processor time of all of it.
    pub processor_ns: u64,
}

/// Something that is commonly said of clocks and delays on Linux.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// A short name that stays.
    pub id: String,
    /// What is said.
    pub says: String,
    /// Whether it holds here.
    pub verdict: ClaimVerdict,
    /// The figure that shows it, or why there is none.
    pub figure: String,
}

/// Whether a claim holds on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimVerdict {
    /// It does.
    Holds,
    /// It does not.
    Fails,
    /// What it takes to see was not measured in this run.
    NotMeasured,
    /// Another command shows it.
    Elsewhere,
}
