//! Admission of requests: prefix lists, a rate limit per client, and one for all new clients
//! together. The BPF program implements the same decisions (`bpf/limits.h`); which of the two
//! decides on a request depends on the engine that receives it. No clock is read here, and memory
//! is bounded whatever the number of clients.
//!
//! A client is an address or a prefix. Its state is one word in one of four slots, which a keyed
//! hash of the address selects. The word holds the theoretical arrival time of the GCRA (ITU-T
//! I.371, annex A), which is equivalent to a token bucket. A client without a word is a new client.
//! New clients share one bucket, so that a flood from forged addresses exhausts only that bucket.
//! An admitted new client takes a slot that is free or whose client has long been idle. Without
//! such a slot it is served, and remains a new client.
//!
//! Requests longer than a header, which may be authenticated, have separate words and a separate
//! bucket of new clients. So a flood of plain requests, from a client's own address or from forged
//! ones, does not use up the limit of authenticated requests.
//!
//! A rejected request writes nothing that cores share, unless a kiss is sent, so that cores do not
//! contend over a client that floods. Two cores that serve the same client at the same instant may
//! lose one charge. Clients whose slots and 16-bit tags are equal share one word, and with it the
//! verdict of the lists: one address in some 16,000 if the table is full. Remote hosts cannot tell
//! which.

mod list;
mod rules;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use horolog_time::{Monotonic, Timestamp};
use horolog_xdp::{LimitRules, LimitTableSettings};
use zerocopy::FromZeros;

pub use rules::responder_settings;

use crate::config::LimitsConfig;
use crate::reply::address_hash::{AddressHashKey, address_words};
use list::PrefixLists;

/// Memory per stored client of the rate-limit table, in bytes.
pub const LIMIT_BYTES_PER_CLIENT: usize = size_of::<AtomicU64>();

const WAYS: usize = 4;
const UNIT_SHIFT: u32 = 10;
const ARRIVAL_MASK: u64 = (1 << 43) - 1;
const KISSED_FLAG: u64 = 1 << 43;
const EPOCH_SHIFT: u32 = 44;
const EPOCH_MASK: u64 = 15 << EPOCH_SHIFT;
const TAG_MASK: u64 = 0xffff << 48;
/// Number of epochs that a word distinguishes, counted from 1. An epoch is the generation of the
/// prefix lists; 0 is never in force.
const EPOCHS: u32 = 15;

/// Class of a request; each class has separate rate limits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RequestLengthClass {
    /// Request of one NTP header.
    Plain,
    /// Longer request. It never gets a kiss, because that could not be authenticated.
    Long,
}

impl RequestLengthClass {
    /// Returns the class of a request of this length in bytes.
    #[must_use]
    pub const fn from_length(request_len: usize) -> Self {
        if request_len > horolog_wire::ntp::HEADER_LEN { Self::Long } else { Self::Plain }
    }
}

/// Reason for which a request is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DropReason {
    /// Request above the client's rate limit.
    Limited,
    /// Client denied by the prefix lists.
    Denied,
    /// Request above the rate limit for new clients.
    NewClients,
}

/// Kiss code of a kiss-o'-death packet (RFC 5905, figure 13).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KissCode {
    /// Client that exceeds its rate limit.
    Rate,
    /// Client denied by the prefix lists.
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

/// Decision on a request by rate limits and prefix lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Admission {
    /// Serve the request.
    Admit,
    /// Send nothing.
    Drop(DropReason),
    /// Reply with this kiss.
    Kiss(KissCode),
}

#[derive(Debug, FromZeros)]
#[repr(C, align(32))]
struct AtomicLimitTableSet([AtomicU64; WAYS]);

/// State of the clients, shared by a limiter and its successors with other rules.
#[derive(Debug)]
struct LimiterState {
    key: AddressHashKey,
    settings: LimitTableSettings,
    sets: Vec<AtomicLimitTableSet>,
    /// Theoretical arrival times of new clients, by class.
    new_clients: [AtomicU64; 2],
    denials: AtomicU64,
}

/// Rate limits, prefix lists and the state of the clients, for concurrent use by threads.
#[derive(Debug)]
pub struct Limiter {
    rules: LimitRules,
    lists: PrefixLists,
    state: Arc<LimiterState>,
}

impl Limiter {
    /// Creates a limiter without clients. `None` if the configuration has no limits and lists, or
    /// if memory is insufficient.
    #[must_use]
    pub fn new(config: &LimitsConfig, key: AddressHashKey) -> Option<Self> {
        if !config.is_on() {
            return None;
        }
        let settings = config.settings();
        let sets = AtomicLimitTableSet::new_vec_zeroed(settings.sets as usize).ok()?;
        let (new_clients, denials) = (Default::default(), AtomicU64::new(0));
        let state = Arc::new(LimiterState { key, settings, sets, new_clients, denials });
        let lists = PrefixLists::new(&config.allow, &config.deny);
        Some(Self { rules: LimitRules { epoch: 1, ..config.rules() }, lists, state })
    }

    /// Returns the number of stored clients, including those that have long been idle.
    #[must_use]
    pub fn clients(&self) -> u64 {
        let words = self.state.sets.iter().flat_map(|set| &set.0);
        words.filter(|word| word.load(Ordering::Relaxed) != 0).count() as u64
    }

    /// Returns the limiter for a new configuration. It shares the stored clients with this one, and
    /// applies the new limits and lists to them. The prefix lengths that define a client and the
    /// size of the table do not change.
    #[must_use]
    pub fn successor(&self, config: &LimitsConfig) -> Self {
        let epoch = self.rules.epoch % EPOCHS + 1;
        self.state.clear_epoch(epoch);
        Self {
            rules: LimitRules { epoch, ..config.rules() },
            lists: PrefixLists::new(&config.allow, &config.deny),
            state: Arc::clone(&self.state),
        }
    }

