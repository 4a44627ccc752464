//! IPv4 header (RFC 791, section 3.1). Options are returned as bytes; fragments are flagged, not
//! reassembled.

use core::net::Ipv4Addr;

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{ParseError, checksum};

/// Protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;
/// Length of a header without options, in bytes.
pub const HEADER_LEN: usize = 20;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// IPv4 header without its options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Protocol number of the payload.
    pub protocol: u8,
    /// DSCP and ECN bits (formerly type of service).
    pub traffic_class: u8,
    /// Identification, common to the fragments of one packet.
    pub identification: u16,
    /// True if the don't-fragment flag is set.
    pub dont_fragment: bool,
    /// Time to live; each router decrements it.
    pub time_to_live: u8,
    /// Length of the payload in bytes.
    pub payload_len: u16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Ipv4HeaderLayout {
    version_and_length: u8,
    traffic_class: u8,
    total_length: U16,
    identification: U16,
    flags_and_offset: U16,
    time_to_live: u8,
    protocol: u8,
    checksum: U16,
    source: [u8; 4],
    destination: [u8; 4],
}

/// IPv4 packet, parsed into header, options, payload and trailer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Header without options.
    pub header: Header,
    /// Bytes of the options, a multiple of 4.
    pub options: &'a [u8],
    /// True for a fragment of a larger packet.
    pub is_fragment: bool,
    /// Payload, as long as the total length in the header says.
    pub payload: &'a [u8],
    /// Bytes after the end of the packet, such as padding of the link layer.
    pub trailer: &'a [u8],
}

impl Header {
    /// Parses a packet: version, lengths and header checksum are verified; the error names the
    /// first that is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Packet<'_>, ParseError> {
        let (layout, _) =
            Ipv4HeaderLayout::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
        if layout.version_and_length >> 4 != 4 {
            return Err(ParseError::Version);
        }
        let header_len = usize::from(layout.version_and_length & 0xf) * 4;
        let total_len = usize::from(layout.total_length.get());
        if header_len < HEADER_LEN || total_len < header_len {
            return Err(ParseError::Length);
        }
        if bytes.len() < total_len {
            return Err(ParseError::Truncated);
        }
        let (packet, trailer) = bytes.split_at(total_len);
        let (head, payload) = packet.split_at(header_len);
        if checksum::OnesComplementSum::default().add_bytes(head).finish() != 0 {
            return Err(ParseError::Checksum);
        }
        let flags_and_offset = layout.flags_and_offset.get();
        let header = Self {
            source: layout.source.into(),
            destination: layout.destination.into(),
            protocol: layout.protocol,
            traffic_class: layout.traffic_class,
            identification: layout.identification.get(),
            dont_fragment: flags_and_offset & DONT_FRAGMENT != 0,
            time_to_live: layout.time_to_live,
            payload_len: (total_len - header_len) as u16,
        };
        let is_fragment = flags_and_offset & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0;
        Ok(Packet { header, options: &head[HEADER_LEN..], is_fragment, payload, trailer })
    }

    /// Writes the header with its checksum, without options, to the front of `buffer`; returns its
    /// length in bytes. The total length saturates at 65,535.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`HEADER_LEN`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let mut layout = Ipv4HeaderLayout {
            version_and_length: 0x45,
            traffic_class: self.traffic_class,
            total_length: U16::new(self.payload_len.saturating_add(HEADER_LEN as u16)),
            identification: U16::new(self.identification),
            flags_and_offset: U16::new(if self.dont_fragment { DONT_FRAGMENT } else { 0 }),
            time_to_live: self.time_to_live,
            protocol: self.protocol,
            checksum: U16::new(0),
            source: self.source.octets(),
            destination: self.destination.octets(),
        };
        layout
            .checksum
            .set(checksum::OnesComplementSum::default().add_bytes(layout.as_bytes()).finish());
        buffer[..HEADER_LEN].copy_from_slice(layout.as_bytes());
        HEADER_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(payload_len: u16) -> Header {
        Header {
            source: Ipv4Addr::new(192, 0, 2, 1),
            destination: Ipv4Addr::new(198, 51, 100, 2),
            protocol: PROTOCOL_UDP,
            traffic_class: 0,
            identification: 7,
            dont_fragment: true,
            time_to_live: 64,
            payload_len,
        }
    }

    #[test]
    fn one_flipped_bit_anywhere_in_the_header_is_refused() {
        let mut packet = [0; HEADER_LEN];
        header(0).emit(&mut packet);
        for bit in 0..HEADER_LEN * 8 {
            packet[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::parse(&packet).is_err(), "bit {bit}");
            packet[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(Header::parse(&packet).is_ok());
    }

    #[test]
    fn padding_behind_the_packet_is_not_payload() {
        let mut packet = [9; HEADER_LEN + 2 + 5];
        header(2).emit(&mut packet);
        let parsed = Header::parse(&packet).unwrap();
        assert_eq!((parsed.payload.len(), parsed.trailer.len()), (2, 5));
    }

    #[test]
    fn fragments_are_recognised() {
        for flags in [0x2000_u16, 0x0001, 0x3fff] {
            let mut packet = [0; HEADER_LEN];
            header(0).emit(&mut packet);
            packet[6..8].copy_from_slice(&flags.to_be_bytes());
            packet[10..12].fill(0);
            let sum = checksum::OnesComplementSum::default().add_bytes(&packet).finish();
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            assert!(Header::parse(&packet).unwrap().is_fragment);
        }
    }

    proptest! {
        #[test]
        fn round_trip(source: [u8; 4], destination: [u8; 4], protocol: u8, traffic_class: u8,
                      identification: u16, dont_fragment: bool, time_to_live: u8, payload_len in 0u16..300) {
            let header = Header {
                source: source.into(), destination: destination.into(), protocol, traffic_class,
                identification, dont_fragment, time_to_live, payload_len,
            };
            let mut packet = vec![0; HEADER_LEN + usize::from(payload_len)];
            header.emit(&mut packet);
            let parsed = Header::parse(&packet).unwrap();
            prop_assert_eq!(parsed.header, header);
            prop_assert!(!parsed.is_fragment && parsed.options.is_empty());
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = Header::parse(&bytes);
        }
    }
}
