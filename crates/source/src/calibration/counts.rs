//! How many pulses and sentences there were, by what became of them.

use std::collections::BTreeMap;

use horolog_discipline::{PulseDoubt, SentenceDoubt, Verdict};
use serde::Serialize;

/// Counts by a name.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
#[serde(transparent)]
pub struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    /// Counts one more.
    pub(super) fn add(&mut self, name: &'static str) {
        self.set(name, self.get(name) + 1);
    }

    /// Sets a count that somebody else keeps.
    pub(super) fn set(&mut self, name: &'static str, count: u64) {
        if count > 0 {
            self.0.insert(name, count);
        }
    }

    /// How many there were.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }
}

/// What the status calls it.
pub(super) const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Accepted => "accepted",
        Verdict::Awaited => "awaited",
        Verdict::Acquired => "acquired",
        Verdict::Outlier => "outlier",
        Verdict::Jump => "jump",
        Verdict::Missing => "missing",
    }
}

pub(super) const fn pulse_doubt(doubt: PulseDoubt) -> &'static str {
    match doubt {
        PulseDoubt::Repeated => "repeated",
        PulseDoubt::Backwards => "backwards",
        PulseDoubt::NoSecond => "no_second",
        PulseDoubt::OffGrid(_) => "off_grid",
        PulseDoubt::AfterGap => "after_gap",
        PulseDoubt::Rate(_) => "rate",
        PulseDoubt::Disputed => "disputed",
        PulseDoubt::Unconfirmed => "unconfirmed",
        PulseDoubt::Polarity(_) => "polarity",
        PulseDoubt::LeapSecond => "leap_second",
    }
}

pub(super) const fn sentence_doubt(doubt: SentenceDoubt) -> &'static str {
    match doubt {
        SentenceDoubt::Void => "void",
        SentenceDoubt::Fractional => "fractional",
        SentenceDoubt::LeapSecond => "leap_second",
        SentenceDoubt::Repeated => "repeated",
        SentenceDoubt::NoPulse => "no_pulse",
        SentenceDoubt::Pulse(_) => "pulse",
        SentenceDoubt::Lag(_) => "lag",
        SentenceDoubt::Disagrees(_) => "disagrees",
        SentenceDoubt::Rollover(_) => "rollover",
        SentenceDoubt::Past => "past",
    }
}
