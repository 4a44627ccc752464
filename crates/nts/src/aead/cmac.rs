//! CMAC (RFC 4493; NIST SP 800-38B) over any AES key length, with the key schedule and the subkeys
//! computed once for a key; its parts also serve AES-SIV, which is made of CMACs.

use aes::cipher::consts::U16;
use aes::cipher::{BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt};
use aes::cipher::{BlockSizeUser, KeyInit};
use horolog_aes::Block;

pub(crate) use horolog_aes::BLOCK_LEN;

/// A block as a number that is quick to compute with: its first byte is the lowest.
pub(crate) type Number = u128;

/// Doubles in GF(2^128) as RFC 4493, section 2.3, and RFC 5297, section 2.3, have it, where the
/// first byte is the highest: so each byte passes its highest bit on to the byte below it.
#[inline]
pub(crate) const fn double(block: Number) -> Number {
    const LOWEST_BITS: u128 = u128::from_le_bytes([1; BLOCK_LEN]);
    // A product instead of a branch: the bits are secret.
    let carried = (block >> 7 & 1) * (0x87 << 120);
    (block << 1 & !LOWEST_BITS | block >> 15 & LOWEST_BITS) ^ carried
}

/// A key's two subkeys: for a message of whole blocks, and for any other.
#[derive(Clone, Default, zeroize::Zeroize, zeroize::ZeroizeOnDrop)]
pub(crate) struct Subkeys {
    whole: Number,
    padded: Number,
}

impl Subkeys {
    /// From the encryption of the block of zeros.
    pub(crate) fn of(encrypted_zero: &Block) -> Self {
        let whole = double(Number::from_le_bytes(*encrypted_zero));
        Self { whole, padded: double(whole) }
    }

    /// The last block of a message of whole blocks, masked.
    #[inline]
    pub(crate) const fn whole(&self, block: Number) -> Block {
        (block ^ self.whole).to_le_bytes()
    }

    /// The last block of `message`, padded if need be, and masked with the subkey that its length
    /// asks for. First `sum` is added to the last 16 bytes of the message, as far as they lie in
    /// this block.
    #[inline]
    pub(crate) fn last(&self, message: &[u8], sum: Number) -> Block {
        let (tail, len) = tail(message, sum);
        if len == BLOCK_LEN {
            self.whole(tail)
        } else {
            (pad(tail, len) ^ self.padded).to_le_bytes()
        }
    }
}

/// Fewer than 16 bytes, and after them a bit that is set (RFC 4493, section 2.4).
#[inline]
pub(crate) const fn pad(bytes: Number, len: usize) -> Number {
    bytes | 0x80 << (8 * len as u32)
}

/// The last block of `message`, after `sum` was added to the message's last 16 bytes, and how many
/// of its bytes are the message's: 1 to 16, or none of an empty message. A shorter message is not
/// added to.
#[inline]
pub(crate) fn tail(message: &[u8], sum: Number) -> (Number, usize) {
    let Some(last) = message.last_chunk::<BLOCK_LEN>() else {
        return (short(message), message.len());
    };
    let len = (message.len() - 1) % BLOCK_LEN + 1;
    ((Number::from_le_bytes(*last) ^ sum) >> (8 * (BLOCK_LEN - len) as u32), len)
}

/// Fewer than 16 bytes.
fn short(message: &[u8]) -> Number {
    let mut block = Block::default();
    block[..message.len()].copy_from_slice(message);
    Number::from_le_bytes(block)
}

/// The blocks before the last one, which may be a part of one.
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
        state = (Number::from_le_bytes(state) ^ Number::from_le_bytes(*block)).to_le_bytes();
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
    /// Nothing when `key` has not the cipher's length.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        let cipher = C::new_from_slice(key).ok()?;
        let mut zero = Block::default();
        cipher.encrypt_block((&mut zero).into());
        Some(Self { cipher, subkeys: Subkeys::of(&zero) })
    }

    /// The MAC of `message`.
    pub(crate) fn mac(&self, message: &[u8]) -> Block {
        let mut mac = Block::default();
        let run = Run { subkeys: &self.subkeys, message, mac: &mut mac };
        self.cipher.encrypt_with_backend(run);
        mac
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
