//! The messages: the header, a body of a length that their type gives, and a suffix of TLVs (IEEE
//! 1588-2019, clauses 13.5 to 13.12).

use zerocopy::byteorder::network_endian::{I16, U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

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
                let (receive, rest) = stamp(bytes)?;
                let (requesting, rest) = port(rest)?;
                (Self::DelayResp { receive, requesting }, rest)
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
            _ => (Self::Other(kind, bytes), &[]),
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
            Self::Other(kind, _) => *kind & 0xf,
        }
    }

    /// Its length, in bytes.
    const fn len(&self) -> usize {
        match self {
            Self::Sync(_) | Self::DelayReq(_) | Self::FollowUp(_) => STAMP_LEN - HEADER_LEN,
            Self::DelayResp { .. } => DELAY_RESP_LEN - HEADER_LEN,
            Self::Announce(_) => ANNOUNCE_LEN - HEADER_LEN,
            Self::Signaling(_) => SIGNALING_LEN - HEADER_LEN,
            Self::Other(_, bytes) => bytes.len(),
        }
    }

    /// Writes it to a buffer of its length.
    fn emit(&self, buffer: &mut [u8]) {
        match *self {
            Self::Sync(at) | Self::DelayReq(at) | Self::FollowUp(at) => {
                buffer.copy_from_slice(TimestampLayout::from(at).as_bytes());
            }
            Self::DelayResp { receive, requesting } => {
                let (first, second) = buffer.split_at_mut(size_of::<TimestampLayout>());
                first.copy_from_slice(TimestampLayout::from(receive).as_bytes());
                second.copy_from_slice(PortLayout::from(requesting).as_bytes());
            }
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
mod tests {
    use super::*;
    use crate::ptp::{Flags, NO_INTERVAL, TimeInterval};
    use proptest::prelude::*;

    /// A unicast `Delay_Resp` written out by hand from clauses 13.3 and 13.8.
    const DELAY_RESP: [u8; DELAY_RESP_LEN] = [
        0x09, 0x12, 0x00, 0x36, // IEEE 1588, Delay_Resp; version 2.1; 54 bytes
        0x2a, 0x00, 0x04, 0x00, // domain 42; unicast
        0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x80, 0x00, // correction 2.5 ns
        0x00, 0x00, 0x00, 0x00, // for nobody
        0x02, 0x00, 0x5e, 0xff, 0xfe, 0x10, 0x00, 0x01, 0x00, 0x03, // source, port 3
        0xab, 0xcd, 0x03, 0x7f, // number; Delay_Resp in version 1; no interval
        0x00, 0x01, 0x00, 0x00, 0x00, 0x02, // 2^32 + 2 s
        0x3b, 0x9a, 0xc9, 0xff, // 999,999,999 ns
        0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x00, 0x01, // who had asked
    ];

    #[test]
    fn delay_resp_by_hand() {
        let (message, trailer) = Message::parse(&DELAY_RESP).unwrap();
        assert!(trailer.is_empty() && message.suffix.is_empty());
        let header = Header {
            sdo_id: 0,
            minor_version: 1,
            domain: 42,
            flags: Flags::UNICAST,
            correction: TimeInterval(0x2_8000),
            source: PortIdentity { clock: 0x0200_5eff_fe10_0001, port: 3 },
            sequence_id: 0xabcd,
            log_interval: NO_INTERVAL,
        };
        let requesting = PortIdentity { clock: 0x0102_0304_0506_0708, port: 1 };
        let receive = PtpTimestamp::new((1 << 32) + 2, 999_999_999);
        assert!(receive.is_normal());
        assert_eq!(message, Message::new(header, Body::DelayResp { receive, requesting }));
        let mut back = [0; DELAY_RESP_LEN];
        assert_eq!(message.emit(&mut back), DELAY_RESP_LEN);
        assert_eq!(back, DELAY_RESP);
    }

    /// Table 37 of IEEE 1588-2019: what stands in the two bytes of the flags.
    #[test]
    fn flags_by_hand() {
        for (flags, bytes) in [
            (Flags::TWO_STEP, [0x02, 0]),
            (Flags::UNICAST, [0x04, 0]),
            (Flags::LEAP_61, [0, 0x01]),
            (Flags::LEAP_59, [0, 0x02]),
            (Flags::UTC_OFFSET_VALID, [0, 0x04]),
            (Flags::PTP_TIMESCALE, [0, 0x08]),
            (Flags::TIME_TRACEABLE, [0, 0x10]),
            (Flags::FREQUENCY_TRACEABLE, [0, 0x20]),
        ] {
            let mut message = DELAY_RESP;
            message[6..8].copy_from_slice(&bytes);
            assert_eq!(Message::parse(&message).unwrap().0.header.flags, flags);
        }
    }

    #[test]
    fn a_message_ends_where_its_length_says() {
        let mut bytes = [0; DELAY_RESP_LEN + 2];
        bytes[..DELAY_RESP_LEN].copy_from_slice(&DELAY_RESP);
        let (_, trailer) = Message::parse(&bytes).unwrap();
        assert_eq!(trailer, [0, 0]);
        for (length, error) in [(33, Malformed::Length), (53, Malformed::Length)] {
            bytes[3] = length;
            assert_eq!(Message::parse(&bytes), Err(error));
        }
        bytes[3] = 57;
        assert_eq!(Message::parse(&bytes), Err(Malformed::Truncated));
        assert_eq!(Message::parse(&bytes[..33]), Err(Malformed::Truncated));
    }

    #[test]
    fn version_1_is_another_protocol() {
        let mut bytes = DELAY_RESP;
        bytes[1] = 0x01;
        assert_eq!(Message::parse(&bytes), Err(Malformed::Version));
    }

    fn bodies() -> impl Strategy<Value = Body<'static>> {
        let stamp = || (0u64..1 << 48, any::<u32>()).prop_map(|(s, n)| PtpTimestamp::new(s, n));
        let port = || any::<(u64, u16)>().prop_map(|(clock, port)| PortIdentity { clock, port });
        let grandmaster = any::<(u8, u8, u8, u16, u8, u64)>().prop_map(|all| Grandmaster {
            priority1: all.0,
            clock_class: all.1,
            clock_accuracy: all.2,
            variance: all.3,
            priority2: all.4,
            identity: all.5,
        });
        let announce = (stamp(), any::<(i16, u16, u8)>(), grandmaster).prop_map(
            |(origin, (utc_offset, steps_removed, time_source), grandmaster)| {
                let of_clock =
                    Announce { origin, utc_offset, grandmaster, steps_removed, time_source };
                Body::Announce(of_clock)
            },
        );
        prop_oneof![
            stamp().prop_map(Body::Sync),
            stamp().prop_map(Body::DelayReq),
            stamp().prop_map(Body::FollowUp),
            (stamp(), port())
                .prop_map(|(receive, requesting)| Body::DelayResp { receive, requesting }),
            announce,
            port().prop_map(Body::Signaling),
            Just(Body::Other(MessageType::Management as u8, b"of another length")),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            body in bodies(),
            numbers: (u8, u16, i64, u64, u16, u16, i8),
            sdo_id in 0u16..1 << 12,
            minor_version in 0u8..16,
            suffix in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let (domain, flags, correction, clock, port, sequence_id, log_interval) = numbers;
            let header = Header {
                sdo_id, minor_version, domain, sequence_id, log_interval,
                flags: Flags(flags),
                correction: TimeInterval(correction),
                source: PortIdentity { clock, port },
            };
            let has_suffix = !matches!(body, Body::Other(..));
            let suffix: &[u8] = if has_suffix { &suffix } else { &[] };
            let message = Message { header, body, suffix };
            let mut bytes = [0xee; 128];
            let length = message.emit(&mut bytes);
            let (back, trailer) = Message::parse(&bytes).unwrap();
            prop_assert_eq!(back, message);
            prop_assert_eq!((length, trailer.len()), (message.len(), bytes.len() - message.len()));
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            if let Ok((message, _)) = Message::parse(&bytes) {
                let _ = message.tlvs().count();
            }
        }
    }
}
