//! Internet checksum (RFC 1071), and the pseudo-headers over which UDP computes it.

use core::net::{Ipv4Addr, Ipv6Addr};

/// Running one's-complement sum of 16-bit words; 64 bits wide, so that carries are folded once, at
/// the end.
#[derive(Clone, Copy, Default, Debug)]
pub struct OnesComplementSum(u64);

impl OnesComplementSum {
    /// Adds bytes as big-endian 16-bit words. An odd last byte is padded with zero, so of several
    /// calls only the last may have an odd number of bytes.
    #[must_use]
    pub fn add_bytes(self, bytes: &[u8]) -> Self {
        // Two 16-bit words at a time in native byte order: the sum is independent of byte order
        // except that its own bytes are swapped (RFC 1071, section 2).
        let (pairs, rest) = bytes.as_chunks::<4>();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        let pairs = pairs.iter().chain([&last]).map(|pair| u64::from(u32::from_ne_bytes(*pair)));
        Self(self.0 + u64::from(fold(pairs.sum()).to_be()))
    }

    /// Adds one 16-bit word, in host byte order.
    #[must_use]
    pub const fn add_word(self, word: u16) -> Self {
        Self(self.0 + word as u64)
    }

    /// Returns the checksum: the one's complement of the folded one's-complement sum.
    #[must_use]
    pub const fn finish(self) -> u16 {
        !fold(self.0)
    }
}

/// Folds a sum to 16 bits by adding its upper bits to the lower 16 until no carry is left.
const fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Returns the sum over the pseudo-header of UDP over IPv4 (RFC 768).
#[must_use]
pub fn ipv4_pseudo_header_sum(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    udp_length: u16,
) -> OnesComplementSum {
    OnesComplementSum::default()
        .add_bytes(&source.octets())
        .add_bytes(&destination.octets())
        .add_word(u16::from(crate::ipv4::PROTOCOL_UDP))
        .add_word(udp_length)
}

/// Returns the sum over the pseudo-header of UDP over IPv6 (RFC 8200, section 8.1).
#[must_use]
pub fn ipv6_pseudo_header_sum(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    udp_length: u16,
) -> OnesComplementSum {
    OnesComplementSum::default()
        .add_bytes(&source.octets())
        .add_bytes(&destination.octets())
        .add_word(udp_length)
        .add_word(u16::from(crate::ipv4::PROTOCOL_UDP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The example of RFC 1071, section 3.
    #[test]
    fn rfc_1071_example() {
        let sum = OnesComplementSum::default()
            .add_bytes(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(!sum.finish(), 0xddf2);
    }

    proptest! {
        #[test]
        fn bytes_are_summed_as_words(data in proptest::collection::vec(any::<u8>(), 0..200)) {
            let words = data.chunks(2).map(|pair| u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            let sum = words.fold(OnesComplementSum::default(), OnesComplementSum::add_word);
            prop_assert_eq!(OnesComplementSum::default().add_bytes(&data).finish(), sum.finish());
        }

        #[test]
        fn data_with_its_checksum_sums_to_zero(mut data in proptest::collection::vec(any::<u8>(), 0..200)) {
            if data.len() % 2 == 1 { data.push(0); }
            let checksum = OnesComplementSum::default().add_bytes(&data).finish();
            prop_assert_eq!(OnesComplementSum::default().add_bytes(&data).add_word(checksum).finish(), 0);
        }
    }
}
