//! Servo: from labelled pulses to an estimate of the clock and to commands for it.
//!
//! The filter models the clock as if it ran uncorrected; commands are counted separately
//! ([`correction`]). Steering a clock and only computing therefore use the same filter with the
//! same state. No single pulse moves the estimate by more than the filter's gain times the gate:
//! pulses farther off are rejected, and several in a row must agree before the filter begins anew
//! with them.

mod acquisition;
mod correction;
mod state;

use acquisition::{AcquisitionEstimate, AcquisitionPulses};
use correction::TotalClockCorrection;
use horolog_time::{Monotonic, Span, Timestamp};

use crate::holdover::{PhaseFrequencyCovariance, dispersion_ns};
use crate::kalman::KalmanFilter;
use crate::measurement::{FilterLagDetector, PulseNoiseEstimator};
use crate::{
    ClockErrorLogEntry, LabelledPulse, Pulse, PulseOffsetHistory, PulseVerdict, ServoSettings,
};

pub use state::{ServoCommand, ServoDecision, ServoEstimate, SynchronisationState};

/// Number of consecutive accepted pulses after which a clock can be locked.
const LOCK_PULSES: u32 = 8;
/// A clock is locked while its offset is within this many deviations of the pulses' noise, or
/// within this many ns.
const LOCK_DEVIATIONS: f64 = 5.0;
const LOCK_NS: f64 = 1_000.0;
/// Number of consecutive unexplained pulses after which the clock counts as wrong.
const JUMP_PULSES_MIN: u32 = acquisition::LINE_PULSES as u32;
/// Standard deviation added to the frequency of a lagging filter: this share of the gate, per
/// second.
const LAG_SHARE: f64 = 0.25;

/// Running filter, and its uncertainty at the last accepted pulse.
#[derive(Clone, Debug)]
struct RunningFilter {
    filter: KalmanFilter,
    lag: FilterLagDetector,
    good_at: Timestamp<Monotonic>,
    good_uncertainty: PhaseFrequencyCovariance,
    good_in_a_row: u32,
}

/// Estimator of a clock, which also steers it if so configured.
#[derive(Clone, Debug)]
pub struct Servo {
    settings: ServoSettings,
    state: SynchronisationState,
    /// Offset at the first pulse: the origin of the filter's phases.
    origin: Option<Span>,
    correction: Option<TotalClockCorrection>,
    track: Option<RunningFilter>,
    acquisition: AcquisitionPulses,
    noise: PulseNoiseEstimator,
    step_detector: ExternalStepDetector,
    stability: PulseOffsetHistory,
}

impl Servo {
    /// Creates a servo without an estimate of the clock.
    #[must_use]
    pub fn new(settings: ServoSettings) -> Self {
        Self {
            settings,
            state: SynchronisationState::Starting,
            origin: None,
            correction: None,
            track: None,
            acquisition: AcquisitionPulses::default(),
            noise: PulseNoiseEstimator::new(settings.noise_initial_ns),
            step_detector: ExternalStepDetector::default(),
            stability: PulseOffsetHistory::default(),
        }
    }

    /// Returns the state of synchronisation.
    #[must_use]
    pub fn state(&self) -> SynchronisationState {
        self.state
    }

    /// Returns the measured standard deviation of a pulse, in ns; `None` until enough pulses have
    /// arrived.
    #[must_use]
    pub fn noise_ns(&self) -> Option<f64> {
        self.noise.is_measured().then(|| self.noise.deviation_ns())
    }

    /// Returns the stability of the clock and of its oscillator, by the pulses of the last hours.
    #[must_use]
    pub fn stability(&self) -> &PulseOffsetHistory {
        &self.stability
    }

    /// Returns the step by which another program has set the clock since the last pulse, if any.
    /// `realtime_minus_monotonic` is the present difference of the two clocks.
    #[must_use]
    pub fn external_step(&self, realtime_minus_monotonic: Span) -> Option<Span> {
        self.step_detector.external_step(realtime_minus_monotonic)
    }

    /// Records that the clock was stepped together with UTC at a leap second, so that its offset is
    /// unchanged.
    pub fn expect_step(&mut self, step: Span) {
        self.step_detector.expect_step(step);
    }

