//! AES-SIV-CMAC-256 (RFC 5297), for one packet or for a batch, whose CMAC chains are computed in
//! parallel lanes. The caller is responsible for the lengths of buffers.

use horolog_aes::{AesKey, Block, CmacChain, LANES, run_chains};
use subtle::ConstantTimeEq;

use super::cmac::{
    BLOCK_LEN, LittleEndianBlock, Subkeys, blocks_before_last, double, last_block, pad,
};

/// Largest number of packets that are sealed or opened together, in less time per packet.
pub const BATCH: usize = LANES;

/// Authentication half (K1 in RFC 5297) of a SIV key, with precomputed values.
pub(crate) struct SivMacKey {
    key: AesKey,
    prepared: PrecomputedMacValues,
}

/// CMAC subkeys of a key, and its MAC of the zero block.
#[derive(zeroize::Zeroize, zeroize::ZeroizeOnDrop)]
struct PrecomputedMacValues {
    subkeys: Subkeys,
    zero_mac: LittleEndianBlock,
}

impl SivMacKey {
    pub(crate) fn new(key: &Block) -> Self {
        let key = AesKey::new(key);
        let mut block = [Block::default()];
        key.encrypt(&mut block);
        let subkeys = Subkeys::from_encrypted_zero(&block[0]);
        block[0] = subkeys.mask_complete(0);
        key.encrypt(&mut block);
        Self {
            key,
            prepared: PrecomputedMacValues {
                subkeys,
                zero_mac: LittleEndianBlock::from_le_bytes(block[0]),
            },
        }
    }

    pub(crate) const fn input<'a>(&'a self, parts: &'a [&'a [u8]], text: &'a [u8]) -> S2vInput<'a> {
        S2vInput { key: &self.key, prepared: Some(&self.prepared), parts, text }
    }

    /// Returns the synthetic initialisation vector of `parts` and `text` (S2V; RFC 5297, section
    /// 2.4).
    fn s2v(&self, parts: &[&[u8]], text: &[u8]) -> Block {
        let PrecomputedMacValues { subkeys, zero_mac: start } = &self.prepared;
        let mut sum = *start;
        for part in parts {
            let last = [subkeys.mask_last(part, 0)];
            let mut chain = CmacChain::new(&self.key, blocks_before_last(part), &last);
            chain.run();
            sum = double(sum) ^ LittleEndianBlock::from_le_bytes(chain.state);
        }
        let mut last = [Block::default(); 2];
        let (blocks, last_count) = vector_input(text, sum, subkeys, &mut last);
        let mut chain = CmacChain::new(&self.key, blocks, &last[..last_count]);
        chain.run();
        chain.state
    }
}

/// Input of S2V: key and authenticated data.
#[derive(Clone, Copy)]
pub(crate) struct S2vInput<'a> {
    key: &'a AesKey,
    prepared: Option<&'a PrecomputedMacValues>,
    /// Authenticated data in addition to the text: associated data, nonce.
    parts: &'a [&'a [u8]],
    text: &'a [u8],
}

