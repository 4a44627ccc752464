//! Command protocol of chronyd (cmdmon), version 6: parsing and writing of two requests, "tracking"
//! (synchronisation state of the daemon) and "serverstats" ([`statistics`], its counters as a
//! server). Requests that change anything are not implemented.
//!
//! The protocol has no standard; the layout is that of chronyc 4, checked against a running
//! chronyd. A request is padded to the length of its reply.

pub mod statistics;

use horolog_time::{NS_PER_S, Span, Timestamp, Utc};
use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ParseError;
use crate::ntp::LeapIndicator;

/// UDP port of the command protocol.
pub const PORT: u16 = 323;
/// Length of the request "tracking" and of its reply, in bytes.
pub const TRACKING_LEN: usize = size_of::<TrackingReplyLayout>();

const PROTOCOL_VERSION: u8 = 6;
const PACKET_TYPE_REQUEST: u8 = 1;
const PACKET_TYPE_REPLY: u8 = 2;
const COMMAND_TRACKING: u16 = 33;
const REPLY_TRACKING: u16 = 5;
/// Number of coefficient bits, with the sign, in the protocol's 32-bit floating-point format; see
/// [`from_float`].
const COEFFICIENT_BITS: u32 = 25;

/// Synchronisation state of chronyd, as the request "tracking" reports it; a part of the reply.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ChronydTracking {
    /// Leap indicator.
    pub leap: LeapIndicator,
    /// Stratum; 0 while chronyd is not synchronised, 255 for values above that.
    pub stratum: u8,
    /// Reference identifier.
    pub reference_id: [u8; 4],
    /// Time at which chronyd last updated the clock.
    pub reference: Timestamp<Utc>,
    /// Remaining correction: true time minus system clock, positive if the system clock is slow.
    pub correction: Span,
    /// Round-trip delay to the reference clock.
    pub root_delay: Span,
    /// Dispersion to the reference clock.
    pub root_dispersion: Span,
}

