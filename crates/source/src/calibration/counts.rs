//! Counts of pulses and sentences by verdict or reject reason.

use std::collections::BTreeMap;

use horolog_discipline::{PulseReject, PulseVerdict, SentenceReject};
use serde::Serialize;

use crate::{NoFix, SentenceError};

/// Counts by name; names without a count are omitted.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
#[serde(transparent)]
pub struct NamedCounts(BTreeMap<&'static str, u64>);

impl NamedCounts {
    /// Adds one to a count.
    pub(crate) fn add(&mut self, name: &'static str) {
        self.set(name, self.get(name) + 1);
    }

    /// Sets a count that is maintained by another component.
    pub(super) fn set(&mut self, name: &'static str, count: u64) {
        if count > 0 {
            self.0.insert(name, count);
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

pub(super) const fn pulse_reject_name(reject: PulseReject) -> &'static str {
    match reject {
        PulseReject::Repeated => "repeated",
        PulseReject::Backwards => "backwards",
        PulseReject::NoSecond => "no_second",
        PulseReject::OffGrid(_) => "off_grid",
        PulseReject::AfterGap => "after_gap",
        PulseReject::Rate(_) => "rate",
        PulseReject::Disputed => "disputed",
        PulseReject::Unconfirmed => "unconfirmed",
        PulseReject::Polarity(_) => "polarity",
        PulseReject::LeapSecond => "leap_second",
    }
}

pub(super) const fn sentence_reject_name(reject: SentenceReject) -> &'static str {
    match reject {
        SentenceReject::Void => "void",
        SentenceReject::LeapSecond => "leap_second",
        SentenceReject::Repeated => "repeated",
        SentenceReject::NoPulse => "no_pulse",
        SentenceReject::Pulse(_) => "pulse",
        SentenceReject::Lag(_) => "lag",
        SentenceReject::Disagrees(_) => "disagrees",
        SentenceReject::Implausible(reason) => reason.name(),
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
