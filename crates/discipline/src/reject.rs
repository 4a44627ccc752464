//! Reasons for which a pulse or a sentence is rejected.

use horolog_time::Span;
use thiserror::Error;

use crate::ImplausibilityReason;

/// Reason for which a pulse has no label.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PulseRejectReason {
    /// Edge that was already read.
    #[error("duplicate of an edge read before")]
    Repeated,
    /// The edge is earlier than the previous one.
    #[error("earlier than the previous pulse")]
    Backwards,
    /// No second is established yet: more sentences are needed.
    #[error("its second is unknown: sentences must report it several times in a row")]
    NoSecond,
    /// The edge is this far from a whole second.
    #[error("{0:.3} off the start of a second")]
    OffGrid(Span),
    /// First pulse after a gap, without pulses one and two seconds before it that would confirm it.
    #[error("first after a gap, not confirmed by a pulse a second earlier")]
    AfterGap,
    /// This many pulses arrive per second, each of them regularly; only one can mark the second.
    #[error("{0} pulses per second: configure the receiver for one")]
    Rate(u32),
    /// Sentences agree on another second than the counted one.
    #[error("sentences report another second than the count of pulses")]
    Disputed,
    /// No sentence has confirmed the count for too long.
    #[error("no sentence has confirmed the count of seconds for too long")]
    Unconfirmed,
    /// The edge is the end of the pulse: this is the time from it to the opposite edge.
    #[error("the pulse is {0:.1} long from this edge to the next: select the other edge")]
    Polarity(Span),
    /// The pulse marks second 60, which has no POSIX time of its own.
    #[error("marks a leap second")]
    LeapSecond,
}

impl PulseRejectReason {
    /// Returns the name under which rejects are counted.
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

/// Reason for which a sentence was not counted for a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SentenceRejectReason {
    /// The receiver reports that its time is not valid.
    #[error("the receiver has no fix")]
    Void,
    /// The sentence names second 60, which determines no reading of a clock.
    #[error("reports a leap second")]
    LeapSecond,
    /// The sentence names the same second as the previous one.
    #[error("same second as the previous sentence")]
    Repeated,
    /// No regular pulse precedes the sentence.
    #[error("no pulse arrives every second")]
    NoPulse,
    /// No pulse can be the start of a second, for this reason.
    #[error("{0}")]
    Pulse(PulseRejectReason),
    /// The sentence began this long after its pulse, outside the permitted range.
    #[error("arrival {0:.0} after the reported instant, unlike other sentences of its kind")]
    Lag(Span),
    /// The named second differs by this much from the counted one.
    #[error("reported second is {0} away from the counted one")]
    Disagrees(Span),
    /// The named time is not plausible.
    #[error("{0}")]
    Implausible(ImplausibilityReason),
}

impl SentenceRejectReason {
    /// Returns the name under which rejects are counted.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Void => "void",
            Self::LeapSecond => "leap-second",
            Self::Repeated => "repeated",
            Self::NoPulse => "no-pulse",
            Self::Pulse(reject) => reject.kind(),
            Self::Lag(_) => "lag",
            Self::Disagrees(_) => "disagrees",
            Self::Implausible(reason) => reason.name(),
        }
    }
}
