//! AES-128 (FIPS 197) for several messages at once. Each block of a CBC-MAC depends on the one
//! before it, and a processor can compute several such chains, of one key or of several, in the
//! time that one takes. Libraries take one key and one chain at a time; this crate adds what a
//! server that authenticates batches of packets needs: key schedules, chains, and single blocks.
//!
//! AES instructions (x86-64, AES-NI) are used if the processor has them; otherwise the `aes` crate
//! does the same work, one block after the other. Neither looks anything up in a table at a secret
//! index. Modes of operation are the caller's.

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

/// Block.
pub type Block = [u8; BLOCK_LEN];

/// Largest number of chains that advance together; more are processed in turn.
pub const LANES: usize = 8;

/// Schedule of the `aes` crate. It is large, so it is boxed if it is the exception.
#[cfg(target_arch = "x86_64")]
type Library = Box<Aes128Enc>;
#[cfg(not(target_arch = "x86_64"))]
type Library = Aes128Enc;

enum KeySchedule {
    #[cfg(target_arch = "x86_64")]
    Rounds(x86::Rounds),
    Library(Library),
}

/// Key schedule for encryption. Wiped on drop.
pub struct AesKey(KeySchedule);

impl AesKey {
    /// Expands a key.
    #[inline]
    #[must_use]
    pub fn new(key: &Block) -> Self {
        let mut made = Self::blank();
        made.renew(key);
        made
    }

    /// Returns a placeholder for a key that is set later ([`AesKey::renew`]), at negligible cost.
    #[inline]
    #[must_use]
    pub fn blank() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(rounds) = x86::Rounds::blank() {
            return Self(KeySchedule::Rounds(rounds));
        }
        Self::portable(&[0; BLOCK_LEN])
    }

    #[allow(clippy::useless_conversion, reason = "on some architectures the two types are one")]
    fn portable(key: &Block) -> Self {
        Self(KeySchedule::Library(Aes128Enc::new(key.into()).into()))
    }

    /// Replaces this key by another.
    #[inline]
    pub fn renew(&mut self, key: &Block) {
        match &mut self.0 {
            #[cfg(target_arch = "x86_64")]
            KeySchedule::Rounds(rounds) => rounds.renew(key),
            KeySchedule::Library(_) => *self = Self::portable(key),
        }
    }

    /// Erases the key without replacing it.
    #[inline]
    pub fn wipe(&mut self) {
        match &mut self.0 {
            #[cfg(target_arch = "x86_64")]
            KeySchedule::Rounds(rounds) => rounds.zeroize(),
            KeySchedule::Library(_) => *self = Self::portable(&[0; BLOCK_LEN]),
        }
    }

    /// Encrypts each of the blocks.
    pub fn encrypt(&self, blocks: &mut [Block]) {
        match &self.0 {
            #[cfg(target_arch = "x86_64")]
            KeySchedule::Rounds(rounds) => rounds.encrypt(blocks),
            KeySchedule::Library(key) => blocks.iter_mut().for_each(|block| one(key, block)),
        }
    }
}

fn one(key: &Aes128Enc, block: &mut Block) {
    key.encrypt_block(block.into());
}

impl core::fmt::Debug for AesKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Key").finish_non_exhaustive()
    }
}

/// Chain over a message: each block is added to the state, which is then encrypted (NIST SP
/// 800-38B, section 6.2, step 6).
#[derive(Clone, Copy, Debug)]
pub struct CmacChain<'a> {
    /// Key.
    pub key: &'a AesKey,
    /// Blocks of the message.
    pub blocks: &'a [Block],
    /// Blocks that follow `blocks`.
    pub last: &'a [Block],
    /// State in which the chain starts and ends.
    pub state: Block,
}

impl<'a> CmacChain<'a> {
    /// Returns a chain that starts from zero.
    #[must_use]
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
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs this chain alone.
    pub fn run(&mut self) {
        take(core::slice::from_mut(self));
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
pub fn chain(lanes: &mut [CmacChain<'_>]) {
    let mut rest = lanes;
    while !rest.is_empty() {
        rest = take(rest);
    }
}

/// Runs some of the first chains and returns the others.
fn take<'l, 'a>(lanes: &'l mut [CmacChain<'a>]) -> &'l mut [CmacChain<'a>] {
    let count = match lanes.len() {
        count @ (0 | 1) => count,
        2..4 => 2,
        4..LANES => 4,
        _ => LANES,
    };
    let (group, rest) = lanes.split_at_mut(count);
    #[cfg(target_arch = "x86_64")]
    if x86::chain(group) {
        return rest;
    }
    group.iter_mut().for_each(CmacChain::run_portably);
    rest
}

#[cfg(test)]
mod tests;
