//! UDP header (RFC 768; over IPv6 RFC 8200, section 8.1).

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Malformed, checksum::Sum};

/// Length of a header, in bytes.
pub const HEADER_LEN: usize = 8;

/// UDP header without its checksum, which depends on the addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Source port; 0 if no reply is expected.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
    source_port: U16,
    destination_port: U16,
    length: U16,
    checksum: U16,
}

/// Header with the bytes after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// Header.
    pub header: Header,
    /// Checksum as received; 0 means none.
    pub checksum: u16,
    /// Payload by the length in the header.
    pub payload: &'a [u8],
    /// Bytes after the datagram.
    pub trailer: &'a [u8],
}

impl Header {
    /// Parses a datagram: its length is verified, its checksum is not (see [`Header::verify`]).
    pub fn parse(bytes: &[u8]) -> Result<Datagram<'_>, Malformed> {
        let (layout, _) = Layout::ref_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
        let length = usize::from(layout.length.get());
        if length < HEADER_LEN {
            return Err(Malformed::Length);
        }
        let (datagram, trailer) = bytes.split_at_checked(length).ok_or(Malformed::Truncated)?;
        let header = Self {
            source_port: layout.source_port.get(),
            destination_port: layout.destination_port.get(),
        };
        let checksum = layout.checksum.get();
        Ok(Datagram { header, checksum, payload: &datagram[HEADER_LEN..], trailer })
    }

    /// Writes the header before a payload of `payload_len` bytes that is already in `buffer`, with
    /// the checksum over both and over `pseudo_header`; returns the header's length. A payload too
    /// long for the 16-bit length is stated as the maximum.
    ///
    /// # Panics
    /// If `buffer` is shorter than header and payload.
    pub fn emit(&self, buffer: &mut [u8], payload_len: usize, pseudo_header: Sum) -> usize {
        let length = (HEADER_LEN + payload_len).min(usize::from(u16::MAX));
        let mut layout = Layout {
            source_port: U16::new(self.source_port),
            destination_port: U16::new(self.destination_port),
            length: U16::new(length as u16),
            checksum: U16::new(0),
        };
        let sum =
            pseudo_header.bytes(layout.as_bytes()).bytes(&buffer[HEADER_LEN..length]).finish();
        // A sum of zero is sent as its other form, because zero means "none" (RFC 768).
        layout.checksum.set(if sum == 0 { 0xffff } else { sum });
        buffer[..HEADER_LEN].copy_from_slice(layout.as_bytes());
        HEADER_LEN
    }

    /// Returns true if the checksum of a datagram is valid; `bytes` reach from its header to its
    /// payload's end.
    #[must_use]
    pub fn verify(bytes: &[u8], pseudo_header: Sum) -> bool {
        pseudo_header.bytes(bytes).finish() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::udp_over_ipv4;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip_with_a_right_checksum(source_port: u16, destination_port: u16,
                payload in proptest::collection::vec(any::<u8>(), 0..100), source: [u8; 4]) {
            let header = Header { source_port, destination_port };
            let mut datagram = vec![0; HEADER_LEN];
            datagram.extend_from_slice(&payload);
            let pseudo = udp_over_ipv4(source.into(), Ipv4Addr::LOCALHOST, datagram.len() as u16);
            header.emit(&mut datagram, payload.len(), pseudo);
            let parsed = Header::parse(&datagram).unwrap();
            prop_assert_eq!(parsed.header, header);
            prop_assert_eq!(parsed.payload, &payload[..]);
            prop_assert!(parsed.checksum != 0);
            prop_assert!(Header::verify(&datagram, pseudo));
            datagram[0] ^= 1;
            prop_assert!(!Header::verify(&datagram, pseudo));
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = Header::parse(&bytes);
        }
    }
}
