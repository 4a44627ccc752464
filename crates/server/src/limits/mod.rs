//! Who is served: lists of prefixes, a limit for each client, and one for all newcomers together.
//! The BPF program is the second body of this (`bpf/limits.h`) and decides the same; which of the
//! two a request meets depends on the way it came. Nothing here reads a clock, sends or waits, and
//! memory is bounded however many addresses ask.
//!
//! A client is an address, or a prefix of one. Each has a word in one of four places that its keyed
//! hash chooses; the word holds a theoretical arrival time (GCRA, ITU-T I.371, annex A), which is a
//! token bucket in one number. A client without a word is a newcomer: it is charged to a bucket
//! that all newcomers share, so a flood from made-up addresses exhausts that and nothing else. One
//! that is let through takes a place that is free, or whose client has been silent for long; if
//! there is none it is served without one, and stays a newcomer.
//!
//! Requests longer than a header (those that are authenticated) have words and a bucket of
//! newcomers of their own, so that a flood of plain ones does not use up what may be asked in
//! earnest, whether it comes from a client's address or from made-up ones.
//!
//! Nothing shared is written for a request that is turned away, save once when a kiss is sent, so
//! processors do not fight over a client that floods. Two that serve the same client at the same
//! instant may lose one charge between them. Who shares all 16 bits of the tag with another client
//! of the same places shares its word too, and its verdict of the lists: one address in some
//! 16,000 where the table is full, and nobody outside knows which.

mod list;
mod rules;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use horolog_time::{Monotonic, Timestamp};
use horolog_xdp::{LimitRules, LimitSettings};
use zerocopy::FromZeros;

pub use rules::responder_settings;

use crate::LimitsConfig;
use crate::address_hash::{HashKey, words};
use list::PrefixLists;

/// Bytes of memory for each client.
pub const LIMIT_BYTES_PER_CLIENT: usize = size_of::<AtomicU64>();

const WAYS: usize = 4;
const UNIT_SHIFT: u32 = 10;
const ARRIVAL: u64 = (1 << 43) - 1;
const KISSED: u64 = 1 << 43;
const EPOCH_SHIFT: u32 = 44;
const EPOCH: u64 = 15 << EPOCH_SHIFT;
const TAG: u64 = 0xffff << 48;
/// Epochs of the lists that a word can tell apart, from 1 on; 0 is never in force.
const EPOCHS: u32 = 15;

/// Which of a client's buckets a request is charged to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// The request is one NTP header.
    Plain,
    /// It is longer. Such a request is never sent a kiss, which could not be authenticated.
    Long,
}

impl Class {
    /// The class of a request of so many bytes.
    #[must_use]
    pub const fn of(request_len: usize) -> Self {
        if request_len > horolog_wire::ntp::HEADER_LEN { Self::Long } else { Self::Plain }
    }
}

/// Why a request is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Why {
    /// The client asked too often.
    Limited,
    /// The lists deny it.
    Denied,
    /// Too many clients that were not known before.
    Newcomers,
}

/// A kiss code (RFC 5905, figure 13).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KissCode {
    /// The client asked too often.
    Rate,
    /// The lists deny it.
    Deny,
}

impl KissCode {
    /// The code as it stands in the reference identifier.
    #[must_use]
    pub const fn as_bytes(self) -> [u8; 4] {
        match self {
            Self::Rate => *b"RATE",
            Self::Deny => *b"DENY",
        }
    }
}

/// What is decided about a request before it is looked at any further.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Admission {
    /// Serve it.
    Admit,
    /// Send nothing.
    Drop(Why),
    /// Send this kiss.
    Kiss(KissCode),
}

#[derive(Debug, FromZeros)]
#[repr(C, align(32))]
struct Set([AtomicU64; WAYS]);

/// What is remembered of clients; shared by a limiter and those that follow it.
#[derive(Debug)]
struct Memory {
    key: HashKey,
    settings: LimitSettings,
    sets: Vec<Set>,
    /// By class.
    newcomers: [AtomicU64; 2],
    denials: AtomicU64,
}

/// Limits and lists, and what is remembered of clients. Any number of threads use it at once.
#[derive(Debug)]
pub struct Limiter {
    rules: LimitRules,
    lists: PrefixLists,
    memory: Arc<Memory>,
}

impl Limiter {
    /// A limiter that knows nobody yet; `None` where nothing is limited or listed, or where there
    /// is not so much memory.
    #[must_use]
    pub fn new(config: &LimitsConfig, key: HashKey) -> Option<Self> {
        if !config.is_on() {
            return None;
        }
        let settings = config.settings();
        let sets = Set::new_vec_zeroed(settings.sets as usize).ok()?;
        let (newcomers, denials) = (Default::default(), AtomicU64::new(0));
        let memory = Arc::new(Memory { key, settings, sets, newcomers, denials });
        let lists = PrefixLists::new(&config.allow, &config.deny);
        Some(Self { rules: LimitRules { epoch: 1, ..config.rules() }, lists, memory })
    }

    /// Clients that are known, those that have long been silent among them.
    #[must_use]
    pub fn clients(&self) -> u64 {
        let words = self.memory.sets.iter().flat_map(|set| &set.0);
        words.filter(|word| word.load(Ordering::Relaxed) != 0).count() as u64
    }

