//! AES-128 by the instructions of x86-64 (Intel, "Advanced Encryption Standard New Instructions
//! Set"). A [`Rounds`] exists only if the processor has them, so its holder may call functions that
//! need them.

use core::arch::x86_64::{
    __m128i, _mm_aesenc_si128, _mm_aesenclast_si128, _mm_loadu_si128, _mm_set1_epi32,
    _mm_setzero_si128, _mm_shuffle_epi8, _mm_slli_si128, _mm_storeu_si128, _mm_xor_si128,
};

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::{Block, CmacChain, KeySchedule, LANES};

/// Rounds of AES-128; the schedule has one key more.
const ROUNDS: usize = 10;

/// Round keys.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct Rounds([__m128i; ROUNDS + 1]);

impl Rounds {
    /// Returns a schedule without a key, or `None` if the processor lacks the instructions.
    #[inline]
    pub(crate) fn blank() -> Option<Self> {
        if !(is_x86_feature_detected!("aes") && is_x86_feature_detected!("ssse3")) {
            return None;
        }
        // SAFETY: registers of numbers, for which all bytes zero is valid.
        Some(Self(unsafe { core::mem::zeroed() }))
    }

    #[inline]
    pub(crate) fn renew(&mut self, key: &Block) {
        // SAFETY: `self` exists, so the processor has the instructions.
        unsafe { expand(load(key), &mut self.0) }
    }

    pub(crate) fn encrypt(&self, blocks: &mut [Block]) {
        let (groups, rest) = blocks.as_chunks_mut::<LANES>();
        for group in groups {
            // SAFETY: `self` exists, so the processor has the instructions.
            unsafe { encrypt(self, group) };
        }
        let (groups, rest) = rest.as_chunks_mut::<2>();
        for group in groups {
            // SAFETY: as above.
            unsafe { encrypt(self, group) };
        }
        for block in rest {
            // SAFETY: as above.
            unsafe { encrypt(self, core::array::from_mut(block)) };
        }
    }
}

/// Runs the chains of a group of 1, 2, 4 or [`LANES`] to their ends. Returns true if it did.
#[inline]
pub(crate) fn chain(group: &mut [CmacChain<'_>]) -> bool {
    // SAFETY: `keys` found a `Rounds` in each lane, so the processor has the instructions.
    unsafe {
        if let Ok(group) = <&mut [_; LANES]>::try_from(&mut *group) {
            return keys(group).map(|keys| run(group, keys)).is_some();
        }
        if let Ok(group) = <&mut [_; 4]>::try_from(&mut *group) {
            return keys(group).map(|keys| run(group, keys)).is_some();
        }
        if let Ok(group) = <&mut [_; 2]>::try_from(&mut *group) {
            return keys(group).map(|keys| run(group, keys)).is_some();
        }
        if let Ok(group) = <&mut [_; 1]>::try_from(&mut *group) {
            return keys(group).map(|keys| run(group, keys)).is_some();
        }
    }
    false
}

/// Returns the schedules of all lanes if all are of this kind.
#[inline]
fn keys<'a, const N: usize>(group: &[CmacChain<'a>; N]) -> Option<[&'a Rounds; N]> {
    let of = |lane: &CmacChain<'a>| match &lane.key.0 {
        KeySchedule::Rounds(rounds) => Some(rounds),
        KeySchedule::Library(_) => None,
    };
    let first = group.first().and_then(of)?;
    let mut keys = [first; N];
    for (key, lane) in keys.iter_mut().zip(group) {
        *key = of(lane)?;
    }
    Some(keys)
}

/// Advances the chains block by block. A chain that has ended is padded with empty steps until all
/// have ended.
#[target_feature(enable = "aes")]
fn run<const N: usize>(lanes: &mut [CmacChain<'_>; N], keys: [&Rounds; N]) {
    let mut states = [_mm_setzero_si128(); N];
    for (state, lane) in states.iter_mut().zip(&*lanes) {
        *state = load(&lane.state);
    }
    let steps = lanes.iter().map(CmacChain::len).max().unwrap_or(0);
    for step in 0..steps {
        for ((state, lane), key) in states.iter_mut().zip(&*lanes).zip(keys) {
            let block = lane.blocks.get(step).or_else(|| lane.last.get(step - lane.blocks.len()));
            if let Some(block) = block {
                *state = _mm_xor_si128(*state, load(block));
            }
            *state = _mm_xor_si128(*state, key.0[0]);
        }
        rounds(&mut states, keys);
        for (lane, state) in lanes.iter_mut().zip(states) {
            if step + 1 == lane.len() {
                store(&mut lane.state, state);
            }
        }
    }
}

#[target_feature(enable = "aes")]
fn encrypt<const N: usize>(key: &Rounds, blocks: &mut [Block; N]) {
    let mut states = [_mm_setzero_si128(); N];
    for (state, block) in states.iter_mut().zip(&*blocks) {
        *state = _mm_xor_si128(load(block), key.0[0]);
    }
    rounds(&mut states, [key; N]);
    for (block, state) in blocks.iter_mut().zip(states) {
        store(block, state);
    }
}

/// Runs all rounds after the first key was added.
#[inline]
#[target_feature(enable = "aes")]
fn rounds<const N: usize>(states: &mut [__m128i; N], keys: [&Rounds; N]) {
    for round in 1..ROUNDS {
        for (state, key) in states.iter_mut().zip(keys) {
            *state = _mm_aesenc_si128(*state, key.0[round]);
        }
    }
    for (state, key) in states.iter_mut().zip(keys) {
        *state = _mm_aesenclast_si128(*state, key.0[ROUNDS]);
    }
}

/// Expands the round keys (FIPS 197, section 5.2).
#[target_feature(enable = "aes,ssse3")]
fn expand(key: __m128i, keys: &mut [__m128i; ROUNDS + 1]) {
    const CONSTANTS: [i32; ROUNDS] = [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1b, 0x36];
    // Last word with its bytes rotated, four times.
    let rotated_word = _mm_set1_epi32(0x0c0f_0e0d);
    let mut last = key;
    keys[0] = key;
    for (key, constant) in keys[1..].iter_mut().zip(CONSTANTS) {
        // The last round of the cipher substitutes bytes, shifts rows, which has no effect if all
        // columns are equal, and adds a key. `aeskeygenassist` does the same, but slowly.
        let word = _mm_shuffle_epi8(last, rotated_word);
        let word = _mm_aesenclast_si128(word, _mm_set1_epi32(constant));
        // Add each word of the key to those after it.
        last = _mm_xor_si128(last, _mm_slli_si128::<4>(last));
        last = _mm_xor_si128(last, _mm_slli_si128::<8>(last));
        last = _mm_xor_si128(last, word);
        *key = last;
    }
}

#[inline]
fn load(block: &Block) -> __m128i {
    // SAFETY: 16 bytes to read, of any alignment; every x86-64 processor has the instruction.
    unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
}

#[inline]
fn store(block: &mut Block, value: __m128i) {
    // SAFETY: 16 bytes to write, of any alignment; every x86-64 processor has the instruction.
    unsafe { _mm_storeu_si128(block.as_mut_ptr().cast(), value) }
}
