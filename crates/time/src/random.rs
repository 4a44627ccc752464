//! Reproducible pseudo-random numbers: fast, seeded, for simulations and for tests. Not for
//! secrets.

/// `SplitMix64` generator (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
/// 2014), with a period of 2^64.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Creates a generator whose sequence depends only on the seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns the upper 16 of the next 64 bits, which are mixed best.
    pub const fn next_u16(&mut self) -> u16 {
        (self.next_u64() >> 48) as u16
    }

    /// Returns a uniformly distributed number from 0 to below 1.
    pub const fn next_f64(&mut self) -> f64 {
        // A double holds 53 bits exactly.
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a uniformly distributed number below `limit`; 0 if `limit` is 0.
    pub const fn next_below(&mut self, limit: usize) -> usize {
        ((self.next_u64() as u128 * limit as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the reference implementation for two seeds.
    #[test]
    fn follows_the_reference() {
        let first = |seed| {
            let mut random = SplitMix64::new(seed);
            [random.next_u64(), random.next_u64()]
        };
        assert_eq!(first(0), [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
        assert_eq!(first(1_234_567), [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        assert_eq!(SplitMix64::new(0).next_u16(), 0xe220);
    }

    #[test]
    fn numbers_stay_below_their_limit() {
        let mut random = SplitMix64::new(1);
        assert!((0..1_000).all(|_| (0.0..1.0).contains(&random.next_f64())));
        let mut drawn = [false; 3];
        (0..1_000).for_each(|_| drawn[random.next_below(3)] = true);
        assert_eq!(drawn, [true; 3]);
        assert_eq!(random.next_below(0), 0);
    }
}
