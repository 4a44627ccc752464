//! Precision Time Protocol, version 2 (IEEE 1588-2019, clause 13): the common header and data types
//! of all messages. The messages themselves are in [`message`], TLVs in [`tlv`], NetSync Monitor in
//! [`monitor`], and management in [`management`].

use zerocopy::byteorder::network_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ParseError;
use crate::ethernet::MacAddress;

pub mod management;
pub mod message;
pub mod monitor;
pub mod tlv;

pub use message::{Announce, Message, PtpMessageBody};

/// UDP port of messages that are timestamped: Sync, `Delay_Req` and the like (annex C.2).
pub const EVENT_PORT: u16 = 319;
/// UDP port of all other messages.
pub const GENERAL_PORT: u16 = 320;
/// Multicast address of all messages except peer delay messages, over IPv4 (annex C.3).
pub const MULTICAST_IPV4: core::net::Ipv4Addr = core::net::Ipv4Addr::new(224, 0, 1, 129);
/// Multicast address of all messages except peer delay messages, over IPv6, of global scope (annex
/// D.3).
pub const MULTICAST_IPV6: core::net::Ipv6Addr =
    core::net::Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 0x181);
/// Multicast address of peer delay messages, over IPv4 (annex C.3).
pub const PEER_MULTICAST_IPV4: core::net::Ipv4Addr = core::net::Ipv4Addr::new(224, 0, 0, 107);
/// Multicast address of peer delay messages, over IPv6, of link-local scope (annex D.3).
pub const PEER_MULTICAST_IPV6: core::net::Ipv6Addr =
    core::net::Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x6b);
/// Ethernet type of messages without IP (annex E.2).
pub const ETHER_TYPE: u16 = 0x88f7;
/// Group address of messages without IP, except peer delay messages (annex E.4).
pub const MULTICAST_MAC: MacAddress = MacAddress([0x01, 0x1b, 0x19, 0, 0, 0]);
/// Group address of peer delay messages without IP; no bridge forwards it (annex E.4).
pub const PEER_MULTICAST_MAC: MacAddress = MacAddress([0x01, 0x80, 0xc2, 0, 0, 0x0e]);
/// Length of the common header of all messages, in bytes.
pub const HEADER_LEN: usize = 34;
/// Offset of the sender's port identity in the header, in bytes.
pub const SOURCE_OFFSET: usize = 20;
/// Offset of the sequence number in the header, in bytes.
pub const SEQUENCE_ID_OFFSET: usize = 30;
/// Value of versionPTP, the low four bits of the version byte, in all messages of version 2.
pub const VERSION: u8 = 2;
/// Number of bytes appended to a message over IPv6, so that a transparent clock can correct the UDP
/// checksum in transit (annex D.5).
pub const IPV6_PADDING_LEN: usize = 2;

/// Message type of PTP, with its number (table 36).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum MessageType {
    /// Master's time; in two-step mode its precise value follows in a `Follow_Up`.
    Sync = 0x0,
    /// Delay request, to measure the delay to the master.
    DelayReq = 0x1,
    /// Peer delay request, between neighbours.
    PdelayReq = 0x2,
    /// Peer delay response: receive time of a `Pdelay_Req` at the neighbour.
    PdelayResp = 0x3,
    /// Precise transmit time of a Sync.
    FollowUp = 0x8,
    /// Receive time of a `Delay_Req` at the master.
    DelayResp = 0x9,
    /// Precise transmit time of a peer delay response.
    PdelayRespFollowUp = 0xa,
    /// Properties of the master's clock.
    Announce = 0xb,
    /// Carrier of TLVs, such as those of unicast negotiation.
    Signaling = 0xc,
    /// Reading and writing of a clock's data sets.
    Management = 0xd,
}

impl MessageType {
    /// All message types, by ascending number.
    pub const ALL: [Self; 10] = [
        Self::Sync,
        Self::DelayReq,
        Self::PdelayReq,
        Self::PdelayResp,
        Self::FollowUp,
        Self::DelayResp,
        Self::PdelayRespFollowUp,
        Self::Announce,
        Self::Signaling,
        Self::Management,
    ];

