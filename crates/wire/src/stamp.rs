//! Test packets of STAMP, the Simple Two-way Active Measurement Protocol (RFC 8762), in
//! unauthenticated mode: the session-sender packet (section 4.2.1) and the session-reflector packet
//! (section 4.3.1), of 44 bytes plus padding. The session identifier is that of RFC 8972, section
//! 3. Authenticated mode is not supported; TLVs of RFC 8972 are treated as padding.

use horolog_time::{NtpTimestamp, Span, Timestamp, Utc};
use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ParseError;

/// Length of either packet without padding, in bytes.
pub const PACKET_LEN: usize = 44;
/// UDP port of a reflector (RFC 8762, section 4.1; RFC 8545).
pub const PORT: u16 = 862;
/// TTL or hop limit of a sender's packets (RFC 8762, section 4.2.1).
pub const SENDER_HOP_LIMIT: u8 = 255;

/// Error Estimate field of a timestamp (RFC 8762, section 4.2.1; RFC 4656, section 4.1.2): bit S
/// (synchronised), bit Z (PTP format), a scale of 6 bits and a multiplier of 8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorEstimate(u16);

impl ErrorEstimate {
    const SYNCHRONISED: u16 = 1 << 15;
    const PTP: u16 = 1 << 14;
    const SCALE_MAX: u32 = 63;

    /// Returns the estimate encoded in the 16 bits of the field.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Returns the 16 bits of the field.
    #[must_use]
    pub const fn to_bits(self) -> u16 {
        self.0
    }

    /// Returns the estimate for NTP timestamps of a clock with the error bound `error`, rounded up;
    /// an error below 1 ns counts as 1 ns. The multiplier is never 0, which would be invalid.
    #[must_use]
    pub const fn new(error: Span, synchronised: bool) -> Self {
        let error_ns = if error.as_ns() < 1 { 1 } else { error.as_ns() };
        // In units of 2^-32 s, rounded up.
        let units = ((error_ns as u128) << 32).div_ceil(1_000_000_000);
        let mut scale = 0;
        while scale < Self::SCALE_MAX && units.div_ceil(1 << scale) > u8::MAX as u128 {
            scale += 1;
        }
        let multiplier = units.div_ceil(1 << scale) as u16;
        let flag = if synchronised { Self::SYNCHRONISED } else { 0 };
        Self(flag | (scale as u16) << 8 | multiplier)
    }

    /// Returns the stated error, multiplier × 2^(scale − 32) s, rounded down to ns; saturates.
    /// `None` for the invalid multiplier 0.
    #[must_use]
    pub const fn error(self) -> Option<Span> {
        let (multiplier, scale) = (self.0 & 0xff, self.0 >> 8 & 0x3f);
        if multiplier == 0 {
            return None;
        }
        let units = (multiplier as u128) << scale;
        let ns = (units * 1_000_000_000) >> 32;
        let ns = if ns > i64::MAX as u128 { i64::MAX } else { ns as i64 };
        Some(Span::from_ns(ns))
    }

    /// Returns true if the sender states that its clock is synchronised to UTC.
    #[must_use]
    pub const fn is_synchronised(self) -> bool {
        self.0 & Self::SYNCHRONISED != 0
    }

    /// Returns true if timestamps are in the format of PTP (bit Z in RFC 8762).
    #[must_use]
    pub const fn is_ptp(self) -> bool {
        self.0 & Self::PTP != 0
    }
}

/// Timestamp field of 64 bits: NTP format or truncated PTP format (seconds, nanoseconds), as stated
/// by the error estimate that follows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawTimestamp(pub u64);

impl RawTimestamp {
    /// Encodes an instant in NTP format.
    #[must_use]
    pub const fn from_utc(instant: Timestamp<Utc>) -> Self {
        Self(NtpTimestamp::from_utc(instant).to_bits())
    }

    /// Decodes the timestamp in the format stated by `estimate`, in the era nearest to `pivot`. PTP
    /// seconds are used unchanged, even if they count TAI. `None` if the nanoseconds are 10^9 or
    /// more.
    #[must_use]
    pub const fn to_utc(
        self,
        estimate: ErrorEstimate,
        pivot: Timestamp<Utc>,
    ) -> Option<Timestamp<Utc>> {
        if !estimate.is_ptp() {
            return Some(NtpTimestamp::from_bits(self.0).to_utc(pivot));
        }
        let (seconds, nanoseconds) = ((self.0 >> 32) as u32, self.0 as u32);
        if nanoseconds >= 1_000_000_000 {
            return None;
        }
        // Only the low 32 bits of the seconds are transmitted.
        let (now, _) = pivot.to_timespec();
        let difference = seconds.wrapping_sub(now as u32).cast_signed();
        Some(Timestamp::from_timespec(now.saturating_add(difference as i64), nanoseconds as i64))
    }
}

