//! What calibration tells of itself.

use horolog_discipline::{Stability, State};
use serde::Serialize;

use super::Counts;
use crate::OutputStatus;

/// The Allan deviation at one averaging time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct AllanStatus {
    /// The averaging time, in seconds.
    pub tau_s: usize,
    /// The deviation, in parts per billion.
    pub deviation_ppb: f64,
}

/// The calibration as `horolog status` shows it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CalibrationStatus {
    /// Where sentences and pulses come from.
    pub name: String,
    /// How well the clock is known; without a pulse `coarse` while sentences agree.
    pub state: &'static str,
    /// Why there is no time of it at present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How far the system clock is ahead of UTC, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset_ns: Option<i64>,
    /// Standard deviation of that in nanoseconds, or without a pulse its bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncertainty_ns: Option<f64>,
    /// How fast the clock would gain on UTC without any correction, in parts per billion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_ppb: Option<f64>,
    /// Standard deviation of the pulses' own noise, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise_ns: Option<f64>,
    /// Allan deviations of the system clock against the pulses, over the last hours.
    pub allan: Vec<AllanStatus>,
    /// Whether the system clock is steered.
    pub controls_clock: bool,
    /// Whether that rests because the majority of the sources contradicts the calibration.
    pub control_suspended: bool,
    /// How long the clock has held over, and may, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holdover_s: Option<f64>,
    /// See `holdover_s`.
    pub holdover_limit_s: f64,
    /// Why it is not steered any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_ended: Option<String>,
    /// Steps of the system clock that were made.
    pub steps: u64,
    /// Pulses by what became of them.
    pub pulses: Counts,
    /// Sentences by what became of them.
    pub sentences: Counts,
    /// What other programs are given.
    pub outputs: Vec<OutputStatus>,
    /// TAI minus UTC in seconds, as the receiver says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tai_minus_utc_s: Option<i32>,
    /// The leap second that is to come, by the server's list, the receiver or the kernel: what is
    /// done, and at the end of which day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_leap: Option<String>,
    /// What the receiver says of leap seconds that is not believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leap_doubt: Option<String>,
    /// Entries of the clock-error log that could not be written, or with which its full file could
    /// not be turned over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_failures: Option<u64>,
    /// The core that the thread has for itself; absent where it shares one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core: Option<usize>,
    /// Whether the thread goes before ordinary ones.
    pub real_time: bool,
}

/// What the status calls a state.
pub(super) const fn state_name(state: State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Locking => "locking",
        State::Locked => "locked",
        State::Holdover => "holdover",
        State::Unsynchronised => "unsynchronised",
    }
}

/// Allan deviations of the clock as it is kept.
pub(super) fn allan(stability: &Stability) -> Vec<AllanStatus> {
    let status = |(tau_s, deviation_ppb)| AllanStatus { tau_s, deviation_ppb };
    let points = stability.clock().into_iter();
    points.map(|point| (point.samples, point.deviation)).map(status).collect()
}
