//! End of steering by a calibration that the majority of the sources contradicts: it may be right,
//! but must not set the clock that all others use. It continues to compute and to report its time,
//! and steers again when it agrees with the others.

use horolog_discipline::ServoCommand;
use horolog_sys::clock_steering::ClockStatus;
use horolog_time::Span;

use super::Calibrator;
use super::steer::declaration;
use crate::{ClockControlError, SelectionState};

/// Number of consecutive adverse selections, one a second, that end the steering: a single one may
/// be due to a source with a brief error.
const VOTES: u32 = 3;

/// Results of the selections so far.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SelectionHistory {
    /// Consecutive selections against the calibration.
    against: u32,
    pub(super) is_suspended: bool,
}

impl Calibrator {
    /// Takes the selection state of the calibration. Without an estimate of its own it has none.
    pub(in crate::calibration) fn judged(&mut self, standing: SelectionState) {
        match standing {
            SelectionState::Falseticker => self.votes.against = (self.votes.against + 1).min(VOTES),
            SelectionState::Selected | SelectionState::Truechimer => self.votes.against = 0,
            SelectionState::Undecided | SelectionState::Unresponsive | SelectionState::Unusable => {
                return;
            }
        }
        let is_out = self.votes.against >= VOTES;
        match (is_out && self.control.is_some(), self.votes.is_suspended) {
            (true, false) => self.suspend(),
            (false, true) if self.votes.against == 0 => {
                self.votes.is_suspended = false;
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
        self.votes.is_suspended = true;
        self.notify(format!(
            "{} contradicts the majority of the sources: the system clock is not steered until \
             they agree",
            self.name
        ));
        let command = self.servo.suspend(self.clocks_read_at);
        if let Err(error) = self.hold(command) {
            self.end_control(&error);
        }
    }

    /// Leaves the clock at a frequency, and clears its synchronised status.
    fn hold(&mut self, command: Option<ServoCommand>) -> Result<(), ClockControlError> {
        let Some(control) = &mut self.control else { return Ok(()) };
        if let Some(ServoCommand { frequency_ppb, .. }) = command {
            control.set_frequency(frequency_ppb)?;
            self.note_frequency(frequency_ppb);
        }
        let estimate = self.servo.estimate(self.clocks_read_at);
        let (offset, uncertainty) = estimate.map_or((Span::ZERO, f64::INFINITY), |estimate| {
            (estimate.offset, estimate.uncertainty_ns)
        });
        let Some(control) = &mut self.control else { return Ok(()) };
        // A leap second comes regardless of the selection.
        let leap = self.leaps.declares(self.clocks_read_at);
        control.set_status(&ClockStatus { leap, ..declaration(false, offset, uncertainty) })
    }
}
