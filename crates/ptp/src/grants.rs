//! Unicast grants of a port (IEEE 1588-2019, clause 16.1): which client gets which messages, at
//! which interval and until when. Their number and total rate are limited.

use std::collections::{BTreeMap, BTreeSet};

use horolog_time::{Monotonic, Span, Timestamp};
use horolog_wire::ptp::{MessageType, PortIdentity};

use crate::address::PtpAddress;
use crate::compose::interval_from_log;
use crate::settings::UnicastGrantLimits;

/// Longest granted interval, in log2 seconds: 1,024 s, because no grant lasts longer.
const LOG_INTERVAL_MAX: i8 = 10;

/// Maximum number of grants of one address, which may represent several ports and clocks.
const PEER_GRANTS: usize = 64;
/// Divisor for the share of the rate limit that one address may use.
const PEER_RATE_SHARE: u64 = 16;
/// Rate that one address may use even if its share is less, in messages per second.
const PEER_RATE_MIN: u64 = 512;
/// Delay of the first message after the request, at most.
const FIRST_MESSAGE_DELAY: Span = Span::from_ms(125);

/// Client port that holds grants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct GrantHolder {
    /// Address to which its messages are sent.
    pub(crate) address: PtpAddress,
    clock: u64,
    port: u16,
}

impl GrantHolder {
    /// Creates the holder for a client port at an address.
    pub(crate) const fn new(address: PtpAddress, port: PortIdentity) -> Self {
        Self { address, clock: port.clock, port: port.port }
    }

    /// Returns the identity of the client port.
    pub(crate) const fn port(&self) -> PortIdentity {
        PortIdentity { clock: self.clock, port: self.port }
    }
}

type GrantKey = (GrantHolder, MessageType);

#[derive(Clone, Copy, Debug)]
struct UnicastGrant {
    log_interval: i8,
    expires: Timestamp<Monotonic>,
    /// Time of the next message; `None` for messages that are sent only on request.
    next_message_at: Option<Timestamp<Monotonic>>,
    sequence_id: u16,
}

impl UnicastGrant {
    /// Returns the time of the next message or of the expiry, whichever is earlier.
    fn next_action_at(&self) -> Timestamp<Monotonic> {
        self.next_message_at.map_or(self.expires, |next| next.min(self.expires))
    }
}

/// Message of a grant that is to be sent now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DueMessage {
    pub(crate) client: GrantHolder,
    pub(crate) kind: MessageType,
    pub(crate) sequence_id: u16,
}

/// Unicast grants of a port, with the schedule of their messages.
#[derive(Clone, Debug)]
pub(crate) struct Grants {
    settings: UnicastGrantLimits,
    by_key: BTreeMap<GrantKey, UnicastGrant>,
    queue: BTreeSet<(Timestamp<Monotonic>, GrantKey)>,
    /// Total cost of all grants, in units of [`cost`].
    cost: u64,
}

/// Returns the cost of a grant: its number of messages in 2^10 s, doubled for Sync because of
/// `Follow_Up`.
const fn cost(kind: MessageType, log_interval: i8) -> u64 {
    let each = if matches!(kind, MessageType::Sync) { 2 } else { 1 };
    each << (LOG_INTERVAL_MAX - log_interval)
}

/// Cost of one message per second.
const RATE_UNIT_COST: u64 = 1 << LOG_INTERVAL_MAX;

impl Grants {
    pub(crate) const fn new(settings: UnicastGrantLimits) -> Self {
        Self { settings, by_key: BTreeMap::new(), queue: BTreeSet::new(), cost: 0 }
    }

    /// Grants or renews messages of type `kind` to a client, at an interval in log2 seconds;
    /// returns the granted duration in seconds. The duration may be shorter than requested; if
    /// anything else cannot be granted, the result is `None` and an earlier grant stays.
    pub(crate) fn request(
        &mut self,
        client: GrantHolder,
        kind: MessageType,
        log_interval: i8,
        duration_s: u32,
        now: Timestamp<Monotonic>,
    ) -> Option<u32> {
        let key = (client, kind);
        let streams = match kind {
            MessageType::Announce | MessageType::Sync => true,
            MessageType::DelayResp => false,
            _ => return None,
        };
        let log_min = self.settings.log_interval_min.max(-LOG_INTERVAL_MAX);
        let duration_s = duration_s.min(self.settings.duration_max_s);
        if !(log_min..=LOG_INTERVAL_MAX).contains(&log_interval) || duration_s == 0 {
            return None;
        }
        let before = self.by_key.get(&key).copied();
        let others = self.cost - before.map_or(0, |grant| cost(kind, grant.log_interval));
        let is_full = before.is_none() && self.by_key.len() >= self.settings.grants_max;
        let rate_max = RATE_UNIT_COST * u64::from(self.settings.rate_max);
        if is_full || others + cost(kind, log_interval) > rate_max {
            return None;
        }
        // A host with many ports, real or invented, gets only a share of the rate.
        let (count, peer_cost) = self.peer_usage(client, &key);
        let share = (rate_max / PEER_RATE_SHARE).max(RATE_UNIT_COST * PEER_RATE_MIN);
        if count >= PEER_GRANTS || peer_cost + cost(kind, log_interval) > share {
            return None;
        }
        // Renewing a grant keeps its schedule, and a new one does not start at once; otherwise
        // repeated requests would yield more messages.
        let step = interval_from_log(log_interval);
        let first = now + step.min(FIRST_MESSAGE_DELAY);
        let next = before
            .and_then(|grant| grant.next_message_at)
            .map_or(first, |next| next.min(now + step));
        let grant = UnicastGrant {
            log_interval,
            expires: now + Span::from_ms(1000 * i64::from(duration_s)),
            next_message_at: streams.then_some(next),
            sequence_id: before.map_or(0, |grant| grant.sequence_id),
        };
        self.remove(&key);
        self.insert(key, grant);
        Some(duration_s)
    }

