//! What a simulation comes to, with what its figures mean.
//!
//! The error of a clock is looked at once a second, at an instant within the second that is drawn
//! for each. *In service* are the seconds from the first in which the servo says that it is locked,
//! without those of outages and the [`SETTLING_S`] after each; mean, deviation, percentiles and the
//! largest excursion are of these, for both methods. An outage is *recovered* from in the second
//! from which on the error stays within [`RECOVERED_NS`] for as long.

use std::collections::BTreeMap;

use horolog_stats::Spread;
use horolog_stats::allan::{self, AllanPoint};

use super::settings::Period;
use crate::State;

/// Seconds after an outage that are judged as recovery.
pub const SETTLING_S: u64 = 60;
/// An error that is no larger is that of a clock which has recovered, in ns.
pub const RECOVERED_NS: i64 = 1_000;

/// Both clocks in one second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// The error of the time by our method, in ns.
    pub ours_ns: i64,
    /// The error of the clock that is set at every pulse, in ns.
    pub theirs_ns: i64,
    /// Standard deviation of our error by our own estimate, in ns.
    pub uncertainty_ns: Option<f64>,
    /// The state of the servo.
    pub state: State,
}

/// What became of an outage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// When there was nothing.
    pub period: Period,
    /// The largest error in it, in ns.
    pub error_max_ns: i64,
    /// Seconds from its end until the clock had recovered; `None` where it did not.
    pub recovered_after_s: Option<u64>,
    /// The largest error after that, within [`SETTLING_S`] of the end, in ns.
    pub overshoot_ns: Option<i64>,
}

/// All that a simulation counted.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Outcome {
    /// One sample for each second.
    pub samples: Vec<Sample>,
    outages: Vec<Period>,
    /// What became of labelled pulses.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// Why pulses had no label.
    pub pulse_doubts: BTreeMap<&'static str, u64>,
    /// Why sentences did not count.
    pub sentence_doubts: BTreeMap<&'static str, u64>,
    /// Labels that were wrong.
    pub wrong_labels: u64,
    /// Steps of the clock.
    pub steps: u64,
}

impl Outcome {
    pub(super) fn new(outages: Vec<Period>) -> Self {
        Self { outages, ..Self::default() }
    }

    pub(super) fn take(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// The second in which the servo first said that it is locked.
    #[must_use]
    pub fn locked_after_s(&self) -> Option<usize> {
        self.samples.iter().position(|sample| sample.state == State::Locked)
    }

    /// An error of each second in service (see the module), and a gap for each other.
    #[must_use]
    pub fn in_service(&self, error: impl Fn(&Sample) -> i64) -> Vec<Option<i64>> {
        let Some(locked) = self.locked_after_s() else { return vec![None; self.samples.len()] };
        let mut errors: Vec<_> = self.samples.iter().map(|sample| Some(error(sample))).collect();
        errors[..locked].fill(None);
        for outage in &self.outages {
            let begin = (outage.begin_s as usize).min(errors.len());
            let end = outage.begin_s.saturating_add(outage.length_s).saturating_add(SETTLING_S);
            errors[begin..(end as usize).clamp(begin, self.samples.len())].fill(None);
        }
        errors
    }

    /// The figures of an error in service.
    #[must_use]
    pub fn spread(&self, error: impl Fn(&Sample) -> i64) -> Option<Spread> {
        Spread::of(self.in_service(error).into_iter().flatten())
    }

    /// The overlapping Allan deviation of an error in service, at octaves of a second, in ns for
    /// each second.
    #[must_use]
    pub fn allan(&self, error: impl Fn(&Sample) -> i64) -> Vec<AllanPoint> {
        let phases: Vec<_> = self.in_service(error);
        let phases: Vec<_> = phases.into_iter().map(|phase| phase.map(|ns| ns as f64)).collect();
        allan::octaves(&phases)
    }

    /// What became of the outages.
    #[must_use]
    pub fn outages(&self, error: impl Fn(&Sample) -> i64) -> Vec<Outage> {
        self.outages.iter().map(|period| self.outage(*period, &error)).collect()
    }

    fn outage(&self, period: Period, error: &impl Fn(&Sample) -> i64) -> Outage {
        let magnitudes: Vec<_> =
            self.samples.iter().map(|sample| error(sample).saturating_abs()).collect();
        let count = magnitudes.len();
        let begin = (period.begin_s as usize).min(count);
        let end = (period.begin_s.saturating_add(period.length_s) as usize).clamp(begin, count);
        let after = &magnitudes[end..];
        let settling = SETTLING_S as usize;
        let stays = |window: &[i64]| window.iter().all(|error| *error <= RECOVERED_NS);
        let recovered = after.windows(settling).position(stays);
        let overshoot = recovered.and_then(|second| after.get(second..settling)?.iter().max());
        Outage {
            period,
            error_max_ns: magnitudes[begin..end].iter().copied().max().unwrap_or_default(),
            recovered_after_s: recovered.map(|seconds| seconds as u64),
            overshoot_ns: overshoot.copied(),
        }
    }
}