    /// Records that UTC was stepped by `step` at a leap second, at `at`, but the clock was not.
    pub fn record_leap_without_step(&mut self, step: Span, at: Timestamp<Monotonic>) {
        if let Some(correction) = &mut self.correction {
            correction.record_change(at, correction.frequency, -step);
        }
    }

    /// Suspends commands until [`Self::resume`], but continues to estimate. The returned command,
    /// for `at`, is the frequency correction that only cancels the estimated frequency error,
    /// without a slew; `None` if the clock is not steered or has no estimate.
    pub fn suspend(&mut self, at: Timestamp<Monotonic>) -> Option<ServoCommand> {
        let estimate = self.estimate(at).filter(|_| self.settings.is_steering);
        self.settings.is_steering = false;
        let frequency_max = self.settings.frequency_max_ppb;
        let frequency_ppb = (-estimate?.frequency_ppb).clamp(-frequency_max, frequency_max);
        let correction = self.correction.as_mut()?;
        correction.record_change(at, frequency_ppb, Span::ZERO);
        Some(ServoCommand { frequency_ppb, step: None })
    }

    /// Resumes the commands that [`Self::suspend`] suspended.
    pub fn resume(&mut self) {
        self.settings.is_steering = true;
    }

    /// Returns the time since the last accepted pulse if the clock is in holdover; `None`
    /// otherwise.
    #[must_use]
    pub fn holdover_duration(&self, now: Timestamp<Monotonic>) -> Option<Span> {
        let track = self.track.as_ref().filter(|_| self.state == SynchronisationState::Holdover)?;
        Some(now - track.good_at)
    }

    /// Returns the estimate of the clock at `at`, which is not before the last pulse; `None` until
    /// a filter has started.
    #[must_use]
    pub fn estimate(&self, at: Timestamp<Monotonic>) -> Option<ServoEstimate> {
        let (track, correction) = (self.track.as_ref()?, self.correction.as_ref()?);
        let mut filter = track.filter.clone();
        filter.advance(at);
        let elapsed = (at - track.good_at).as_seconds().max(0.0);
        Some(ServoEstimate {
            at,
            offset: correction.corrected_offset(at, filter.phase(), self.origin?),
            rate_ppb: filter.frequency() + correction.frequency,
            frequency_ppb: filter.frequency(),
            uncertainty_ns: dispersion_ns(
                &self.settings.oscillator,
                &track.good_uncertainty,
                elapsed,
            ),
        })
    }

    /// Processes a labelled pulse. The command of the decision is for `effective_at`, which may be
    /// later than the pulse.
    pub fn process_pulse(
        &mut self,
        pulse: &LabelledPulse,
        effective_at: Timestamp<Monotonic>,
    ) -> ServoDecision {
        let (at, offset) = (pulse.pulse.monotonic, pulse.offset());
        let origin = *self.origin.get_or_insert(offset);
        let initial_frequency = self.settings.initial_frequency_ppb;
        let correction =
            self.correction.get_or_insert_with(|| TotalClockCorrection::new(at, initial_frequency));
        let phase = correction.uncorrected_phase(at, offset, origin);
        let is_first = self.track.is_none();
        let external_step = self.step_detector.detect_step(&pulse.pulse);
        let (verdict, innovation_ns) = self.filter_pulse(at, phase, external_step);
        if verdict == PulseVerdict::Accepted {
            self.stability.add_offsets(at, (offset - origin).as_ns() as f64, phase);
        }
        self.update_state(at);
        let decision = self.decide((at, effective_at.max(at)), verdict, is_first);
        let entry = ClockErrorLogEntry {
            utc_ns: Some(pulse.utc.as_ns()),
            measured_ns: Some(offset.as_ns()),
            innovation_ns,
            ..decision.entry
        };
        ServoDecision { entry, ..decision }
    }

    /// Advances the servo without a pulse: the clock enters holdover, and finally becomes
    /// unsynchronised. Must be called about once a second while no labelled pulse arrives. Returns
    /// `None` while one may still arrive, and before a filter has started.
    pub fn tick(&mut self, now: Timestamp<Monotonic>) -> Option<ServoDecision> {
        let track = self.track.as_mut()?;
        if now - track.good_at < self.settings.holdover_after {
            return None;
        }
        track.filter.advance(now);
        self.noise.interrupt();
        self.update_state(now);
        Some(self.decide((now, now), PulseVerdict::Missing, false))
    }

