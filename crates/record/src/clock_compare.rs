//! The result of `horolog clock compare`: how far the system clock is from other clocks of its
//! machine, and how their frequencies differ.

use serde::{Deserialize, Serialize};

use crate::{AllanDeviation, Drift, Figures, Finding, Host, LimitResult};

/// The schema's name and version.
pub const CLOCK_COMPARE_SCHEMA: &str = "horolog.clock-compare/1";

/// A whole comparison. Offsets are how far the system clock (`CLOCK_REALTIME`) is ahead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockCompareResult {
    /// [`CLOCK_COMPARE_SCHEMA`].
    pub schema: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine whose clocks they are.
    pub host: Host,
    /// Time from one reading to the next, in ns.
    pub interval_ns: u64,
    /// Readings of each clock that were due until the end.
    pub count: u64,
    /// The clocks, in the order in which they were asked for.
    pub clocks: Vec<ComparedClock>,
    /// Steps of the system clock that came in the run.
    pub steps: Vec<ClockStep>,
    /// The limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Doubts about the figures.
    pub findings: Vec<Finding>,
}

/// One clock beside the system clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedClock {
    /// Its name, as it was asked for.
    pub name: String,
    /// What it is.
    pub kind: ComparedKind,
    /// Whether it has an epoch of its own, so that offsets are counted from the first one.
    pub from_first: bool,
    /// Readings that failed or had no pulse.
    pub missed: u64,
    /// Why the last one failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Figures of the offset, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset_ns: Option<Figures>,
    /// Figures of the doubt of a reading, in ns; absent where none can be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt_ns: Option<Figures>,
    /// How fast the system clock gains on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// The overlapping Allan deviation of the offset, at octaves of the interval.
    pub allan: Vec<AllanDeviation>,
    /// The readings.
    pub samples: Vec<ClockSample>,
}

/// What a compared clock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComparedKind {
    /// Another clock of the kernel's.
    Kernel,
    /// A PTP hardware clock.
    Phc,
    /// Pulses, which tell the fraction of a second alone.
    Pps,
}

/// One reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockSample {
    /// Intervals from the start of the run.
    pub place: u64,
    /// When, by the system clock, in ns since 1970.
    pub at_ns: i64,
    /// How far the system clock was ahead, in ns.
    pub offset_ns: i64,
    /// Half the time between the readings of the system clock around it: the offset is off by no
    /// more. Absent where the kernel took the time of a pulse alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt_ns: Option<u64>,
}

/// A step of the system clock, as `CLOCK_MONOTONIC` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockStep {
    /// The interval at whose end it was seen, counted from the start of the run.
    pub place: u64,
    /// How far it went, in ns.
    pub step_ns: i64,
}
