//! AES-128 (FIPS 197) for several messages at once. A CBC-MAC is sequential: each block depends on
//! the one before it. A processor with pipelined AES instructions advances several such chains,
//! with one key or several, in about the time of one. Libraries take one key and one chain at a
//! time; this crate adds key schedules, groups of chains and single blocks for servers that
//! authenticate packets in batches.
//!
//! AES instructions (x86-64, AES-NI) are used if the processor has them; otherwise the `aes` crate
//! encrypts one block after the other. Neither uses lookup tables at secret indices, which would
//! leak keys through cache timing. The caller implements the mode of operation.

#![allow(
    unsafe_code,
    reason = "instructions that not every processor has may be called where it is known to have them"
)]

#[cfg(target_arch = "x86_64")]
mod x86;

use aes::Aes128Enc;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
#[cfg(target_arch = "x86_64")]
use zeroize::Zeroize;

/// Length of a block and of a key, in bytes.
pub const BLOCK_LEN: usize = 16;

/// AES block or AES-128 key.
pub type Block = [u8; BLOCK_LEN];

/// Largest number of chains that advance together; more chains run in groups.
pub const LANES: usize = 8;

/// Key schedule of the `aes` crate. It is boxed on x86-64, where most processors have AES-NI,
/// because it is large.
#[cfg(target_arch = "x86_64")]
type PortableKeySchedule = Box<Aes128Enc>;
#[cfg(not(target_arch = "x86_64"))]
type PortableKeySchedule = Aes128Enc;

enum KeySchedule {
    #[cfg(target_arch = "x86_64")]
    AesNi(x86::RoundKeys),
    Portable(PortableKeySchedule),
}

/// Key schedule for encryption. Wiped on drop.
pub struct AesKey(KeySchedule);

impl AesKey {
    /// Creates the key schedule of a key.
    #[inline]
    #[must_use]
    pub fn new(key: &Block) -> Self {
        let mut aes_key = Self::blank();
        aes_key.rekey(key);
        aes_key
    }

    /// Returns a placeholder for a key that is set later ([`AesKey::rekey`]), at negligible cost
    /// with AES instructions.
    #[inline]
    #[must_use]
    pub fn blank() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(rounds) = x86::RoundKeys::zeroed() {
            return Self(KeySchedule::AesNi(rounds));
        }
        Self::new_portable(&[0; BLOCK_LEN])
    }

    #[allow(clippy::useless_conversion, reason = "on some architectures the two types are one")]
    fn new_portable(key: &Block) -> Self {
        Self(KeySchedule::Portable(Aes128Enc::new(key.into()).into()))
    }

    /// Replaces this key by another.
    #[inline]
    pub fn rekey(&mut self, key: &Block) {
        match &mut self.0 {
            #[cfg(target_arch = "x86_64")]
            KeySchedule::AesNi(rounds) => rounds.rekey(key),
            KeySchedule::Portable(_) => *self = Self::new_portable(key),
        }
    }

    /// Erases the key; until [`Self::rekey`], encryption uses no meaningful key.
    #[inline]
    pub fn wipe(&mut self) {
        match &mut self.0 {
            #[cfg(target_arch = "x86_64")]
            KeySchedule::AesNi(rounds) => rounds.zeroize(),
            KeySchedule::Portable(_) => *self = Self::new_portable(&[0; BLOCK_LEN]),
        }
    }

    /// Encrypts each of the blocks.
    pub fn encrypt(&self, blocks: &mut [Block]) {
        match &self.0 {
            #[cfg(target_arch = "x86_64")]
            KeySchedule::AesNi(rounds) => rounds.encrypt(blocks),
            KeySchedule::Portable(key) => {
                for block in blocks {
                    encrypt_block(key, block);
                }
            }
        }
    }
}

fn encrypt_block(key: &Aes128Enc, block: &mut Block) {
    key.encrypt_block(block.into());
}

impl core::fmt::Debug for AesKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("AesKey").finish_non_exhaustive()
    }
}

/// CBC-MAC chain over a message: each block is combined with the state by XOR, which is then
/// encrypted (NIST SP 800-38B, section 6.2, step 6).
#[derive(Clone, Copy, Debug)]
pub struct CmacChain<'a> {
    /// Key of the block cipher.
    pub key: &'a AesKey,
    /// Blocks of the message.
    pub blocks: &'a [Block],
    /// Blocks after `blocks`, such as a padded last block.
    pub last: &'a [Block],
    /// State before the first block; after a run, the state after the last block.
    pub state: Block,
}

impl<'a> CmacChain<'a> {
    /// Returns a chain that starts from zero.
    #[must_use]
    #[inline]
    pub const fn new(key: &'a AesKey, blocks: &'a [Block], last: &'a [Block]) -> Self {
        Self { key, blocks, last, state: [0; BLOCK_LEN] }
    }

    /// Returns the number of blocks in the chain.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.blocks.len() + self.last.len()
    }

    /// Returns true if the chain has no blocks.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs this chain to its end. [`run_chains`] is faster for several chains.
    pub fn run(&mut self) {
        run_first_chains(core::slice::from_mut(self));
    }

    fn run_portably(&mut self) {
        for block in self.blocks.iter().chain(self.last) {
            for (byte, other) in self.state.iter_mut().zip(block) {
                *byte ^= other;
            }
            self.key.encrypt(core::slice::from_mut(&mut self.state));
        }
    }
}

/// Runs all chains to their ends, up to [`LANES`] of them together. Fastest if neighbouring chains
/// are of equal length.
pub fn run_chains(lanes: &mut [CmacChain<'_>]) {
    let mut rest = lanes;
    while !rest.is_empty() {
        rest = run_first_chains(rest);
    }
}

/// Runs a group of the first chains, as large as possible, and returns the remaining ones.
fn run_first_chains<'l, 'a>(lanes: &'l mut [CmacChain<'a>]) -> &'l mut [CmacChain<'a>] {
    let count = match lanes.len() {
        count @ (0 | 1) => count,
        2..4 => 2,
        4..LANES => 4,
        _ => LANES,
    };
    let (group, rest) = lanes.split_at_mut(count);
    #[cfg(target_arch = "x86_64")]
    if x86::try_run_group(group) {
        return rest;
    }
    group.iter_mut().for_each(CmacChain::run_portably);
    rest
}

#[cfg(test)]
mod tests;
