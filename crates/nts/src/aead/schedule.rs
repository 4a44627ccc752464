//! Key schedule of AES-128 for encryption, wiped faster than byte by byte: such schedules are made
//! for each packet, and wiping one with volatile stores takes twice as long as making it.

use core::mem::ManuallyDrop;
use std::sync::LazyLock;

use aes::Aes128Enc;
use aes::cipher::consts::U16;
use aes::cipher::{BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser};
use aes::cipher::{Key, KeyInit, KeySizeUser};

/// The schedule of a non-secret key.
static BLANK: LazyLock<Aes128Enc> = LazyLock::new(|| Aes128Enc::new(&[0; 16].into()));

/// A schedule. On drop it is overwritten with that of the zero key.
pub(crate) struct WipingKeySchedule(ManuallyDrop<Aes128Enc>);

impl KeySizeUser for WipingKeySchedule {
    type KeySize = U16;
}

impl BlockSizeUser for WipingKeySchedule {
    type BlockSize = U16;
}

impl KeyInit for WipingKeySchedule {
    #[inline]
    fn new(key: &Key<Self>) -> Self {
        Self(ManuallyDrop::new(Aes128Enc::new(key)))
    }
}

impl BlockCipherEncrypt for WipingKeySchedule {
    #[inline]
    fn encrypt_with_backend(&self, f: impl BlockCipherEncClosure<BlockSize = U16>) {
        self.0.encrypt_with_backend(f);
    }
}

impl Drop for WipingKeySchedule {
    #[inline]
    fn drop(&mut self) {
        self.0 = ManuallyDrop::new(BLANK.clone());
        // Without it the compiler could omit the store, because nothing reads it.
        zeroize::optimization_barrier(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encrypts_like_fips_197_b() {
        let key = 0x2b7e_1516_28ae_d2a6_abf7_1588_09cf_4f3c_u128.to_be_bytes();
        let mut block = 0x3243_f6a8_885a_308d_3131_98a2_e037_0734_u128.to_be_bytes().into();
        WipingKeySchedule::new(&key.into()).encrypt_block(&mut block);
        assert_eq!(u128::from_be_bytes(block.0), 0x3925_841d_02dc_09fb_dc11_8597_196a_0b32);
    }
}
