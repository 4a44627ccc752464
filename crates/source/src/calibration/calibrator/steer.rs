//! Steering of the clock by a calibrator, and its end.

use horolog_discipline::{Servo, ServoCommand, ServoDecision, ServoSettings};
use horolog_sys::adjtimex::PendingLeap;
use horolog_sys::clock_steering::DeclaredClockStatus;
use horolog_time::Span;

use super::{Calibrator, error_bound};
use crate::{ClockSteeringError, SelectionState};

impl Calibrator {
    /// Applies a decision to the clock, if it is steered. Returns false if adjustments of other
    /// programs had to be cleared first, which resets the servo; otherwise true.
    pub(super) fn apply_command(
        &mut self,
        decision: &ServoDecision,
    ) -> Result<bool, ClockSteeringError> {
        let Some(control) = &mut self.steering else { return Ok(true) };
        if decision.command.is_some()
            && let Some(frequency_ppb) = control.clear_adjustments()?
        {
            // Pulses so far were measured against a clock of another rate.
            self.record_frequency(frequency_ppb);
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
            self.record_frequency(command.frequency_ppb);
        }
        let Some(control) = &mut self.steering else { return Ok(true) };
        let uncertainty = decision.entry.uncertainty_ns.unwrap_or(f64::INFINITY);
        let offset = decision
            .command
            .and_then(|command| command.step)
            .map_or(decision.entry.offset_ns.unwrap_or(i64::MAX), |_| 0);
        let is_synchronised =
            decision.entry.state.is_synchronised() && !self.selection_history.is_suspended;
        let status = clock_status(is_synchronised, Span::from_ns(offset), uncertainty);
        let leap = self.leaps.leap_to_announce(self.clocks_read_at);
        let tai_offset_s = self.leaps.tai_to_set(self.realtime);
        control.set_status(&DeclaredClockStatus { leap, tai_offset_s, ..status })?;
        Ok(true)
    }

    /// Records a frequency command and its instant.
    pub(super) fn record_frequency(&mut self, ppb: f64) {
        let before = std::mem::replace(&mut self.commanded_ppb, ppb);
        self.change_ppb = (ppb - before).abs();
        self.changed_at = Some(self.clocks_read_at);
    }

    /// Ends steering after a failed command; from now on the clock error is only estimated.
    pub(super) fn end_steering(&mut self, error: &ClockSteeringError) {
        let frequency_ppb = match error {
            ClockSteeringError::FrequencyChanged(ppb) => *ppb,
            ClockSteeringError::Failed(_) => self.settings.initial_frequency_ppb,
        };
        self.steering = None;
        self.selection_history.is_suspended = false;
        self.steering_ended = Some(error.to_string());
        self.notify(error.to_string());
        self.settings = ServoSettings {
            is_steering: false,
            initial_frequency_ppb: frequency_ppb,
            ..self.settings
        };
        self.servo = Servo::new(self.settings);
    }

    /// Releases the clock: it continues at its estimated frequency, without the slew and the
    /// synchronised status, and without a leap second announced here, which no other program would
    /// withdraw. Without an estimate the clock stays as it is.
    pub(in crate::calibration) fn release_clock(&mut self) {
        let Some(mut control) = self.steering.take() else { return };
        let Some(estimate) = self.servo.estimate(self.clocks_read_at) else { return };
        let status = clock_status(false, estimate.offset, estimate.uncertainty_ns);
        let left = DeclaredClockStatus { leap: self.leaps.leap_to_leave(), ..status };
        // A frequency set by another program meanwhile is an error here and stays; it cannot be
        // reported any more.
        let _ =
            control.set_frequency(-estimate.frequency_ppb).and_then(|()| control.set_status(&left));
    }
}

impl Drop for Calibrator {
    fn drop(&mut self) {
        self.release_clock();
    }
}

/// Returns the kernel status for this offset and standard deviation (ns), without a leap second.
pub(super) fn clock_status(
    synchronised: bool,
    offset: Span,
    uncertainty_ns: f64,
) -> DeclaredClockStatus {
    DeclaredClockStatus {
        synchronised,
        leap: PendingLeap::None,
        maximum_error: error_bound(uncertainty_ns) + Span::from_ns(offset.as_ns().saturating_abs()),
        estimated_error: Span::from_ns(uncertainty_ns.min(1e18) as i64),
        tai_offset_s: None,
    }
}

/// Consecutive adverse selections, one a second, that suspend steering; a single one may be due to
/// a brief error of another source.
const ADVERSE_SELECTIONS_MAX: u32 = 3;

/// Suspension of steering after several adverse selections in a row.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SteeringSuspension {
    /// Consecutive selections in which the calibration was a falseticker.
    adverse_selections: u32,
    pub(super) is_suspended: bool,
}

impl Calibrator {
    /// Processes the calibration's selection state; undecided, unresponsive and unusable are
    /// ignored.
    pub(in crate::calibration) fn selection_changed(&mut self, state: SelectionState) {
        match state {
            SelectionState::Falseticker => {
                self.selection_history.adverse_selections =
                    (self.selection_history.adverse_selections + 1).min(ADVERSE_SELECTIONS_MAX);
            }
            SelectionState::Selected | SelectionState::Truechimer => {
                self.selection_history.adverse_selections = 0;
            }
            SelectionState::Undecided | SelectionState::Unresponsive | SelectionState::Unusable => {
                return;
            }
        }
        let is_outvoted = self.selection_history.adverse_selections >= ADVERSE_SELECTIONS_MAX;
        match (is_outvoted && self.steering.is_some(), self.selection_history.is_suspended) {
            (true, false) => self.suspend(),
            (false, true) if self.selection_history.adverse_selections == 0 => {
                self.selection_history.is_suspended = false;
                self.servo.resume();
                self.notify(format!(
                    "{} agrees with the other sources again: steering of the system clock resumes",
                    self.name
                ));
            }
            _ => {}
        }
    }

    fn suspend(&mut self) {
        self.selection_history.is_suspended = true;
        self.notify(format!(
            "{} contradicts the majority of the sources: the system clock is not steered until \
             they agree",
            self.name
        ));
        let command = self.servo.suspend(self.clocks_read_at);
        if let Err(error) = self.stop_steering(command) {
            self.end_steering(&error);
        }
    }

    /// Leaves the clock at a constant frequency and clears its synchronised status.
    fn stop_steering(&mut self, command: Option<ServoCommand>) -> Result<(), ClockSteeringError> {
        let Some(control) = &mut self.steering else { return Ok(()) };
        if let Some(ServoCommand { frequency_ppb, .. }) = command {
            control.set_frequency(frequency_ppb)?;
            self.record_frequency(frequency_ppb);
        }
        let estimate = self.servo.estimate(self.clocks_read_at);
        let (offset, uncertainty) = estimate.map_or((Span::ZERO, f64::INFINITY), |estimate| {
            (estimate.offset, estimate.uncertainty_ns)
        });
        let Some(control) = &mut self.steering else { return Ok(()) };
        // A leap second is announced regardless of the selection.
        let leap = self.leaps.leap_to_announce(self.clocks_read_at);
        control
            .set_status(&DeclaredClockStatus { leap, ..clock_status(false, offset, uncertainty) })
    }
}
