//! AES-128 with the AES instructions of x86-64 (Intel, "Advanced Encryption Standard New
//! Instructions Set", AES-NI). A [`RoundKeys`] value exists only if the processor has them, which
//! makes the calls of functions that need them sound.

use core::arch::x86_64::{
    __m128i, _mm_aesenc_si128, _mm_aesenclast_si128, _mm_loadu_si128, _mm_set1_epi32,
    _mm_setzero_si128, _mm_shuffle_epi8, _mm_slli_si128, _mm_storeu_si128, _mm_xor_si128,
};

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::{Block, CmacChain, KeySchedule, LANES};

/// Number of rounds of AES-128 (FIPS 197, section 5); there is one round key more.
const ROUNDS: usize = 10;

/// Round keys of AES-128, in the order of the rounds. Its existence proves that the processor has
/// AES-NI and SSSE3.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct RoundKeys([__m128i; ROUNDS + 1]);

impl RoundKeys {
    /// Returns zeroed round keys, or `None` if the processor lacks AES-NI or SSSE3.
    #[inline]
    pub(crate) fn zeroed() -> Option<Self> {
        if !(is_x86_feature_detected!("aes") && is_x86_feature_detected!("ssse3")) {
            return None;
        }
        // SAFETY: registers of numbers, for which all bytes zero is valid.
        Some(Self(unsafe { core::mem::zeroed() }))
    }

    #[inline]
    pub(crate) fn rekey(&mut self, key: &Block) {
        // SAFETY: `self` exists, so the processor has the instructions.
        unsafe { expand_key(load(key), &mut self.0) }
    }

    pub(crate) fn encrypt(&self, blocks: &mut [Block]) {
        let (groups, rest) = blocks.as_chunks_mut::<LANES>();
        for group in groups {
            // SAFETY: `self` exists, so the processor has the instructions.
            unsafe { encrypt_group(self, group) };
        }
        let (groups, rest) = rest.as_chunks_mut::<2>();
        for group in groups {
            // SAFETY: as above.
            unsafe { encrypt_group(self, group) };
        }
        for block in rest {
            // SAFETY: as above.
            unsafe { encrypt_group(self, core::array::from_mut(block)) };
        }
    }
}

/// Runs a group of 1, 2, 4 or [`LANES`] chains to their ends. Returns false, and runs none, for
/// another group size or if a key has a portable schedule.
#[inline]
pub(crate) fn try_run_group(group: &mut [CmacChain<'_>]) -> bool {
    // SAFETY: `round_keys` found a `RoundKeys` in each lane, so the processor has the instructions.
    unsafe {
        if let Ok(group) = <&mut [_; LANES]>::try_from(&mut *group) {
            return round_keys(group).map(|keys| run_lanes(group, keys)).is_some();
        }
        if let Ok(group) = <&mut [_; 4]>::try_from(&mut *group) {
            return round_keys(group).map(|keys| run_lanes(group, keys)).is_some();
        }
        if let Ok(group) = <&mut [_; 2]>::try_from(&mut *group) {
            return round_keys(group).map(|keys| run_lanes(group, keys)).is_some();
        }
        if let Ok(group) = <&mut [_; 1]>::try_from(&mut *group) {
            return round_keys(group).map(|keys| run_lanes(group, keys)).is_some();
        }
    }
    false
}

/// Returns the round keys of all chains, or `None` if a key has a portable schedule.
#[inline]
fn round_keys<'a, const N: usize>(group: &[CmacChain<'a>; N]) -> Option<[&'a RoundKeys; N]> {
    let keys_of_lane = |lane: &CmacChain<'a>| match &lane.key.0 {
        KeySchedule::AesNi(rounds) => Some(rounds),
        KeySchedule::Portable(_) => None,
    };
    let first = group.first().and_then(keys_of_lane)?;
    let mut keys = [first; N];
    for (key, lane) in keys.iter_mut().zip(group) {
        *key = keys_of_lane(lane)?;
    }
    Some(keys)
}

/// Advances all chains by one block per step. Chains shorter than the longest are computed on
/// without input; their states are stored at their own ends.
#[target_feature(enable = "aes")]
fn run_lanes<const N: usize>(lanes: &mut [CmacChain<'_>; N], keys: [&RoundKeys; N]) {
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
        apply_rounds(&mut states, keys);
        for (lane, state) in lanes.iter_mut().zip(states) {
            if step + 1 == lane.len() {
                store(&mut lane.state, state);
            }
        }
    }
}

#[target_feature(enable = "aes")]
fn encrypt_group<const N: usize>(key: &RoundKeys, blocks: &mut [Block; N]) {
    let mut states = [_mm_setzero_si128(); N];
    for (state, block) in states.iter_mut().zip(&*blocks) {
        *state = _mm_xor_si128(load(block), key.0[0]);
    }
    apply_rounds(&mut states, [key; N]);
    for (block, state) in blocks.iter_mut().zip(states) {
        store(block, state);
    }
}

/// Applies rounds 1 to 10; the caller has added round key 0.
#[inline]
#[target_feature(enable = "aes")]
fn apply_rounds<const N: usize>(states: &mut [__m128i; N], keys: [&RoundKeys; N]) {
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
fn expand_key(key: __m128i, keys: &mut [__m128i; ROUNDS + 1]) {
    const CONSTANTS: [i32; ROUNDS] = [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1b, 0x36];
    // Shuffle mask that copies the last word, rotated by one byte (RotWord), to all four words.
    let rotated_word = _mm_set1_epi32(0x0c0f_0e0d);
    let mut last = key;
    keys[0] = key;
    for (key, constant) in keys[1..].iter_mut().zip(CONSTANTS) {
        // AESENCLAST applies SubBytes, ShiftRows (without effect, since all columns are equal) and
        // AddRoundKey (here the round constant). AESKEYGENASSIST computes the same, but slowly.
        let word = _mm_shuffle_epi8(last, rotated_word);
        let word = _mm_aesenclast_si128(word, _mm_set1_epi32(constant));
        // Replace each word by the XOR of itself and all words before it.
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
