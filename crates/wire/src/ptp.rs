//! Precision Time Protocol, version 2 (IEEE 1588-2019, clause 13): its common header, and the
//! values used in all of its messages. The messages are in [`message`], the TLVs after them in
//! [`tlv`], the extension by which a client requests a Sync from a master in [`monitor`], and
//! management in [`management`].

use zerocopy::byteorder::network_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Malformed;
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
/// Length of the common header, in bytes.
pub const HEADER_LEN: usize = 34;
/// Offset of the sender's port identity in the header, in bytes.
pub const SOURCE_OFFSET: usize = 20;
/// Offset of the sequence number in the header, in bytes.
pub const SEQUENCE_ID_OFFSET: usize = 30;
/// Major version implemented here.
pub const VERSION: u8 = 2;
/// Bytes after the end of a message over IPv6, so that a device that changes it in transit can keep
/// the checksum valid (annex D.5).
pub const IPV6_PADDING_LEN: usize = 2;

/// Message types, by their number (table 36).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum MessageType {
    /// Master's time, or the announcement that it follows.
    Sync = 0x0,
    /// Request of a client for the delay to the master.
    DelayReq = 0x1,
    /// Request between neighbours.
    PdelayReq = 0x2,
    /// Response between neighbours.
    PdelayResp = 0x3,
    /// Precise transmit time of a Sync.
    FollowUp = 0x8,
    /// Receive time of a `Delay_Req` at the master.
    DelayResp = 0x9,
    /// Precise transmit time of a response between neighbours.
    PdelayRespFollowUp = 0xa,
    /// Properties of the master's clock.
    Announce = 0xb,
    /// Negotiations.
    Signaling = 0xc,
    /// Configuration.
    Management = 0xd,
}

impl MessageType {
    /// All types.
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

    /// Returns the type in the low four bits of `bits`; `None` if reserved.
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&kind| kind as u8 == bits & 0xf)
    }

    /// Returns true if it is timestamped, and so sent to [`EVENT_PORT`].
    #[must_use]
    pub const fn is_event(self) -> bool {
        (self as u8) < 0x8
    }

    /// Returns the control field, by which version 1 distinguished messages (table 42).
    const fn control(self) -> u8 {
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

/// Flags of the header (table 37), the first byte in the high eight bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct PtpFlags(pub u16);

impl PtpFlags {
    /// Sent by a port that is not the best master's (clause 17.3).
    pub const ALTERNATE_MASTER: Self = Self(0x0100);
    /// Time of this Sync follows in a `Follow_Up`.
    pub const TWO_STEP: Self = Self(0x0200);
    /// Sent to one address only.
    pub const UNICAST: Self = Self(0x0400);
    /// Last minute of the day has 61 seconds.
    pub const LEAP_61: Self = Self(0x0001);
    /// Last minute of the day has 59 seconds.
    pub const LEAP_59: Self = Self(0x0002);
    /// Offset to UTC valid.
    pub const UTC_OFFSET_VALID: Self = Self(0x0004);
    /// Timescale TAI.
    pub const PTP_TIMESCALE: Self = Self(0x0008);
    /// Time traceable to a primary reference.
    pub const TIME_TRACEABLE: Self = Self(0x0010);
    /// Frequency traceable to a primary reference.
    pub const FREQUENCY_TRACEABLE: Self = Self(0x0020);

    /// Returns true if all of `flags` are set.
    #[must_use]
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns these and `flags`.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
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
    /// All ports of all clocks (clause 13.12.1).
    pub const ALL: Self = Self { clock: u64::MAX, port: u16::MAX };

    /// Returns true if a message for this target is for `port`; all ones in either part mean all.
    #[must_use]
    pub const fn targets(self, port: Self) -> bool {
        (self.clock == port.clock || self.clock == u64::MAX)
            && (self.port == port.port || self.port == u16::MAX)
    }
}

/// Seconds and nanoseconds since the epoch of the master's timescale (clause 5.3.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct PtpTimestamp {
    seconds: u64,
    nanoseconds: u32,
}

impl PtpTimestamp {
    /// Zero timestamp, which means that none is given.
    pub const ZERO: Self = Self { seconds: 0, nanoseconds: 0 };

    /// Returns a timestamp of seconds, whose low 48 bits a message carries, and nanoseconds.
    #[must_use]
    pub const fn new(seconds: u64, nanoseconds: u32) -> Self {
        Self { seconds: seconds & SECONDS_MASK, nanoseconds }
    }

