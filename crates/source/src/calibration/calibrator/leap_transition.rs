//! Leap transition of a calibration. UTC steps at the leap second; the system clock steps when the
//! kernel steps it, late, or never. Until the clock has stepped, or will not step any more, time is
//! counted as the clock counts it, as the server does in its leap transition, so that neither
//! pulses nor reports differ from it by that second.

use horolog_discipline::{ClockErrorLogEntry, LabelledPulse, ServoDecision};
use horolog_time::leap::LeapSecond;
use horolog_time::{NS_PER_S, Span, Timestamp, Utc};

use super::{Calibrator, STEP_MIN};
use crate::ClockReadings;

/// Longest wait for the clock to step: longer than a server's leap transition.
const STEP_TIMEOUT: Span = Span::from_ms(6_000);
/// Largest offset from UTC of a clock whose step is attributed to the leap second.
const LEAP_OFFSET_MAX: Span = Span::from_ms(250);
/// Upper limit of the age of a pulse when it is processed.
const PULSE_AGE_MAX: Span = Span::from_ns(60 * NS_PER_S);

/// Progress of the transition of the announced leap second.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct LeapTransitionProgress {
    /// Leap second whose instant was observed to be in the future; `None` if there was none.
    approached: Option<LeapSecond>,
    /// Leap second whose transition is complete: the clock has stepped, or has not stepped in time.
    /// `None` before the first.
    completed: Option<LeapSecond>,
}

impl LeapTransitionProgress {
    /// Returns true if the transition of a leap second that UTC passed `elapsed` ago is incomplete.
    pub(super) fn is_pending(&self, leap: LeapSecond, elapsed: Span) -> bool {
        self.approached == Some(leap)
            && self.completed != Some(leap)
            && elapsed <= STEP_TIMEOUT + STEP_TIMEOUT
    }
}

fn is_equal_step(a: Span, b: Span) -> bool {
    (a - b).as_ns().saturating_abs() <= STEP_MIN.as_ns()
}

impl Calibrator {
    /// Returns UTC by the estimate of the clock; before the leap transition is complete, without
    /// its step.
    pub(super) fn utc(&self, readings: &ClockReadings) -> Timestamp<Utc> {
        let step = self.servo.external_step(readings.realtime_minus_monotonic).unwrap_or_default();
        let estimate = self.servo.estimate(readings.monotonic);
        readings.realtime() - step - estimate.map_or(Span::ZERO, |estimate| estimate.offset)
    }

    /// Returns the announced leap second whose transition is incomplete; `None` if there is none.
    fn pending_leap(&self) -> Option<LeapSecond> {
        self.leaps.announced.filter(|leap| Some(*leap) != self.leap_transition.completed)
    }

    /// Completes the leap transition if the clock has stepped, or has not stepped in time.
    pub(super) fn advance_leap_transition(&mut self, readings: &ClockReadings) {
        let Some(leap) = self.pending_leap() else { return };
        let elapsed = self.utc(readings) - leap.step_instant();
        if let Some(step) = self.kernel_leap_step(readings) {
            self.servo.expect_step(step);
            self.leap_transition.completed = Some(leap);
        } else if elapsed < Span::ZERO {
            self.leap_transition.approached = Some(leap);
        } else if elapsed > STEP_TIMEOUT && self.leap_transition.approached == Some(leap) {
            // If sentences contradict it, the leap is uncertain.
            if !self.labeller.is_disputed() {
                self.servo.record_leap_without_step(leap.step(), readings.monotonic);
            }
            self.leap_transition.completed = Some(leap);
        }
    }

    /// Returns the step of the announced leap second if the clock has made it and the servo does
    /// not know it yet; otherwise `None`.
    pub(super) fn kernel_leap_step(&self, readings: &ClockReadings) -> Option<Span> {
        let leap = self.pending_leap()?;
        let step = self.servo.external_step(readings.realtime_minus_monotonic)?;
        let elapsed = self.utc(readings) - leap.step_instant();
        let is_at_leap = (-LEAP_OFFSET_MAX..=STEP_TIMEOUT).contains(&elapsed);
        (is_at_leap && is_equal_step(step, leap.step())).then_some(step)
    }

    /// Converts a pulse to the timescale that the system clock followed when the pulse arrived.
    fn in_system_timescale(&self, labelled: &LabelledPulse) -> LabelledPulse {
        let mut adjusted = *labelled;
        let Some(leap) = self.leaps.announced else { return adjusted };
        let since = labelled.second() - leap.midnight;
        if !(Span::ZERO..PULSE_AGE_MAX).contains(&since) {
            return adjusted;
        }
        let pulse = &mut adjusted.pulse;
        let distance = pulse.realtime.as_ns().saturating_sub(pulse.monotonic.as_ns());
        let step = self.servo.external_step(Span::from_ns(distance)).unwrap_or_default();
        if self.leap_transition.completed == Some(leap) {
            // The pulse arrived before the clock stepped.
            if is_equal_step(step, -leap.step()) {
                pulse.realtime = pulse.realtime + leap.step();
            }
        } else if self.leap_transition.approached == Some(leap) && is_equal_step(step, Span::ZERO) {
            adjusted.utc = adjusted.utc - leap.step();
        }
        adjusted
    }

    /// Processes a pulse whose second is known.
    pub(super) fn process_labelled_pulse(&mut self, labelled: &LabelledPulse) {
        let adjusted = self.in_system_timescale(labelled);
        let decision = self.servo.process_pulse(&adjusted, self.clocks_read_at);
        let utc_ns = Some(labelled.utc.as_ns());
        let decision =
            ServoDecision { entry: ClockErrorLogEntry { utc_ns, ..decision.entry }, ..decision };
        // Other programs do not receive a clock reading from before the step.
        let is_unadjusted = adjusted.utc == labelled.utc;
        self.apply_decision(&decision, is_unadjusted.then_some(labelled));
    }
}
