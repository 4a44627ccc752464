//! AES-SIV-CMAC-256 (RFC 5297) with AES-128 schedules that are computed once for a key. A text may
//! be empty, as that of most NTS requests is; then only the half of the key that authenticates
//! comes into play. Lengths of parts are the caller's concern.

use core::borrow::Borrow;

use aes::cipher::consts::U16;
use aes::cipher::{BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt};
use aes::cipher::{BlockSizeUser, KeyInit};
use subtle::ConstantTimeEq;

use super::cmac::{BLOCK_LEN, Block, Subkeys, blocks_before_last, chain, double, tail, xor};
use super::schedule::Schedule;

/// The half of a key that authenticates. Its subkeys are computed when it is made if it is to be
/// used often, and together with its one use otherwise: entering the cipher's backend costs more
/// than a block there.
pub(crate) struct MacHalf {
    aes: Schedule,
    subkeys: Option<Subkeys>,
}

impl MacHalf {
    pub(crate) fn for_one_use(key: &[u8; BLOCK_LEN]) -> Self {
        Self { aes: Schedule::new(key.into()), subkeys: None }
    }

    pub(crate) fn new(key: &[u8; BLOCK_LEN]) -> Self {
        let aes = Schedule::new(key.into());
        let mut zero = Block::default();
        aes.encrypt_block(&mut zero);
        Self { aes, subkeys: Some(Subkeys::of(zero)) }
    }

    /// The synthetic initialisation vector of `parts` and `text` (RFC 5297, section 2.4).
    pub(crate) fn vector(&self, parts: &[&[u8]], text: &[u8]) -> [u8; BLOCK_LEN] {
        let mut vector = Block::default();
        let run = S2v { subkeys: self.subkeys.as_ref(), parts, text, vector: &mut vector };
        self.aes.encrypt_with_backend(run);
        vector.0
    }
}

struct S2v<'a> {
    subkeys: Option<&'a Subkeys>,
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
        if let Some(subkeys) = self.subkeys {
            *self.vector = s2v(backend, subkeys, self.parts, self.text);
            return;
        }
        let mut zero = Block::default();
        backend.encrypt_block_inplace(&mut zero);
        *self.vector = s2v(backend, &Subkeys::of(zero), self.parts, self.text);
    }
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
fn s2v<B: BlockCipherEncBackend<BlockSize = U16>>(
    backend: &B,
    subkeys: &Subkeys,
    parts: &[&[u8]],
    text: &[u8],
) -> Block {
    // The MAC of a block of zeros.
    let mut sum = Block::from(*subkeys.whole());
    backend.encrypt_block_inplace(&mut sum);
    for part in parts {
        sum = double(sum);
        xor(&mut sum, &chain(backend, subkeys, part).0);
    }
    if text.len() >= BLOCK_LEN {
        return chain_to_end(backend, subkeys, text, u128::from_be_bytes(sum.0));
    }
    let mut last = double(sum);
    let padding = (1u128 << 127) >> (8 * text.len() as u32);
    xor(&mut last, &(tail(text).0 | padding).to_be_bytes());
    chain(backend, subkeys, &last)
}

/// The chain over `text`, to whose last 16 bytes `sum` is first added (`xorend`). The text has at
/// least 16 bytes.
#[inline(always)]
#[allow(clippy::inline_always, reason = "it must become part of the cipher's backend")]
fn chain_to_end<B: BlockCipherEncBackend<BlockSize = U16>>(
    backend: &B,
    subkeys: &Subkeys,
    text: &[u8],
    sum: u128,
) -> Block {
    // The last block may be a part of one, and then `sum` reaches into the block before it.
    let reach = 8 * (BLOCK_LEN - tail(text).1) as u32;
    let blocks = blocks_before_last(text);
    let mut state = Block::default();
    for (left, block) in (0..blocks.len()).rev().zip(blocks) {
        xor(&mut state, block);
        if left == 0 && reach > 0 {
            xor(&mut state, &(sum >> (128 - reach)).to_be_bytes());
        }
        backend.encrypt_block_inplace(&mut state);
    }
    xor(&mut state, &subkeys.last(text, sum << reach).0);
    backend.encrypt_block_inplace(&mut state);
    state
}

