//! CMAC (RFC 4493; NIST SP 800-38B) over any AES key length, with the key schedule and the subkeys
//! computed once per key; its parts also serve AES-SIV, which consists of CMACs.

use aes::cipher::consts::U16;
use aes::cipher::{BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt};
use aes::cipher::{BlockSizeUser, KeyInit};
use horolog_aes::Block;

pub(crate) use horolog_aes::BLOCK_LEN;

/// A block as a number for fast computation: its first byte is the lowest.
pub(crate) type BlockNumber = u128;

/// Doubles in GF(2^128) as defined by RFC 4493, section 2.3, and RFC 5297, section 2.3, where the
/// first byte is the highest: so each byte passes its highest bit on to the byte below it.
#[inline]
pub(crate) const fn double(block: BlockNumber) -> BlockNumber {
    const LOWEST_BITS: u128 = u128::from_le_bytes([1; BLOCK_LEN]);
    // A product instead of a branch: the bits are secret.
    let carried = (block >> 7 & 1) * (0x87 << 120);
    (block << 1 & !LOWEST_BITS | block >> 15 & LOWEST_BITS) ^ carried
}

/// A key's two subkeys: for a message of whole blocks, and for any other.
#[derive(Clone, Default, zeroize::Zeroize, zeroize::ZeroizeOnDrop)]
pub(crate) struct Subkeys {
    whole: BlockNumber,
    padded: BlockNumber,
}

impl Subkeys {
    /// The subkeys from the encryption of the block of zeros.
    pub(crate) fn of(encrypted_zero: &Block) -> Self {
        let whole = double(BlockNumber::from_le_bytes(*encrypted_zero));
        Self { whole, padded: double(whole) }
    }

    /// The last block of a message of whole blocks, masked.
    #[inline]
    pub(crate) const fn whole(&self, block: BlockNumber) -> Block {
        (block ^ self.whole).to_le_bytes()
    }

    /// The last block of `message`, padded if necessary, and masked with the subkey for its length.
    /// First `sum` is added to the last 16 bytes of the message, as far as they lie in this block.
    #[inline]
    pub(crate) fn last(&self, message: &[u8], sum: BlockNumber) -> Block {
        let (tail, len) = tail(message, sum);
        if len == BLOCK_LEN {
            self.whole(tail)
        } else {
            (pad(tail, len) ^ self.padded).to_le_bytes()
        }
    }
}

/// Fewer than 16 bytes, followed by a set bit (RFC 4493, section 2.4).
#[inline]
pub(crate) const fn pad(bytes: BlockNumber, len: usize) -> BlockNumber {
    bytes | 0x80 << (8 * len as u32)
}

/// The last block of `message`, after `sum` was added to the message's last 16 bytes, and the
/// number of its bytes that are the message's: 1 to 16, or none of an empty message. A shorter
/// message is not added to.
#[inline]
pub(crate) fn tail(message: &[u8], sum: BlockNumber) -> (BlockNumber, usize) {
    let Some(last) = message.last_chunk::<BLOCK_LEN>() else {
        return (short(message), message.len());
    };
    let len = (message.len() - 1) % BLOCK_LEN + 1;
    ((BlockNumber::from_le_bytes(*last) ^ sum) >> (8 * (BLOCK_LEN - len) as u32), len)
}

/// Fewer than 16 bytes as a number.
fn short(message: &[u8]) -> BlockNumber {
    let mut block = Block::default();
    block[..message.len()].copy_from_slice(message);
    BlockNumber::from_le_bytes(block)
}

/// The blocks before the last one, which may be partial.
#[inline]
pub(crate) fn blocks_before_last(message: &[u8]) -> &[Block] {
    let whole = message.len().saturating_sub(1) / BLOCK_LEN;
    message.as_chunks().0.get(..whole).unwrap_or_default()
}

/// Runs the chain over `message` and returns its MAC.
#[inline(always)]
#[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
fn chain<B: BlockCipherEncBackend<BlockSize = U16>>(
    backend: &B,
    subkeys: &Subkeys,
    message: &[u8],
) -> Block {
    let mut state = Block::default();
    for block in blocks_before_last(message).iter().chain([&subkeys.last(message, 0)]) {
        state =
            (BlockNumber::from_le_bytes(state) ^ BlockNumber::from_le_bytes(*block)).to_le_bytes();
        backend.encrypt_block_inplace((&mut state).into());
    }
    state
}

/// A CMAC key.
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
        Some(Self { cipher, subkeys: Subkeys::of(&zero) })
    }

    /// The MAC of `message`.
    pub(crate) fn mac(&self, message: &[u8]) -> Block {
        let mut mac = Block::default();
        let run = CmacRun { subkeys: &self.subkeys, message, mac: &mut mac };
        self.cipher.encrypt_with_backend(run);
        mac
    }
}

struct CmacRun<'a> {
    subkeys: &'a Subkeys,
    message: &'a [u8],
    mac: &'a mut Block,
}

impl BlockSizeUser for CmacRun<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for CmacRun<'_> {
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        *self.mac = chain(backend, self.subkeys, self.message);
    }
}
