//! Suspension of steering while the majority of the sources contradicts the calibration: it may be
//! right, but must not set the clock that all of them use. It continues to estimate and report its
//! time, and steers again when it agrees with the others.

use horolog_discipline::ServoCommand;
use horolog_sys::clock_steering::ClockStatus;
use horolog_time::Span;

use super::Calibrator;
use super::steer::clock_status;
use crate::{ClockControlError, SelectionState};

/// Consecutive adverse selections, one a second, that suspend steering; a single one may be due to
/// a brief error of another source.
const ADVERSE_SELECTIONS_MAX: u32 = 3;

/// Results of recent selections.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SelectionHistory {
    /// Consecutive selections in which the calibration was a falseticker.
    adverse_selections: u32,
    pub(super) is_suspended: bool,
}

impl Calibrator {
    /// Processes the calibration's selection state; states without an estimate are ignored.
    pub(in crate::calibration) fn selection_changed(&mut self, state: SelectionState) {
        match state {
            SelectionState::Falseticker => {
                self.selection_history.adverse_selections =
                    (self.selection_history.adverse_selections + 1).min(ADVERSE_SELECTIONS_MAX)
            }
            SelectionState::Selected | SelectionState::Truechimer => {
                self.selection_history.adverse_selections = 0
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
    fn stop_steering(&mut self, command: Option<ServoCommand>) -> Result<(), ClockControlError> {
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
        control.set_status(&ClockStatus { leap, ..clock_status(false, offset, uncertainty) })
    }
}
