//! Admission of clients: lists of prefixes, a limit per client, and one for all new clients
//! together. The BPF program is the second implementation (`bpf/limits.h`) and decides the same;
//! the path of a request determines which of the two judges it. Nothing here reads a clock, sends
//! or waits, and memory is bounded however many addresses send requests.
//!
//! A client is an address, or a prefix of one. Each has a word in one of four slots that its keyed
//! hash selects; the word holds a theoretical arrival time (GCRA, ITU-T I.371, annex A), which is a
//! token bucket in one number. A client without a word is a new client: it is charged to a bucket
//! that all new clients share, so a flood from forged addresses exhausts that bucket and nothing
//! else. An admitted new client takes a slot that is free, or whose client has long been idle; if
//! there is none it is served without a slot, and remains a new client.
//!
//! Requests longer than a header (the authenticated ones) have their own words and their own bucket
//! of new clients, so that a flood of plain requests, from a client's address or from forged ones,
//! does not use up the limit of authenticated requests.
//!
//! Nothing shared is written for a rejected request, except when a kiss is sent, so processors do
//! not contend over a client that floods. Two that serve the same client at the same instant may
//! lose one charge between them. A client that shares all 16 bits of the tag and the slots with
//! another client also shares its word, and its verdict of the lists: one address in some 16,000 if
//! the table is full, and remote hosts cannot tell which.

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

/// Bytes of memory per client.
pub const LIMIT_BYTES_PER_CLIENT: usize = size_of::<AtomicU64>();

const WAYS: usize = 4;
const UNIT_SHIFT: u32 = 10;
const ARRIVAL: u64 = (1 << 43) - 1;
const KISSED: u64 = 1 << 43;
const EPOCH_SHIFT: u32 = 44;
const EPOCH: u64 = 15 << EPOCH_SHIFT;
const TAG: u64 = 0xffff << 48;
/// Number of epochs of the lists that a word distinguishes, from 1 on; 0 is never in force.
const EPOCHS: u32 = 15;

/// Class of a request, which selects the client's bucket to charge.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RequestClass {
    /// Request of one NTP header.
    Plain,
    /// Longer request. It is never sent a kiss, which could not be authenticated.
    Long,
}

impl RequestClass {
    /// Returns the class of a request of this many bytes.
    #[must_use]
    pub const fn of(request_len: usize) -> Self {
        if request_len > horolog_wire::ntp::HEADER_LEN { Self::Long } else { Self::Plain }
    }
}

/// Reason for which a request is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DropReason {
    /// Request in excess of the client's rate limit.
    Limited,
    /// Client denied by the lists.
    Denied,
    /// Request in excess of the limit for new clients.
    NewClients,
}

/// Kiss code (RFC 5905, figure 13).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KissCode {
    /// Client in excess of its rate limit.
    Rate,
    /// Client denied by the lists.
    Deny,
}

impl KissCode {
    /// Returns the code as carried in the reference identifier.
    #[must_use]
    pub const fn as_bytes(self) -> [u8; 4] {
        match self {
            Self::Rate => *b"RATE",
            Self::Deny => *b"DENY",
        }
    }
}

/// Decision on a request before it is examined any further.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Admission {
    /// Serve the request.
    Admit,
    /// Send nothing.
    Drop(DropReason),
    /// Send this kiss.
    Kiss(KissCode),
}

#[derive(Debug, FromZeros)]
#[repr(C, align(32))]
struct Set([AtomicU64; WAYS]);

/// Stored state of clients, shared by a limiter and its successors.
#[derive(Debug)]
struct LimiterState {
    key: HashKey,
    settings: LimitSettings,
    sets: Vec<Set>,
    /// Buckets of new clients, by class.
    new_clients: [AtomicU64; 2],
    denials: AtomicU64,
}

/// Limits, lists and the stored state of clients. Any number of threads use it concurrently.
#[derive(Debug)]
pub struct Limiter {
    rules: LimitRules,
    lists: PrefixLists,
    memory: Arc<LimiterState>,
}

impl Limiter {
    /// Creates a limiter without clients; `None` if nothing is limited or listed, or if memory is
    /// insufficient.
    #[must_use]
    pub fn new(config: &LimitsConfig, key: HashKey) -> Option<Self> {
        if !config.is_on() {
            return None;
        }
        let settings = config.settings();
        let sets = Set::new_vec_zeroed(settings.sets as usize).ok()?;
        let (new_clients, denials) = (Default::default(), AtomicU64::new(0));
        let memory = Arc::new(LimiterState { key, settings, sets, new_clients, denials });
        let lists = PrefixLists::new(&config.allow, &config.deny);
        Some(Self { rules: LimitRules { epoch: 1, ..config.rules() }, lists, memory })
    }

    /// Returns the number of known clients, including those that have long been idle.
    #[must_use]
    pub fn clients(&self) -> u64 {
        let words = self.memory.sets.iter().flat_map(|set| &set.0);
        words.filter(|word| word.load(Ordering::Relaxed) != 0).count() as u64
    }

