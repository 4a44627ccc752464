//! Internet checksum (RFC 1071), and the pseudo-headers that UDP adds to it.

use core::net::{Ipv4Addr, Ipv6Addr};

/// Sum in progress, kept wide so that carries are folded once at the end.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sum(u64);

impl Sum {
    /// Adds bytes as big-endian 16-bit words; an odd last byte is padded with zero, so only the
    /// last piece may be odd.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        // Two words at a time, in this host's byte order: the order of bytes is the same in the sum
        // as in the words (RFC 1071, section 2).
        let (pairs, rest) = bytes.as_chunks::<4>();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        let pairs = pairs.iter().chain([&last]).map(|pair| u64::from(u32::from_ne_bytes(*pair)));
        Self(self.0 + u64::from(fold(pairs.sum()).to_be()))
    }

    /// Adds one 16-bit word.
    #[must_use]
    pub const fn word(self, word: u16) -> Self {
        Self(self.0 + word as u64)
    }

    /// Returns the checksum: the one's complement of the folded one's-complement sum.
    #[must_use]
    pub const fn finish(self) -> u16 {
        !fold(self.0)
    }
}

/// Adds carries to the lowest 16 bits until there are none.
const fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Returns the sum over the pseudo-header of UDP over IPv4 (RFC 768).
#[must_use]
pub fn udp_over_ipv4(source: Ipv4Addr, destination: Ipv4Addr, udp_length: u16) -> Sum {
    Sum::default()
        .bytes(&source.octets())
        .bytes(&destination.octets())
        .word(u16::from(crate::ipv4::PROTOCOL_UDP))
        .word(udp_length)
}

/// Returns the sum over the pseudo-header of UDP over IPv6 (RFC 8200, section 8.1).
#[must_use]
pub fn udp_over_ipv6(source: Ipv6Addr, destination: Ipv6Addr, udp_length: u16) -> Sum {
    Sum::default()
        .bytes(&source.octets())
        .bytes(&destination.octets())
        .word(udp_length)
        .word(u16::from(crate::ipv4::PROTOCOL_UDP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The example of RFC 1071, section 3.
    #[test]
    fn rfc_1071_example() {
        let sum = Sum::default().bytes(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(!sum.finish(), 0xddf2);
    }

    proptest! {
        #[test]
        fn bytes_are_summed_as_words(data in proptest::collection::vec(any::<u8>(), 0..200)) {
            let words = data.chunks(2).map(|pair| u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            let sum = words.fold(Sum::default(), Sum::word);
            prop_assert_eq!(Sum::default().bytes(&data).finish(), sum.finish());
        }

        #[test]
        fn data_with_its_checksum_sums_to_zero(mut data in proptest::collection::vec(any::<u8>(), 0..200)) {
            if data.len() % 2 == 1 { data.push(0); }
            let checksum = Sum::default().bytes(&data).finish();
            prop_assert_eq!(Sum::default().bytes(&data).word(checksum).finish(), 0);
        }
    }
}
