//! Output of the servo: state of synchronisation, estimate of the clock, and command.

use std::fmt;

use horolog_time::{Monotonic, Span, Timestamp};
use serde::{Deserialize, Serialize};

use crate::ClockErrorLogEntry;

/// State of synchronisation of the clock.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SynchronisationState {
    /// No estimate yet: no filter has started.
    #[default]
    Starting,
    /// The estimate is good and the clock is approaching UTC.
    Locking,
    /// The clock follows the pulses.
    Locked,
    /// Pulses have stopped; the clock runs by the last estimate.
    Holdover,
    /// The uncertainty of the time is too large, pulses have been absent for too long, or several
    /// in a row contradict the estimate.
    Unsynchronised,
}

impl SynchronisationState {
    /// Returns true if the estimate may be served, with its uncertainty.
    #[must_use]
    pub fn is_synchronised(self) -> bool {
        matches!(self, Self::Locking | Self::Locked | Self::Holdover)
    }
}

impl fmt::Display for SynchronisationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Locking => "locking",
            Self::Locked => "locked",
            Self::Holdover => "holdover",
            Self::Unsynchronised => "unsynchronised",
        })
    }
}

/// Command to be applied to the clock now.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ServoCommand {
    /// Frequency correction relative to the nominal frequency, in ppb, replacing the previous one.
    pub frequency_ppb: f64,
    /// Step to be added to the clock's reading.
    pub step: Option<Span>,
}

/// Estimate of the clock at an instant.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ServoEstimate {
    /// Instant of the estimate.
    pub at: Timestamp<Monotonic>,
    /// Clock minus UTC. A server subtracts it from the clock's time; it is small if the clock is
    /// steered and locked.
    pub offset: Span,
    /// Rate of change of the offset, in ppb, with the present frequency correction.
    pub rate_ppb: f64,
    /// Frequency error of the clock without correction, in ppb.
    pub frequency_ppb: f64,
    /// Standard deviation of the offset, in ns; in holdover it grows by the oscillator's
    /// model.
    pub uncertainty_ns: f64,
}

/// Result of a pulse, or of its absence.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ServoDecision {
    /// Entry of the clock-error log.
    pub entry: ClockErrorLogEntry,
    /// Command for the clock; `None` if it is not steered or has no estimate.
    pub command: Option<ServoCommand>,
}