/// Computes the synthetic initialisation vectors of up to [`BATCH`] inputs, each at its input's
/// index in `out`; for `None`, a block of zeros.
///
/// All inputs take the same steps in the same code, which keeps the code small: it runs only once
/// per batch, so instruction fetches matter.
pub(crate) fn s2v_batch(inputs: &[Option<S2vInput<'_>>], out: &mut [Block]) {
    let mut states: [S2vState; BATCH] = Default::default();
    let states = &mut states[..inputs.len()];
    let (mut parts, mut are_all_prepared) = (0, true);
    for (job, state) in inputs.iter().zip(&mut *states) {
        let Some(job) = job else { continue };
        parts = parts.max(job.parts.len());
        match job.prepared {
            Some(ready) => {
                state.subkeys.clone_from(&ready.subkeys);
                state.sum = ready.zero_mac;
            }
            None => are_all_prepared = false,
        }
    }
    if !are_all_prepared {
        run_step(S2vStep::Subkeys, inputs, states);
        run_step(S2vStep::ZeroMac, inputs, states);
    }
    for number in 0..parts {
        run_step(S2vStep::Part(number), inputs, states);
    }
    run_step(S2vStep::Text, inputs, states);
    for (out, state) in out.iter_mut().zip(states) {
        *out = state.sum.to_le_bytes();
        // Subkeys wipe themselves; these values would reveal MACs of other messages.
        (state.sum, state.last) = Default::default();
        zeroize::optimization_barrier(state);
    }
}

/// State of the computation of one vector.
#[derive(Default)]
struct S2vState {
    subkeys: Subkeys,
    sum: LittleEndianBlock,
    /// Storage of the last blocks of the current chain, which differ from the message.
    last: [Block; 2],
}

/// Step of S2V; each computes one CMAC chain per input.
#[derive(Clone, Copy)]
enum S2vStep {
    /// Subkeys, unless the key has precomputed values.
    Subkeys,
    /// MAC of the zero block, unless the key has precomputed values.
    ZeroMac,
    /// Part with this index, if the input has it.
    Part(usize),
    /// The text.
    Text,
}

#[inline(never)]
fn run_step(step: S2vStep, inputs: &[Option<S2vInput<'_>>], states: &mut [S2vState]) {
    let Some(first) = inputs.iter().flatten().next() else { return };
    let mut lanes = [CmacChain::new(first.key, &[], &[]); BATCH];
    let lanes = &mut lanes[..inputs.len()];
    for ((job, state), lane) in inputs.iter().zip(&mut *states).zip(&mut *lanes) {
        if let Some(job) = job {
            *lane = state.chain(step, job);
        }
    }
    run_chains(lanes);
    let mut macs = [None; BATCH];
    for (ended, lane) in macs.iter_mut().zip(lanes) {
        *ended = (!lane.is_empty()).then_some(lane.state);
    }
    for (state, ended) in states.iter_mut().zip(macs) {
        if let Some(ended) = ended {
            state.finish_step(step, ended);
        }
    }
}

/// Input of a chain: blocks of a message, and the number of blocks in [`S2vState::last`] that
/// follow them.
type ChainInput<'a> = (&'a [Block], usize);

impl S2vState {
    /// Returns the chain of this step; an empty one, which changes nothing, if the input does not
    /// need the step.
    fn chain<'a>(&'a mut self, step: S2vStep, job: &S2vInput<'a>) -> CmacChain<'a> {
        let (blocks, last_count) = match step {
            S2vStep::Subkeys | S2vStep::ZeroMac if job.prepared.is_some() => (&[][..], 0),
            S2vStep::Subkeys => {
                self.last[0] = Block::default();
                (&[][..], 1)
            }
            S2vStep::ZeroMac => {
                self.last[0] = self.subkeys.mask_complete(0);
                (&[][..], 1)
            }
            S2vStep::Part(number) => match job.parts.get(number) {
                None => (&[][..], 0),
                Some(part) => {
                    self.last[0] = self.subkeys.mask_last(part, 0);
                    (blocks_before_last(part), 1)
                }
            },
            S2vStep::Text => vector_input(job.text, self.sum, &self.subkeys, &mut self.last),
        };
        CmacChain::new(job.key, blocks, &self.last[..last_count])
    }

    fn finish_step(&mut self, step: S2vStep, mac: Block) {
        let number = LittleEndianBlock::from_le_bytes(mac);
        match step {
            S2vStep::Subkeys => self.subkeys = Subkeys::from_encrypted_zero(&mac),
            S2vStep::ZeroMac | S2vStep::Text => self.sum = number,
            S2vStep::Part(_) => self.sum = double(self.sum) ^ number,
        }
    }
}

/// Returns the message whose MAC is the vector: `text` with `sum` xored into its end (`xorend` in
/// RFC 5297, section 2.4) or, if it is shorter than a block, the padded text xored with doubled
/// `sum`. Its blocks that differ from `text` are stored in `last`, the final one masked for CMAC.
fn vector_input<'t>(
    text: &'t [u8],
    sum: LittleEndianBlock,
    subkeys: &Subkeys,
    last: &mut [Block; 2],
) -> ChainInput<'t> {
    let (end, len) = last_block(text, sum);
    if text.len() < BLOCK_LEN {
        last[0] = subkeys.mask_complete(double(sum) ^ pad(end, len));
        return (&[], 1);
    }
    let blocks = blocks_before_last(text);
    if len < BLOCK_LEN
        && let Some((before, blocks)) = blocks.split_last()
    {
        // The last 16 bytes, to which `sum` is XORed, begin in the block before the last one.
        let before = LittleEndianBlock::from_le_bytes(*before) ^ sum << (8 * len as u32);
        *last = [before.to_le_bytes(), subkeys.mask_last(text, sum)];
        return (blocks, 2);
    }
    last[0] = subkeys.mask_last(text, sum);
    (blocks, 1)
}

/// Encryption half (K2 in RFC 5297) of a SIV key, used in counter mode.
pub(crate) struct SivCtrKey(AesKey);

impl SivCtrKey {
    pub(crate) fn new(key: &Block) -> Self {
        Self(AesKey::new(key))
    }