    /// Returns the message type in the low four bits of `bits`; `None` if reserved.
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&kind| kind as u8 == bits & 0xf)
    }

    /// Returns true for an event message, which is timestamped and sent to [`EVENT_PORT`].
    #[must_use]
    pub const fn is_event(self) -> bool {
        (self as u8) < 0x8
    }

    /// Returns the value of controlField, the message type of version 1 (table 42).
    const fn control_field(self) -> u8 {
        match self {
            Self::Sync => 0,
            Self::DelayReq => 1,
            Self::FollowUp => 2,
            Self::DelayResp => 3,
            Self::Management => 4,
            _ => 5,
        }
    }
}

/// Flag field of the header (table 37); its first byte is the upper one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct PtpFlags(pub u16);

impl PtpFlags {
    /// alternateMasterFlag: sent by a port that is not the best master's (clause 17.3).
    pub const ALTERNATE_MASTER: Self = Self(0x0100);
    /// twoStepFlag: the precise time of this Sync follows in a `Follow_Up`.
    pub const TWO_STEP: Self = Self(0x0200);
    /// unicastFlag: sent to a unicast address.
    pub const UNICAST: Self = Self(0x0400);
    /// leap61: the last minute of the day has 61 seconds.
    pub const LEAP_61: Self = Self(0x0001);
    /// leap59: the last minute of the day has 59 seconds.
    pub const LEAP_59: Self = Self(0x0002);
    /// currentUtcOffsetValid: the announced UTC offset is correct.
    pub const UTC_OFFSET_VALID: Self = Self(0x0004);
    /// ptpTimescale: the timescale is TAI, not an arbitrary one.
    pub const PTP_TIMESCALE: Self = Self(0x0008);
    /// timeTraceable: the time is traceable to a primary reference.
    pub const TIME_TRACEABLE: Self = Self(0x0010);
    /// frequencyTraceable: the frequency is traceable to a primary reference.
    pub const FREQUENCY_TRACEABLE: Self = Self(0x0020);

    /// Returns true if all of `flags` are set in `self`.
    #[must_use]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns the flags that are set in `self` or in `flags`.
    #[must_use]
    pub const fn union(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }
}

/// Sender of a message: a clock, and one of its ports (clause 7.5.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct PortIdentity {
    /// Identity of the clock, eight bytes.
    pub clock: u64,
    /// Port number, from 1.
    pub port: u16,
}

impl PortIdentity {
    /// Identity that matches all ports of all clocks (clause 13.12.1).
    pub const ALL: Self = Self { clock: u64::MAX, port: u16::MAX };

    /// Returns true if a message to this target identity is addressed to `port`. All ones in either
    /// field match every value.
    #[must_use]
    pub const fn matches(self, port: Self) -> bool {
        (self.clock == port.clock || self.clock == u64::MAX)
            && (self.port == port.port || self.port == u16::MAX)
    }
}

/// Timestamp: seconds and nanoseconds since the epoch of the master's timescale (clause 5.3.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct PtpTimestamp {
    seconds: u64,
    nanoseconds: u32,
}

impl PtpTimestamp {
    /// Zero timestamp; in messages it stands for an absent time.
    pub const ZERO: Self = Self { seconds: 0, nanoseconds: 0 };

    /// Returns the timestamp of `seconds`, truncated to the 48 bits that a message carries, and
    /// `nanoseconds`.
    #[must_use]
    pub const fn new(seconds: u64, nanoseconds: u32) -> Self {
        Self { seconds: seconds & SECONDS_MASK, nanoseconds }
    }

    /// Returns the seconds, below 2^48.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        self.seconds
    }

    /// Returns the nanoseconds as received; may be a second or more, see
    /// [`PtpTimestamp::is_normalised`].
    #[must_use]
    pub const fn nanoseconds(self) -> u32 {
        self.nanoseconds
    }

    /// Returns true if the nanoseconds are below 10^9, as the standard requires.
    #[must_use]
    pub const fn is_normalised(self) -> bool {
        self.nanoseconds < 1_000_000_000
    }

    /// Returns `self` minus `earlier` in ns; `None` if it does not fit into an `i64` (292 years).
    #[must_use]
    pub fn ns_since(self, earlier: Self) -> Option<i64> {
        let seconds = self.seconds.cast_signed() - earlier.seconds.cast_signed();
        let nanoseconds = i64::from(self.nanoseconds) - i64::from(earlier.nanoseconds);
        seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
    }
}

