//! What a calibrator does to the clock that it steers, and how it leaves it.

use horolog_discipline::{Decision, Servo, ServoSettings};
use horolog_sys::adjtimex::PendingLeap;
use horolog_sys::clock_steering::Declaration;
use horolog_time::Span;

use super::{Calibrator, deviations};
use crate::ControlError;

impl Calibrator {
    /// Does what was decided. Says that it did not where it first had to end what others have left,
    /// after which all begins anew.
    pub(super) fn command(&mut self, decision: &Decision) -> Result<bool, ControlError> {
        let Some(control) = &mut self.control else { return Ok(true) };
        if decision.command.is_some()
            && let Some(frequency_ppb) = control.settle()?
        {
            // What the pulses have said so far was of a clock that went otherwise.
            self.note_frequency(frequency_ppb);
            self.settings.initial_frequency_ppb = frequency_ppb;
            self.servo = Servo::new(self.settings);
            return Ok(false);
        }
        if let Some(command) = decision.command {
            if let Some(step) = command.step {
                control.step(step)?;
                self.steps += 1;
                self.leaps.clock_stepped(self.looked);
            }
            control.set_frequency(command.frequency_ppb)?;
            self.note_frequency(command.frequency_ppb);
        }
        let Some(control) = &mut self.control else { return Ok(true) };
        let uncertainty = decision.entry.uncertainty_ns.unwrap_or(f64::INFINITY);
        let offset = decision
            .command
            .and_then(|command| command.step)
            .map_or(decision.entry.offset_ns.unwrap_or(i64::MAX), |_| 0);
        let is_synchronised = decision.entry.state.is_synchronised() && !self.votes.is_suspended;
        let declared = declaration(is_synchronised, Span::from_ns(offset), uncertainty);
        let leap = self.leaps.declares(self.looked);
        let tai_offset_s = self.leaps.tai_to_declare(self.realtime);
        control.declare(&Declaration { leap, tai_offset_s, ..declared })?;
        Ok(true)
    }

    /// The frequency was set.
    pub(super) fn note_frequency(&mut self, ppb: f64) {
        let before = std::mem::replace(&mut self.commanded_ppb, ppb);
        self.change_ppb = (ppb - before).abs();
        self.changed = Some(self.looked);
    }

    /// From here on the clock is only computed: what was commanded is not what was done.
    pub(super) fn end_control(&mut self, error: &ControlError) {
        let in_force = match error {
            ControlError::Contested(ppb) => *ppb,
            ControlError::Failed(_) => self.settings.initial_frequency_ppb,
        };
        self.control = None;
        self.votes.is_suspended = false;
        self.control_ended = Some(error.to_string());
        self.notify(error.to_string());
        self.settings =
            ServoSettings { is_steering: false, initial_frequency_ppb: in_force, ..self.settings };
        self.servo = Servo::new(self.settings);
    }

    /// Steers no more: the clock runs on by its frequency alone, without what was slewed, and
    /// whoever asks the system is not told that it is right, or of a leap second that was told here
    /// and that nobody would take back.
    pub(in crate::calibration) fn let_go(&mut self) {
        let Some(mut control) = self.control.take() else { return };
        let Some(estimate) = self.servo.estimate(self.looked) else { return };
        let left = declaration(false, estimate.offset, estimate.uncertainty_ns);
        let left = Declaration { leap: self.leaps.left_behind(), ..left };
        // What another has set meanwhile stays, and nobody is left to be told.
        let _ =
            control.set_frequency(-estimate.frequency_ppb).and_then(|()| control.declare(&left));
    }
}

impl Drop for Calibrator {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// What is told of a clock that is off by so much, without a leap second.
pub(super) fn declaration(synchronised: bool, offset: Span, uncertainty_ns: f64) -> Declaration {
    Declaration {
        synchronised,
        leap: PendingLeap::None,
        maximum_error: deviations(uncertainty_ns) + Span::from_ns(offset.as_ns().saturating_abs()),
        estimated_error: Span::from_ns(uncertainty_ns.min(1e18) as i64),
        tai_offset_s: None,
    }
}
