//! What comes of a receiver: pulses, which mark the start of a second, and sentences, which name
//! one.

use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};

/// A pulse's edge, as the kernel's PPS API (RFC 2783) or a card's timestamping tells of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pulse {
    /// When it came, by the monotonic clock.
    pub monotonic: Timestamp<Monotonic>,
    /// What the clock that is to be disciplined showed at the edge.
    pub realtime: Timestamp<Utc>,
    /// The count of edges by whoever took it: the same number is the same edge, read twice.
    pub sequence: u64,
}

/// A sentence that names a second, such as RMC or ZDA (IEC 61162-1). It begins to come some time
/// after the start of the second that it names, and so after that second's pulse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sentence {
    /// The instant that it names; of the second 60 that of the second before.
    pub second: Timestamp<Utc>,
    /// When its first character came.
    pub received: Timestamp<Monotonic>,
    /// Whether the receiver says that it knows the time.
    pub is_valid: bool,
    /// Whether it names the second 60, which follows `second`.
    pub is_leap_second: bool,
}

/// A pulse of which it is known which second it marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LabelledPulse {
    /// The pulse.
    pub pulse: Pulse,
    /// UTC at the edge as it was taken: the second that it marks, and how long the edge was on its
    /// way, by antenna, cable and interrupt.
    pub utc: Timestamp<Utc>,
}

impl LabelledPulse {
    /// How far the clock was ahead of UTC at the edge.
    #[must_use]
    pub fn offset(&self) -> Span {
        self.pulse.realtime - self.utc
    }

    /// The second that it marks.
    #[must_use]
    pub fn second(&self) -> Timestamp<Utc> {
        Timestamp::from_ns((self.utc.as_ns() + NS_PER_S / 2).div_euclid(NS_PER_S) * NS_PER_S)
    }
}