    /// Returns the seconds, below 2^48.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        self.seconds
    }

    /// Returns the nanoseconds as received; see [`PtpTimestamp::is_normal`].
    #[must_use]
    pub const fn nanoseconds(self) -> u32 {
        self.nanoseconds
    }

    /// Returns true if its nanoseconds are less than a second, as required.
    #[must_use]
    pub const fn is_normal(self) -> bool {
        self.nanoseconds < 1_000_000_000
    }

    /// Returns the difference from `earlier` in ns; `None` above 292 years.
    #[must_use]
    pub fn since(self, earlier: Self) -> Option<i64> {
        let seconds = self.seconds.cast_signed() - earlier.seconds.cast_signed();
        let nanoseconds = i64::from(self.nanoseconds) - i64::from(earlier.nanoseconds);
        seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
    }
}

const SECONDS_MASK: u64 = (1 << 48) - 1;

/// Time span in 2^-16 ns: the correction that a message accumulates in transit, and other intervals
/// (clauses 5.3.2 and 13.3.2.9).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct TimeInterval(pub i64);

impl TimeInterval {
    /// Converts from whole nanoseconds; saturates.
    #[must_use]
    pub const fn from_ns(ns: i64) -> Self {
        Self(ns.saturating_mul(1 << 16))
    }

    /// Rounds to the nearest nanosecond, halves upwards.
    #[must_use]
    pub const fn to_ns(self) -> i64 {
        (self.0 >> 16) + ((self.0 >> 15) & 1)
    }
}

/// Common header of all messages (clause 13.3), without the type and the length, which follow from
/// the message.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Header {
    /// Profile identifier, 12 bits: 0 for IEEE 1588, 0x100 for IEEE 802.1AS.
    pub sdo_id: u16,
    /// Minor version: 0 in 2008, 1 in 2019.
    pub minor_version: u8,
    /// Domain.
    pub domain: u8,
    /// Flags.
    pub flags: PtpFlags,
    /// Correction accumulated in transit.
    pub correction: TimeInterval,
    /// Sender.
    pub source: PortIdentity,
    /// Sequence number; a response has that of its request.
    pub sequence_id: u16,
    /// Interval of such messages, log2 of seconds; 0x7f for none.
    pub log_interval: i8,
}

/// No interval between messages: in a client's `Delay_Req` and in unicast messages (table 43).
pub const NO_INTERVAL: i8 = 0x7f;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct HeaderLayout {
    sdo_id_type: u8,
    version: u8,
    length: U16,
    domain: u8,
    minor_sdo_id: u8,
    flags: U16,
    correction: I64,
    type_specific: U32,
    source: PortLayout,
    sequence_id: U16,
    control: u8,
    log_interval: i8,
}

const _: () = assert!(size_of::<HeaderLayout>() == HEADER_LEN);
const _: () = assert!(core::mem::offset_of!(HeaderLayout, source) == SOURCE_OFFSET);
const _: () = assert!(core::mem::offset_of!(HeaderLayout, sequence_id) == SEQUENCE_ID_OFFSET);

/// Parsed header with the bytes after it.
struct Headed<'a> {
    header: Header,
    /// Four bits of the message's type.
    kind: u8,
    /// Bytes that belong to the message.
    rest: &'a [u8],
    /// Bytes after the message.
    trailer: &'a [u8],
}

/// Layout of a [`PortIdentity`].
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct PortLayout {
    clock: U64,
    port: U16,
}

impl From<PortIdentity> for PortLayout {
    fn from(identity: PortIdentity) -> Self {
        Self { clock: U64::new(identity.clock), port: U16::new(identity.port) }
    }
}

impl From<PortLayout> for PortIdentity {
    fn from(layout: PortLayout) -> Self {
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
    /// Parses the header of a message and splits the bytes after it.
    fn parse(bytes: &[u8]) -> Result<Headed<'_>, Malformed> {
        let (layout, _) = HeaderLayout::ref_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
        if layout.version & 0xf != VERSION {
            return Err(Malformed::Version);
        }
        let length = usize::from(layout.length.get());
        if length < HEADER_LEN {
            return Err(Malformed::Length);
        }
        let (message, trailer) = bytes.split_at_checked(length).ok_or(Malformed::Truncated)?;
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
        Ok(Headed { header, kind, rest: &message[HEADER_LEN..], trailer })
    }

    /// Writes the header for a message of a type and a length.
    fn emit(&self, kind: u8, length: usize, buffer: &mut [u8]) {
        let layout = HeaderLayout {
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
            control: MessageType::from_bits(kind).map_or(5, MessageType::control),
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
            let difference = a.since(b).unwrap();
            prop_assert_eq!(b.since(a), Some(-difference));
        }

        #[test]
        fn timestamps_that_are_too_far_apart_have_no_difference(seconds in 1u64 << 34..1 << 48, n: u32) {
            prop_assert_eq!(PtpTimestamp::new(seconds, n).since(PtpTimestamp::ZERO), None);
        }

        #[test]
        fn intervals_of_nanoseconds_round_trip(ns in -(1i64 << 47) + 1..1 << 47) {
            prop_assert_eq!(TimeInterval::from_ns(ns).to_ns(), ns);
        }
    }
}
