//! Generator of random bytes for nonces and unique identifiers, without a system call per packet:
//! AES-128 in counter mode with a random key. Not for the generation of keys.

use horolog_aes::{AesKey, BLOCK_LEN, Block, LANES};
use zeroize::Zeroizing;

/// Stream of unpredictable bytes, in which no block of 16 bytes is repeated; one per thread.
pub struct NonceStream {
    key: AesKey,
    counter: u128,
}

impl NonceStream {
    /// Creates a stream; key and initial counter are random bytes from the kernel.
    pub fn new() -> Result<Self, getrandom::Error> {
        let mut seed = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *seed)?;
        let (blocks, _) = seed.as_chunks::<BLOCK_LEN>();
        Ok(Self { key: AesKey::new(&blocks[0]), counter: u128::from_ne_bytes(blocks[1]) })
    }

    /// Fills `bytes` with the next bytes of the stream.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for group in bytes.chunks_mut(LANES * BLOCK_LEN) {
            let mut blocks = [Block::default(); LANES];
            let blocks = &mut blocks[..group.len().div_ceil(BLOCK_LEN)];
            for block in &mut *blocks {
                *block = self.counter.to_ne_bytes();
                self.counter = self.counter.wrapping_add(1);
            }
            self.key.encrypt(blocks);
            group.copy_from_slice(&blocks.as_flattened()[..group.len()]);
        }
    }
}

impl core::fmt::Debug for NonceStream {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Nonces(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_alike() {
        let mut nonces = NonceStream::new().unwrap();
        let mut used = std::collections::HashSet::new();
        for _ in 0..1000 {
            let mut nonce = [0; 16];
            nonces.fill(&mut nonce);
            assert!(used.insert(nonce));
        }
        let mut odd = [0; 21];
        nonces.fill(&mut odd);
        assert_ne!(odd[16..], [0; 5]);
    }
}
