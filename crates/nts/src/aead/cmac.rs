//! CMAC (RFC 4493; NIST SP 800-38B) for any AES key length; key schedule and subkeys are computed
//! once per key. Its building blocks are also used by AES-SIV.

use aes::cipher::consts::U16;
use aes::cipher::{BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt};
use aes::cipher::{BlockSizeUser, KeyInit};
use horolog_aes::Block;

pub(crate) use horolog_aes::BLOCK_LEN;

/// Block as a little-endian number, for fast computation.
pub(crate) type LittleEndianBlock = u128;

/// Doubles a block in GF(2^128) (RFC 4493, section 2.3; RFC 5297, section 2.3). The field is
/// defined on big-endian blocks, so each byte passes its highest bit on to the byte below it.
#[inline]
pub(crate) const fn double(block: LittleEndianBlock) -> LittleEndianBlock {
    const LOWEST_BITS: u128 = u128::from_le_bytes([1; BLOCK_LEN]);
    // A multiplication instead of a branch, because the bits are secret.
    let carried = (block >> 7 & 1) * (0x87 << 120);
    (block << 1 & !LOWEST_BITS | block >> 15 & LOWEST_BITS) ^ carried
}

/// Subkeys K1, for a message of complete blocks, and K2, for any other (RFC 4493, section 2.3).
#[derive(Clone, Default, zeroize::Zeroize, zeroize::ZeroizeOnDrop)]
pub(crate) struct Subkeys {
    k1: LittleEndianBlock,
    k2: LittleEndianBlock,
}

impl Subkeys {
    /// Derives the subkeys from the encryption of the zero block.
    pub(crate) fn from_encrypted_zero(encrypted_zero: &Block) -> Self {
        let k1 = double(LittleEndianBlock::from_le_bytes(*encrypted_zero));
        Self { k1, k2: double(k1) }
    }

    /// Returns a complete last block, masked with K1.
    #[inline]
    pub(crate) const fn mask_complete(&self, block: LittleEndianBlock) -> Block {
        (block ^ self.k1).to_le_bytes()
    }

    /// Returns the last block of `message`, padded if necessary, and masked with K1 or K2. Before
    /// that, `sum` is xored into the last 16 bytes of the message, as far as they are in this
    /// block.
    #[inline]
    pub(crate) fn mask_last(&self, message: &[u8], sum: LittleEndianBlock) -> Block {
        let (tail, len) = last_block(message, sum);
        if len == BLOCK_LEN {
            self.mask_complete(tail)
        } else {
            (pad(tail, len) ^ self.k2).to_le_bytes()
        }
    }
}

/// Pads a block of `len` bytes, fewer than 16, with a one bit and zeros (RFC 4493, section 2.4).
#[inline]
pub(crate) const fn pad(bytes: LittleEndianBlock, len: usize) -> LittleEndianBlock {
    bytes | 0x80 << (8 * len as u32)
}

/// Returns the last block of `message` and its length: 1 to 16 bytes, or 0 for an empty message.
/// `sum` is xored into the last 16 bytes of the message, unless the message is shorter.
#[inline]
pub(crate) fn last_block(message: &[u8], sum: LittleEndianBlock) -> (LittleEndianBlock, usize) {
    let Some(last) = message.last_chunk::<BLOCK_LEN>() else {
        return (partial_block(message), message.len());
    };
    let len = (message.len() - 1) % BLOCK_LEN + 1;
    ((LittleEndianBlock::from_le_bytes(*last) ^ sum) >> (8 * (BLOCK_LEN - len) as u32), len)
}

/// Converts fewer than 16 bytes to a number.
fn partial_block(message: &[u8]) -> LittleEndianBlock {
    let mut block = Block::default();
    block[..message.len()].copy_from_slice(message);
    LittleEndianBlock::from_le_bytes(block)
}

/// Returns the blocks before the last one, which may be partial.
#[inline]
pub(crate) fn blocks_before_last(message: &[u8]) -> &[Block] {
    let whole = message.len().saturating_sub(1) / BLOCK_LEN;
    message.as_chunks().0.get(..whole).unwrap_or_default()
}

/// Computes the MAC of `message` with a backend of the cipher.
#[inline(always)]
#[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
fn cbc_mac<B: BlockCipherEncBackend<BlockSize = U16>>(
    backend: &B,
    subkeys: &Subkeys,
    message: &[u8],
) -> Block {
    let mut state = Block::default();
    for block in blocks_before_last(message).iter().chain([&subkeys.mask_last(message, 0)]) {
        state = (LittleEndianBlock::from_le_bytes(state)
            ^ LittleEndianBlock::from_le_bytes(*block))
        .to_le_bytes();
        backend.encrypt_block_inplace((&mut state).into());
    }
    state
}

/// CMAC key: cipher with its key schedule, and subkeys.
pub(crate) struct CmacKey<C> {
    cipher: C,
    subkeys: Subkeys,
}

impl<C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16> + KeyInit> CmacKey<C> {
    /// Creates a key; `None` if `key` does not have the cipher's length.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        let cipher = C::new_from_slice(key).ok()?;
        let mut zero = Block::default();
        cipher.encrypt_block((&mut zero).into());
        Some(Self { cipher, subkeys: Subkeys::from_encrypted_zero(&zero) })
    }

    /// Returns the MAC of `message`.
    pub(crate) fn mac(&self, message: &[u8]) -> Block {
        let mut mac = Block::default();
        let run = CmacComputation { subkeys: &self.subkeys, message, mac: &mut mac };
        self.cipher.encrypt_with_backend(run);
        mac
    }
}

struct CmacComputation<'a> {
    subkeys: &'a Subkeys,
    message: &'a [u8],
    mac: &'a mut Block,
}

impl BlockSizeUser for CmacComputation<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for CmacComputation<'_> {
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        *self.mac = cbc_mac(backend, self.subkeys, self.message);
    }
}
