//! PTP messages: common header, body of the message type, and a suffix of TLVs (IEEE 1588-2019,
//! clauses 13.5 to 13.12).

use zerocopy::byteorder::network_endian::{I16, U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::management::ManagementHeader;
use super::tlv::Tlvs;
use super::{
    HEADER_LEN, Header, MessageType, PortIdentity, PortIdentityLayout, PtpHeaderAndRest,
    PtpTimestamp, TimestampLayout,
};
use crate::ParseError;

/// Length of Sync, `Delay_Req` and `Follow_Up` without a suffix, in bytes.
pub const TIMESTAMP_MESSAGE_LEN: usize = HEADER_LEN + size_of::<TimestampLayout>();
/// Length of `Delay_Resp` without a suffix, in bytes.
pub const DELAY_RESP_LEN: usize = TIMESTAMP_MESSAGE_LEN + size_of::<PortIdentityLayout>();
/// Offset of the requesting port number in `Delay_Resp`, in bytes.
pub const REQUESTING_PORT_OFFSET: usize = DELAY_RESP_LEN - 2;
/// Offset of the target port number in Signaling, in bytes.
pub const SIGNALING_PORT_OFFSET: usize = SIGNALING_LEN - 2;
/// Length of Announce without a suffix, in bytes.
pub const ANNOUNCE_LEN: usize = HEADER_LEN + size_of::<AnnounceLayout>();
/// Length of Signaling without its TLVs, in bytes.
pub const SIGNALING_LEN: usize = HEADER_LEN + size_of::<PortIdentityLayout>();
/// Length of peer delay messages in bytes. `Pdelay_Req` has ten reserved bytes, which make it as
/// long as its response (clause 13.9.2).
pub const PDELAY_LEN: usize = DELAY_RESP_LEN;
/// Length of Management without its TLV, in bytes.
pub const MANAGEMENT_LEN: usize = HEADER_LEN + ManagementHeader::LEN;

/// PTP message: common header, body of its type, and suffix of TLVs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// Common header of the message.
    pub header: Header,
    /// Body, which determines the message type.
    pub body: PtpMessageBody<'a>,
    /// TLVs after the body, not parsed; see [`Message::tlvs`].
    pub suffix: &'a [u8],
}

/// Body of a PTP message: the fields between common header and suffix, by message type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PtpMessageBody<'a> {
    /// Transmit time, or 0 if a `Follow_Up` carries it.
    Sync(PtpTimestamp),
    /// Approximate transmit time, or 0.
    DelayReq(PtpTimestamp),
    /// Precise transmit time of the Sync with the same sequence number.
    FollowUp(PtpTimestamp),
    /// Response to a `Delay_Req`.
    DelayResp {
        /// Receive time of the request.
        receive: PtpTimestamp,
        /// Sender of the request.
        requesting: PortIdentity,
    },
    /// Properties of the master's clock.
    Announce(Announce),
    /// Target port of a Signaling message; the content is in the suffix.
    Signaling(PortIdentity),
    /// Transmit time of a peer delay request, or 0.
    PdelayReq(PtpTimestamp),
    /// Response to a peer delay request.
    PdelayResp {
        /// Receive time of the request, or 0.
        receive: PtpTimestamp,
        /// Sender of the request.
        requesting: PortIdentity,
    },
    /// Precise transmit time of a peer delay response, which follows it.
    PdelayRespFollowUp {
        /// Transmit time of the response, or 0.
        origin: PtpTimestamp,
        /// Sender of the request.
        requesting: PortIdentity,
    },
    /// Fields of a management message; the content is in the suffix.
    Management(ManagementHeader),
    /// Message of a reserved type: the four bits of the type, and all bytes after the header.
    Other(u8, &'a [u8]),
}

/// Announcement of a master's clock (clause 13.5).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Announce {
    /// Approximate transmit time, or 0.
    pub origin: PtpTimestamp,
    /// TAI minus UTC, in seconds.
    pub utc_offset: i16,
    /// Quality and priorities of the grandmaster.
    pub grandmaster: Grandmaster,
    /// Number of steps from the sender to the grandmaster, 0 if they are the same clock
    /// (stepsRemoved).
    pub steps_removed: u16,
    /// Time source code of the grandmaster (table 6).
    pub time_source: u8,
}

/// Grandmaster as announced (clause 7.6.2).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Grandmaster {
    /// First priority, lower wins.
    pub priority1: u8,
    /// Clock class: 6 if locked to a primary reference, 248 by default (table 4).
    pub clock_class: u8,
    /// Clock accuracy code (table 5).
    pub clock_accuracy: u8,
    /// Stability: offsetScaledLogVariance (clause 7.6.3.5).
    pub variance: u16,
    /// Second priority, which decides between otherwise equal clocks; lower wins.
    pub priority2: u8,
    /// Identity of the grandmaster, eight bytes.
    pub identity: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AnnounceLayout {
    origin: TimestampLayout,
    utc_offset: I16,
    reserved: u8,
    grandmaster: GrandmasterLayout,
    steps_removed: U16,
    time_source: u8,
}