    /// Encrypts or decrypts `text` in place, with the counter derived from `vector` (RFC 5297,
    /// section 2.5).
    pub(crate) fn apply_keystream(&self, vector: &Block, text: &mut [u8]) {
        // Bits 63 and 31 of the counter are cleared, so no carry leaves the lowest 32-bit word.
        const CLEARED: u128 = !(1 << 63 | 1 << 31);
        let mut counter = u128::from_be_bytes(*vector) & CLEARED;
        for text in text.chunks_mut(LANES * BLOCK_LEN) {
            let mut stream = [Block::default(); LANES];
            let stream = &mut stream[..text.len().div_ceil(BLOCK_LEN)];
            for block in &mut *stream {
                *block = counter.to_be_bytes();
                counter = counter.wrapping_add(1);
            }
            self.0.encrypt(stream);
            for (byte, other) in text.iter_mut().zip(stream.as_flattened()) {
                *byte ^= other;
            }
        }
    }
}

/// SIV key: authentication and encryption halves.
pub(crate) struct SivKey {
    pub(crate) mac: SivMacKey,
    pub(crate) ctr: SivCtrKey,
}

impl SivKey {
    /// Prepares a key of 32 bytes, whose first half is for authentication.
    pub(crate) fn new(key: &[u8]) -> Self {
        let (mac, stream) = split_halves(key);
        Self { mac: SivMacKey::new(mac), ctr: SivCtrKey::new(stream) }
    }

    /// Encrypts `text` in place and writes the synthetic initialisation vector to `tag`.
    pub(crate) fn seal(&self, parts: &[&[u8]], tag: &mut Block, text: &mut [u8]) {
        *tag = self.mac.s2v(parts, text);
        self.ctr.apply_keystream(tag, text);
    }

    /// Decrypts `text` in place; returns true if it is authentic. Otherwise `text` is wiped.
    pub(crate) fn open(&self, parts: &[&[u8]], tag: &Block, text: &mut [u8]) -> bool {
        self.ctr.apply_keystream(tag, text);
        let is_genuine = is_equal(&self.mac.s2v(parts, text), tag);
        if !is_genuine {
            text.fill(0);
        }
        is_genuine
    }
}

/// Returns true if two blocks are equal, in a time that does not depend on their content.
pub(crate) fn is_equal(a: &Block, b: &Block) -> bool {
    LittleEndianBlock::from_le_bytes(*a).ct_eq(&LittleEndianBlock::from_le_bytes(*b)).into()
}

/// Reusable memory for the keys by which the packets of one batch are sealed or opened. The keys
/// are wiped after each batch.
pub struct BatchKeyBuffer {
    mac_keys: [AesKey; BATCH],
    ctr_keys: [SivCtrKey; BATCH],
}

impl Default for BatchKeyBuffer {
    fn default() -> Self {
        Self {
            mac_keys: [(); BATCH].map(|()| AesKey::blank()),
            ctr_keys: [(); BATCH].map(|()| SivCtrKey(AesKey::blank())),
        }
    }
}

impl core::fmt::Debug for BatchKeyBuffer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("BatchKeyBuffer").finish_non_exhaustive()
    }
}

impl BatchKeyBuffer {
    /// Sets the authentication key of the packet at `index` to the first half of `key`.
    pub(crate) fn set_mac_key(&mut self, index: usize, key: &[u8]) {
        self.mac_keys[index].rekey(split_halves(key).0);
    }

    /// Sets the encryption key of the packet at `index` to the second half of `key`.
    pub(crate) fn set_ctr_key(&mut self, index: usize, key: &[u8]) {
        self.ctr_keys[index].0.rekey(split_halves(key).1);
    }

    /// Returns the input of S2V for the packet at `index`.
    pub(crate) const fn input<'a>(
        &'a self,
        index: usize,
        parts: &'a [&'a [u8]],
        text: &'a [u8],
    ) -> S2vInput<'a> {
        S2vInput { key: &self.mac_keys[index], prepared: None, parts, text }
    }

    /// Returns the encryption key of the packet at `index`.
    pub(crate) const fn ctr_key(&self, index: usize) -> &SivCtrKey {
        &self.ctr_keys[index]
    }

    /// Wipes the keys of the first `count` packets.
    pub(crate) fn wipe(&mut self, count: usize) {
        for (mac, stream) in self.mac_keys.iter_mut().zip(&mut self.ctr_keys).take(count) {
            mac.wipe();
            stream.0.wipe();
        }
    }
}

/// Splits a key of 32 bytes; other lengths, which `SessionKeys` excludes, yield zeros.
fn split_halves(key: &[u8]) -> (&Block, &Block) {
    const NONE: (&Block, &Block) = (&[0; BLOCK_LEN], &[0; BLOCK_LEN]);
    match key.as_chunks() {
        ([mac, stream], []) => (mac, stream),
        _ => NONE,
    }
}