    /// Returns the limiter that replaces this one when the configuration changes: it shares the
    /// stored clients and applies the new rules and lists to them. The definition of a client and
    /// the capacity do not change.
    #[must_use]
    pub fn successor(&self, config: &LimitsConfig) -> Self {
        let epoch = self.rules.epoch % EPOCHS + 1;
        self.memory.forget_verdicts_of(epoch);
        Self {
            rules: LimitRules { epoch, ..config.rules() },
            lists: PrefixLists::new(&config.allow, &config.deny),
            memory: Arc::clone(&self.memory),
        }
    }

    /// Judges a request of this class from `source` at `now`, and charges the client or the bucket
    /// of new clients.
    #[must_use]
    pub fn judge(
        &self,
        source: IpAddr,
        class: RequestClass,
        now: Timestamp<Monotonic>,
    ) -> Admission {
        let hash = self.memory.hash(source, class);
        let Some(set) = self.memory.sets.get(hash as usize & (self.memory.sets.len() - 1)) else {
            return Admission::Admit;
        };
        let now_ns = now.as_ns().cast_unsigned();
        let head = hash & TAG | u64::from(self.rules.epoch) << EPOCH_SHIFT;
        let known = set.0.iter().find_map(|slot| {
            let word = slot.load(Ordering::Relaxed);
            (word != 0 && (word ^ hash) & TAG == 0).then_some((slot, word))
        });
        // A client whose word has this epoch was looked up in the lists when the word was written.
        let needs_list_check = self.rules.lists_are_finer != 0
            || known.is_none_or(|(_, word)| (word ^ head) & EPOCH != 0);
        if self.rules.lists != 0 && needs_list_check && self.lists.denies(source) {
            return self.deny(class, now_ns);
        }
        match known {
            None => self.judge_new_client(set, head, class, now_ns),
            Some((slot, word)) => self.judge_known(slot, word, head, class, now_ns),
        }
    }

    fn deny(&self, class: RequestClass, now_ns: u64) -> Admission {
        let interval = self.rules.deny_interval_ns;
        let sends_kiss = interval != 0
            && class == RequestClass::Plain
            && charge(&self.memory.denials, interval, 0, now_ns);
        if sends_kiss {
            Admission::Kiss(KissCode::Deny)
        } else {
            Admission::Drop(DropReason::Denied)
        }
    }

    fn judge_new_client(
        &self,
        set: &Set,
        head: u64,
        class: RequestClass,
        now_ns: u64,
    ) -> Admission {
        let LimitRules { new_client_interval_ns, new_client_tolerance_ns, interval, .. } =
            self.rules;
        let new_clients = &self.memory.new_clients[class as usize];
        if new_client_interval_ns != 0
            && !charge(new_clients, new_client_interval_ns, new_client_tolerance_ns, now_ns)
        {
            return Admission::Drop(DropReason::NewClients);
        }
        let now = units(now_ns);
        let is_free = |word: u64| word == 0 || self.is_idle(word, now);
        if let Some(slot) = set.0.iter().find(|slot| is_free(slot.load(Ordering::Relaxed))) {
            slot.store(head | now.wrapping_add(interval) & ARRIVAL, Ordering::Relaxed);
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
        slot: &AtomicU64,
        word: u64,
        head: u64,
        class: RequestClass,
        now_ns: u64,
    ) -> Admission {
        let LimitRules { interval, tolerance, .. } = self.rules;
        let now = units(now_ns);
        // An arrival time further ahead than any bucket allows is in the past.
        let ahead = word.wrapping_sub(now) & ARRIVAL;
        let ahead = if ahead > tolerance + interval { 0 } else { ahead };
        if ahead <= tolerance {
            let arrival = now.wrapping_add(ahead).wrapping_add(interval) & ARRIVAL;
            slot.store(head | arrival, Ordering::Relaxed);
            return Admission::Admit;
        }
        if self.rules.kiss_rate == 0 || class == RequestClass::Long || word & KISSED != 0 {
            return Admission::Drop(DropReason::Limited);
        }
        slot.store(head | KISSED | word & ARRIVAL, Ordering::Relaxed);
        Admission::Kiss(KissCode::Rate)
    }
}

impl LimiterState {
    /// Removes this epoch, which is not in force yet, from words left from its last use, so that
    /// their clients are checked against the lists again.
    fn forget_verdicts_of(&self, epoch: u32) {
        let epoch = u64::from(epoch) << EPOCH_SHIFT;
        for word in self.sets.iter().flat_map(|set| &set.0) {
            if word.load(Ordering::Relaxed) & EPOCH == epoch {
                word.fetch_and(!EPOCH, Ordering::Relaxed);
            }
        }
    }

    fn hash(&self, source: IpAddr, class: RequestClass) -> u64 {
        let [high, low] = words(source);
        let masked = if source.to_canonical().is_ipv4() {
            [0, low & self.settings.ipv4_mask]
        } else {
            [high & self.settings.ipv6_mask[0], low & self.settings.ipv6_mask[1]]
        };
        let hash = self.key.of_words(masked);
        match class {
            RequestClass::Plain => hash,
            RequestClass::Long => HashKey::again(hash),
        }
    }
}

const fn units(ns: u64) -> u64 {
    ns >> UNIT_SHIFT & ARRIVAL
}

/// Charges a shared bucket, with values in ns; returns false if it exceeds its limit.
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
