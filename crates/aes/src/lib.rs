//! AES-128 (FIPS 197) for several messages at once. Each block of a CBC-MAC waits for the one
//! before it, and a processor has room for several such chains, of one key or of several, in the
//! time that one takes. Libraries take one key and one chain at a time; this room holds what a
//! server that authenticates batches of packets needs beside them: key schedules, chains, and
//! single blocks.
//!
//! Where the processor has instructions for AES (x86-64, AES-NI), they are used; elsewhere the
//! `aes` crate does the same work, one block after the other. Neither looks anything up in a table
//! at a secret place. Modes of operation are the caller's.

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

/// A block.
pub type Block = [u8; BLOCK_LEN];

/// The most chains that advance together; more are taken in turn.
pub const LANES: usize = 8;

/// The library's schedule. It is large, so where it is the exception it lies apart.
#[cfg(target_arch = "x86_64")]
type Library = Box<Aes128Enc>;
#[cfg(not(target_arch = "x86_64"))]
type Library = Aes128Enc;

enum Schedule {
    #[cfg(target_arch = "x86_64")]
    Rounds(x86::Rounds),
    Library(Library),
}

/// The schedule of a key for encryption. It is wiped when it is dropped.
pub struct Key(Schedule);

impl Key {
    /// Expands a key.
    #[inline]
    #[must_use]
    pub fn new(key: &Block) -> Self {
        let mut made = Self::blank();
        made.renew(key);
        made
    }

    /// The place of a key that is still to come ([`Key::renew`]), at no cost to speak of.
    #[inline]
    #[must_use]
    pub fn blank() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(rounds) = x86::Rounds::blank() {
            return Self(Schedule::Rounds(rounds));
        }
        Self::portable(&[0; BLOCK_LEN])
    }

    #[allow(clippy::useless_conversion, reason = "on some architectures the two types are one")]
    fn portable(key: &Block) -> Self {
        Self(Schedule::Library(Aes128Enc::new(key.into()).into()))
    }

    /// Takes another key in the place of this one.
    #[inline]
    pub fn renew(&mut self, key: &Block) {
        match &mut self.0 {
            #[cfg(target_arch = "x86_64")]
            Schedule::Rounds(rounds) => rounds.renew(key),
            Schedule::Library(_) => *self = Self::portable(key),
        }
    }

    /// Forgets the key, without another in its place.
    #[inline]
    pub fn wipe(&mut self) {
        match &mut self.0 {
            #[cfg(target_arch = "x86_64")]
            Schedule::Rounds(rounds) => rounds.zeroize(),
            Schedule::Library(_) => *self = Self::portable(&[0; BLOCK_LEN]),
        }
    }

    /// Encrypts each of the blocks.
    pub fn encrypt(&self, blocks: &mut [Block]) {
        match &self.0 {
            #[cfg(target_arch = "x86_64")]
            Schedule::Rounds(rounds) => rounds.encrypt(blocks),
            Schedule::Library(key) => blocks.iter_mut().for_each(|block| one(key, block)),
        }
    }
}

fn one(key: &Aes128Enc, block: &mut Block) {
    key.encrypt_block(block.into());
}

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Key").finish_non_exhaustive()
    }
}

/// A chain that is to run over a message: each block is added to the state, which is then encrypted
/// (NIST SP 800-38B, section 6.2, step 6).
#[derive(Clone, Copy, Debug)]
pub struct Lane<'a> {
    /// The key.
    pub key: &'a Key,
    /// The blocks of the message.
    pub blocks: &'a [Block],
    /// Blocks that follow them.
    pub last: &'a [Block],
    /// The state, from which the chain starts and in which it ends.
    pub state: Block,
}

impl<'a> Lane<'a> {
    /// A chain that starts from zero.
    #[must_use]
    pub const fn new(key: &'a Key, blocks: &'a [Block], last: &'a [Block]) -> Self {
        Self { key, blocks, last, state: [0; BLOCK_LEN] }
    }

    /// How many blocks it runs over.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.blocks.len() + self.last.len()
    }

    /// Whether it runs over nothing.
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

/// Runs all chains to their ends, up to [`LANES`] of them together; those that stand beside one
/// another had best be of one length.
pub fn chain(lanes: &mut [Lane<'_>]) {
    let mut rest = lanes;
    while !rest.is_empty() {
        rest = take(rest);
    }
}

/// Runs some of the first chains, and returns the others.
fn take<'l, 'a>(lanes: &'l mut [Lane<'a>]) -> &'l mut [Lane<'a>] {
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
    group.iter_mut().for_each(Lane::run_portably);
    rest
}

#[cfg(test)]
mod tests;
