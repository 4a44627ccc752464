//! AES-SIV-CMAC-256 (RFC 5297), for one text or for a batch of them, whose chains then advance
//! together. The caller is responsible for the lengths of parts.

use horolog_aes::{AesKey, Block, CmacChain, LANES, run_chains};
use subtle::ConstantTimeEq;

use super::cmac::{BLOCK_LEN, BlockNumber, Subkeys, blocks_before_last, double, pad, tail};

/// Number of packets sealed or opened together, which takes less time per packet than one by one.
pub const BATCH: usize = LANES;

/// The half of a key that authenticates, prepared for frequent use.
pub(crate) struct MacKey {
    key: AesKey,
    ready: PreparedKey,
}

/// The subkeys of a key, and its MAC of a block of zeros.
#[derive(zeroize::Zeroize, zeroize::ZeroizeOnDrop)]
struct PreparedKey {
    subkeys: Subkeys,
    start: BlockNumber,
}

impl MacKey {
    pub(crate) fn new(key: &Block) -> Self {
        let key = AesKey::new(key);
        let mut block = [Block::default()];
        key.encrypt(&mut block);
        let subkeys = Subkeys::of(&block[0]);
        block[0] = subkeys.whole(0);
        key.encrypt(&mut block);
        Self { key, ready: PreparedKey { subkeys, start: BlockNumber::from_le_bytes(block[0]) } }
    }

    pub(crate) const fn job<'a>(&'a self, parts: &'a [&'a [u8]], text: &'a [u8]) -> SivInput<'a> {
        SivInput { key: &self.key, ready: Some(&self.ready), parts, text }
    }

    /// The synthetic initialisation vector of `parts` and `text` (S2V; RFC 5297, section 2.4).
    fn vector(&self, parts: &[&[u8]], text: &[u8]) -> Block {
        let PreparedKey { subkeys, start } = &self.ready;
        let mut sum = *start;
        for part in parts {
            let last = [subkeys.last(part, 0)];
            let mut lane = CmacChain::new(&self.key, blocks_before_last(part), &last);
            lane.run();
            sum = double(sum) ^ BlockNumber::from_le_bytes(lane.state);
        }
        let mut last = [Block::default(); 2];
        let (blocks, made) = end(text, sum, subkeys, &mut last);
        let mut lane = CmacChain::new(&self.key, blocks, &last[..made]);
        lane.run();
        lane.state
    }
}

/// Input of a synthetic initialisation vector.
#[derive(Clone, Copy)]
pub(crate) struct SivInput<'a> {
    key: &'a AesKey,
    ready: Option<&'a PreparedKey>,
    /// Authenticated data in addition to the text: associated data, nonce.
    parts: &'a [&'a [u8]],
    text: &'a [u8],
}

