//! A small generator of pseudo-random numbers, so that a seed means the same damage for ever. Not
//! for secrets.

/// `SplitMix64` (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// True with this probability.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        // 53 bits, as many as a double holds exactly.
        const STEP: f64 = 1.0 / (1u64 << 53) as f64;
        ((self.next() >> 11) as f64) * STEP < probability
    }

    /// A number below `limit`, or 0 when that is 0.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn certain_and_impossible_are_exact() {
        let mut random = Random::new(1);
        assert!((0..1_000).all(|_| random.chance(1.0) && !random.chance(0.0)));
        assert!((0..1_000).all(|_| random.below(3) < 3));
        assert_eq!(random.below(0), 0);
    }
}
