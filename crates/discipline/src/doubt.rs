//! Why a pulse or a sentence is not believed.

use horolog_time::Span;
use thiserror::Error;

/// Why a pulse has no label.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PulseDoubt {
    /// The same edge, read again.
    #[error("the same edge was read before")]
    Repeated,
    /// It came earlier than the one before.
    #[error("it is earlier than the pulse before it")]
    Backwards,
    /// No second has been agreed on: sentences are awaited.
    #[error("no second is known yet: sentences must name it several times in a row")]
    NoSecond,
    /// It stands between the seconds.
    #[error("it came {0:?} away from the start of a second")]
    OffGrid(Span),
    /// It is the first after a gap, and none came a second or two before it to confirm it.
    #[error("it comes after a gap and is not confirmed by a pulse a second before")]
    AfterGap,
    /// So many come in a second, at even distances; only one can be right.
    #[error("{0} pulses come in a second: set the receiver to one")]
    Rate(u32),
    /// Sentences have agreed on another second than the pulses' count.
    #[error("sentences name another second than the count of pulses")]
    Disputed,
    /// No sentence has confirmed the count for too long.
    #[error("no sentence has confirmed the count of seconds for too long")]
    Unconfirmed,
    /// The edge is the end of the pulse: the line is high for so long.
    #[error("the pulse is {0:?} long from this edge to the next: take the other edge")]
    Polarity(Span),
    /// It marks the second 60, which a POSIX clock has no reading of its own for.
    #[error("it marks a leap second")]
    LeapSecond,
}

impl PulseDoubt {
    /// Its name where doubts are counted.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Repeated => "repeated",
            Self::Backwards => "backwards",
            Self::NoSecond => "no-second",
            Self::OffGrid(_) => "off-grid",
            Self::AfterGap => "after-gap",
            Self::Rate(_) => "rate",
            Self::Disputed => "disputed",
            Self::Unconfirmed => "unconfirmed",
            Self::Polarity(_) => "polarity",
            Self::LeapSecond => "leap-second",
        }
    }
}

/// Why a sentence was not counted for a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SentenceDoubt {
    /// The receiver says that it does not know the time.
    #[error("the receiver has no fix")]
    Void,
    /// It names an instant within a second.
    #[error("it names no whole second")]
    Fractional,
    /// It names the second 60, of which nothing follows for a clock's reading.
    #[error("it names a leap second")]
    LeapSecond,
    /// It names the second that the one before it named.
    #[error("it names the same second as the sentence before it")]
    Repeated,
    /// No regular pulse came before it, so there is none that it could name.
    #[error("no pulse comes every second")]
    NoPulse,
    /// Pulses are such that none can be taken for the start of a second.
    #[error("{0}")]
    Pulse(PulseDoubt),
    /// It came so long after a pulse, more or less than sentences do.
    #[error("it came {0:?} after the pulse, where no sentence of this second should")]
    Lag(Span),
    /// It names a second so far from the one that was counted.
    #[error("it names a second {0:?} away from the one that was counted")]
    Disagrees(Span),
    /// It is so many times 1024 weeks away: the receiver has miscounted the weeks of GPS.
    #[error("it is {0} times 1024 weeks off, as a receiver that has miscounted the weeks of GPS")]
    Rollover(i64),
    /// It names a time before this program was made.
    #[error("it names a time that is past for certain")]
    Past,
}

impl SentenceDoubt {
    /// Its name where doubts are counted.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Void => "void",
            Self::Fractional => "fractional",
            Self::LeapSecond => "leap-second",
            Self::Repeated => "repeated",
            Self::NoPulse => "no-pulse",
            Self::Pulse(doubt) => doubt.kind(),
            Self::Lag(_) => "lag",
            Self::Disagrees(_) => "disagrees",
            Self::Rollover(_) => "rollover",
            Self::Past => "past",
        }
    }
}
