//! A calibration that the majority of the sources contradicts steers the clock no more: whom nobody
//! else believes may be right, and must not set what all go by. It goes on to compute and to say
//! its time, and steers again when it agrees with the others.

use horolog_discipline::Command;
use horolog_sys::clock_steering::Declaration;
use horolog_time::Span;

use super::Calibrator;
use super::steer::declaration;
use crate::{ControlError, Standing};

/// Votes in a row, one a second, that end the steering: one of them may be a source that stumbles.
const VOTES: u32 = 3;

/// What the votes have come to.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Votes {
    /// Those in a row that went against it.
    against: u32,
    pub(super) is_suspended: bool,
}

impl Calibrator {
    /// Takes what the calibration counted for in a vote. Without a word of its own it has none.
    pub(in crate::calibration) fn judged(&mut self, standing: Standing) {
        match standing {
            Standing::Falseticker => self.votes.against = (self.votes.against + 1).min(VOTES),
            Standing::Selected | Standing::Truechimer => self.votes.against = 0,
            Standing::Undecided | Standing::Silent | Standing::Unusable => return,
        }
        let is_out = self.votes.against >= VOTES;
        match (is_out && self.control.is_some(), self.votes.is_suspended) {
            (true, false) => self.suspend(),
            (false, true) if self.votes.against == 0 => {
                self.votes.is_suspended = false;
                self.servo.resume();
                self.notify(format!(
                    "{} agrees with the other sources again: the system clock is steered",
                    self.name
                ));
            }
            _ => {}
        }
    }

    fn suspend(&mut self) {
        self.votes.is_suspended = true;
        self.notify(format!(
            "the majority of the sources contradicts {}: the system clock is not steered until \
             they agree",
            self.name
        ));
        let command = self.servo.suspend(self.looked);
        if let Err(error) = self.hold(command) {
            self.end_control(&error);
        }
    }

    /// Leaves the clock at a frequency, and declares it right no more.
    fn hold(&mut self, command: Option<Command>) -> Result<(), ControlError> {
        let Some(control) = &mut self.control else { return Ok(()) };
        if let Some(Command { frequency_ppb, .. }) = command {
            control.set_frequency(frequency_ppb)?;
            self.note_frequency(frequency_ppb);
        }
        let estimate = self.servo.estimate(self.looked);
        let (offset, uncertainty) = estimate.map_or((Span::ZERO, f64::INFINITY), |estimate| {
            (estimate.offset, estimate.uncertainty_ns)
        });
        let Some(control) = &mut self.control else { return Ok(()) };
        // A leap second comes whoever is believed.
        let leap = self.leaps.declares(self.looked);
        control.declare(&Declaration { leap, ..declaration(false, offset, uncertainty) })
    }
}
