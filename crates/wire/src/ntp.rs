//! NTP packet header, versions 1 to 4 (RFC 5905, section 7.3; RFC 1305, appendix A; RFC 1059,
//! appendix B), and in modules the extension fields after it.

use horolog_time::{NtpShort, NtpTimestamp};
use zerocopy::byteorder::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ParseError;

pub mod extension;
pub mod nts;

/// Length of the NTP header, in bytes.
pub const HEADER_LEN: usize = 48;
/// UDP port of NTP.
pub const PORT: u16 = 123;
/// Stratum for "unsynchronised" (RFC 5905, figure 11). Packets carry 0 instead (section 7.3), but
/// some servers send 16.
pub const STRATUM_UNSYNCHRONISED: u8 = 16;
/// Offset of the transmit timestamp in the header, in bytes.
pub const TRANSMIT_OFFSET: usize = 40;

/// Leap indicator (RFC 5905, figure 9).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(u8)]
pub enum LeapIndicator {
    /// No leap second announced.
    #[default]
    None = 0,
    /// Positive leap second: the last minute of the day has 61 seconds.
    Insert = 1,
    /// Negative leap second: the last minute of the day has 59 seconds.
    Delete = 2,
    /// Clock not synchronised.
    Unsynchronised = 3,
}

impl LeapIndicator {
    /// Returns the indicator in the two low bits of `bits`.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::None,
            1 => Self::Insert,
            2 => Self::Delete,
            _ => Self::Unsynchronised,
        }
    }
}

/// Association mode (RFC 5905, figure 10).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum AssociationMode {
    /// Reserved; sent by clients of version 1, which has no mode field (RFC 1059).
    Reserved = 0,
    /// Symmetric active: packet of a peer that expects replies.
    SymmetricActive = 1,
    /// Symmetric passive: reply to a packet in symmetric active mode.
    SymmetricPassive = 2,
    /// Client: a request.
    Client = 3,
    /// Server: a reply.
    Server = 4,
    /// Broadcast: packet of a server without a request.
    Broadcast = 5,
    /// Control message (RFC 9327): another layout after the first byte.
    Control = 6,
    /// Private use (ntpdc): another layout after the first byte.
    Private = 7,
}

impl AssociationMode {
    /// Returns the mode in the three low bits of `bits`.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 7 {
            0 => Self::Reserved,
            1 => Self::SymmetricActive,
            2 => Self::SymmetricPassive,
            3 => Self::Client,
            4 => Self::Server,
            5 => Self::Broadcast,
            6 => Self::Control,
            _ => Self::Private,
        }
    }
}

/// Kiss codes by which a server refuses service (RFC 5905, figure 13; RFC 8915, section 5.7).
/// Excludes `INIT` and `STEP`, which only say that the server is not synchronised yet.
pub const KISS_CODES: [[u8; 4]; 13] = [
    *b"ACST", *b"AUTH", *b"AUTO", *b"BCST", *b"CRYP", *b"DENY", *b"DROP", *b"MCST", *b"NKEY",
    *b"NTSN", *b"RATE", *b"RMOT", *b"RSTR",
];

/// Status of a server according to the leap indicator, stratum and reference identifier of its
/// reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyStatus {
    /// Time of a synchronised clock.
    Synchronised,
    /// Reply of a server that is not synchronised.
    Unsynchronised,
    /// Kiss-o'-Death, with its code (RFC 5905, section 7.4).
    Kiss([u8; 4]),
}

/// Fields of the header (RFC 5905, figure 8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Leap indicator.
    pub leap: LeapIndicator,
    /// Version number, 0 to 7.
    pub version: u8,
    /// Association mode.
    pub mode: AssociationMode,
    /// Stratum: 0 unspecified or a kiss code, 1 a primary server, 2–15
    /// secondary, 16 unsynchronised.
    pub stratum: u8,
    /// Maximum interval between messages, log2 of seconds.
    pub poll: i8,
    /// Precision of the clock, log2 of seconds.
    pub precision: i8,
    /// Round-trip delay to the reference clock.
    pub root_delay: NtpShort,
    /// Dispersion to the reference clock.
    pub root_dispersion: NtpShort,
    /// Reference identifier, or a kiss code.
    pub reference_id: [u8; 4],
    /// Reference timestamp: time of the last update of the clock.
    pub reference: NtpTimestamp,
    /// Origin timestamp (T1): in a reply, the transmit timestamp of its request.
    pub origin: NtpTimestamp,
    /// Receive timestamp (T2): arrival of the request at the server.
    pub receive: NtpTimestamp,
    /// Transmit timestamp of this packet (T3 in a reply).
    pub transmit: NtpTimestamp,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct NtpHeaderLayout {
    leap_version_mode: u8,
    stratum: u8,
    poll: i8,
    precision: i8,
    root_delay: U32,
    root_dispersion: U32,
    reference_id: [u8; 4],
    reference: U64,
    origin: U64,
    receive: U64,
    transmit: U64,
}

