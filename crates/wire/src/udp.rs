//! UDP header (RFC 768; over IPv6 RFC 8200, section 8.1).

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{ParseError, checksum::OnesComplementSum};

/// Length of a header, in bytes.
pub const HEADER_LEN: usize = 8;

/// UDP header: the ports. The checksum is computed on emission, since it depends on the IP
/// addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Source port; 0 if no reply is expected.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct UdpHeaderLayout {
    source_port: U16,
    destination_port: U16,
    length: U16,
    checksum: U16,
}

/// UDP datagram, parsed into header, checksum, payload and trailer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// Source and destination port.
    pub header: Header,
    /// Checksum as received; 0 means none.
    pub checksum: u16,
    /// Payload, as long as the length in the header says.
    pub payload: &'a [u8],
    /// Bytes after the end of the datagram.
    pub trailer: &'a [u8],
}

impl Header {
    /// Parses a datagram: its length is verified, its checksum is not (see [`Header::verify`]).
    pub fn parse(bytes: &[u8]) -> Result<Datagram<'_>, ParseError> {
        let (layout, _) =
            UdpHeaderLayout::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
        let length = usize::from(layout.length.get());
        if length < HEADER_LEN {
            return Err(ParseError::Length);
        }
        let (datagram, trailer) = bytes.split_at_checked(length).ok_or(ParseError::Truncated)?;
        let header = Self {
            source_port: layout.source_port.get(),
            destination_port: layout.destination_port.get(),
        };
        let checksum = layout.checksum.get();
        Ok(Datagram { header, checksum, payload: &datagram[HEADER_LEN..], trailer })
    }

    /// Writes the header in front of a payload of `payload_len` bytes that is already in `buffer`,
    /// with the checksum over pseudo-header, header and payload; returns the length of the header.
    /// The length field saturates at 65,535.
    ///
    /// # Panics
    /// If `buffer` is shorter than header and payload.
    pub fn emit(
        &self,
        buffer: &mut [u8],
        payload_len: usize,
        pseudo_header: OnesComplementSum,
    ) -> usize {
        let length = (HEADER_LEN + payload_len).min(usize::from(u16::MAX));
        let mut layout = UdpHeaderLayout {
            source_port: U16::new(self.source_port),
            destination_port: U16::new(self.destination_port),
            length: U16::new(length as u16),
            checksum: U16::new(0),
        };
        let sum = pseudo_header
            .add_bytes(layout.as_bytes())
            .add_bytes(&buffer[HEADER_LEN..length])
            .finish();
        // Checksum 0 is sent as 0xffff, because 0 means "none" (RFC 768).
        layout.checksum.set(if sum == 0 { 0xffff } else { sum });
        buffer[..HEADER_LEN].copy_from_slice(layout.as_bytes());
        HEADER_LEN
    }

    /// Returns true if the checksum in `bytes` is correct; they are the datagram from its header to
    /// the end of its payload. `pseudo_header` is the sum over the pseudo-header of the IP version.
    /// A missing checksum (0) is not treated specially.
    #[must_use]
    pub fn verify(bytes: &[u8], pseudo_header: OnesComplementSum) -> bool {
        pseudo_header.add_bytes(bytes).finish() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::ipv4_pseudo_header_sum;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip_with_a_right_checksum(source_port: u16, destination_port: u16,
                payload in proptest::collection::vec(any::<u8>(), 0..100), source: [u8; 4]) {
            let header = Header { source_port, destination_port };
            let mut datagram = vec![0; HEADER_LEN];
            datagram.extend_from_slice(&payload);
            let pseudo = ipv4_pseudo_header_sum(source.into(), Ipv4Addr::LOCALHOST, datagram.len() as u16);
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
