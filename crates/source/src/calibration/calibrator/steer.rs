//! Steering of the clock by a calibrator, and its end.

use horolog_discipline::{Decision, Servo, ServoSettings};
use horolog_sys::adjtimex::PendingLeap;
use horolog_sys::clock_steering::ClockStatus;
use horolog_time::Span;

use super::{Calibrator, deviations};
use crate::ClockControlError;

impl Calibrator {
    /// Carries out a decision. Returns false if it first had to clear adjustments of other
    /// programs, after which all begins anew.
    pub(super) fn command(&mut self, decision: &Decision) -> Result<bool, ClockControlError> {
        let Some(control) = &mut self.control else { return Ok(true) };
        if decision.command.is_some()
            && let Some(frequency_ppb) = control.clear_adjustments()?
        {
            // The pulses so far were those of a clock with another rate.
            self.note_frequency(frequency_ppb);
            self.settings.initial_frequency_ppb = frequency_ppb;
            self.servo = Servo::new(self.settings);
            return Ok(false);
        }
        if let Some(command) = decision.command {
            if let Some(step) = command.step {
                control.step(step)?;
                self.steps += 1;
                self.leaps.clock_stepped(self.clocks_read_at);
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
        let leap = self.leaps.declares(self.clocks_read_at);
        let tai_offset_s = self.leaps.tai_to_declare(self.realtime);
        control.set_status(&ClockStatus { leap, tai_offset_s, ..declared })?;
        Ok(true)
    }

    /// Records that the frequency was set.
    pub(super) fn note_frequency(&mut self, ppb: f64) {
        let before = std::mem::replace(&mut self.commanded_ppb, ppb);
        self.change_ppb = (ppb - before).abs();
        self.changed = Some(self.clocks_read_at);
    }

    /// Ends the control of the clock, which is only estimated from here on: the command was not
    /// carried out.
    pub(super) fn end_control(&mut self, error: &ClockControlError) {
        let in_force = match error {
            ClockControlError::Contested(ppb) => *ppb,
            ClockControlError::Failed(_) => self.settings.initial_frequency_ppb,
        };
        self.control = None;
        self.votes.is_suspended = false;
        self.control_ended = Some(error.to_string());
        self.notify(error.to_string());
        self.settings =
            ServoSettings { is_steering: false, initial_frequency_ppb: in_force, ..self.settings };
        self.servo = Servo::new(self.settings);
    }

    /// Releases the clock: it runs on by its frequency alone, without the slew, and without the
    /// synchronised status or a leap second announced here that no other program would withdraw.
    pub(in crate::calibration) fn release_clock(&mut self) {
        let Some(mut control) = self.control.take() else { return };
        let Some(estimate) = self.servo.estimate(self.clocks_read_at) else { return };
        let left = declaration(false, estimate.offset, estimate.uncertainty_ns);
        let left = ClockStatus { leap: self.leaps.leap_left_in_kernel(), ..left };
        // Settings made by another program meanwhile stay, and an error could not be reported any
        // more.
        let _ =
            control.set_frequency(-estimate.frequency_ppb).and_then(|()| control.set_status(&left));
    }
}

impl Drop for Calibrator {
    fn drop(&mut self) {
        self.release_clock();
    }
}

/// Returns the status of a clock with this offset, without a leap second.
pub(super) fn declaration(synchronised: bool, offset: Span, uncertainty_ns: f64) -> ClockStatus {
    ClockStatus {
        synchronised,
        leap: PendingLeap::None,
        maximum_error: deviations(uncertainty_ns) + Span::from_ns(offset.as_ns().saturating_abs()),
        estimated_error: Span::from_ns(uncertainty_ns.min(1e18) as i64),
        tai_offset_s: None,
    }
}