/// The vectors of up to [`BATCH`] jobs, each at its job's index.
///
/// All jobs take the same steps in the same code: it runs once per batch, so a small amount of
/// fetched code matters.
pub(crate) fn vectors(jobs: &[Option<SivInput<'_>>], out: &mut [Block]) {
    let mut states: [SivState; BATCH] = Default::default();
    let states = &mut states[..jobs.len()];
    let (mut parts, mut are_ready) = (0, true);
    for (job, state) in jobs.iter().zip(&mut *states) {
        let Some(job) = job else { continue };
        parts = parts.max(job.parts.len());
        match job.ready {
            Some(ready) => {
                state.subkeys.clone_from(&ready.subkeys);
                state.sum = ready.start;
            }
            None => are_ready = false,
        }
    }
    if !are_ready {
        step(ChainStep::Subkeys, jobs, states);
        step(ChainStep::Start, jobs, states);
    }
    for number in 0..parts {
        step(ChainStep::Part(number), jobs, states);
    }
    step(ChainStep::End, jobs, states);
    for (out, state) in out.iter_mut().zip(states) {
        *out = state.sum.to_le_bytes();
        // Subkeys wipe themselves; from these a key's MAC of other messages could follow.
        (state.sum, state.last) = Default::default();
        zeroize::optimization_barrier(state);
    }
}

/// Progress of a job.
#[derive(Default)]
struct SivState {
    subkeys: Subkeys,
    sum: BlockNumber,
    /// Last blocks of a chain.
    last: [Block; 2],
}

/// A chain that every job runs.
#[derive(Clone, Copy)]
enum ChainStep {
    /// The key's subkeys, unless it is prepared.
    Subkeys,
    /// The MAC of a block of zeros, unless the key is prepared.
    Start,
    /// The part with this number, if it exists.
    Part(usize),
    /// The text.
    End,
}

#[inline(never)]
fn step(step: ChainStep, jobs: &[Option<SivInput<'_>>], states: &mut [SivState]) {
    let Some(first) = jobs.iter().flatten().next() else { return };
    let mut lanes = [CmacChain::new(first.key, &[], &[]); BATCH];
    let lanes = &mut lanes[..jobs.len()];
    for ((job, state), lane) in jobs.iter().zip(&mut *states).zip(&mut *lanes) {
        if let Some(job) = job {
            *lane = state.lane(step, job);
        }
    }
    run_chains(lanes);
    let mut ended = [None; BATCH];
    for (ended, lane) in ended.iter_mut().zip(lanes) {
        *ended = (!lane.is_empty()).then_some(lane.state);
    }
    for (state, ended) in states.iter_mut().zip(ended) {
        if let Some(ended) = ended {
            state.take(step, ended);
        }
    }
}

/// Input of a chain: blocks of a message in place, and the number of blocks of [`SivState::last`]
/// that follow.
type ChainInput<'a> = (&'a [Block], usize);

impl SivState {
    /// The chain of this step; one over nothing, which changes nothing, if the job has no such
    /// step.
    fn lane<'a>(&'a mut self, step: ChainStep, job: &SivInput<'a>) -> CmacChain<'a> {
        let (blocks, made) = match step {
            ChainStep::Subkeys | ChainStep::Start if job.ready.is_some() => (&[][..], 0),
            ChainStep::Subkeys => {
                self.last[0] = Block::default();
                (&[][..], 1)
            }
            ChainStep::Start => {
                self.last[0] = self.subkeys.whole(0);
                (&[][..], 1)
            }
            ChainStep::Part(number) => match job.parts.get(number) {
                None => (&[][..], 0),
                Some(part) => {
                    self.last[0] = self.subkeys.last(part, 0);
                    (blocks_before_last(part), 1)
                }
            },
            ChainStep::End => end(job.text, self.sum, &self.subkeys, &mut self.last),
        };
        CmacChain::new(job.key, blocks, &self.last[..made])
    }

    fn take(&mut self, step: ChainStep, ended: Block) {
        let number = BlockNumber::from_le_bytes(ended);
        match step {
            ChainStep::Subkeys => self.subkeys = Subkeys::of(&ended),
            ChainStep::Start | ChainStep::End => self.sum = number,
            ChainStep::Part(_) => self.sum = double(self.sum) ^ number,
        }
    }
}

/// The message whose MAC is the vector: `text` with `sum` added to its end (`xorend`), or to the
/// only block if it is shorter than one.
fn end<'t>(
    text: &'t [u8],
    sum: BlockNumber,
    subkeys: &Subkeys,
    last: &mut [Block; 2],
) -> ChainInput<'t> {
    let (end, len) = tail(text, sum);
    if text.len() < BLOCK_LEN {
        last[0] = subkeys.whole(double(sum) ^ pad(end, len));
        return (&[], 1);
    }
    let blocks = blocks_before_last(text);
    if len < BLOCK_LEN
        && let Some((before, blocks)) = blocks.split_last()
    {
        // `sum` reaches into the block before the last one.
        let before = BlockNumber::from_le_bytes(*before) ^ sum << (8 * len as u32);
        *last = [before.to_le_bytes(), subkeys.last(text, sum)];
        return (blocks, 2);
    }
    last[0] = subkeys.last(text, sum);
    (blocks, 1)
}

