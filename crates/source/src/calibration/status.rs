//! Status of the calibration.

use std::borrow::Cow;
use std::collections::BTreeMap;

use horolog_discipline::{
    PulseOffsetHistory, PulseRejectReason, PulseVerdict, SentenceRejectReason, SynchronisationState,
};
use serde::{Deserialize, Serialize};

use crate::{NoFix, SampleOutputStatus, SentenceError};

/// Allan deviation at one averaging time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct AllanDeviationAtTau {
    /// Averaging time, in seconds.
    pub tau_s: usize,
    /// Allan deviation, in parts per billion.
    pub deviation_ppb: f64,
}

/// Calibration in the output of `horolog status`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CalibrationStatus {
    /// Name: the inputs of sentences and pulses.
    pub name: String,
    /// Synchronisation state; `coarse` without a pulse input while sentences agree.
    pub state: Cow<'static, str>,
    /// Reason why there is no time at present; absent if there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// System clock minus UTC, in nanoseconds; absent if there is no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset_ns: Option<i64>,
    /// Standard deviation of the offset in nanoseconds; without a pulse input, its error bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncertainty_ns: Option<f64>,
    /// Free-running frequency error of the clock, relative to UTC, in parts per billion; absent
    /// while there is no estimate by pulses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_ppb: Option<f64>,
    /// Standard deviation of the pulses' noise, in nanoseconds; absent until enough pulses have
    /// arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise_ns: Option<f64>,
    /// Allan deviations of the system clock against the pulses, over the last hours.
    pub allan: Vec<AllanDeviationAtTau>,
    /// True if the system clock is steered.
    pub controls_clock: bool,
    /// True if steering is suspended because the majority of the sources contradicts the
    /// calibration.
    pub control_suspended: bool,
    /// Time in holdover so far, in seconds; absent in other states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holdover_s: Option<f64>,
    /// Holdover limit, in seconds.
    pub holdover_limit_s: f64,
    /// Reason why the clock is no longer steered; absent if no error has ended the steering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_ended: Option<String>,
    /// Number of steps of the system clock.
    pub steps: u64,
    /// Counts of pulses by verdict or reject reason.
    pub pulses: NamedCounts,
    /// Counts of sentences by reject reason, and of accepted ones.
    pub sentences: NamedCounts,
    /// Last malformed sentence, with the reason; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected_sentence: Option<String>,
    /// Outputs to other programs.
    pub outputs: Vec<SampleOutputStatus>,
    /// TAI minus UTC in seconds, as reported by the receiver; absent if it is not confirmed, or
    /// contradicts the server's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tai_minus_utc_s: Option<i32>,
    /// Pending leap second, by the server's list, the receiver or the kernel: the operation, and
    /// the day at whose end it happens; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_leap: Option<String>,
    /// Rejected report of the receiver on leap seconds; absent if none is rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leap_rejection: Option<String>,
    /// Number of entries of the clock-error log that could not be written, or with which its full
    /// file could not be rotated; absent without a log.
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
pub(super) fn allan_deviations(stability: &PulseOffsetHistory) -> Vec<AllanDeviationAtTau> {
    let status = |(tau_s, deviation_ppb)| AllanDeviationAtTau { tau_s, deviation_ppb };
    let points = stability.clock_allan_deviations().into_iter();
    points.map(|point| (point.samples, point.deviation)).map(status).collect()
}

/// Counts by name; names without a count are omitted.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NamedCounts(BTreeMap<Cow<'static, str>, u64>);

impl NamedCounts {
    /// Adds one to a count.
    pub(crate) fn add(&mut self, name: &'static str) {
        self.set(name, self.get(name) + 1);
    }

    /// Sets a count that is maintained by another component; 0 leaves it unchanged.
    pub(super) fn set(&mut self, name: &'static str, count: u64) {
        if count > 0 {
            self.0.insert(name.into(), count);
        }
    }

    /// Returns true if nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the count of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Returns each count with its name.
    pub fn by_name(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_ref(), *count))
    }
}

impl FromIterator<(&'static str, u64)> for NamedCounts {
    fn from_iter<I: IntoIterator<Item = (&'static str, u64)>>(counts: I) -> Self {
        let counted = counts.into_iter().filter(|(_, count)| *count > 0);
        Self(counted.map(|(name, count)| (name.into(), count)).collect())
    }
}

/// Returns the name of a verdict in the status.
pub(super) const fn verdict_name(verdict: PulseVerdict) -> &'static str {
    match verdict {
        PulseVerdict::Accepted => "accepted",
        PulseVerdict::Acquiring => "awaited",
        PulseVerdict::Acquired => "acquired",
        PulseVerdict::Outlier => "outlier",
        PulseVerdict::Jump => "jump",
        PulseVerdict::Missing => "missing",
    }
}

pub(super) const fn pulse_reject_name(reject: PulseRejectReason) -> &'static str {
    match reject {
        PulseRejectReason::Repeated => "repeated",
        PulseRejectReason::Backwards => "backwards",
        PulseRejectReason::NoSecond => "no_second",
        PulseRejectReason::OffGrid(_) => "off_grid",
        PulseRejectReason::AfterGap => "after_gap",
        PulseRejectReason::Rate(_) => "rate",
        PulseRejectReason::Disputed => "disputed",
        PulseRejectReason::Unconfirmed => "unconfirmed",
        PulseRejectReason::Polarity(_) => "polarity",
        PulseRejectReason::LeapSecond => "leap_second",
    }
}

pub(super) const fn sentence_reject_name(reject: SentenceRejectReason) -> &'static str {
    match reject {
        SentenceRejectReason::Void => "void",
        SentenceRejectReason::LeapSecond => "leap_second",
        SentenceRejectReason::Repeated => "repeated",
        SentenceRejectReason::NoPulse => "no_pulse",
        SentenceRejectReason::Pulse(_) => "pulse",
        SentenceRejectReason::Lag(_) => "lag",
        SentenceRejectReason::Disagrees(_) => "disagrees",
        SentenceRejectReason::Implausible(reason) => reason.name(),
    }
}

pub(super) const fn sentence_error_name(error: SentenceError) -> &'static str {
    match error {
        SentenceError::NoFix(_, NoFix::NoTimeYet | NoFix::Void) => "void",
        SentenceError::NoFix(_, NoFix::NotValid) => "not_valid",
        SentenceError::NoFix(_, NoFix::Estimated) => "estimated",
        SentenceError::NoFix(_, NoFix::Manual) => "manual",
        SentenceError::NoFix(_, NoFix::Simulated) => "simulated",
        SentenceError::NoTime => "no_time",
        SentenceError::Unreadable(_) => "unreadable",
    }
}