    /// Returns the number of the other grants of the client's address, and their cost in units of
    /// [`cost`].
    fn peer_usage(&self, client: GrantHolder, except: &GrantKey) -> (usize, u64) {
        let least =
            GrantHolder { address: client.address.with_local_unspecified(), clock: 0, port: 0 };
        let of_peer = self.by_key.range((least, MessageType::Sync)..);
        let of_peer = of_peer.take_while(|(key, _)| key.0.address.is_same_peer(client.address));
        let others = of_peer.filter(|(key, _)| *key != except);
        others.fold((0, 0), |(count, sum), ((_, kind), grant)| {
            (count + 1, sum + cost(*kind, grant.log_interval))
        })
    }

    fn insert(&mut self, key: GrantKey, grant: UnicastGrant) {
        self.cost += cost(key.1, grant.log_interval);
        self.queue.insert((grant.next_action_at(), key));
        self.by_key.insert(key, grant);
    }

    fn remove(&mut self, key: &GrantKey) -> Option<UnicastGrant> {
        let grant = self.by_key.remove(key)?;
        self.cost -= cost(key.1, grant.log_interval);
        self.queue.remove(&(grant.next_action_at(), *key));
        Some(grant)
    }

    /// Ends a grant; returns false if there was none.
    pub(crate) fn cancel(&mut self, client: GrantHolder, kind: MessageType) -> bool {
        self.remove(&(client, kind)).is_some()
    }

    /// Returns true if the client holds a grant for this type of message at `now`.
    pub(crate) fn has_grant(
        &self,
        client: GrantHolder,
        kind: MessageType,
        now: Timestamp<Monotonic>,
    ) -> bool {
        self.by_key.get(&(client, kind)).is_some_and(|grant| now < grant.expires)
    }

    /// Removes and returns the next message that is due at `now`. Expired grants are removed too.
    pub(crate) fn pop_due(&mut self, now: Timestamp<Monotonic>) -> Option<DueMessage> {
        loop {
            let &(at, key) = self.queue.first()?;
            if at > now {
                return None;
            }
            let mut grant = self.remove(&key)?;
            let (Some(next), true) = (grant.next_message_at, now < grant.expires) else { continue };
            let due = DueMessage { client: key.0, kind: key.1, sequence_id: grant.sequence_id };
            let step = interval_from_log(grant.log_interval);
            grant.next_message_at = Some(if next + step > now { next + step } else { now + step });
            grant.sequence_id = grant.sequence_id.wrapping_add(1);
            self.insert(key, grant);
            return Some(due);
        }
    }

    /// Returns the time of the next message or expiry of a grant; `None` without grants.
    pub(crate) fn next_due(&self) -> Option<Timestamp<Monotonic>> {
        self.queue.first().map(|&(at, _)| at)
    }

    /// Ends all grants and returns their keys, those of a client consecutively.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = GrantKey> + use<> {
        self.queue.clear();
        self.cost = 0;
        std::mem::take(&mut self.by_key).into_keys()
    }

    /// Returns the number of grants.
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns true if the state is consistent: queue, grants and total cost agree.
    #[cfg(test)]
    pub(crate) fn is_consistent(&self) -> bool {
        let queue: BTreeSet<_> =
            self.by_key.iter().map(|(key, grant)| (grant.next_action_at(), *key)).collect();
        let sum: u64 = self.by_key.iter().map(|(key, grant)| cost(key.1, grant.log_interval)).sum();
        queue == self.queue && sum == self.cost
    }

    /// Returns the total rate of all grants, in messages per second; a Sync counts twice.
    pub(crate) fn rate(&self) -> f64 {
        self.cost as f64 / RATE_UNIT_COST as f64
    }
}
