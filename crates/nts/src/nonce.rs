//! Bytes for nonces and unique identifiers, without a system call for each packet: AES-128 in
//! counter mode under a random key that never leaves this value. Not for keys.

use aes::Aes128Enc;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use zeroize::Zeroizing;

use crate::aead::cmac::Block;

/// Blocks that are computed together: entering the cipher costs more than a block.
const TOGETHER: usize = 9;

/// A stream of unpredictable bytes that never repeats a block of 16. Each thread has its own.
pub struct Nonces {
    cipher: Aes128Enc,
    counter: u128,
}

impl Nonces {
    /// With a key and a start from the kernel's random bytes.
    pub fn new() -> Result<Self, getrandom::Error> {
        let mut seed = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *seed)?;
        let (key, start) = seed.split_at(16);
        let mut counter = [0; 16];
        counter.copy_from_slice(start);
        let cipher = Aes128Enc::new_from_slice(key).map_err(|_| getrandom::Error::UNEXPECTED)?;
        Ok(Self { cipher, counter: u128::from_ne_bytes(counter) })
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        let mut blocks = [Block::default(); TOGETHER];
        for group in bytes.chunks_mut(16 * TOGETHER) {
            let blocks = &mut blocks[..group.len().div_ceil(16)];
            for block in blocks.iter_mut() {
                *block = self.counter.to_ne_bytes().into();
                self.counter = self.counter.wrapping_add(1);
            }
            self.cipher.encrypt_blocks(blocks);
            for (chunk, block) in group.chunks_mut(16).zip(blocks) {
                chunk.copy_from_slice(&block[..chunk.len()]);
            }
        }
    }
}

impl core::fmt::Debug for Nonces {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Nonces(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_alike() {
        let mut nonces = Nonces::new().unwrap();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1000 {
            let mut nonce = [0; 16];
            nonces.fill(&mut nonce);
            assert!(seen.insert(nonce));
        }
        let mut odd = [0; 21];
        nonces.fill(&mut odd);
        assert_ne!(odd[16..], [0; 5]);
    }
}
