//! Packet timestamps with their source. Of several for a packet the best is used: hardware before
//! kernel before user. Pure.

use horolog_record::{TimestampCounts, TimestampSource};
use horolog_time::{Span, Timestamp, Utc};

/// Instant at which a packet was sent or received, on the system clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketTimestamp {
    /// Instant of sending or reception.
    pub at: Timestamp<Utc>,
    /// Component that took the timestamp.
    pub source: TimestampSource,
    /// Possible error of the conversion from another clock.
    pub conversion_error: Span,
}

impl PacketTimestamp {
    /// Returns a user timestamp.
    #[must_use]
    pub const fn user(at: Timestamp<Utc>) -> Self {
        Self { at, source: TimestampSource::User, conversion_error: Span::ZERO }
    }

    /// Returns a kernel timestamp.
    #[must_use]
    pub const fn kernel(at: Timestamp<Utc>) -> Self {
        Self { at, source: TimestampSource::Kernel, conversion_error: Span::ZERO }
    }

    /// Returns a hardware timestamp that was converted from a PHC.
    #[must_use]
    pub const fn hardware(at: Timestamp<Utc>, conversion: Span) -> Self {
        Self { at, source: TimestampSource::Hardware, conversion_error: conversion }
    }

    /// Returns the better one of two timestamps of the same packet.
    #[must_use]
    pub fn best_of(self, other: Option<Self>) -> Self {
        other.filter(|other| source_rank(other.source) > source_rank(self.source)).unwrap_or(self)
    }
}

/// Returns the rank of a source by its distance from the wire, higher for a nearer one.
pub(crate) const fn source_rank(source: TimestampSource) -> u8 {
    match source {
        TimestampSource::User => 0,
        TimestampSource::Kernel => 1,
        TimestampSource::Hardware => 2,
    }
}

/// Increments the count of a timestamp source.
pub(crate) fn count_source(counts: &mut TimestampCounts, source: TimestampSource) {
    *match source {
        TimestampSource::Hardware => &mut counts.hardware,
        TimestampSource::Kernel => &mut counts.kernel,
        TimestampSource::User => &mut counts.user,
    } += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearer_to_the_wire_the_better() {
        let at = |ns| Timestamp::from_ns(ns);
        let (user, kernel) = (PacketTimestamp::user(at(1)), PacketTimestamp::kernel(at(2)));
        let hardware = PacketTimestamp::hardware(at(3), Span::from_ns(50));
        assert_eq!(user.best_of(None), user);
        assert_eq!(user.best_of(Some(kernel)), kernel);
        assert_eq!(kernel.best_of(Some(user)), kernel);
        assert_eq!(user.best_of(Some(kernel)).best_of(Some(hardware)), hardware);
        assert_eq!(hardware.best_of(Some(kernel)), hardware);
        let mut counts = TimestampCounts::default();
        for one in [user, kernel, kernel] {
            count_source(&mut counts, one.source);
        }
        assert_eq!(counts, TimestampCounts { hardware: 0, kernel: 2, user: 1 });
    }
}
