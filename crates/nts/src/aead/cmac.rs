//! CMAC (RFC 4493; NIST SP 800-38B) over any AES key length, with the key schedule and the subkeys
//! computed once for a key. The chain runs inside the cipher's own backend, so that the round keys
//! stay in registers from block to block.

use aes::cipher::array::Array;
use aes::cipher::consts::U16;
use aes::cipher::{BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt};
use aes::cipher::{BlockSizeUser, KeyInit};

/// Length of a block and of a MAC, in bytes.
pub(crate) const BLOCK_LEN: usize = 16;

/// A block of AES.
pub(crate) type Block = Array<u8, U16>;

/// Doubles in GF(2^128) as RFC 4493, section 2.3, and RFC 5297, section 2.3, have it.
#[inline]
pub(crate) fn double(block: Block) -> Block {
    let value = u128::from_be_bytes(block.0);
    // The mask instead of a branch: the bits are secret.
    Array((value << 1 ^ (0x87 & 0u128.wrapping_sub(value >> 127))).to_be_bytes())
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
pub(crate) fn xor(into: &mut Block, with: &[u8; BLOCK_LEN]) {
    for (byte, other) in into.iter_mut().zip(with) {
        *byte ^= other;
    }
}

/// A key's two subkeys: for a message of whole blocks, and for any other.
#[derive(Clone, zeroize::Zeroize, zeroize::ZeroizeOnDrop)]
pub(crate) struct Subkeys {
    whole: [u8; BLOCK_LEN],
    padded: [u8; BLOCK_LEN],
}

impl Subkeys {
    /// From the encryption of the block of zeros.
    pub(crate) fn of(encrypted_zero: Block) -> Self {
        let whole = double(encrypted_zero);
        Self { whole: whole.0, padded: double(whole).0 }
    }

    pub(crate) fn whole(&self) -> &[u8; BLOCK_LEN] {
        &self.whole
    }

    /// The last block of a message, masked with the subkey that its length asks for.
    /// `tail` has at most one block.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
    pub(crate) fn last(&self, tail: &[u8]) -> Block {
        if let Ok(whole) = <[u8; BLOCK_LEN]>::try_from(tail) {
            let mut block = Array(whole);
            xor(&mut block, &self.whole);
            return block;
        }
        let mut block = pad(tail);
        xor(&mut block, &self.padded);
        block
    }
}

/// `tail`, of fewer than 16 bytes, with a one bit and zeros after it.
#[inline(always)]
#[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
pub(crate) fn pad(tail: &[u8]) -> Block {
    let mut block = Block::default();
    for (to, from) in block.iter_mut().zip(tail) {
        *to = *from;
    }
    if let Some(marker) = block.get_mut(tail.len()) {
        *marker = 0x80;
    }
    block
}

/// Splits a message into the blocks of the chain and the last one, which has 1 to 16 bytes, or none
/// when the message is empty.
#[inline(always)]
#[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
pub(crate) fn split_last(message: &[u8]) -> (&[[u8; BLOCK_LEN]], &[u8]) {
    let whole = message.len().saturating_sub(1) / BLOCK_LEN;
    let (head, tail) = message.split_at(whole * BLOCK_LEN);
    (head.as_chunks().0, tail)
}

/// Runs the chain over `message` and returns its MAC.
#[inline(always)]
#[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
pub(crate) fn chain<B: BlockCipherEncBackend<BlockSize = U16>>(
    backend: &B,
    subkeys: &Subkeys,
    message: &[u8],
) -> Block {
    let (blocks, tail) = split_last(message);
    let mut state = Block::default();
    for block in blocks {
        xor(&mut state, block);
        backend.encrypt_block_inplace(&mut state);
    }
    xor(&mut state, &subkeys.last(tail).0);
    backend.encrypt_block_inplace(&mut state);
    state
}

/// A CMAC key.
pub(crate) struct CmacKey<C> {
    cipher: C,
    subkeys: Subkeys,
}

impl<C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16> + KeyInit> CmacKey<C> {
    /// Nothing when `key` has not the cipher's length.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        let cipher = C::new_from_slice(key).ok()?;
        let mut zero = Block::default();
        cipher.encrypt_block(&mut zero);
        Some(Self { cipher, subkeys: Subkeys::of(zero) })
    }

    /// The MAC of `message`.
    pub(crate) fn mac(&self, message: &[u8]) -> [u8; BLOCK_LEN] {
        let mut mac = Block::default();
        let run = Run { subkeys: &self.subkeys, message, mac: &mut mac };
        self.cipher.encrypt_with_backend(run);
        mac.0
    }
}

struct Run<'a> {
    subkeys: &'a Subkeys,
    message: &'a [u8],
    mac: &'a mut Block,
}

impl BlockSizeUser for Run<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Run<'_> {
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        *self.mac = chain(backend, self.subkeys, self.message);
    }
}