/// The half of a key that encrypts.
pub(crate) struct StreamHalf(Schedule);

impl StreamHalf {
    pub(crate) fn new(key: &[u8; BLOCK_LEN]) -> Self {
        Self(Schedule::new(key.into()))
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
        let mut next = || {
            let mut block = Block::from(counter.to_be_bytes());
            counter = counter.wrapping_add(1);
            backend.encrypt_block_inplace(&mut block);
            block
        };
        let (blocks, tail) = self.text.as_chunks_mut::<BLOCK_LEN>();
        for block in blocks {
            let stream = next();
            for (byte, other) in block.iter_mut().zip(&stream) {
                *byte ^= other;
            }
        }
        if !tail.is_empty() {
            for (byte, other) in tail.iter_mut().zip(&next()) {
                *byte ^= other;
            }
        }
    }
}

/// Both halves.
pub(crate) struct SivKey {
    mac: MacHalf,
    stream: StreamHalf,
}

impl SivKey {
    /// From 32 bytes: first the half that authenticates.
    pub(crate) fn new(key: &[u8]) -> Self {
        let (mac, stream) = halves(key);
        Self { mac: MacHalf::new(&mac), stream: StreamHalf::new(&stream) }
    }

    /// Encrypts `text` in place and sets its tag.
    pub(crate) fn seal(&self, parts: &[&[u8]], tag: &mut [u8; BLOCK_LEN], text: &mut [u8]) {
        seal(&self.mac, || &self.stream, parts, tag, text);
    }

    /// Decrypts `text` in place; whether it is genuine. If it is not, `text` is wiped.
    pub(crate) fn open(&self, parts: &[&[u8]], tag: &[u8; BLOCK_LEN], text: &mut [u8]) -> bool {
        open(&self.mac, || &self.stream, parts, tag, text)
    }
}

/// A key for one use, out of which no more is made than that use takes.
pub(crate) struct SivKeyOnce<'a>(&'a [u8]);

impl<'a> SivKeyOnce<'a> {
    pub(crate) const fn new(key: &'a [u8]) -> Self {
        Self(key)
    }

    pub(crate) fn seal(&self, parts: &[&[u8]], tag: &mut [u8; BLOCK_LEN], text: &mut [u8]) {
        let (mac, stream) = halves(self.0);
        seal(&MacHalf::for_one_use(&mac), || StreamHalf::new(&stream), parts, tag, text);
    }

    pub(crate) fn open(&self, parts: &[&[u8]], tag: &[u8; BLOCK_LEN], text: &mut [u8]) -> bool {
        let (mac, stream) = halves(self.0);
        open(&MacHalf::for_one_use(&mac), || StreamHalf::new(&stream), parts, tag, text)
    }
}

#[inline]
fn seal<S: Borrow<StreamHalf>>(
    mac: &MacHalf,
    stream: impl FnOnce() -> S,
    parts: &[&[u8]],
    tag: &mut [u8; BLOCK_LEN],
    text: &mut [u8],
) {
    *tag = mac.vector(parts, text);
    if !text.is_empty() {
        stream().borrow().apply(tag, text);
    }
}

#[inline]
fn open<S: Borrow<StreamHalf>>(
    mac: &MacHalf,
    stream: impl FnOnce() -> S,
    parts: &[&[u8]],
    tag: &[u8; BLOCK_LEN],
    text: &mut [u8],
) -> bool {
    if !text.is_empty() {
        stream().borrow().apply(tag, text);
    }
    let genuine = bool::from(mac.vector(parts, text).ct_eq(tag));
    if !genuine {
        text.fill(0);
    }
    genuine
}

/// The two halves of a key of 32 bytes; zeros in place of any other, which `SessionKeys` rules out.
pub(crate) fn halves(
    key: &[u8],
) -> (zeroize::Zeroizing<[u8; BLOCK_LEN]>, zeroize::Zeroizing<[u8; BLOCK_LEN]>) {
    let mut halves = (zeroize::Zeroizing::new([0; 16]), zeroize::Zeroizing::new([0; 16]));
    if let Some((mac, stream)) = key.split_first_chunk() {
        *halves.0 = *mac;
        if let Ok(stream) = stream.try_into() {
            *halves.1 = stream;
        }
    }
    halves
}