    /// Decides on a request of this class from `source` at `now`. An admitted request is charged to
    /// its client, or to the bucket of new clients.
    #[must_use]
    pub fn judge(
        &self,
        source: IpAddr,
        class: RequestLengthClass,
        now: Timestamp<Monotonic>,
    ) -> Admission {
        let hash = self.state.hash(source, class);
        let Some(set) = self.state.sets.get(hash as usize & (self.state.sets.len() - 1)) else {
            return Admission::Admit;
        };
        let now_ns = now.as_ns().cast_unsigned();
        let word_head = hash & TAG_MASK | u64::from(self.rules.epoch) << EPOCH_SHIFT;
        let known = set.0.iter().find_map(|slot| {
            let word = slot.load(Ordering::Relaxed);
            (word != 0 && (word ^ hash) & TAG_MASK == 0).then_some((slot, word))
        });
        // A word of this epoch was written after its client was found in no denied prefix.
        let needs_list_check = self.rules.lists_are_finer != 0
            || known.is_none_or(|(_, word)| (word ^ word_head) & EPOCH_MASK != 0);
        if self.rules.lists != 0 && needs_list_check && self.lists.denies(source) {
            return self.deny(class, now_ns);
        }
        match known {
            None => self.judge_new_client(set, word_head, class, now_ns),
            Some((slot, word)) => self.judge_known(slot, word, word_head, class, now_ns),
        }
    }

    fn deny(&self, class: RequestLengthClass, now_ns: u64) -> Admission {
        let interval = self.rules.deny_interval_ns;
        let sends_kiss = interval != 0
            && class == RequestLengthClass::Plain
            && charge(&self.state.denials, interval, 0, now_ns);
        if sends_kiss {
            Admission::Kiss(KissCode::Deny)
        } else {
            Admission::Drop(DropReason::Denied)
        }
    }

    fn judge_new_client(
        &self,
        set: &AtomicLimitTableSet,
        word_head: u64,
        class: RequestLengthClass,
        now_ns: u64,
    ) -> Admission {
        let LimitRules { new_client_interval_ns, new_client_tolerance_ns, interval, .. } =
            self.rules;
        let new_clients = &self.state.new_clients[class as usize];
        if new_client_interval_ns != 0
            && !charge(new_clients, new_client_interval_ns, new_client_tolerance_ns, now_ns)
        {
            return Admission::Drop(DropReason::NewClients);
        }
        let now = time_units(now_ns);
        let is_free = |word: u64| word == 0 || self.is_idle(word, now);
        if let Some(slot) = set.0.iter().find(|slot| is_free(slot.load(Ordering::Relaxed))) {
            slot.store(word_head | now.wrapping_add(interval) & ARRIVAL_MASK, Ordering::Relaxed);
        }
        Admission::Admit
    }

    fn is_idle(&self, word: u64, now: u64) -> bool {
        let is_ahead =
            word.wrapping_sub(now) & ARRIVAL_MASK <= self.rules.tolerance + self.rules.interval;
        now.wrapping_sub(word) & ARRIVAL_MASK >= self.rules.idle && !is_ahead
    }

    fn judge_known(
        &self,
        slot: &AtomicU64,
        word: u64,
        word_head: u64,
        class: RequestLengthClass,
        now_ns: u64,
    ) -> Admission {
        let LimitRules { interval, tolerance, .. } = self.rules;
        let now = time_units(now_ns);
        // An arrival time further ahead than any bucket allows is an old one that has wrapped
        // around.
        let ahead = word.wrapping_sub(now) & ARRIVAL_MASK;
        let ahead = if ahead > tolerance + interval { 0 } else { ahead };
        if ahead <= tolerance {
            let arrival = now.wrapping_add(ahead).wrapping_add(interval) & ARRIVAL_MASK;
            slot.store(word_head | arrival, Ordering::Relaxed);
            return Admission::Admit;
        }
        if self.rules.kiss_rate == 0 || class == RequestLengthClass::Long || word & KISSED_FLAG != 0
        {
            return Admission::Drop(DropReason::Limited);
        }
        slot.store(word_head | KISSED_FLAG | word & ARRIVAL_MASK, Ordering::Relaxed);
        Admission::Kiss(KissCode::Rate)
    }
}

impl LimiterState {
    /// Removes an epoch that is not in force yet from words of its previous use, so that their
    /// clients are checked against the lists again.
    fn clear_epoch(&self, epoch: u32) {
        let epoch = u64::from(epoch) << EPOCH_SHIFT;
        for word in self.sets.iter().flat_map(|set| &set.0) {
            if word.load(Ordering::Relaxed) & EPOCH_MASK == epoch {
                word.fetch_and(!EPOCH_MASK, Ordering::Relaxed);
            }
        }
    }

    fn hash(&self, source: IpAddr, class: RequestLengthClass) -> u64 {
        let [high, low] = address_words(source);
        let masked = if source.to_canonical().is_ipv4() {
            [0, low & self.settings.ipv4_mask]
        } else {
            [high & self.settings.ipv6_mask[0], low & self.settings.ipv6_mask[1]]
        };
        let hash = self.key.hash_words(masked);
        match class {
            RequestLengthClass::Plain => hash,
            RequestLengthClass::Long => AddressHashKey::rehash(hash),
        }
    }
}

const fn time_units(ns: u64) -> u64 {
    ns >> UNIT_SHIFT & ARRIVAL_MASK
}

/// Charges a shared bucket (GCRA, times in ns) with `interval`. Returns false, without a charge, if
/// the bucket is ahead of `now_ns` by more than `tolerance`.
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
