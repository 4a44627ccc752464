//! Keyed hash of addresses, cheap enough for every packet. It selects slots of tables in which
//! client requests create entries; the random key, generated at start, keeps clients from choosing
//! collisions. The hash is not cryptographic and authenticates nothing.
//!
//! The BPF program computes the same hash (`bpf/hash.h`) over the words as they lie in the packet.

use std::fmt;
use std::io;
use std::net::IpAddr;

/// Odd constants of `SplitMix64`'s finaliser (Steele, Lea and Flood, 2014), here and below.
const FIRST: u64 = 0xbf58_476d_1ce4_e5b9;
const SECOND: u64 = 0x94d0_49bb_1331_11eb;
/// High bits of the low half of an IPv4-mapped IPv6 address.
const MAPPED: u64 = 0xffff << 32;

/// Key of the hash. Knowing the key allows a client to choose colliding addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AddressHashKey(pub [u64; 2]);

impl AddressHashKey {
    /// Creates a key from the kernel's random numbers.
    pub fn random() -> io::Result<Self> {
        let mut key = [0; 2];
        for word in &mut key {
            *word = getrandom::u64().map_err(io::Error::other)?;
        }
        Ok(Self(key))
    }

    /// Returns the hash of an address.
    #[must_use]
    pub fn hash_address(self, ip: IpAddr) -> u64 {
        self.hash_words(address_words(ip))
    }

    /// Returns the hash of an address, or of its prefix, in the form of [`address_words`].
    #[must_use]
    pub const fn hash_words(self, [high, low]: [u64; 2]) -> u64 {
        let Self([first_key, second_key]) = self;
        let hash = (high ^ first_key).wrapping_mul(FIRST);
        let hash = (hash ^ hash >> 32).wrapping_add(low ^ second_key);
        let hash = (hash ^ hash >> 32).wrapping_mul(SECOND);
        let hash = (hash ^ hash >> 29).wrapping_mul(FIRST);
        hash ^ hash >> 32
    }

    /// Returns a second hash of the value whose hash is `hash`.
    #[must_use]
    pub const fn rehash(hash: u64) -> u64 {
        let hash = hash.wrapping_mul(SECOND);
        hash ^ hash >> 32
    }
}

impl fmt::Debug for AddressHashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey")
    }
}

/// Returns the two halves of an address, each as read from a packet in this host's byte order. An
/// IPv4 address is in the lower 32 bits of the low half, below 16 one bits.
#[must_use]
pub(crate) fn address_words(ip: IpAddr) -> [u64; 2] {
    match ip.to_canonical() {
        IpAddr::V4(ip) => [0, MAPPED | u64::from(u32::from_ne_bytes(ip.octets()))],
        IpAddr::V6(ip) => {
            let octets = ip.octets();
            let half = |at: usize| {
                let mut half = [0; 8];
                half.copy_from_slice(&octets[at..at + 8]);
                u64::from_ne_bytes(half)
            };
            [half(0), half(8)]
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const KEY: AddressHashKey = AddressHashKey([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);

    #[test]
    fn neighbours_spread_over_a_table() {
        const ADDRESSES: u32 = 1 << 16;
        // Of balls thrown at as many urns, a share of 1/e misses; a bad hash leaves far more empty.
        let filled = |hash: &dyn Fn(u32) -> u64| {
            (0..ADDRESSES).map(|n| hash(n) % u64::from(ADDRESSES)).collect::<HashSet<_>>().len()
        };
        let ipv4 = filled(&|n| KEY.hash_address(Ipv4Addr::from_bits(0x0a00_0000 + n).into()));
        let low = filled(&|n| {
            KEY.hash_address(Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(n)).into())
        });
        let high = filled(&|n| KEY.hash_address(Ipv6Addr::from_bits(u128::from(n) << 64).into()));
        for count in [ipv4, low, high] {
            assert!((40_000..43_000).contains(&count), "{count} slots of {ADDRESSES} are filled");
        }
    }

    #[test]
    fn the_key_matters() {
        let ip = "192.0.2.1".parse().unwrap();
        assert_ne!(KEY.hash_address(ip), AddressHashKey([KEY.0[0] ^ 1, KEY.0[1]]).hash_address(ip));
        assert_ne!(KEY.hash_address(ip), AddressHashKey([KEY.0[0], KEY.0[1] ^ 1]).hash_address(ip));
        assert_ne!(AddressHashKey::random().unwrap(), AddressHashKey::random().unwrap());
    }

    #[test]
    fn a_mapped_address_is_the_same_client() {
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        assert_eq!(KEY.hash_address(mapped), KEY.hash_address("192.0.2.1".parse().unwrap()));
    }

    #[test]
    fn the_key_is_not_printed() {
        assert_eq!(format!("{KEY:?}"), "HashKey");
    }
}
