//! Result of `horolog clock compare`: offsets and frequency differences between the system clock
//! and other clocks of its host.

use serde::{Deserialize, Serialize};

use crate::{AllanDeviation, ClockDrift, ExactSummary, Finding, Host, LimitResult};

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
    /// Time between readings, in ns.
    pub interval_ns: u64,
    /// Number of planned readings of each clock.
    pub count: u64,
    /// Clocks, in the order of the command line.
    pub clocks: Vec<ComparedClock>,
    /// Steps of the system clock during the run; at most the first 1,000.
    pub steps: Vec<ClockStep>,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Comparison of one clock with the system clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedClock {
    /// Name, as on the command line.
    pub name: String,
    /// Kind of clock.
    pub kind: ComparedClockKind,
    /// True if the clock has an arbitrary epoch, so that offsets are relative to the first one.
    pub from_first: bool,
    /// Readings that failed or had no pulse.
    pub missed: u64,
    /// Error of the last failed reading; absent if none failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Summary of the offset, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset_ns: Option<ExactSummary>,
    /// Summary of the error bounds of the readings that have one, in ns; absent if none has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_bound_ns: Option<ExactSummary>,
    /// Frequency of the system clock relative to this clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<ClockDrift>,
    /// Overlapping Allan deviation of the offset, at octaves of the interval.
    pub allan: Vec<AllanDeviation>,
    /// Readings.
    pub samples: Vec<ClockSample>,
}

/// Kinds of compared clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComparedClockKind {
    /// Another clock of the kernel.
    Kernel,
    /// A PTP hardware clock.
    Phc,
    /// Pulse-per-second signal (RFC 2783), which gives only the fraction of a second.
    Pps,
}

/// One reading of a compared clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockSample {
    /// Number of the reading's interval since the start of the run.
    pub slot: u64,
    /// Time of the reading by the system clock, in ns since 1970.
    pub at_ns: i64,
    /// Offset of the system clock, positive if ahead, in ns.
    pub offset_ns: i64,
    /// Error bound of the offset, in ns: half the time between the two readings of the system clock
    /// around it. Absent if the offset comes from the kernel's timestamp of a pulse alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_bound_ns: Option<u64>,
}

/// Step of the system clock relative to `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockStep {
    /// Number of the interval, since the start of the run, at whose end the step was detected.
    pub slot: u64,
    /// Size of the step, in ns.
    pub step_ns: i64,
}
