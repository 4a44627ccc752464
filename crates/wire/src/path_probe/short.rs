//! Short format of probes and echoes, for datagrams of 16 to 47 bytes: 16 bytes with session,
//! sequence number and times. Sessions are opened and closed with full-length datagrams.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | `h` |
//! | 1 | kind, plus 128 for a warm-up probe |
//! | 2 | of an echo: traffic class of the probe on arrival |
//! | 3 | of an echo: low 8 bits of the number of counted probes received |
//! | 4–7 | sequence number |
//! | 8–15 | of a probe: session |
//! | 8–11 | of an echo: low 32 bits of the receive time of the probe, in ns since 1970 |
//! | 12 | of an echo: low 8 bits of the session |
//! | 13–15 | of an echo: time from the arrival of the probe to its echo, saturating, in 8 ns |
//!
//! Bytes 16 to 47 are padding. Only the counts datagram at the end has the far end's other counts.

use super::{HEADER_LEN, PathDatagramKind};
use crate::ParseError;

/// Length of a short probe and of its echo without padding, in bytes.
pub const LEN: usize = 16;

const MAGIC: u8 = b'h';
const WARM_UP_BIT: u8 = 128;
/// Unit of the turnaround time, in ns.
const TURNAROUND_UNIT_NS: i64 = 8;
const TURNAROUND_UNITS_MAX: i64 = (1 << 24) - 1;

/// Probe in the short format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShortProbe {
    /// True for a warm-up probe, which is not counted.
    pub warm_up: bool,
    /// Sequence number of the probe.
    pub sequence: u32,
    /// Session identifier.
    pub session: u64,
}

/// Echo of a probe in the short format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShortEcho {
    /// True if the probe belonged to the warm-up.
    pub warm_up: bool,
    /// Traffic class of the probe on arrival.
    pub traffic_class: u8,
    /// Low 8 bits of the number of counted probes received.
    pub arrivals: u8,
    /// Sequence number of the probe.
    pub sequence: u32,
    /// Low 8 bits of the session.
    pub session: u8,
    /// Low 32 bits of the receive time of the probe, in ns since 1970 on the far end's clock.
    pub received: u32,
    /// Turnaround time at the far end: from the arrival of the probe to its echo, in ns; sent in
    /// units of 8 ns, at most 134 ms.
    pub turnaround_ns: i64,
}

/// Checks magic number and kind; returns the 16 header bytes, and true if the warm-up bit is set. A
/// datagram of 48 bytes or more is [`ParseError::Length`].
fn split_prefix(bytes: &[u8], kind: PathDatagramKind) -> Result<(&[u8; LEN], bool), ParseError> {
    let first = bytes.first_chunk().ok_or(ParseError::Truncated)?;
    if bytes.len() >= HEADER_LEN {
        return Err(ParseError::Length);
    }
    if first[0] != MAGIC || first[1] & !WARM_UP_BIT != kind as u8 {
        return Err(ParseError::Version);
    }
    Ok((first, first[1] & WARM_UP_BIT != 0))
}

fn write_prefix(buffer: &mut [u8], kind: PathDatagramKind, warm_up: bool, sequence: u32) {
    buffer[..LEN].fill(0);
    buffer[0] = MAGIC;
    buffer[1] = kind as u8 | if warm_up { WARM_UP_BIT } else { 0 };
    buffer[4..8].copy_from_slice(&sequence.to_be_bytes());
}

impl ShortProbe {
    /// Parses a probe of 16 to 47 bytes. Another magic number or kind is [`ParseError::Version`], a
    /// datagram of another length [`ParseError::Truncated`] or [`ParseError::Length`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (bytes, warm_up) = split_prefix(bytes, PathDatagramKind::Probe)?;
        Ok(Self { warm_up, sequence: u32_at(bytes, 4), session: parse_session(bytes) })
    }

    /// Writes the probe to the front of `buffer`.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`LEN`].
    pub fn emit(&self, buffer: &mut [u8]) {
        write_prefix(buffer, PathDatagramKind::Probe, self.warm_up, self.sequence);
        buffer[8..LEN].copy_from_slice(&self.session.to_be_bytes());
    }
}

