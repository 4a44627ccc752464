//! AES-128 key schedule for encryption that is wiped by overwriting it as a whole. A schedule is
//! computed for each packet, and wiping it with volatile stores would take twice as long as that.

use core::mem::ManuallyDrop;
use std::sync::LazyLock;

use aes::Aes128Enc;
use aes::cipher::consts::U16;
use aes::cipher::{BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser};
use aes::cipher::{Key, KeyInit, KeySizeUser};

/// Schedule of the zero key, which is not secret.
static ZERO_KEY_SCHEDULE: LazyLock<Aes128Enc> = LazyLock::new(|| Aes128Enc::new(&[0; 16].into()));

/// Key schedule; on drop it is overwritten with that of the zero key.
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
        self.0 = ManuallyDrop::new(ZERO_KEY_SCHEDULE.clone());
        // Without the barrier, the compiler could omit the store as dead.
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
