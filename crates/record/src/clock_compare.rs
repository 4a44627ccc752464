//! Result of `horolog clock compare`: offset of the system clock from other clocks of its host, and
//! the differences of their frequencies.

use serde::{Deserialize, Serialize};

use crate::{AllanDeviation, Drift, ExactSummary, Finding, Host, LimitResult};

/// The schema's name and version.
pub const CLOCK_COMPARE_SCHEMA: &str = "horolog.clock-compare/2";

/// Result of one comparison. Offsets are positive if the system clock (`CLOCK_REALTIME`) is ahead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockCompareResult {
    /// [`CLOCK_COMPARE_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host of the clocks.
    pub host: Host,
    /// Time from one reading to the next, in ns.
    pub interval_ns: u64,
    /// Readings of each clock due until the end.
    pub count: u64,
    /// Clocks, in the order requested.
    pub clocks: Vec<ComparedClock>,
    /// Steps of the system clock during the run.
    pub steps: Vec<ClockStep>,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Comparison of one clock with the system clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedClock {
    /// Name, as requested.
    pub name: String,
    /// Kind of clock.
    pub kind: ComparedKind,
    /// True if it has its own epoch, so that offsets count from the first one.
    pub from_first: bool,
    /// Readings that failed or had no pulse.
    pub missed: u64,
    /// Error of the last failed reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Summary of the offset, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset_ns: Option<ExactSummary>,
    /// Summary of a reading's error bound, in ns; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_bound_ns: Option<ExactSummary>,
    /// Frequency gain of the system clock over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// Overlapping Allan deviation of the offset, at octaves of the interval.
    pub allan: Vec<AllanDeviation>,
    /// Readings.
    pub samples: Vec<ClockSample>,
}

/// Kinds of compared clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComparedKind {
    /// Another clock of the kernel.
    Kernel,
    /// A PTP hardware clock.
    Phc,
    /// Pulses, which give only the fraction of a second.
    Pps,
}

/// One reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockSample {
    /// Intervals from the start of the run.
    pub slot: u64,
    /// Time of the reading by the system clock, in ns since 1970.
    pub at_ns: i64,
    /// Offset of the system clock, positive if ahead, in ns.
    pub offset_ns: i64,
    /// Half the time between the readings of the system clock around it, the error bound of the
    /// offset. Absent if only the kernel timestamped a pulse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_bound_ns: Option<u64>,
}

/// Step of the system clock relative to `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockStep {
    /// Interval at whose end it was detected, counted from the start of the run.
    pub slot: u64,
    /// Size of the step, in ns.
    pub step_ns: i64,
}