    /// Passes a pulse to the filter, or to the acquisition of a new one. Returns the verdict, and
    /// the innovation in ns if a filter was running.
    fn filter_pulse(
        &mut self,
        at: Timestamp<Monotonic>,
        phase: f64,
        external_step: Option<Span>,
    ) -> (PulseVerdict, Option<f64>) {
        let gate = self.settings.gate_deviations;
        let mut innovation = None;
        if let Some(track) = &mut self.track {
            track.filter.advance(at);
            let variance = self.noise.deviation_ns().powi(2);
            let mut pulse_innovation = track.filter.innovation(phase, variance);
            if let (Some(step), Some(correction)) = (external_step, &mut self.correction)
                && pulse_innovation.normalised().abs() > gate
            {
                let unstepped_innovation =
                    track.filter.innovation(phase - step.as_ns() as f64, variance);
                if unstepped_innovation.normalised().abs() <= gate {
                    correction.record_change(at, correction.frequency, step);
                    pulse_innovation = unstepped_innovation;
                }
            }
            self.noise.add_innovation(pulse_innovation);
            innovation = Some(pulse_innovation.value);
            if pulse_innovation.normalised().abs() <= gate {
                track.filter.update(pulse_innovation, variance);
                if track.lag.detect_lag(pulse_innovation) {
                    track
                        .filter
                        .inflate_frequency((LAG_SHARE * gate).powi(2) * pulse_innovation.variance);
                }
                track.good_at = at;
                track.good_uncertainty = track.filter.holdover_start();
                track.good_in_a_row += 1;
                self.acquisition.clear();
                return (PulseVerdict::Accepted, innovation);
            }
            track.good_in_a_row = 0;
        }
        let noise = self.noise.deviation_ns();
        let start =
            self.acquisition.add_pulse((at, phase), (gate, noise), self.settings.frequency_max_ppb);
        let verdict = match (start, innovation) {
            (Some(start), None) => self.begin_track(&start),
            (Some(start), Some(jump)) if self.accepts_jump(jump) => self.begin_track(&start),
            (_, None) => PulseVerdict::Acquiring,
            (_, Some(_)) if self.acquisition.unexplained_pulses() >= JUMP_PULSES_MIN => {
                PulseVerdict::Jump
            }
            (_, Some(_)) => PulseVerdict::Outlier,
        };
        (verdict, innovation)
    }

    /// Returns true if a filter may start from pulses that are `jump_ns` off the estimate and fit a
    /// line.
    fn accepts_jump(&self, jump_ns: f64) -> bool {
        let is_small = jump_ns.abs() <= self.settings.jump_max.as_ns() as f64;
        is_small || self.acquisition.unexplained_pulses() >= self.settings.jump_pulses
    }

    fn begin_track(&mut self, start: &AcquisitionEstimate) -> PulseVerdict {
        let filter = KalmanFilter::new(
            &self.settings.oscillator,
            start.at,
            (start.phase, start.frequency),
            (start.phase_variance, start.frequency_variance),
        );
        let good_uncertainty = filter.holdover_start();
        self.track = Some(RunningFilter {
            filter,
            lag: FilterLagDetector::default(),
            good_at: start.at,
            good_uncertainty,
            good_in_a_row: 0,
        });
        self.acquisition.clear();
        self.noise.interrupt();
        self.state = SynchronisationState::Locking;
        PulseVerdict::Acquired
    }

    /// Updates the state of synchronisation at `now`.
    fn update_state(&mut self, now: Timestamp<Monotonic>) {
        let (Some(track), Some(estimate)) = (&self.track, self.estimate(now)) else { return };
        let settings = &self.settings;
        let age = now - track.good_at;
        let bound = LOCK_NS.max(LOCK_DEVIATIONS * self.noise.deviation_ns());
        let is_near = !settings.is_steering || (estimate.offset.as_ns() as f64).abs() <= bound;
        let has_settled = self.noise.is_measured() && track.good_in_a_row >= LOCK_PULSES;
        let is_lost = estimate.uncertainty_ns > settings.holdover_uncertainty_max.as_ns() as f64
            || age > settings.holdover_max
            || self.acquisition.unexplained_pulses() >= JUMP_PULSES_MIN;
        self.state = if is_lost {
            SynchronisationState::Unsynchronised
        } else if age > settings.holdover_after {
            SynchronisationState::Holdover
        } else if is_near && (self.state == SynchronisationState::Locked || has_settled) {
            SynchronisationState::Locked
        } else {
            SynchronisationState::Locking
        };
    }