/// Layout of a [`Grandmaster`].
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct GrandmasterLayout {
    priority1: u8,
    clock_class: u8,
    clock_accuracy: u8,
    variance: U16,
    priority2: u8,
    identity: U64,
}

const _: () = assert!(ANNOUNCE_LEN == 64);
const _: () = assert!(DELAY_RESP_LEN == 54 && SIGNALING_LEN == 44 && TIMESTAMP_MESSAGE_LEN == 44);

impl From<Grandmaster> for GrandmasterLayout {
    fn from(grandmaster: Grandmaster) -> Self {
        Self {
            priority1: grandmaster.priority1,
            clock_class: grandmaster.clock_class,
            clock_accuracy: grandmaster.clock_accuracy,
            variance: U16::new(grandmaster.variance),
            priority2: grandmaster.priority2,
            identity: U64::new(grandmaster.identity),
        }
    }
}

impl From<GrandmasterLayout> for Grandmaster {
    fn from(layout: GrandmasterLayout) -> Self {
        Self {
            priority1: layout.priority1,
            clock_class: layout.clock_class,
            clock_accuracy: layout.clock_accuracy,
            variance: layout.variance.get(),
            priority2: layout.priority2,
            identity: layout.identity.get(),
        }
    }
}

/// Parses a fixed-size layout from the front of `bytes`; returns it with the remaining bytes. Too
/// few bytes are [`ParseError::Length`].
fn parse_layout<T: FromBytes + KnownLayout + Immutable + Unaligned>(
    bytes: &[u8],
) -> Result<(T, &[u8]), ParseError> {
    T::read_from_prefix(bytes).map_err(|_| ParseError::Length)
}

fn parse_timestamp(bytes: &[u8]) -> Result<(PtpTimestamp, &[u8]), ParseError> {
    let (layout, rest) = parse_layout::<TimestampLayout>(bytes)?;
    Ok((layout.into(), rest))
}

fn parse_port_identity(bytes: &[u8]) -> Result<(PortIdentity, &[u8]), ParseError> {
    let (layout, rest) = parse_layout::<PortIdentityLayout>(bytes)?;
    Ok((layout.into(), rest))
}

/// Writes a timestamp and the requesting port's identity to a buffer of exactly that length.
fn emit_timestamp_and_requester(at: PtpTimestamp, requesting: PortIdentity, buffer: &mut [u8]) {
    let (first, second) = buffer.split_at_mut(size_of::<TimestampLayout>());
    first.copy_from_slice(TimestampLayout::from(at).as_bytes());
    second.copy_from_slice(PortIdentityLayout::from(requesting).as_bytes());
}

/// Parses a timestamp and the requesting port's identity; returns them with the remaining bytes.
fn parse_timestamp_and_requester(
    bytes: &[u8],
) -> Result<(PtpTimestamp, PortIdentity, &[u8]), ParseError> {
    let (at, rest) = parse_timestamp(bytes)?;
    let (requesting, rest) = parse_port_identity(rest)?;
    Ok((at, requesting, rest))
}