    /// The limiter that takes this one's place when the configuration has changed: it knows the
    /// same clients, and holds them to the new rules and lists. What counts as one client and how
    /// many there is room for stay as they were.
    #[must_use]
    pub fn followed_by(&self, config: &LimitsConfig) -> Self {
        let epoch = self.rules.epoch % EPOCHS + 1;
        self.memory.forget_verdicts_of(epoch);
        Self {
            rules: LimitRules { epoch, ..config.rules() },
            lists: PrefixLists::new(&config.allow, &config.deny),
            memory: Arc::clone(&self.memory),
        }
    }

    /// Judges a request of this class from `source` at `now`, and charges whom it has to.
    #[must_use]
    pub fn judge(&self, source: IpAddr, class: Class, now: Timestamp<Monotonic>) -> Admission {
        let hash = self.memory.hash(source, class);
        let Some(set) = self.memory.sets.get(hash as usize & (self.memory.sets.len() - 1)) else {
            return Admission::Admit;
        };
        let now_ns = now.as_ns().cast_unsigned();
        let head = hash & TAG | u64::from(self.rules.epoch) << EPOCH_SHIFT;
        let known = set.0.iter().find_map(|place| {
            let word = place.load(Ordering::Relaxed);
            (word != 0 && (word ^ hash) & TAG == 0).then_some((place, word))
        });
        // A client whose word is of this epoch was found in the lists when it was written.
        let is_looked_up = self.rules.lists_are_finer != 0
            || known.is_none_or(|(_, word)| (word ^ head) & EPOCH != 0);
        if self.rules.lists != 0 && is_looked_up && self.lists.denies(source) {
            return self.deny(class, now_ns);
        }
        match known {
            None => self.judge_newcomer(set, head, class, now_ns),
            Some((place, word)) => self.judge_known(place, word, head, class, now_ns),
        }
    }

    fn deny(&self, class: Class, now_ns: u64) -> Admission {
        let interval = self.rules.deny_interval_ns;
        let is_told = interval != 0
            && class == Class::Plain
            && charge(&self.memory.denials, interval, 0, now_ns);
        if is_told { Admission::Kiss(KissCode::Deny) } else { Admission::Drop(Why::Denied) }
    }

    fn judge_newcomer(&self, set: &Set, head: u64, class: Class, now_ns: u64) -> Admission {
        let LimitRules { newcomer_interval_ns, newcomer_tolerance_ns, interval, .. } = self.rules;
        let newcomers = &self.memory.newcomers[class as usize];
        if newcomer_interval_ns != 0
            && !charge(newcomers, newcomer_interval_ns, newcomer_tolerance_ns, now_ns)
        {
            return Admission::Drop(Why::Newcomers);
        }
        let now = units(now_ns);
        let is_free = |word: u64| word == 0 || self.is_idle(word, now);
        if let Some(place) = set.0.iter().find(|place| is_free(place.load(Ordering::Relaxed))) {
            place.store(head | now.wrapping_add(interval) & ARRIVAL, Ordering::Relaxed);
        }
        Admission::Admit
    }

    fn is_idle(&self, word: u64, now: u64) -> bool {
        let is_ahead =
            word.wrapping_sub(now) & ARRIVAL <= self.rules.tolerance + self.rules.interval;
        now.wrapping_sub(word) & ARRIVAL >= self.rules.idle && !is_ahead
    }

    fn judge_known(
        &self,
        place: &AtomicU64,
        word: u64,
        head: u64,
        class: Class,
        now_ns: u64,
    ) -> Admission {
        let LimitRules { interval, tolerance, .. } = self.rules;
        let now = units(now_ns);
        // Further ahead than any bucket can be is behind.
        let ahead = word.wrapping_sub(now) & ARRIVAL;
        let ahead = if ahead > tolerance + interval { 0 } else { ahead };
        if ahead <= tolerance {
            let arrival = now.wrapping_add(ahead).wrapping_add(interval) & ARRIVAL;
            place.store(head | arrival, Ordering::Relaxed);
            return Admission::Admit;
        }
        if self.rules.kiss_rate == 0 || class == Class::Long || word & KISSED != 0 {
            return Admission::Drop(Why::Limited);
        }
        place.store(head | KISSED | word & ARRIVAL, Ordering::Relaxed);
        Admission::Kiss(KissCode::Rate)
    }
}

impl Memory {
    /// Takes this epoch, which is not in force yet, from words that are left from the last time
    /// that it was, so that their clients are looked up again.
    fn forget_verdicts_of(&self, epoch: u32) {
        let epoch = u64::from(epoch) << EPOCH_SHIFT;
        for word in self.sets.iter().flat_map(|set| &set.0) {
            if word.load(Ordering::Relaxed) & EPOCH == epoch {
                word.fetch_and(!EPOCH, Ordering::Relaxed);
            }
        }
    }

    fn hash(&self, source: IpAddr, class: Class) -> u64 {
        let [high, low] = words(source);
        let masked = if source.to_canonical().is_ipv4() {
            [0, low & self.settings.ipv4_mask]
        } else {
            [high & self.settings.ipv6_mask[0], low & self.settings.ipv6_mask[1]]
        };
        let hash = self.key.of_words(masked);
        match class {
            Class::Plain => hash,
            Class::Long => HashKey::again(hash),
        }
    }
}

const fn units(ns: u64) -> u64 {
    ns >> UNIT_SHIFT & ARRIVAL
}

/// Charges a bucket that all share, whose figures are in ns; false when it is over its limit.
fn charge(arrival: &AtomicU64, interval: u64, tolerance: u64, now_ns: u64) -> bool {
    let at = arrival.load(Ordering::Relaxed).max(now_ns);
    let is_within = at - now_ns <= tolerance;
    if is_within {
        arrival.store(at.wrapping_add(interval), Ordering::Relaxed);
    }
    is_within
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