/// The half of a key that encrypts.
pub(crate) struct StreamKey(AesKey);

impl StreamKey {
    pub(crate) fn new(key: &Block) -> Self {
        Self(AesKey::new(key))
    }

    /// Encrypts or decrypts `text` in place (RFC 5297, section 2.5).
    pub(crate) fn apply(&self, vector: &Block, text: &mut [u8]) {
        // Bits 63 and 31 of the counter start as zero, so nothing is carried past the lowest word.
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

/// Both halves.
pub(crate) struct SivKey {
    pub(crate) mac: MacKey,
    pub(crate) stream: StreamKey,
}

impl SivKey {
    /// Prepares a key of 32 bytes: first the half that authenticates.
    pub(crate) fn new(key: &[u8]) -> Self {
        let (mac, stream) = halves(key);
        Self { mac: MacKey::new(mac), stream: StreamKey::new(stream) }
    }

    /// Encrypts `text` in place and sets its tag.
    pub(crate) fn seal(&self, parts: &[&[u8]], tag: &mut Block, text: &mut [u8]) {
        *tag = self.mac.vector(parts, text);
        self.stream.apply(tag, text);
    }

    /// Decrypts `text` in place; returns true if it is authentic. Otherwise `text` is wiped.
    pub(crate) fn open(&self, parts: &[&[u8]], tag: &Block, text: &mut [u8]) -> bool {
        self.stream.apply(tag, text);
        let genuine = is_equal(&self.mac.vector(parts, text), tag);
        if !genuine {
            text.fill(0);
        }
        genuine
    }
}

/// Returns true if two blocks are equal, in a time that does not depend on their content.
pub(crate) fn is_equal(a: &Block, b: &Block) -> bool {
    BlockNumber::from_le_bytes(*a).ct_eq(&BlockNumber::from_le_bytes(*b)).into()
}

/// Memory for the keys that seal or open the packets of one batch. The keys are wiped after it; the
/// memory is reused.
pub struct BatchKeys {
    macs: [AesKey; BATCH],
    streams: [StreamKey; BATCH],
}

impl Default for BatchKeys {
    fn default() -> Self {
        Self {
            macs: [(); BATCH].map(|()| AesKey::blank()),
            streams: [(); BATCH].map(|()| StreamKey(AesKey::blank())),
        }
    }
}

impl core::fmt::Debug for BatchKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("BatchKeys").finish_non_exhaustive()
    }
}

impl BatchKeys {
    /// Prepares the half of `key` that authenticates the packet at `index`.
    pub(crate) fn set_mac(&mut self, index: usize, key: &[u8]) {
        self.macs[index].rekey(halves(key).0);
    }

    /// Prepares the half of `key` that encrypts the packet at `index`.
    pub(crate) fn set_stream(&mut self, index: usize, key: &[u8]) {
        self.streams[index].0.rekey(halves(key).1);
    }

    /// The data to be authenticated in the packet at `index`.
    pub(crate) const fn job<'a>(
        &'a self,
        index: usize,
        parts: &'a [&'a [u8]],
        text: &'a [u8],
    ) -> SivInput<'a> {
        SivInput { key: &self.macs[index], ready: None, parts, text }
    }

    /// The key that encrypts the packet at `index`.
    pub(crate) const fn stream(&self, index: usize) -> &StreamKey {
        &self.streams[index]
    }

    /// Wipes the first `count` keys.
    pub(crate) fn wipe(&mut self, count: usize) {
        for (mac, stream) in self.macs.iter_mut().zip(&mut self.streams).take(count) {
            mac.wipe();
            stream.0.wipe();
        }
    }
}

/// The two halves of a key of 32 bytes; zeros for any other length, which `SessionKeys` rules out.
fn halves(key: &[u8]) -> (&Block, &Block) {
    const NONE: (&Block, &Block) = (&[0; BLOCK_LEN], &[0; BLOCK_LEN]);
    match key.as_chunks() {
        ([mac, stream], []) => (mac, stream),
        _ => NONE,
    }
}
