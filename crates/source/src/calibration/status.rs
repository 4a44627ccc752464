//! Status of the calibration.

use horolog_discipline::{Stability, SynchronisationState};
use serde::Serialize;

use super::NamedCounts;
use crate::OutputStatus;

/// Allan deviation at one averaging time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct AllanStatus {
    /// Averaging time, in seconds.
    pub tau_s: usize,
    /// Allan deviation, in parts per billion.
    pub deviation_ppb: f64,
}

/// Calibration in the output of `horolog status`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CalibrationStatus {
    /// Name: the inputs of sentences and pulses.
    pub name: String,
    /// Synchronisation state; `coarse` without a pulse input while sentences agree.
    pub state: &'static str,
    /// Reason why there is no time at present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// System clock minus UTC, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset_ns: Option<i64>,
    /// Standard deviation of the offset in nanoseconds; without a pulse input, its error bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncertainty_ns: Option<f64>,
    /// Free-running frequency error of the clock, relative to UTC, in parts per billion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_ppb: Option<f64>,
    /// Standard deviation of the pulses' noise, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise_ns: Option<f64>,
    /// Allan deviations of the system clock against the pulses, over the last hours.
    pub allan: Vec<AllanStatus>,
    /// True if the system clock is steered.
    pub controls_clock: bool,
    /// True if steering is suspended because the majority of the sources contradicts the
    /// calibration.
    pub control_suspended: bool,
    /// Time in holdover so far, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holdover_s: Option<f64>,
    /// Holdover limit, in seconds.
    pub holdover_limit_s: f64,
    /// Reason why the clock is no longer steered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_ended: Option<String>,
    /// Number of steps of the system clock.
    pub steps: u64,
    /// Counts of pulses by verdict or reject reason.
    pub pulses: NamedCounts,
    /// Counts of sentences by reject reason, and of accepted ones.
    pub sentences: NamedCounts,
    /// Last malformed sentence, with the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected_sentence: Option<String>,
    /// Outputs to other programs.
    pub outputs: Vec<OutputStatus>,
    /// TAI minus UTC in seconds, as reported by the receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tai_minus_utc_s: Option<i32>,
    /// Pending leap second, by the server's list, the receiver or the kernel: the operation, and
    /// the day at whose end it happens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_leap: Option<String>,
    /// Rejected report of the receiver on leap seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leap_rejection: Option<String>,
    /// Entries of the clock-error log that could not be written, or with which its full file could
    /// not be rotated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_failures: Option<u64>,
    /// CPU that is reserved for the thread; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core: Option<usize>,
    /// True if the thread has real-time scheduling.
    pub real_time: bool,
}

/// Returns the name of a state in the status.
pub(super) const fn state_name(state: SynchronisationState) -> &'static str {
    match state {
        SynchronisationState::Starting => "starting",
        SynchronisationState::Locking => "locking",
        SynchronisationState::Locked => "locked",
        SynchronisationState::Holdover => "holdover",
        SynchronisationState::Unsynchronised => "unsynchronised",
    }
}

/// Returns the Allan deviations of the disciplined clock.
pub(super) fn allan_deviations(stability: &Stability) -> Vec<AllanStatus> {
    let status = |(tau_s, deviation_ppb)| AllanStatus { tau_s, deviation_ppb };
    let points = stability.clock_allan_deviations().into_iter();
    points.map(|point| (point.samples, point.deviation)).map(status).collect()
}
