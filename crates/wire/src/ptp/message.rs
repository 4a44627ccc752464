//! The messages: the header, a body of a length that their type gives, and a suffix of TLVs (IEEE
//! 1588-2019, clauses 13.5 to 13.12).

use zerocopy::byteorder::network_endian::{I16, U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::management::Addressee;
use super::tlv::Tlvs;
use super::{
    HEADER_LEN, Headed, Header, MessageType, PortIdentity, PortLayout, PtpTimestamp,
    TimestampLayout,
};
use crate::Malformed;

/// Length of Sync, `Delay_Req` and `Follow_Up` without a suffix, in bytes.
pub const STAMP_LEN: usize = HEADER_LEN + size_of::<TimestampLayout>();
/// Length of `Delay_Resp` without a suffix.
pub const DELAY_RESP_LEN: usize = STAMP_LEN + size_of::<PortLayout>();
/// Where the port number of who had asked stands in `Delay_Resp`, in bytes from its start.
pub const REQUESTING_PORT_OFFSET: usize = DELAY_RESP_LEN - 2;
/// Where the port number of whom it is for stands in Signaling, in bytes from its start.
pub const SIGNALING_PORT_OFFSET: usize = SIGNALING_LEN - 2;
/// Length of Announce without a suffix.
pub const ANNOUNCE_LEN: usize = HEADER_LEN + size_of::<AnnounceLayout>();
/// Length of Signaling without its TLVs.
pub const SIGNALING_LEN: usize = HEADER_LEN + size_of::<PortLayout>();
/// Length of the messages that measure the delay to a neighbour; the question has ten bytes more
/// than it needs, so that it is as long as its answer (clause 13.9.2).
pub const PDELAY_LEN: usize = DELAY_RESP_LEN;
/// Length of Management without its TLV.
pub const MANAGEMENT_LEN: usize = HEADER_LEN + Addressee::LEN;

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// What stands in front of it.
    pub header: Header,
    /// What it says.
    pub body: Body<'a>,
    /// What follows: TLVs, see [`Message::tlvs`].
    pub suffix: &'a [u8],
}

/// What a message says, by its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body<'a> {
    /// When it was sent, or 0 where a `Follow_Up` tells.
    Sync(PtpTimestamp),
    /// When it was sent, or 0.
    DelayReq(PtpTimestamp),
    /// When the Sync with the same number was sent.
    FollowUp(PtpTimestamp),
    /// The answer to a `Delay_Req`.
    DelayResp {
        /// When it was received.
        receive: PtpTimestamp,
        /// Who had asked.
        requesting: PortIdentity,
    },
    /// What kind of clock the master has.
    Announce(Announce),
    /// Negotiations with a port; they stand in the suffix.
    Signaling(PortIdentity),
    /// When a question for the delay to a neighbour was sent, or 0.
    PdelayReq(PtpTimestamp),
    /// The answer to it.
    PdelayResp {
        /// When the question was received, or 0.
        receive: PtpTimestamp,
        /// Who had asked.
        requesting: PortIdentity,
    },
    /// When that answer was sent.
    PdelayRespFollowUp {
        /// That instant, or 0.
        origin: PtpTimestamp,
        /// Who had asked.
        requesting: PortIdentity,
    },
    /// Whom a question or an order is for; what it is stands in the suffix.
    Management(Addressee),
    /// Another message, by the four bits of its type, with all that follows the header.
    Other(u8, &'a [u8]),
}

/// What a master says of its clock (clause 13.5).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Announce {
    /// About when it was sent, or 0.
    pub origin: PtpTimestamp,
    /// TAI less UTC, in seconds.
    pub utc_offset: i16,
    /// The grandmaster's quality and rank.
    pub grandmaster: Grandmaster,
    /// How many clocks are between it and the grandmaster.
    pub steps_removed: u16,
    /// Where the grandmaster's time is from (table 6).
    pub time_source: u8,
}

/// A grandmaster as others see it (clause 7.6.2).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Grandmaster {
    /// Its rank, lower first.
    pub priority1: u8,
    /// Its class: 6 with a primary reference, 248 of an ordinary clock (table 4).
    pub clock_class: u8,
    /// Its accuracy (table 5).
    pub clock_accuracy: u8,
    /// Its stability.
    pub variance: u16,
    /// Its rank where all else is equal.
    pub priority2: u8,
    /// Which clock it is.
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

/// A [`Grandmaster`] as bytes.
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
const _: () = assert!(DELAY_RESP_LEN == 54 && SIGNALING_LEN == 44 && STAMP_LEN == 44);

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

/// Reads a value of fixed length and what follows it.
fn split<T: FromBytes + KnownLayout + Immutable + Unaligned>(
    bytes: &[u8],
) -> Result<(T, &[u8]), Malformed> {
    T::read_from_prefix(bytes).map_err(|_| Malformed::Length)
}

fn stamp(bytes: &[u8]) -> Result<(PtpTimestamp, &[u8]), Malformed> {
    let (layout, rest) = split::<TimestampLayout>(bytes)?;
    Ok((layout.into(), rest))
}

fn port(bytes: &[u8]) -> Result<(PortIdentity, &[u8]), Malformed> {
    let (layout, rest) = split::<PortLayout>(bytes)?;
    Ok((layout.into(), rest))
}

/// Writes an instant and who had asked.
fn emit_answer(at: PtpTimestamp, requesting: PortIdentity, buffer: &mut [u8]) {
    let (first, second) = buffer.split_at_mut(size_of::<TimestampLayout>());
    first.copy_from_slice(TimestampLayout::from(at).as_bytes());
    second.copy_from_slice(PortLayout::from(requesting).as_bytes());
}