/// Returns the big-endian 32-bit number at offset `at`, which is at most 12.
const fn u32_at(bytes: &[u8; LEN], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

const fn parse_session(bytes: &[u8; LEN]) -> u64 {
    (u32_at(bytes, 8) as u64) << 32 | u32_at(bytes, 12) as u64
}

impl ShortEcho {
    /// Parses an echo of 16 to 47 bytes. Another magic number or kind is [`ParseError::Version`], a
    /// datagram of another length [`ParseError::Truncated`] or [`ParseError::Length`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (bytes, warm_up) = split_prefix(bytes, PathDatagramKind::Echo)?;
        let last = u32_at(bytes, 12);
        Ok(Self {
            warm_up,
            traffic_class: bytes[2],
            arrivals: bytes[3],
            sequence: u32_at(bytes, 4),
            session: bytes[12],
            received: u32_at(bytes, 8),
            turnaround_ns: (i64::from(last) & TURNAROUND_UNITS_MAX) * TURNAROUND_UNIT_NS,
        })
    }

    /// Writes the echo to the front of `buffer`.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`LEN`].
    pub fn emit(&self, buffer: &mut [u8]) {
        write_prefix(buffer, PathDatagramKind::Echo, self.warm_up, self.sequence);
        buffer[2] = self.traffic_class;
        buffer[3] = self.arrivals;
        buffer[8..12].copy_from_slice(&self.received.to_be_bytes());
        buffer[12] = self.session;
        set_turnaround(buffer, self.turnaround_ns);
    }

    /// Returns the full receive time of the probe in ns since 1970, by extending the transmitted 32
    /// bits. `near_ns` must be less than 2 s away from it.
    #[must_use]
    pub const fn received_ns(&self, near_ns: i64) -> i64 {
        let ahead = self.received.wrapping_sub(near_ns as u32);
        near_ns.saturating_add(ahead.cast_signed() as i64)
    }
}

/// Writes the turnaround time `held_ns` into an encoded echo, rounded down to units of 8 ns and
/// clamped to 0 to 134 ms.
///
/// # Panics
///
/// If the echo is shorter than [`LEN`].
pub fn set_turnaround(echo: &mut [u8], held_ns: i64) {
    let units = (held_ns / TURNAROUND_UNIT_NS).clamp(0, TURNAROUND_UNITS_MAX) as u32;
    echo[13..LEN].copy_from_slice(&units.to_be_bytes()[1..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ECHO: ShortEcho = ShortEcho {
        warm_up: true,
        traffic_class: 0xb8,
        arrivals: 3,
        sequence: 0x0102_0304,
        session: 9,
        received: 0x0506_0708,
        turnaround_ns: 0x0a_0b0c << 3,
    };

    #[test]
    fn the_fields_are_at_the_documented_offsets() {
        let mut bytes = [0xff; 17];
        let probe = ShortProbe { warm_up: false, sequence: 5, session: 0x0102_0304_0506_0708 };
        probe.emit(&mut bytes);
        assert_eq!(bytes, [b'h', 4, 0, 0, 0, 0, 0, 5, 1, 2, 3, 4, 5, 6, 7, 8, 0xff]);
        assert_eq!(ShortProbe::parse(&bytes), Ok(probe));
        assert_eq!(ShortEcho::parse(&bytes), Err(ParseError::Version), "a probe is no echo");
        ECHO.emit(&mut bytes);
        let expected = [b'h', 133, 0xb8, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0x0a, 0x0b, 0x0c, 0xff];
        assert_eq!(bytes, expected);
        assert_eq!(ShortEcho::parse(&bytes), Ok(ECHO));
        assert_eq!(ShortProbe::parse(&bytes), Err(ParseError::Version), "an echo is no probe");
    }

    #[test]
    fn one_length_has_one_format() {
        let mut bytes = [0; HEADER_LEN];
        ECHO.emit(&mut bytes);
        assert_eq!(ShortEcho::parse(&bytes[..LEN - 1]), Err(ParseError::Truncated));
        assert_eq!(ShortEcho::parse(&bytes), Err(ParseError::Length));
        assert!((LEN..HEADER_LEN).all(|length| ShortEcho::parse(&bytes[..length]) == Ok(ECHO)));
    }

    #[test]
    fn what_is_too_long_for_its_field_is_the_longest() {
        let mut bytes = [0; LEN];
        for (held_ns, written) in
            [(-5, 0), (7, 0), (8, 8), (i64::MAX, TURNAROUND_UNITS_MAX * TURNAROUND_UNIT_NS)]
        {
            ShortEcho { turnaround_ns: held_ns, ..ECHO }.emit(&mut bytes);
            assert_eq!(ShortEcho::parse(&bytes).unwrap().turnaround_ns, written);
        }
    }

    proptest! {
        #[test]
        fn a_time_is_known_from_one_near_to_it(
            came in 0_i64..2_000_000_000_000_000_000,
            away in -2_000_000_000_i64..2_000_000_000,
        ) {
            let echo = ShortEcho { received: came as u32, ..ECHO };
            prop_assert_eq!(echo.received_ns(came + away), came);
        }
    }
}