const SECONDS_MASK: u64 = (1 << 48) - 1;

/// Signed time interval in units of 2^-16 ns, the type of correctionField and of delays (clauses
/// 5.3.2 and 13.3.2.9).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct TimeInterval(pub i64);

impl TimeInterval {
    /// Converts whole nanoseconds to an interval; saturates.
    #[must_use]
    pub const fn from_ns(ns: i64) -> Self {
        Self(ns.saturating_mul(1 << 16))
    }

    /// Returns the interval rounded to the nearest nanosecond, halves upwards.
    #[must_use]
    pub const fn to_ns(self) -> i64 {
        (self.0 >> 16) + ((self.0 >> 15) & 1)
    }
}

/// Common header of all messages (clause 13.3), without message type and length, which are derived
/// from the body.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Header {
    /// Profile identifier, 12 bits: 0 for IEEE 1588, 0x100 for IEEE 802.1AS.
    pub sdo_id: u16,
    /// Minor version: 0 in 2008, 1 in 2019.
    pub minor_version: u8,
    /// Domain number; a clock ignores messages of other domains.
    pub domain: u8,
    /// Flag field, see [`PtpFlags`].
    pub flags: PtpFlags,
    /// Correction accumulated in transit (correctionField).
    pub correction: TimeInterval,
    /// Port that sent the message.
    pub source: PortIdentity,
    /// Sequence number; a response has that of its request.
    pub sequence_id: u16,
    /// Interval between messages of this type, log2 of seconds; [`NO_INTERVAL`] if undefined.
    pub log_interval: i8,
}

/// logMessageInterval without a value: in `Delay_Req` and in unicast messages (table 43).
pub const NO_INTERVAL: i8 = 0x7f;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PtpHeaderLayout {
    sdo_id_type: u8,
    version: u8,
    length: U16,
    domain: u8,
    minor_sdo_id: u8,
    flags: U16,
    correction: I64,
    type_specific: U32,
    source: PortIdentityLayout,
    sequence_id: U16,
    control: u8,
    log_interval: i8,
}

const _: () = assert!(size_of::<PtpHeaderLayout>() == HEADER_LEN);
const _: () = assert!(core::mem::offset_of!(PtpHeaderLayout, source) == SOURCE_OFFSET);
const _: () = assert!(core::mem::offset_of!(PtpHeaderLayout, sequence_id) == SEQUENCE_ID_OFFSET);

/// Parsed header with the remaining bytes.
struct PtpHeaderAndRest<'a> {
    header: Header,
    /// Message type, four bits; may be a reserved one.
    kind: u8,
    /// Bytes of the message after the header.
    rest: &'a [u8],
    /// Bytes after the end of the message.
    trailer: &'a [u8],
}

/// Layout of a [`PortIdentity`].
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct PortIdentityLayout {
    clock: U64,
    port: U16,
}

impl From<PortIdentity> for PortIdentityLayout {
    fn from(identity: PortIdentity) -> Self {
        Self { clock: U64::new(identity.clock), port: U16::new(identity.port) }
    }
}

impl From<PortIdentityLayout> for PortIdentity {
    fn from(layout: PortIdentityLayout) -> Self {
        Self { clock: layout.clock.get(), port: layout.port.get() }
    }
}

/// Layout of a [`PtpTimestamp`].
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct TimestampLayout {
    seconds_high: U16,
    seconds_low: U32,
    nanoseconds: U32,
}

impl From<PtpTimestamp> for TimestampLayout {
    fn from(timestamp: PtpTimestamp) -> Self {
        Self {
            seconds_high: U16::new((timestamp.seconds >> 32) as u16),
            seconds_low: U32::new(timestamp.seconds as u32),
            nanoseconds: U32::new(timestamp.nanoseconds),
        }
    }
}

