//! What the servo says: how well the clock is known, what is known of it and what is to be done.

use std::fmt;

use horolog_time::{Monotonic, Span, Timestamp};
use serde::{Deserialize, Serialize};

use crate::ClockErrorEntry;

/// How well the clock is known.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// No pulses have been understood yet.
    #[default]
    Starting,
    /// The estimate is good and the clock is on its way.
    Locking,
    /// The clock follows the pulses.
    Locked,
    /// Pulses have stopped; the clock runs by what is known of it.
    Holdover,
    /// It is not known well enough what time it is.
    Unsynchronised,
}

impl State {
    /// Whether the estimate may be served, with its uncertainty.
    #[must_use]
    pub fn is_synchronised(self) -> bool {
        matches!(self, Self::Locking | Self::Locked | Self::Holdover)
    }
}

impl fmt::Display for State {
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

/// What is to be done to the clock, now.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Command {
    /// The correction of the frequency from now on, against the clock's nominal one, in ppb.
    pub frequency_ppb: f64,
    /// What is to be added to the clock's reading.
    pub step: Option<Span>,
}

/// What is known of the clock at an instant.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The instant.
    pub at: Timestamp<Monotonic>,
    /// How far the clock is ahead of UTC. A server takes this off what it serves; of a clock that
    /// is steered and locked little is left.
    pub offset: Span,
    /// How fast that grows, in ppb, with the correction of the frequency that holds.
    pub rate_ppb: f64,
    /// The frequency of the clock without correction, in ppb.
    pub frequency_ppb: f64,
    /// Standard deviation of the offset, in ns; in holdover it grows as the oscillator's model
    /// says.
    pub uncertainty_ns: f64,
}

/// What follows from a pulse, or from its absence.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Decision {
    /// For the clock-error log.
    pub entry: ClockErrorEntry,
    /// What is to be done to the clock, if it is steered and there is something.
    pub command: Option<Command>,
}