impl<'a> PtpMessageBody<'a> {
    /// Parses the body of a message of type `kind`; returns it with the suffix. All bytes of a
    /// message of a reserved type are its body.
    fn parse(kind: u8, bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ParseError> {
        Ok(match MessageType::from_bits(kind) {
            Some(MessageType::Sync) => {
                parse_timestamp(bytes).map(|(at, rest)| (Self::Sync(at), rest))?
            }
            Some(MessageType::DelayReq) => {
                parse_timestamp(bytes).map(|(at, rest)| (Self::DelayReq(at), rest))?
            }
            Some(MessageType::FollowUp) => {
                parse_timestamp(bytes).map(|(at, rest)| (Self::FollowUp(at), rest))?
            }
            Some(MessageType::DelayResp) => {
                let (receive, requesting, rest) = parse_timestamp_and_requester(bytes)?;
                (Self::DelayResp { receive, requesting }, rest)
            }
            Some(MessageType::PdelayReq) => {
                let (at, _, rest) = parse_timestamp_and_requester(bytes)?;
                (Self::PdelayReq(at), rest)
            }
            Some(MessageType::PdelayResp) => {
                let (receive, requesting, rest) = parse_timestamp_and_requester(bytes)?;
                (Self::PdelayResp { receive, requesting }, rest)
            }
            Some(MessageType::PdelayRespFollowUp) => {
                let (origin, requesting, rest) = parse_timestamp_and_requester(bytes)?;
                (Self::PdelayRespFollowUp { origin, requesting }, rest)
            }
            Some(MessageType::Management) => {
                ManagementHeader::parse(bytes).map(|(to, rest)| (Self::Management(to), rest))?
            }
            Some(MessageType::Announce) => {
                let (layout, rest) = parse_layout::<AnnounceLayout>(bytes)?;
                let announce = Announce {
                    origin: layout.origin.into(),
                    utc_offset: layout.utc_offset.get(),
                    grandmaster: layout.grandmaster.into(),
                    steps_removed: layout.steps_removed.get(),
                    time_source: layout.time_source,
                };
                (Self::Announce(announce), rest)
            }
            Some(MessageType::Signaling) => {
                parse_port_identity(bytes).map(|(target, rest)| (Self::Signaling(target), rest))?
            }
            None => (Self::Other(kind, bytes), &[]),
        })
    }

    /// Returns the message type as four bits; may be a reserved one.
    #[must_use]
    pub const fn type_bits(&self) -> u8 {
        match self {
            Self::Sync(_) => MessageType::Sync as u8,
            Self::DelayReq(_) => MessageType::DelayReq as u8,
            Self::FollowUp(_) => MessageType::FollowUp as u8,
            Self::DelayResp { .. } => MessageType::DelayResp as u8,
            Self::Announce(_) => MessageType::Announce as u8,
            Self::Signaling(_) => MessageType::Signaling as u8,
            Self::PdelayReq(_) => MessageType::PdelayReq as u8,
            Self::PdelayResp { .. } => MessageType::PdelayResp as u8,
            Self::PdelayRespFollowUp { .. } => MessageType::PdelayRespFollowUp as u8,
            Self::Management(_) => MessageType::Management as u8,
            Self::Other(kind, _) => *kind & 0xf,
        }
    }

    /// Returns the length of the body in bytes.
    const fn len(&self) -> usize {
        match self {
            Self::Sync(_) | Self::DelayReq(_) | Self::FollowUp(_) => {
                TIMESTAMP_MESSAGE_LEN - HEADER_LEN
            }
            Self::DelayResp { .. }
            | Self::PdelayReq(_)
            | Self::PdelayResp { .. }
            | Self::PdelayRespFollowUp { .. } => DELAY_RESP_LEN - HEADER_LEN,
            Self::Announce(_) => ANNOUNCE_LEN - HEADER_LEN,
            Self::Signaling(_) => SIGNALING_LEN - HEADER_LEN,
            Self::Management(_) => ManagementHeader::LEN,
            Self::Other(_, bytes) => bytes.len(),
        }
    }

    /// Writes the body to a buffer of exactly its length.
    fn emit(&self, buffer: &mut [u8]) {
        match *self {
            Self::Sync(at) | Self::DelayReq(at) | Self::FollowUp(at) => {
                buffer.copy_from_slice(TimestampLayout::from(at).as_bytes());
            }
            Self::PdelayReq(at) => {
                emit_timestamp_and_requester(at, PortIdentity::default(), buffer);
            }
            Self::DelayResp { receive: at, requesting }
            | Self::PdelayResp { receive: at, requesting }
            | Self::PdelayRespFollowUp { origin: at, requesting } => {
                emit_timestamp_and_requester(at, requesting, buffer);
            }
            Self::Management(management_header) => management_header.emit(buffer),
            Self::Announce(announce) => {
                let layout = AnnounceLayout {
                    origin: announce.origin.into(),
                    utc_offset: I16::new(announce.utc_offset),
                    reserved: 0,
                    grandmaster: announce.grandmaster.into(),
                    steps_removed: U16::new(announce.steps_removed),
                    time_source: announce.time_source,
                };
                buffer.copy_from_slice(layout.as_bytes());
            }
            Self::Signaling(target) => {
                buffer.copy_from_slice(PortIdentityLayout::from(target).as_bytes());
            }
            Self::Other(_, bytes) => buffer.copy_from_slice(bytes),
        }
    }
}

impl<'a> Message<'a> {
    /// Returns a message without a suffix.
    #[must_use]
    pub const fn new(header: Header, body: PtpMessageBody<'a>) -> Self {
        Self { header, body, suffix: &[] }
    }

    /// Parses a message of version 2; returns it with the bytes after its end: over UDP and IPv6
    /// two bytes ([`super::IPV6_PADDING_LEN`]), over Ethernet any padding of a short frame. The
    /// suffix is not parsed.
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ParseError> {
        let PtpHeaderAndRest { header, kind, rest, trailer } = Header::parse(bytes)?;
        let (body, suffix) = PtpMessageBody::parse(kind, rest)?;
        Ok((Self { header, body, suffix }, trailer))
    }

    /// Returns the message type; `None` if reserved.
    #[must_use]
    pub fn kind(&self) -> Option<MessageType> {
        MessageType::from_bits(self.body.type_bits())
    }

    /// Returns the TLVs of the suffix.
    #[must_use]
    pub const fn tlvs(&self) -> Tlvs<'a> {
        Tlvs::new(self.suffix)
    }

    /// Returns the length of the message with its suffix, in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        HEADER_LEN + self.body.len() + self.suffix.len()
    }

    /// Returns false: a message has a header at least.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the message to the front of `buffer` and returns its length in bytes.
    ///
    /// # Panics
    ///
    /// If `buffer` is shorter than [`Message::len`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let length = self.len();
        let (header, rest) = buffer[..length].split_at_mut(HEADER_LEN);
        let (body, suffix) = rest.split_at_mut(self.body.len());
        self.header.emit(self.body.type_bits(), length, header);
        self.body.emit(body);
        suffix.copy_from_slice(self.suffix);
        length
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