impl From<TimestampLayout> for PtpTimestamp {
    fn from(layout: TimestampLayout) -> Self {
        let seconds =
            u64::from(layout.seconds_high.get()) << 32 | u64::from(layout.seconds_low.get());
        Self::new(seconds, layout.nanoseconds.get())
    }
}

impl Header {
    /// Parses the common header and splits the bytes after it at the message length. Another
    /// version than 2 is [`ParseError::Version`], a length below that of the header
    /// [`ParseError::Length`].
    fn parse(bytes: &[u8]) -> Result<PtpHeaderAndRest<'_>, ParseError> {
        let (layout, _) =
            PtpHeaderLayout::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
        if layout.version & 0xf != VERSION {
            return Err(ParseError::Version);
        }
        let length = usize::from(layout.length.get());
        if length < HEADER_LEN {
            return Err(ParseError::Length);
        }
        let (message, trailer) = bytes.split_at_checked(length).ok_or(ParseError::Truncated)?;
        let header = Self {
            sdo_id: u16::from(layout.sdo_id_type >> 4) << 8 | u16::from(layout.minor_sdo_id),
            minor_version: layout.version >> 4,
            domain: layout.domain,
            flags: PtpFlags(layout.flags.get()),
            correction: TimeInterval(layout.correction.get()),
            source: layout.source.into(),
            sequence_id: layout.sequence_id.get(),
            log_interval: layout.log_interval,
        };
        let kind = layout.sdo_id_type & 0xf;
        Ok(PtpHeaderAndRest { header, kind, rest: &message[HEADER_LEN..], trailer })
    }

    /// Writes the header of a message with this type (four bits) and total length in bytes to the
    /// front of `buffer`.
    ///
    /// # Panics
    ///
    /// If `buffer` is shorter than [`HEADER_LEN`].
    fn emit(&self, kind: u8, length: usize, buffer: &mut [u8]) {
        let layout = PtpHeaderLayout {
            sdo_id_type: ((self.sdo_id >> 8) as u8) << 4 | kind & 0xf,
            version: self.minor_version << 4 | VERSION,
            length: U16::new(length as u16),
            domain: self.domain,
            minor_sdo_id: self.sdo_id as u8,
            flags: U16::new(self.flags.0),
            correction: I64::new(self.correction.0),
            type_specific: U32::ZERO,
            source: self.source.into(),
            sequence_id: U16::new(self.sequence_id),
            control: MessageType::from_bits(kind).map_or(5, MessageType::control_field),
            log_interval: self.log_interval,
        };
        buffer[..HEADER_LEN].copy_from_slice(layout.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_message_type_has_its_number() {
        for kind in MessageType::ALL {
            assert_eq!(MessageType::from_bits(kind as u8 | 0xf0), Some(kind));
        }
        assert_eq!(MessageType::from_bits(4), None);
        assert!(MessageType::DelayReq.is_event() && !MessageType::FollowUp.is_event());
    }

    #[test]
    fn intervals_are_rounded_to_the_nearest_nanosecond() {
        for (bits, ns) in
            [(0x8000, 1), (0x7fff, 0), (-0x8000, 0), (-0x8001, -1), (i64::MIN, -1 << 47)]
        {
            assert_eq!(TimeInterval(bits).to_ns(), ns, "{bits:x}");
        }
        assert_eq!(TimeInterval::from_ns(i64::MAX).0, i64::MAX);
    }

    proptest! {
        #[test]
        fn differences_are_antisymmetric(a in 0u64..1 << 33, b in 0u64..1 << 33, m: u32, n: u32) {
            let (a, b) = (PtpTimestamp::new(a, m), PtpTimestamp::new(b, n));
            let difference = a.ns_since(b).unwrap();
            prop_assert_eq!(b.ns_since(a), Some(-difference));
        }

        #[test]
        fn timestamps_that_are_too_far_apart_have_no_difference(seconds in 1u64 << 34..1 << 48, n: u32) {
            prop_assert_eq!(PtpTimestamp::new(seconds, n).ns_since(PtpTimestamp::ZERO), None);
        }

        #[test]
        fn intervals_of_nanoseconds_round_trip(ns in -(1i64 << 47) + 1..1 << 47) {
            prop_assert_eq!(TimeInterval::from_ns(ns).to_ns(), ns);
        }
    }
}
