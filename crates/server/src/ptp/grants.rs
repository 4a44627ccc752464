//! Grants of a port: messages, clients, rates and durations (IEEE 1588-2019, clause 16.1). Their
//! number and their rate are bounded, whatever is requested.

use std::collections::{BTreeMap, BTreeSet};

use horolog_time::{Monotonic, Span, Timestamp};
use horolog_wire::ptp::{MessageType, PortIdentity};

use super::compose::interval;
use super::{PtpAddress, UnicastSettings};

/// Largest granted interval, 2^10 s: no grant lasts longer.
const LOG_INTERVAL_MAX: i8 = 10;

/// Maximum number of grants of one address: a few for each of several ports and clocks behind it.
const PEER_GRANTS: usize = 64;
/// Maximum share of the rate for one address, as a divisor, and the messages per second that one
/// address may have regardless of that share.
const PEER_RATE_SHARE: u64 = 16;
const PEER_RATE_MIN: u64 = 512;
/// Delay of the first message after a request.
const FIRST_AFTER: Span = Span::from_ms(125);

/// Holder of grants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct GrantHolder {
    /// Destination of its messages.
    pub(super) address: PtpAddress,
    clock: u64,
    port: u16,
}

impl GrantHolder {
    /// Creates the client for a port at an address.
    pub(super) const fn new(address: PtpAddress, port: PortIdentity) -> Self {
        Self { address, clock: port.clock, port: port.port }
    }

    /// Returns the identity of its port.
    pub(super) const fn port(&self) -> PortIdentity {
        PortIdentity { clock: self.clock, port: self.port }
    }
}

type GrantKey = (GrantHolder, MessageType);

#[derive(Clone, Copy, Debug)]
struct UnicastGrant {
    log_interval: i8,
    expires: Timestamp<Monotonic>,
    /// Time of the next message, for kinds that are sent unsolicited.
    next: Option<Timestamp<Monotonic>>,
    sequence_id: u16,
}

impl UnicastGrant {
    /// Returns the time of the next action.
    fn due(&self) -> Timestamp<Monotonic> {
        self.next.map_or(self.expires, |next| next.min(self.expires))
    }
}

/// Message that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Due {
    pub(super) client: GrantHolder,
    pub(super) kind: MessageType,
    pub(super) sequence_id: u16,
}

/// Grants of a port.
#[derive(Clone, Debug)]
pub(super) struct Grants {
    settings: UnicastSettings,
    held: BTreeMap<GrantKey, UnicastGrant>,
    queue: BTreeSet<(Timestamp<Monotonic>, GrantKey)>,
    /// Total cost of all grants; see [`cost`].
    cost: u64,
}

/// Returns the number of messages in 2^10 s: each Sync may have a `Follow_Up`.
const fn cost(kind: MessageType, log_interval: i8) -> u64 {
    let each = if matches!(kind, MessageType::Sync) { 2 } else { 1 };
    each << (LOG_INTERVAL_MAX - log_interval)
}

/// Cost of one message per second.
const A_SECOND: u64 = 1 << LOG_INTERVAL_MAX;

impl Grants {
    pub(super) const fn new(settings: UnicastSettings) -> Self {
        Self { settings, held: BTreeMap::new(), queue: BTreeSet::new(), cost: 0 }
    }

    /// Grants messages, or renews a grant; returns the duration in seconds. A request that cannot
    /// be granted in full is denied, except for its duration, which is bounded.
    pub(super) fn request(
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
        let before = self.held.get(&key).copied();
        let others = self.cost - before.map_or(0, |grant| cost(kind, grant.log_interval));
        let is_full = before.is_none() && self.held.len() >= self.settings.grants_max;
        let rate_max = A_SECOND * u64::from(self.settings.rate_max);
        if is_full || others + cost(kind, log_interval) > rate_max {
            return None;
        }
        // A host that represents many ports, or invents them, gets a share and not everything.
        let (count, of_peer) = self.of_peer(client, &key);
        let share = (rate_max / PEER_RATE_SHARE).max(A_SECOND * PEER_RATE_MIN);
        if count >= PEER_GRANTS || of_peer + cost(kind, log_interval) > share {
            return None;
        }
        // A renewed grant does not start anew, and a new one does not start at once, otherwise
        // renewing, or cancelling and requesting again, would yield more messages.
        let step = interval(log_interval);
        let first = now + step.min(FIRST_AFTER);
        let next = before.and_then(|grant| grant.next).map_or(first, |next| next.min(now + step));
        let grant = UnicastGrant {
            log_interval,
            expires: now + Span::from_ms(1000 * i64::from(duration_s)),
            next: streams.then_some(next),
            sequence_id: before.map_or(0, |grant| grant.sequence_id),
        };
        self.remove(&key);
        self.insert(key, grant);
        Some(duration_s)
    }

