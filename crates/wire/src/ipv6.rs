//! IPv6 header (RFC 8200, section 3). Extension headers are not parsed: the first of them appears
//! as the next header, and its bytes are part of the payload.

use core::net::Ipv6Addr;

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ParseError;

/// Length of a header, in bytes.
pub const HEADER_LEN: usize = 40;

/// Fixed IPv6 header, without extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
    /// Protocol number of the payload, or of the first extension header.
    pub next_header: u8,
    /// DSCP and ECN bits.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit; each router decrements it.
    pub hop_limit: u8,
    /// Length of the payload in bytes, extension headers included.
    pub payload_len: u16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Ipv6HeaderLayout {
    version_class_flow: U32,
    payload_length: U16,
    next_header: u8,
    hop_limit: u8,
    source: [u8; 16],
    destination: [u8; 16],
}

/// IPv6 packet, parsed into header, payload and trailer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Fixed header of 40 bytes.
    pub header: Header,
    /// Payload, as long as the length in the header says.
    pub payload: &'a [u8],
    /// Bytes after the end of the packet, such as padding of the link layer.
    pub trailer: &'a [u8],
}

impl Header {
    /// Parses a packet: version and length are verified.
    pub fn parse(bytes: &[u8]) -> Result<Packet<'_>, ParseError> {
        let (layout, rest) =
            Ipv6HeaderLayout::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
        let version_class_flow = layout.version_class_flow.get();
        if version_class_flow >> 28 != 6 {
            return Err(ParseError::Version);
        }
        let payload_len = layout.payload_length.get();
        let (payload, trailer) =
            rest.split_at_checked(usize::from(payload_len)).ok_or(ParseError::Truncated)?;
        let header = Self {
            source: layout.source.into(),
            destination: layout.destination.into(),
            next_header: layout.next_header,
            traffic_class: (version_class_flow >> 20) as u8,
            flow_label: version_class_flow & 0xf_ffff,
            hop_limit: layout.hop_limit,
            payload_len,
        };
        Ok(Packet { header, payload, trailer })
    }

    /// Writes the header to the front of `buffer` and returns its length in bytes.
    ///
    /// # Panics
    ///
    /// If `buffer` is shorter than [`HEADER_LEN`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let version_class_flow =
            6 << 28 | u32::from(self.traffic_class) << 20 | (self.flow_label & 0xf_ffff);
        let layout = Ipv6HeaderLayout {
            version_class_flow: U32::new(version_class_flow),
            payload_length: U16::new(self.payload_len),
            next_header: self.next_header,
            hop_limit: self.hop_limit,
            source: self.source.octets(),
            destination: self.destination.octets(),
        };
        buffer[..HEADER_LEN].copy_from_slice(layout.as_bytes());
        HEADER_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(source: [u8; 16], destination: [u8; 16], next_header: u8, traffic_class: u8,
                      flow_label in 0u32..1 << 20, hop_limit: u8, payload_len in 0u16..300, padding in 0usize..5) {
            let header = Header {
                source: source.into(), destination: destination.into(), next_header, traffic_class,
                flow_label, hop_limit, payload_len,
            };
            let mut packet = vec![0; HEADER_LEN + usize::from(payload_len) + padding];
            header.emit(&mut packet);
            let parsed = Header::parse(&packet).unwrap();
            prop_assert_eq!(parsed.header, header);
            prop_assert_eq!(parsed.trailer.len(), padding);
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = Header::parse(&bytes);
        }
    }
}