/// Reads an instant and who had asked.
fn answer(bytes: &[u8]) -> Result<(PtpTimestamp, PortIdentity, &[u8]), Malformed> {
    let (at, rest) = stamp(bytes)?;
    let (requesting, rest) = port(rest)?;
    Ok((at, requesting, rest))
}

impl<'a> Body<'a> {
    /// Reads the body of a message of this type, and returns the suffix with it.
    fn parse(kind: u8, bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Malformed> {
        Ok(match MessageType::from_bits(kind) {
            Some(MessageType::Sync) => stamp(bytes).map(|(at, rest)| (Self::Sync(at), rest))?,
            Some(MessageType::DelayReq) => {
                stamp(bytes).map(|(at, rest)| (Self::DelayReq(at), rest))?
            }
            Some(MessageType::FollowUp) => {
                stamp(bytes).map(|(at, rest)| (Self::FollowUp(at), rest))?
            }
            Some(MessageType::DelayResp) => {
                let (receive, requesting, rest) = answer(bytes)?;
                (Self::DelayResp { receive, requesting }, rest)
            }
            Some(MessageType::PdelayReq) => {
                let (at, _, rest) = answer(bytes)?;
                (Self::PdelayReq(at), rest)
            }
            Some(MessageType::PdelayResp) => {
                let (receive, requesting, rest) = answer(bytes)?;
                (Self::PdelayResp { receive, requesting }, rest)
            }
            Some(MessageType::PdelayRespFollowUp) => {
                let (origin, requesting, rest) = answer(bytes)?;
                (Self::PdelayRespFollowUp { origin, requesting }, rest)
            }
            Some(MessageType::Management) => {
                Addressee::parse(bytes).map(|(to, rest)| (Self::Management(to), rest))?
            }
            Some(MessageType::Announce) => {
                let (layout, rest) = split::<AnnounceLayout>(bytes)?;
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
                port(bytes).map(|(target, rest)| (Self::Signaling(target), rest))?
            }
            None => (Self::Other(kind, bytes), &[]),
        })
    }

    /// The four bits of the message's type.
    #[must_use]
    pub const fn kind(&self) -> u8 {
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

    /// Its length, in bytes.
    const fn len(&self) -> usize {
        match self {
            Self::Sync(_) | Self::DelayReq(_) | Self::FollowUp(_) => STAMP_LEN - HEADER_LEN,
            Self::DelayResp { .. }
            | Self::PdelayReq(_)
            | Self::PdelayResp { .. }
            | Self::PdelayRespFollowUp { .. } => DELAY_RESP_LEN - HEADER_LEN,
            Self::Announce(_) => ANNOUNCE_LEN - HEADER_LEN,
            Self::Signaling(_) => SIGNALING_LEN - HEADER_LEN,
            Self::Management(_) => Addressee::LEN,
            Self::Other(_, bytes) => bytes.len(),
        }
    }

    /// Writes it to a buffer of its length.
    fn emit(&self, buffer: &mut [u8]) {
        match *self {
            Self::Sync(at) | Self::DelayReq(at) | Self::FollowUp(at) => {
                buffer.copy_from_slice(TimestampLayout::from(at).as_bytes());
            }
            Self::PdelayReq(at) => emit_answer(at, PortIdentity::default(), buffer),
            Self::DelayResp { receive: at, requesting }
            | Self::PdelayResp { receive: at, requesting }
            | Self::PdelayRespFollowUp { origin: at, requesting } => {
                emit_answer(at, requesting, buffer);
            }
            Self::Management(addressee) => addressee.emit(buffer),
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
                buffer.copy_from_slice(PortLayout::from(target).as_bytes());
            }
            Self::Other(_, bytes) => buffer.copy_from_slice(bytes),
        }
    }
}

impl<'a> Message<'a> {
    /// A message without a suffix.
    #[must_use]
    pub const fn new(header: Header, body: Body<'a>) -> Self {
        Self { header, body, suffix: &[] }
    }

    /// Reads a message of version 2, and returns what follows its end: over UDP and IPv6 two bytes
    /// ([`super::IPV6_PADDING_LEN`]), over Ethernet whatever fills up a short frame. The suffix is
    /// not looked into.
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Malformed> {
        let Headed { header, kind, rest, trailer } = Header::parse(bytes)?;
        let (body, suffix) = Body::parse(kind, rest)?;
        Ok((Self { header, body, suffix }, trailer))
    }

    /// Its type; `None` where that is reserved.
    #[must_use]
    pub fn kind(&self) -> Option<MessageType> {
        MessageType::from_bits(self.body.kind())
    }

    /// The TLVs of the suffix.
    #[must_use]
    pub const fn tlvs(&self) -> Tlvs<'a> {
        Tlvs::new(self.suffix)
    }

    /// Its length, in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        HEADER_LEN + self.body.len() + self.suffix.len()
    }

    /// Never: a message has a header at least.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes it to the front of `buffer` and returns its length.
    ///
    /// # Panics
    /// When `buffer` is shorter than [`Message::len`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let length = self.len();
        let (header, rest) = buffer[..length].split_at_mut(HEADER_LEN);
        let (body, suffix) = rest.split_at_mut(self.body.len());
        self.header.emit(self.body.kind(), length, header);
        self.body.emit(body);
        suffix.copy_from_slice(self.suffix);
        length
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