const _: () = assert!(size_of::<NtpHeaderLayout>() == HEADER_LEN);
const _: () = assert!(core::mem::offset_of!(NtpHeaderLayout, transmit) == TRANSMIT_OFFSET);

impl Header {
    /// Returns a client request in which only version, mode and transmit timestamp are set, so that
    /// it reveals nothing about the client. `transmit` may be a random number.
    #[must_use]
    pub const fn request(version: u8, transmit: NtpTimestamp) -> Self {
        Self {
            leap: LeapIndicator::None,
            version,
            mode: AssociationMode::Client,
            stratum: 0,
            poll: 0,
            precision: 0,
            root_delay: NtpShort::from_bits(0),
            root_dispersion: NtpShort::from_bits(0),
            reference_id: [0; 4],
            reference: NtpTimestamp::UNKNOWN,
            origin: NtpTimestamp::UNKNOWN,
            receive: NtpTimestamp::UNKNOWN,
            transmit,
        }
    }

    /// Parses a header; returns it with the bytes after it. Any 48 bytes are accepted and field
    /// values are not checked; fewer are [`ParseError::Truncated`].
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (layout, rest) =
            NtpHeaderLayout::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
        let header = Self {
            leap: LeapIndicator::from_bits(layout.leap_version_mode >> 6),
            version: (layout.leap_version_mode >> 3) & 7,
            mode: AssociationMode::from_bits(layout.leap_version_mode),
            stratum: layout.stratum,
            poll: layout.poll,
            precision: layout.precision,
            root_delay: NtpShort::from_bits(layout.root_delay.get()),
            root_dispersion: NtpShort::from_bits(layout.root_dispersion.get()),
            reference_id: layout.reference_id,
            reference: NtpTimestamp::from_bits(layout.reference.get()),
            origin: NtpTimestamp::from_bits(layout.origin.get()),
            receive: NtpTimestamp::from_bits(layout.receive.get()),
            transmit: NtpTimestamp::from_bits(layout.transmit.get()),
        };
        Ok((header, rest))
    }

    /// Returns the status of the server that sent this reply; `None` for a reserved stratum (above
    /// 16) without leap indicator 3. Leap indicator 3 and stratum 16 each mean "not synchronised"
    /// (RFC 5905, figures 9 and 11), as does stratum 0, the wire value of 16, without a kiss code
    /// (section 7.3).
    #[must_use]
    pub fn reply_status(&self) -> Option<ReplyStatus> {
        match self.stratum {
            0 if KISS_CODES.contains(&self.reference_id) => {
                Some(ReplyStatus::Kiss(self.reference_id))
            }
            0 | STRATUM_UNSYNCHRONISED => Some(ReplyStatus::Unsynchronised),
            _ if self.leap == LeapIndicator::Unsynchronised => Some(ReplyStatus::Unsynchronised),
            1..STRATUM_UNSYNCHRONISED => Some(ReplyStatus::Synchronised),
            _ => None,
        }
    }

    /// Writes the header to the front of `buffer` and returns its length in bytes.
    ///
    /// # Panics
    ///
    /// If `buffer` is shorter than [`HEADER_LEN`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let layout = NtpHeaderLayout {
            leap_version_mode: (self.leap as u8) << 6 | (self.version & 7) << 3 | self.mode as u8,
            stratum: self.stratum,
            poll: self.poll,
            precision: self.precision,
            root_delay: U32::new(self.root_delay.to_bits()),
            root_dispersion: U32::new(self.root_dispersion.to_bits()),
            reference_id: self.reference_id,
            reference: U64::new(self.reference.to_bits()),
            origin: U64::new(self.origin.to_bits()),
            receive: U64::new(self.receive.to_bits()),
            transmit: U64::new(self.transmit.to_bits()),
        };
        buffer[..HEADER_LEN].copy_from_slice(layout.as_bytes());
        HEADER_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A server reply written out by hand from RFC 5905, figure 8.
    const REPLY: [u8; HEADER_LEN] = [
        0x24, 0x01, 0x06, 0xe7, // leap 0, version 4, mode 4; stratum 1; poll 6; precision -25
        0x00, 0x00, 0x80, 0x00, // root delay 0.5 s
        0x00, 0x01, 0x00, 0x00, // root dispersion 1 s
        b'G', b'P', b'S', 0x00, // reference identifier
        0xe0, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, // reference
        0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, // origin
        0xe0, 0x00, 0x00, 0x02, 0x40, 0x00, 0x00, 0x00, // receive
        0xe0, 0x00, 0x00, 0x02, 0x80, 0x00, 0x00, 0x00, // transmit
    ];

    #[test]
    fn reply_by_hand() {
        let (header, rest) = Header::parse(&REPLY).unwrap();
        assert!(rest.is_empty());
        assert_eq!(
            (header.leap, header.version, header.mode),
            (LeapIndicator::None, 4, AssociationMode::Server)
        );
        assert_eq!((header.stratum, header.poll, header.precision), (1, 6, -25));
        assert_eq!(header.root_delay.to_span().as_ns(), 500_000_000);
        assert_eq!(header.root_dispersion.to_span().as_ns(), 1_000_000_000);
        assert_eq!(&header.reference_id, b"GPS\0");
        assert_eq!(header.origin.to_bits(), 0x0102_0304_0506_0708);
        assert_eq!(header.transmit.since(header.receive).as_ns(), 250_000_000);
        let mut back = [0; HEADER_LEN];
        header.emit(&mut back);
        assert_eq!(back, REPLY);
    }

    #[test]
    fn an_unsynchronised_server_is_no_kiss_of_death() {
        use ReplyStatus::{Kiss, Synchronised, Unsynchronised};
        let (good, _) = Header::parse(&REPLY).unwrap();
        let status = |leap, stratum, reference_id| {
            Header { leap, stratum, reference_id, ..good }.reply_status()
        };
        for leap in [LeapIndicator::None, LeapIndicator::Insert, LeapIndicator::Delete] {
            assert_eq!(status(leap, 1, *b"RATE"), Some(Synchronised), "a name of a clock");
            assert_eq!(status(leap, 15, [0; 4]), Some(Synchronised));
            assert_eq!(status(leap, 16, *b"RATE"), Some(Unsynchronised));
            assert_eq!(status(leap, 17, *b"RATE"), None);
        }
        for stratum in [1, 2, 15, 16, 17, 255] {
            assert_eq!(
                status(LeapIndicator::Unsynchronised, stratum, *b"RATE"),
                Some(Unsynchronised)
            );
        }
        for leap in [LeapIndicator::None, LeapIndicator::Unsynchronised] {
            for id in [[0; 4], *b"INIT", *b"STEP", *b"GPS\0", *b"XNON", [127, 127, 1, 1]] {
                assert_eq!(status(leap, 0, id), Some(Unsynchronised), "{id:?}");
            }
            for code in KISS_CODES {
                assert_eq!(status(leap, 0, code), Some(Kiss(code)));
            }
        }
    }

    #[test]
    fn forty_seven_bytes_are_no_header() {
        assert_eq!(Header::parse(&REPLY[1..]), Err(ParseError::Truncated));
    }

    proptest! {
        #[test]
        fn every_48_bytes_round_trip(bytes in proptest::array::uniform32(any::<u8>()), more in proptest::array::uniform16(any::<u8>())) {
            let mut packet = [0; HEADER_LEN];
            packet[..32].copy_from_slice(&bytes);
            packet[32..].copy_from_slice(&more);
            let (header, _) = Header::parse(&packet).unwrap();
            let mut back = [0; HEADER_LEN];
            prop_assert_eq!(header.emit(&mut back), HEADER_LEN);
            prop_assert_eq!(back, packet);
        }
    }
}
