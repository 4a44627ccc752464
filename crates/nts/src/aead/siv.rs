//! AES-SIV-CMAC-256 (RFC 5297) with AES-128 schedules that are computed once for a key. A text may
//! be empty, as that of most NTS requests is; then only the half of the key that authenticates
//! comes into play. Lengths of parts are the caller's concern.

use aes::Aes128Enc;
use aes::cipher::consts::U16;
use aes::cipher::{BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt};
use aes::cipher::{BlockSizeUser, KeyInit};
use subtle::ConstantTimeEq;

use super::cmac::{BLOCK_LEN, Block, Subkeys, chain, double, pad, split_last, xor};

/// Blocks of key stream that are computed together.
const STREAM_BLOCKS: usize = 8;

/// The half of a key that authenticates.
pub(crate) struct MacHalf {
    aes: Aes128Enc,
    subkeys: Subkeys,
}

impl MacHalf {
    pub(crate) fn new(key: &[u8; BLOCK_LEN]) -> Self {
        let aes = Aes128Enc::new(key.into());
        let mut zero = Block::default();
        aes.encrypt_block(&mut zero);
        Self { aes, subkeys: Subkeys::of(zero) }
    }

    /// The synthetic initialisation vector of `parts` and `text` (RFC 5297, section 2.4).
    pub(crate) fn vector(&self, parts: &[&[u8]], text: &[u8]) -> [u8; BLOCK_LEN] {
        let mut vector = Block::default();
        let run = S2v { subkeys: &self.subkeys, parts, text, vector: &mut vector };
        self.aes.encrypt_with_backend(run);
        vector.0
    }
}

struct S2v<'a> {
    subkeys: &'a Subkeys,
    parts: &'a [&'a [u8]],
    text: &'a [u8],
    vector: &'a mut Block,
}

impl BlockSizeUser for S2v<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for S2v<'_> {
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let mut sum = Block::from(*self.subkeys.whole());
        backend.encrypt_block_inplace(&mut sum);
        for part in self.parts {
            sum = double(sum);
            xor(&mut sum, &chain(backend, self.subkeys, part).0);
        }
        *self.vector = if self.text.len() < BLOCK_LEN {
            let mut last = double(sum);
            xor(&mut last, &pad(self.text).0);
            chain(backend, self.subkeys, &last)
        } else {
            chain_to_end(backend, self.subkeys, self.text, &sum)
        };
    }
}

/// The chain over `text`, whose last 16 bytes are first added to `sum` (`xorend`). The text has at
/// least 16 bytes.
#[inline(always)]
#[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
fn chain_to_end<B: BlockCipherEncBackend<BlockSize = U16>>(
    backend: &B,
    subkeys: &Subkeys,
    text: &[u8],
    sum: &Block,
) -> Block {
    // The last block may be a part of one, and then `sum` reaches into the block before it.
    let (blocks, tail) = split_last(text);
    let reach = BLOCK_LEN - tail.len();
    let mut state = Block::default();
    let (before, last) = match blocks.split_last() {
        Some((last, before)) if reach > 0 => (before, Some(last)),
        _ => (blocks, None),
    };
    for block in before {
        xor(&mut state, block);
        backend.encrypt_block_inplace(&mut state);
    }
    if let Some(last) = last {
        xor(&mut state, last);
        for (byte, other) in state[tail.len()..].iter_mut().zip(&sum[..reach]) {
            *byte ^= other;
        }
        backend.encrypt_block_inplace(&mut state);
    }
    let mut end = [0; BLOCK_LEN];
    for ((byte, from), other) in end.iter_mut().zip(tail).zip(&sum[reach..]) {
        *byte = from ^ other;
    }
    xor(&mut state, &subkeys.last(&end[..tail.len()]).0);
    backend.encrypt_block_inplace(&mut state);
    state
}

/// The half of a key that encrypts.
pub(crate) struct StreamHalf(Aes128Enc);

impl StreamHalf {
    pub(crate) fn new(key: &[u8; BLOCK_LEN]) -> Self {
        Self(Aes128Enc::new(key.into()))
    }

    /// Encrypts or decrypts `text` in place (RFC 5297, section 2.5).
    pub(crate) fn apply(&self, vector: &[u8; BLOCK_LEN], text: &mut [u8]) {
        self.0.encrypt_with_backend(Stream { vector, text });
    }
}

struct Stream<'a> {
    vector: &'a [u8; BLOCK_LEN],
    text: &'a mut [u8],
}

impl BlockSizeUser for Stream<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Stream<'_> {
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        // Bits 63 and 31 of the counter start as zero, so nothing is carried past the lowest word.
        const CLEARED: u128 = !(1 << 63 | 1 << 31);
        let mut counter = u128::from_be_bytes(*self.vector) & CLEARED;
        for group in self.text.chunks_mut(STREAM_BLOCKS * BLOCK_LEN) {
            let mut stream = [Block::default(); STREAM_BLOCKS];
            for block in stream.iter_mut().take(group.len().div_ceil(BLOCK_LEN)) {
                *block = counter.to_be_bytes().into();
                counter = counter.wrapping_add(1);
                backend.encrypt_block_inplace(block);
            }
            for (byte, other) in group.iter_mut().zip(stream.as_flattened_bytes()) {
                *byte ^= other;
            }
        }
    }
}

/// The bytes of blocks that stand side by side.
trait AsFlattenedBytes {
    fn as_flattened_bytes(&self) -> impl Iterator<Item = &u8>;
}

impl AsFlattenedBytes for [Block; STREAM_BLOCKS] {
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
    fn as_flattened_bytes(&self) -> impl Iterator<Item = &u8> {
        self.iter().flat_map(|block| block.iter())
    }
}

/// Both halves.
pub(crate) struct SivKey {
    mac: MacHalf,
    stream: StreamHalf,
}

impl SivKey {
    /// From 32 bytes: first the half that authenticates. Missing bytes count as zero.
    pub(crate) fn new(key: &[u8]) -> Self {
        let (mac, stream) = halves(key);
        Self { mac: MacHalf::new(&mac), stream: StreamHalf::new(&stream) }
    }

    /// Encrypts `text` in place and sets its tag.
    pub(crate) fn seal(&self, parts: &[&[u8]], tag: &mut [u8; BLOCK_LEN], text: &mut [u8]) {
        *tag = self.mac.vector(parts, text);
        self.stream.apply(tag, text);
    }

    /// Decrypts `text` in place; whether it is genuine. If it is not, `text` is wiped.
    pub(crate) fn open(&self, parts: &[&[u8]], tag: &[u8; BLOCK_LEN], text: &mut [u8]) -> bool {
        self.stream.apply(tag, text);
        let genuine = bool::from(self.mac.vector(parts, text).ct_eq(tag));
        if !genuine {
            text.fill(0);
        }
        genuine
    }
}

/// The two halves of a key of 32 bytes.
pub(crate) fn halves(
    key: &[u8],
) -> (zeroize::Zeroizing<[u8; BLOCK_LEN]>, zeroize::Zeroizing<[u8; BLOCK_LEN]>) {
    let mut halves = (zeroize::Zeroizing::new([0; 16]), zeroize::Zeroizing::new([0; 16]));
    for (to, from) in halves.0.iter_mut().chain(halves.1.iter_mut()).zip(key) {
        *to = *from;
    }
    halves
}