/// Reply of chronyd to the request "tracking".
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ChronydTrackingReply {
    /// Sequence number, copied from the request.
    pub sequence: u32,
    /// Tracking data, or the nonzero status code of a refusal.
    pub tracking: Result<ChronydTracking, u16>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RequestLayout {
    version: u8,
    kind: u8,
    reserved: U16,
    command: U16,
    attempt: U16,
    sequence: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ReplyHeaderLayout {
    version: u8,
    kind: u8,
    reserved: U16,
    command: U16,
    reply: U16,
    status: U16,
    padding: [U16; 3],
    sequence: U32,
    more_padding: [U32; 2],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct TrackingReplyLayout {
    header: ReplyHeaderLayout,
    reference_id: [u8; 4],
    address: [u8; 20],
    stratum: U16,
    leap: U16,
    reference_seconds_high: U32,
    reference_seconds_low: U32,
    reference_nanoseconds: U32,
    correction: U32,
    last_offset: U32,
    rms_offset: U32,
    frequency: U32,
    residual_frequency: U32,
    skew: U32,
    root_delay: U32,
    root_dispersion: U32,
    update_interval: U32,
}

const _: () = assert!(TRACKING_LEN == 104);

/// Returns the request "tracking" with this sequence number, padded to the length of its reply.
#[must_use]
pub fn tracking_request(sequence: u32) -> [u8; TRACKING_LEN] {
    request(COMMAND_TRACKING, sequence)
}

/// Returns a request without arguments, padded with zeroes to `LEN` bytes.
fn request<const LEN: usize>(command: u16, sequence: u32) -> [u8; LEN] {
    let layout = RequestLayout {
        version: PROTOCOL_VERSION,
        kind: PACKET_TYPE_REQUEST,
        reserved: U16::ZERO,
        command: U16::new(command),
        attempt: U16::ZERO,
        sequence: U32::new(sequence),
    };
    let mut request = [0; LEN];
    request[..size_of::<RequestLayout>()].copy_from_slice(layout.as_bytes());
    request
}

/// Splits a reply into its header and the bytes after it. Another version or packet type is
/// [`ParseError::Version`], a reply to another command [`ParseError::Length`].
fn split_reply(command: u16, bytes: &[u8]) -> Result<(&ReplyHeaderLayout, &[u8]), ParseError> {
    let (header, rest) =
        ReplyHeaderLayout::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
    if header.version != PROTOCOL_VERSION || header.kind != PACKET_TYPE_REPLY {
        return Err(ParseError::Version);
    }
    if header.command.get() != command {
        return Err(ParseError::Length);
    }
    Ok((header, rest))
}

impl ChronydTrackingReply {
    /// Parses a reply to the request "tracking"; a refusal yields its status code. Another version
    /// or packet type is [`ParseError::Version`], a reply to another command or of another format
    /// [`ParseError::Length`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (header, _) = split_reply(COMMAND_TRACKING, bytes)?;
        let sequence = header.sequence.get();
        if header.status.get() != 0 {
            return Ok(Self { sequence, tracking: Err(header.status.get()) });
        }
        let (layout, _) =
            TrackingReplyLayout::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
        if header.reply.get() != REPLY_TRACKING {
            return Err(ParseError::Length);
        }
        Ok(Self { sequence, tracking: Ok(layout.tracking()) })
    }

    /// Returns the bytes of the reply, with zero in the fields that [`ChronydTracking`] lacks;
    /// those of a refusal are padded with zeroes. Values that the 32-bit float format cannot hold
    /// exactly are rounded towards zero.
    #[must_use]
    pub fn emit(&self) -> [u8; TRACKING_LEN] {
        let mut bytes = [0; TRACKING_LEN];
        let header = ReplyHeaderLayout {
            version: PROTOCOL_VERSION,
            kind: PACKET_TYPE_REPLY,
            reserved: U16::ZERO,
            command: U16::new(COMMAND_TRACKING),
            reply: U16::new(REPLY_TRACKING),
            status: U16::new(self.tracking.err().unwrap_or(0)),
            padding: [U16::ZERO; 3],
            sequence: U32::new(self.sequence),
            more_padding: [U32::ZERO; 2],
        };
        match &self.tracking {
            Ok(tracking) => {
                bytes.copy_from_slice(
                    TrackingReplyLayout::from_tracking(header, tracking).as_bytes(),
                );
            }
            Err(_) => bytes[..size_of::<ReplyHeaderLayout>()].copy_from_slice(header.as_bytes()),
        }
        bytes
    }
}

impl TrackingReplyLayout {
    fn from_tracking(header: ReplyHeaderLayout, tracking: &ChronydTracking) -> Self {
        let (seconds, nanoseconds) = tracking.reference.to_timespec();
        Self {
            header,
            reference_id: tracking.reference_id,
            address: [0; 20],
            stratum: U16::new(tracking.stratum.into()),
            leap: U16::new(tracking.leap as u16),
            reference_seconds_high: U32::new((seconds >> 32) as u32),
            reference_seconds_low: U32::new(seconds as u32),
            reference_nanoseconds: U32::new(nanoseconds),
            correction: to_float(tracking.correction),
            last_offset: U32::ZERO,
            rms_offset: U32::ZERO,
            frequency: U32::ZERO,
            residual_frequency: U32::ZERO,
            skew: U32::ZERO,
            root_delay: to_float(tracking.root_delay),
            root_dispersion: to_float(tracking.root_dispersion),
            update_interval: U32::ZERO,
        }
    }

    fn tracking(&self) -> ChronydTracking {
        /// Upper 32 bits of the seconds as sent by a chronyd that does not fill them in
        /// (`TV_NOHIGHSEC`).
        const NO_HIGH_SECONDS: u32 = 0x7fff_ffff;
        let high = match self.reference_seconds_high.get() {
            NO_HIGH_SECONDS => 0,
            high => high,
        };
        let seconds =
            i64::from(high.cast_signed()) << 32 | i64::from(self.reference_seconds_low.get());
        ChronydTracking {
            leap: LeapIndicator::from_bits(self.leap.get() as u8),
            stratum: u8::try_from(self.stratum.get()).unwrap_or(u8::MAX),
            reference_id: self.reference_id,
            reference: Timestamp::from_timespec(seconds, self.reference_nanoseconds.get().into()),
            correction: from_float(self.correction),
            root_delay: from_float(self.root_delay),
            root_dispersion: from_float(self.root_dispersion),
        }
    }
}

/// Converts chrony's 32-bit float, a 7-bit signed exponent above a 25-bit signed coefficient with
/// the value coefficient × 2^(exponent − 25) in seconds, to a span. Rounds to ns; saturates.
fn from_float(float: U32) -> Span {
    let bits = float.get().cast_signed();
    let exponent = (bits >> COEFFICIENT_BITS) - COEFFICIENT_BITS as i32;
    let coefficient = (bits << (32 - COEFFICIENT_BITS)) >> (32 - COEFFICIENT_BITS);
    let seconds = f64::from(coefficient) * f64::from(exponent).exp2();
    // A conversion from a double saturates.
    Span::from_ns((seconds * NS_PER_S as f64).round() as i64)
}

/// Converts a span to chrony's 32-bit float in seconds, rounded towards zero; see [`from_float`].
fn to_float(span: Span) -> U32 {
    if span == Span::ZERO {
        return U32::ZERO;
    }
    let seconds = span.as_seconds();
    let mut exponent = -38;
    while seconds.abs() * f64::from(COEFFICIENT_BITS as i32 - exponent).exp2()
        >= f64::from(1 << (COEFFICIENT_BITS - 1))
    {
        exponent += 1;
    }
    let coefficient = (seconds * f64::from(COEFFICIENT_BITS as i32 - exponent).exp2()) as i32;
    let mask = (1 << COEFFICIENT_BITS) - 1;
    U32::new((exponent << COEFFICIENT_BITS | coefficient & mask).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What chronyd 4.3 with `local stratum 5` answered to request 9.
    const REPLY_OF_CHRONYD: &[u8; 2 * TRACKING_LEN] =
        b"060200000021000500000000000000000000000900000000000000007f7f0101000000000000000000000000\
          000000000000000000050000000000006b024616067ee8dd0000000000000000000000000000000000000000\
          00000000000000000000000000000000";

    #[test]
    fn a_reply_of_chronyd() {
        let digit = |digit: u8| (digit as char).to_digit(16).unwrap() as u8;
        let bytes: Vec<u8> =
            REPLY_OF_CHRONYD.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
        let reply = ChronydTrackingReply::parse(&bytes).unwrap();
        let tracking = reply.tracking.unwrap();
        assert_eq!((reply.sequence, tracking.stratum, tracking.leap), (9, 5, LeapIndicator::None));
        assert_eq!(tracking.reference_id, [127, 127, 1, 1]);
        assert_eq!(tracking.reference, Timestamp::from_timespec(0x6b02_4616, 0x067e_e8dd));
        assert_eq!(reply.emit().as_slice(), bytes);
    }

    fn tracking() -> ChronydTracking {
        ChronydTracking {
            leap: LeapIndicator::Insert,
            stratum: 5,
            reference_id: [127, 127, 1, 1],
            reference: Timestamp::from_timespec(1_700_000_000, 5),
            correction: Span::from_ns(-1_500_000_000),
            root_delay: Span::from_ns(500_000_000),
            root_dispersion: Span::from_ns(250_000_000),
        }
    }

    #[test]
    fn numbers_by_hand() {
        // 1 is 2^23 times 2^(2 - 25); -0.5 is -2^24 times 2^(-16 - 25 + 16).
        assert_eq!(from_float(U32::new(2 << 25 | 1 << 23)), Span::from_ns(NS_PER_S));
        assert_eq!(from_float(U32::new(0x0100_0000)), Span::from_ns(-NS_PER_S / 2));
        assert_eq!(from_float(U32::ZERO), Span::ZERO);
        // An exponent of -64, the least.
        assert_eq!(from_float(U32::new(0x8000_0001)), Span::ZERO);
        assert_eq!(from_float(U32::new(0x7eff_ffff)), Span::from_ns(i64::MAX));
    }

    #[test]
    fn a_refusal_has_a_number() {
        let refused = ChronydTrackingReply { sequence: 7, tracking: Err(2) };
        assert_eq!(ChronydTrackingReply::parse(&refused.emit()), Ok(refused));
        assert_eq!(ChronydTrackingReply::parse(&refused.emit()[..28]), Ok(refused));
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        let bytes = ChronydTrackingReply { sequence: 7, tracking: Ok(tracking()) }.emit();
        assert_eq!(ChronydTrackingReply::parse(&bytes[..103]), Err(ParseError::Truncated));
        assert_eq!(ChronydTrackingReply::parse(&bytes[..27]), Err(ParseError::Truncated));
        assert_eq!(ChronydTrackingReply::parse(&tracking_request(7)), Err(ParseError::Version));
        let mut other = bytes;
        other[7] = 6;
        assert_eq!(ChronydTrackingReply::parse(&other), Err(ParseError::Length));
    }

    proptest! {
        #[test]
        fn replies_round_trip(
            sequence: u32,
            stratum: u8,
            leap in 0u8..4,
            seconds in -1i64 << 32..1 << 33,
            nanoseconds in 0i64..NS_PER_S,
            correction in -1i64 << 24..1 << 24,
            delay in 0i64..1 << 24,
        ) {
            let tracking = ChronydTracking {
                leap: LeapIndicator::from_bits(leap),
                stratum,
                reference: Timestamp::from_timespec(seconds, nanoseconds),
                correction: Span::from_ns(correction),
                root_delay: Span::from_ns(delay),
                ..tracking()
            };
            let back = ChronydTrackingReply::parse(&ChronydTrackingReply { sequence, tracking: Ok(tracking) }.emit()).unwrap();
            prop_assert_eq!(back.sequence, sequence);
            let back = back.tracking.unwrap();
            // 24 bits and a sign hold a nanosecond up to 16 ms, less one for rounding to zero.
            prop_assert!((back.correction - tracking.correction).as_ns().abs() <= 2);
            prop_assert!((back.root_delay - tracking.root_delay).as_ns().abs() <= 2);
            let rest = ChronydTracking { correction: tracking.correction, root_delay: tracking.root_delay, ..back };
            prop_assert_eq!(rest, tracking);
        }

        #[test]
        fn any_number_is_read(bits: u32) {
            let _ = from_float(U32::new(bits));
        }
    }
}
