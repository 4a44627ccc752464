//! Outcome of a simulation, with the meaning of its metrics.
//!
//! The error of a clock is sampled once a second, at a random instant within the second. The
//! seconds *in service* are those from the first in which the servo is locked, without outages and
//! the [`SETTLING_S`] after each; mean, deviation, percentiles and maximum are of these, for both
//! methods. An outage is *recovered* from at the first second from which the error stays within
//! [`RECOVERED_NS`] for [`SETTLING_S`] consecutive seconds.

use std::collections::BTreeMap;

use horolog_stats::ExactSummary;
use horolog_stats::allan::{self, AllanPoint};

use super::settings::FaultPeriod;
use crate::SynchronisationState;

/// Seconds after an outage that are not in service; also the time for which the error of a
/// recovered clock must stay small.
pub const SETTLING_S: u64 = 60;
/// Largest error of a clock that has recovered, in ns.
pub const RECOVERED_NS: i64 = 1_000;

/// Errors of both clocks in one second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SimulationSample {
    /// Error of the servo's time, in ns.
    pub steered_ns: i64,
    /// Error of the clock that is set at every pulse, in ns.
    pub set_per_pulse_ns: i64,
    /// Standard deviation of the error by the servo's own estimate, in ns.
    pub uncertainty_ns: Option<f64>,
    /// State of the servo.
    pub state: SynchronisationState,
}

/// Errors of the clock during and after an outage of the receiver, and its recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiverOutageOutcome {
    /// Period of the outage.
    pub period: FaultPeriod,
    /// Largest absolute error during the outage, in ns.
    pub error_max_ns: i64,
    /// Seconds from the end of the outage to the recovery; `None` if the clock did not recover.
    pub recovered_after_s: Option<u64>,
    /// Largest absolute error from the recovery to [`SETTLING_S`] after the end of the outage, in
    /// ns; `None` if the recovery is later or absent.
    pub overshoot_ns: Option<i64>,
}

/// Result of a simulation.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct SimulationOutcome {
    /// One sample for each second.
    pub samples: Vec<SimulationSample>,
    outages: Vec<FaultPeriod>,
    /// Labelled pulses by verdict.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// Pulses without a label, by reason.
    pub pulse_rejects: BTreeMap<&'static str, u64>,
    /// Sentences that did not count, by reason.
    pub sentence_rejects: BTreeMap<&'static str, u64>,
    /// Number of wrong labels.
    pub wrong_labels: u64,
    /// Number of steps of the clock.
    pub steps: u64,
}

impl SimulationOutcome {
    pub(super) fn new(outages: Vec<FaultPeriod>) -> Self {
        Self { outages, ..Self::default() }
    }

    pub(super) fn push_sample(&mut self, sample: SimulationSample) {
        self.samples.push(sample);
    }

    /// Returns the first second in which the servo is locked.
    #[must_use]
    pub fn locked_after_s(&self) -> Option<usize> {
        self.samples.iter().position(|sample| sample.state == SynchronisationState::Locked)
    }

    /// Returns the error of every second in service (see the module), and `None` for each other
    /// second.
    #[must_use]
    pub fn in_service_errors(&self, error: impl Fn(&SimulationSample) -> i64) -> Vec<Option<i64>> {
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

    /// Returns the statistics of the errors in service; `None` if there are none.
    #[must_use]
    pub fn error_summary(&self, error: impl Fn(&SimulationSample) -> i64) -> Option<ExactSummary> {
        ExactSummary::from_values(self.in_service_errors(error).into_iter().flatten())
    }

    /// Returns the overlapping Allan deviation of the errors in service, at averaging times of 1,
    /// 2, 4 … s, in ns per second.
    #[must_use]
    pub fn allan_deviations(&self, error: impl Fn(&SimulationSample) -> i64) -> Vec<AllanPoint> {
        let phases: Vec<_> = self.in_service_errors(error);
        let phases: Vec<_> = phases.into_iter().map(|phase| phase.map(|ns| ns as f64)).collect();
        allan::octave_deviations(&phases)
    }

    /// Returns the errors and recovery of each outage.
    #[must_use]
    pub fn outage_errors(
        &self,
        error: impl Fn(&SimulationSample) -> i64,
    ) -> Vec<ReceiverOutageOutcome> {
        self.outages.iter().map(|period| self.errors_of_outage(*period, &error)).collect()
    }

    fn errors_of_outage(
        &self,
        period: FaultPeriod,
        error: &impl Fn(&SimulationSample) -> i64,
    ) -> ReceiverOutageOutcome {
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
        ReceiverOutageOutcome {
            period,
            error_max_ns: magnitudes[begin..end].iter().copied().max().unwrap_or_default(),
            recovered_after_s: recovered.map(|seconds| seconds as u64),
            overshoot_ns: overshoot.copied(),
        }
    }
}