/// Test packet of a session-sender (RFC 8762, section 4.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SenderPacket {
    /// Sequence number, from 0.
    pub sequence: u32,
    /// Transmit time of the sender's packet.
    pub timestamp: RawTimestamp,
    /// Error estimate of the timestamp.
    pub error_estimate: ErrorEstimate,
    /// Session identifier; 0 for a sender without one (RFC 8972).
    pub session: u16,
}

/// Reply of a session-reflector to a test packet (RFC 8762, section 4.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReflectorPacket {
    /// Sequence number: the sender's in a stateless reflector, an own count in a stateful one.
    pub sequence: u32,
    /// Transmit time of the reply.
    pub timestamp: RawTimestamp,
    /// Error estimate of the reflector's timestamps.
    pub error_estimate: ErrorEstimate,
    /// Session identifier, copied from the sender's packet.
    pub session: u16,
    /// Receive time of the sender's packet.
    pub received: RawTimestamp,
    /// Sequence number, timestamp and error estimate copied from the sender's packet, with the
    /// session identifier of this packet.
    pub sender: SenderPacket,
    /// TTL or hop limit of the sender's packet on arrival.
    pub sender_hop_limit: u8,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct SenderLayout {
    sequence: U32,
    timestamp: U64,
    error_estimate: U16,
    session: U16,
    zero: [u8; 28],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ReflectorLayout {
    sequence: U32,
    timestamp: U64,
    error_estimate: U16,
    session: U16,
    received: U64,
    sender_sequence: U32,
    sender_timestamp: U64,
    sender_error_estimate: U16,
    zero: [u8; 2],
    sender_hop_limit: u8,
    more_zero: [u8; 3],
}

const _: () = assert!(size_of::<SenderLayout>() == PACKET_LEN);
const _: () = assert!(size_of::<ReflectorLayout>() == PACKET_LEN);

impl SenderPacket {
    /// Parses a packet of a session-sender; returns it with the padding. Fields that must be zero
    /// are ignored.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (layout, rest) =
            SenderLayout::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
        let packet = Self {
            sequence: layout.sequence.get(),
            timestamp: RawTimestamp(layout.timestamp.get()),
            error_estimate: ErrorEstimate(layout.error_estimate.get()),
            session: layout.session.get(),
        };
        Ok((packet, rest))
    }

    /// Writes the packet to the front of `buffer`; returns its length.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`PACKET_LEN`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let layout = SenderLayout {
            sequence: U32::new(self.sequence),
            timestamp: U64::new(self.timestamp.0),
            error_estimate: U16::new(self.error_estimate.0),
            session: U16::new(self.session),
            zero: [0; 28],
        };
        buffer[..PACKET_LEN].copy_from_slice(layout.as_bytes());
        PACKET_LEN
    }
}

impl ReflectorPacket {
    /// Parses a packet of a session-reflector; returns it with the padding. Fields that must be
    /// zero are ignored.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (layout, rest) =
            ReflectorLayout::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
        let session = layout.session.get();
        let packet = Self {
            sequence: layout.sequence.get(),
            timestamp: RawTimestamp(layout.timestamp.get()),
            error_estimate: ErrorEstimate(layout.error_estimate.get()),
            session,
            received: RawTimestamp(layout.received.get()),
            sender: SenderPacket {
                sequence: layout.sender_sequence.get(),
                timestamp: RawTimestamp(layout.sender_timestamp.get()),
                error_estimate: ErrorEstimate(layout.sender_error_estimate.get()),
                session,
            },
            sender_hop_limit: layout.sender_hop_limit,
        };
        Ok((packet, rest))
    }

    /// Writes the packet to the front of `buffer`; returns its length.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`PACKET_LEN`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let layout = ReflectorLayout {
            sequence: U32::new(self.sequence),
            timestamp: U64::new(self.timestamp.0),
            error_estimate: U16::new(self.error_estimate.0),
            session: U16::new(self.session),
            received: U64::new(self.received.0),
            sender_sequence: U32::new(self.sender.sequence),
            sender_timestamp: U64::new(self.sender.timestamp.0),
            sender_error_estimate: U16::new(self.sender.error_estimate.0),
            zero: [0; 2],
            sender_hop_limit: self.sender_hop_limit,
            more_zero: [0; 3],
        };
        buffer[..PACKET_LEN].copy_from_slice(layout.as_bytes());
        PACKET_LEN
    }
}

#[cfg(test)]
#[path = "stamp_tests.rs"]
mod tests;