    /// Returns the number and the cost of the other grants of a client's address.
    fn of_peer(&self, client: GrantHolder, except: &GrantKey) -> (usize, u64) {
        let least = GrantHolder { address: client.address.least_of_peer(), clock: 0, port: 0 };
        let of_peer = self.held.range((least, MessageType::Sync)..);
        let of_peer = of_peer.take_while(|(key, _)| key.0.address.is_same_peer(client.address));
        let others = of_peer.filter(|(key, _)| *key != except);
        others.fold((0, 0), |(count, sum), ((_, kind), grant)| {
            (count + 1, sum + cost(*kind, grant.log_interval))
        })
    }

    fn insert(&mut self, key: GrantKey, grant: UnicastGrant) {
        self.cost += cost(key.1, grant.log_interval);
        self.queue.insert((grant.due(), key));
        self.held.insert(key, grant);
    }

    fn remove(&mut self, key: &GrantKey) -> Option<UnicastGrant> {
        let grant = self.held.remove(key)?;
        self.cost -= cost(key.1, grant.log_interval);
        self.queue.remove(&(grant.due(), *key));
        Some(grant)
    }

    /// Ends a grant; returns true if there was one.
    pub(super) fn cancel(&mut self, client: GrantHolder, kind: MessageType) -> bool {
        self.remove(&(client, kind)).is_some()
    }

    /// Returns true if a client holds a grant at this instant.
    pub(super) fn holds(
        &self,
        client: GrantHolder,
        kind: MessageType,
        now: Timestamp<Monotonic>,
    ) -> bool {
        self.held.get(&(client, kind)).is_some_and(|grant| now < grant.expires)
    }

    /// Removes and returns the next message due at `now`; expired grants are removed on the way.
    pub(super) fn pop_due(&mut self, now: Timestamp<Monotonic>) -> Option<Due> {
        loop {
            let &(at, key) = self.queue.first()?;
            if at > now {
                return None;
            }
            let mut grant = self.remove(&key)?;
            let (Some(next), true) = (grant.next, now < grant.expires) else { continue };
            let due = Due { client: key.0, kind: key.1, sequence_id: grant.sequence_id };
            let step = interval(grant.log_interval);
            grant.next = Some(if next + step > now { next + step } else { now + step });
            grant.sequence_id = grant.sequence_id.wrapping_add(1);
            self.insert(key, grant);
            return Some(due);
        }
    }

    /// Returns the time of the next action.
    pub(super) fn next_due(&self) -> Option<Timestamp<Monotonic>> {
        self.queue.first().map(|&(at, _)| at)
    }

    /// Ends all grants and returns them, those of one client consecutively.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = GrantKey> + use<> {
        self.queue.clear();
        self.cost = 0;
        std::mem::take(&mut self.held).into_keys()
    }

    /// Returns the number of grants.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns true if the state is consistent: queue, grants and total cost agree.
    #[cfg(test)]
    pub(super) fn is_consistent(&self) -> bool {
        let queue: BTreeSet<_> = self.held.iter().map(|(key, grant)| (grant.due(), *key)).collect();
        let sum: u64 = self.held.iter().map(|(key, grant)| cost(key.1, grant.log_interval)).sum();
        queue == self.queue && sum == self.cost
    }

    /// Returns the total rate, in messages per second.
    pub(super) fn rate(&self) -> f64 {
        self.cost as f64 / A_SECOND as f64
    }
}
