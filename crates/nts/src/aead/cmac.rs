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

    /// The last block of `message`, padded if need be, after `sum` was added to the bytes that it
    /// has (left-aligned), and masked with the subkey that its length asks for.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
    pub(crate) fn last(&self, message: &[u8], sum: u128) -> Block {
        let (tail, len) = tail(message);
        if len == BLOCK_LEN {
            return mask(tail ^ sum, &self.whole);
        }
        let used = 8 * len as u32;
        mask((tail ^ sum) & !(u128::MAX >> used) | 1 << 127 >> used, &self.padded)
    }
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
fn mask(block: u128, with: &[u8; BLOCK_LEN]) -> Block {
    let mut block = Array(block.to_be_bytes());
    xor(&mut block, with);
    block
}

/// The last block of `message`, left-aligned, and how many of its bytes are the message's: 1 to 16,
/// or none of an empty message. Shifts, because a copy of a length that is not known would be a
/// call in the midst of the chain.
#[inline(always)]
#[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
pub(crate) fn tail(message: &[u8]) -> (u128, usize) {
    let Some(last) = message.last_chunk::<BLOCK_LEN>() else {
        return (short(message), message.len());
    };
    let len = (message.len() - 1) % BLOCK_LEN + 1;
    (u128::from_be_bytes(*last) << (128 - 8 * len as u32), len)
}

/// Fewer than 16 bytes, left-aligned.
#[cold]
fn short(message: &[u8]) -> u128 {
    let mut block = [0; BLOCK_LEN];
    block[..message.len()].copy_from_slice(message);
    u128::from_be_bytes(block)
}

/// The blocks before the last one, which may be a part of one.
#[inline(always)]
#[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
pub(crate) fn blocks_before_last(message: &[u8]) -> &[[u8; BLOCK_LEN]] {
    let whole = message.len().saturating_sub(1) / BLOCK_LEN;
    message.as_chunks().0.get(..whole).unwrap_or_default()
}

/// Runs the chain over `message` and returns its MAC.
#[inline(always)]
#[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
pub(crate) fn chain<B: BlockCipherEncBackend<BlockSize = U16>>(
    backend: &B,
    subkeys: &Subkeys,
    message: &[u8],
) -> Block {
    let mut state = Block::default();
    for block in blocks_before_last(message) {
        xor(&mut state, block);
        backend.encrypt_block_inplace(&mut state);
    }
    xor(&mut state, &subkeys.last(message, 0).0);
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
