//! Input from a receiver: pulses, which mark the start of a second, and sentences, which name one.

use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};

/// Edge of a pulse, as reported by the kernel's PPS API (RFC 2783) or by the timestamping of a NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pulse {
    /// Instant of the edge by the monotonic clock.
    pub monotonic: Timestamp<Monotonic>,
    /// Reading of the disciplined clock at the edge.
    pub realtime: Timestamp<Utc>,
    /// Edge count of the device that timestamped it: equal numbers are one edge, read twice.
    pub sequence: u64,
}

/// Sentence that names a second, such as RMC or ZDA (IEC 61162-1). It begins to arrive some time
/// after the start of the second that it names, and so after that second's pulse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sentence {
    /// Named instant; for second 60 that of the preceding second.
    pub second: Timestamp<Utc>,
    /// Arrival of its first character.
    pub received: Timestamp<Monotonic>,
    /// True if the receiver reports a valid time.
    pub is_valid: bool,
    /// True if the sentence names second 60, which follows `second`.
    pub is_leap_second: bool,
}

/// Pulse with the second that it marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LabelledPulse {
    /// Edge of the pulse.
    pub pulse: Pulse,
    /// UTC at the timestamp of the edge: the second that it marks plus the delay of antenna, cable
    /// and interrupt.
    pub utc: Timestamp<Utc>,
}

impl LabelledPulse {
    /// Returns clock minus UTC at the edge.
    #[must_use]
    pub fn offset(&self) -> Span {
        self.pulse.realtime - self.utc
    }

    /// Returns the second that the pulse marks: `utc` rounded to a whole second.
    #[must_use]
    pub fn second(&self) -> Timestamp<Utc> {
        Timestamp::from_ns((self.utc.as_ns() + NS_PER_S / 2).div_euclid(NS_PER_S) * NS_PER_S)
    }
}