    /// Returns the decision, with the log entry for `now` and the command for `effective_at`.
    fn decide(
        &mut self,
        (now, effective_at): (Timestamp<Monotonic>, Timestamp<Monotonic>),
        verdict: PulseVerdict,
        is_start: bool,
    ) -> ServoDecision {
        let estimate = self.estimate(now);
        let command = self
            .estimate(effective_at)
            .filter(|_| self.settings.is_steering)
            .map(|estimate| self.command(&estimate, is_start));
        if let (Some(command), Some(correction)) = (command, &mut self.correction) {
            let step = command.step.unwrap_or_default();
            correction.record_change(effective_at, command.frequency_ppb, step);
            self.step_detector.expect_step(step);
        }
        let entry = ClockErrorLogEntry {
            monotonic_ns: now.as_ns(),
            utc_ns: None,
            measured_ns: None,
            innovation_ns: None,
            verdict,
            offset_ns: estimate.map(|estimate| estimate.offset.as_ns()),
            uncertainty_ns: estimate.map(|estimate| estimate.uncertainty_ns),
            frequency_ppb: estimate.map(|estimate| estimate.frequency_ppb),
            noise_ns: self.noise.deviation_ns(),
            command_ppb: command.map(|command| command.frequency_ppb),
            step_ns: command.and_then(|command| command.step).map(Span::as_ns),
            state: self.state,
        };
        ServoDecision { entry, command }
    }

    /// Returns the frequency correction that reduces the offset with the time constant, or a step.
    /// For an unsynchronised clock it only cancels the estimated frequency error, without a slew.
    fn command(&self, estimate: &ServoEstimate, is_start: bool) -> ServoCommand {
        let settings = &self.settings;
        let frequency_max = settings.frequency_max_ppb;
        if !self.state.is_synchronised() {
            let frequency_ppb = (-estimate.frequency_ppb).clamp(-frequency_max, frequency_max);
            return ServoCommand { frequency_ppb, step: None };
        }
        let limit = if is_start { Some(settings.step_at_start) } else { settings.step_later };
        let distance = Span::from_ns(estimate.offset.as_ns().saturating_abs());
        let step = limit.is_some_and(|limit| distance > limit).then_some(-estimate.offset);
        let residual_ns = if step.is_some() { 0.0 } else { estimate.offset.as_ns() as f64 };
        let time_constant_s = match self.state {
            SynchronisationState::Locked => settings.time_constant_locked_s,
            _ => settings.time_constant_locking_s,
        };
        let slew =
            (residual_ns / time_constant_s).clamp(-settings.slew_max_ppb, settings.slew_max_ppb);
        let frequency_ppb = (-estimate.frequency_ppb - slew).clamp(-frequency_max, frequency_max);
        ServoCommand { frequency_ppb, step }
    }
}

#[cfg(test)]
mod tests;

/// Smallest change that counts as a step; smaller ones arise because the two clocks are not read at
/// the same instant.
const EXTERNAL_STEP_MIN: Span = Span::from_ns(10_000);

/// Detector of steps by the difference between the two clocks from pulse to pulse.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ExternalStepDetector {
    /// Difference at the last pulse, plus the steps commanded since.
    expected_distance: Option<Span>,
}

impl ExternalStepDetector {
    /// Records a commanded step, which is not to be detected.
    pub(super) fn expect_step(&mut self, step: Span) {
        self.expected_distance = self.expected_distance.map(|expected| expected + step);
    }

    /// Returns the step of the clock since the last pulse, if there was one. It may have been a
    /// leap second, so it is used only if the pulse fits the prediction better with it.
    pub(super) fn detect_step(&mut self, pulse: &Pulse) -> Option<Span> {
        let distance =
            Span::from_ns(pulse.realtime.as_ns().saturating_sub(pulse.monotonic.as_ns()));
        let step = self.external_step(distance);
        self.expected_distance = Some(distance);
        step
    }

    /// Returns the step that follows from the present difference, without recording the difference.
    pub(super) fn external_step(&self, distance: Span) -> Option<Span> {
        let step = distance - self.expected_distance?;
        (step.as_ns().saturating_abs() > EXTERNAL_STEP_MIN.as_ns()).then_some(step)
    }
}
