//! Pseudo-random numbers for spacing and keys: fast, seeded, repeatable. Not for secrets.

use std::fs::File;
use std::io::{self, Read as _};

/// `SplitMix64` (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014):
/// one addition and a mixing function, of period 2^64.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// A generator that always gives the same sequence for the same seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next 16 bits, the best mixed ones.
    pub const fn next_u16(&mut self) -> u16 {
        (self.next_u64() >> 48) as u16
    }
}

/// Eight bytes from the kernel's random number generator, for the key of a run.
pub fn key_from_kernel() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the reference implementation for seed 0.
    #[test]
    fn follows_the_reference() {
        let mut random = SplitMix64::new(0);
        assert_eq!(random.next_u64(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.next_u64(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn keys_differ() {
        assert_ne!(key_from_kernel().unwrap(), key_from_kernel().unwrap());
    }
}
