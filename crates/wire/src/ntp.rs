//! The NTP packet header, versions 1 to 4 (RFC 5905, section 7.3; RFC 1305, appendix A; RFC 1059,
//! appendix B for version 1, which has the same layout). Extension fields and message
//! authentication codes follow it and are not interpreted here.

use horolog_time::{NtpShort, NtpTimestamp};
use zerocopy::byteorder::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Malformed;

/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 48;
/// The UDP port of NTP.
pub const PORT: u16 = 123;
/// The stratum that stands for "unsynchronised" (RFC 5905, figure 11).
pub const STRATUM_UNSYNCHRONISED: u8 = 16;
/// Where the transmit timestamp stands in the header, in bytes from its start.
pub const TRANSMIT_OFFSET: usize = 40;

/// Leap indicator (RFC 5905, figure 9).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(u8)]
pub enum Leap {
    /// No leap second is near.
    #[default]
    None = 0,
    /// The last minute of the day has 61 seconds.
    Insert = 1,
    /// The last minute of the day has 59 seconds.
    Delete = 2,
    /// The clock is not synchronised.
    Unsynchronised = 3,
}

impl Leap {
    /// From the two low bits of `bits`.
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
pub enum Mode {
    /// Reserved; a client of version 1 sends it (RFC 1059 knew no mode field).
    Reserved = 0,
    /// Symmetric active.
    SymmetricActive = 1,
    /// Symmetric passive.
    SymmetricPassive = 2,
    /// Client: a request.
    Client = 3,
    /// Server: a reply.
    Server = 4,
    /// Broadcast.
    Broadcast = 5,
    /// Control message (RFC 9327): another layout behind the first byte.
    Control = 6,
    /// Private use: another layout behind the first byte.
    Private = 7,
}

impl Mode {
    /// From the three low bits of `bits`.
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

/// The header's fields (RFC 5905, figure 8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Leap indicator.
    pub leap: Leap,
    /// Version number, 0 to 7.
    pub version: u8,
    /// Association mode.
    pub mode: Mode,
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
    /// When the clock was last set or corrected.
    pub reference: NtpTimestamp,
    /// The request's transmit timestamp, as the server saw it (T1).
    pub origin: NtpTimestamp,
    /// When the request reached the server (T2).
    pub receive: NtpTimestamp,
    /// When the packet was sent (T3 of a reply).
    pub transmit: NtpTimestamp,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
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

const _: () = assert!(size_of::<Layout>() == HEADER_LEN);
const _: () = assert!(core::mem::offset_of!(Layout, transmit) == TRANSMIT_OFFSET);

impl Header {
    /// A client's request that says nothing of the client but its transmit timestamp, which need
    /// not be a time.
    #[must_use]
    pub const fn request(version: u8, transmit: NtpTimestamp) -> Self {
        Self {
            leap: Leap::None,
            version,
            mode: Mode::Client,
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

    /// Reads a header and returns what follows it. Every 48 bytes are a header; whether its fields
    /// make sense is for the reader to decide.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (layout, rest) = Layout::ref_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
        let header = Self {
            leap: Leap::from_bits(layout.leap_version_mode >> 6),
            version: (layout.leap_version_mode >> 3) & 7,
            mode: Mode::from_bits(layout.leap_version_mode),
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

    /// Writes it to the front of `buffer` and returns its length.
    ///
    /// # Panics
    /// When `buffer` is shorter than [`HEADER_LEN`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let layout = Layout {
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
        assert_eq!((header.leap, header.version, header.mode), (Leap::None, 4, Mode::Server));
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
    fn forty_seven_bytes_are_no_header() {
        assert_eq!(Header::parse(&REPLY[1..]), Err(Malformed::Truncated));
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
