//! Limiter of open connections and of the connection rate per address prefix. Prefixes without
//! recent connections are not stored.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::config::NtsKeLimits;

/// Largest number of stored prefixes. When it is reached, idle prefixes are removed.
const PREFIXES_MAX: usize = 1 << 16;
const IPV6_PREFIX_BITS: u32 = 64;

/// Key of the limits: an IPv4 address, or the /64 prefix of an IPv6 address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ClientPrefix(u128);

impl ClientPrefix {
    pub(crate) fn from_address(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().to_bits()),
            IpAddr::V6(v6) => Self(v6.to_bits() & (u128::MAX << (u128::BITS - IPV6_PREFIX_BITS))),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct PrefixUsage {
    open_connections: u32,
    /// Theoretical arrival time of the next connection (GCRA): later than now while recent
    /// connections are ahead of the rate.
    theoretical_arrival: Instant,
}

impl PrefixUsage {
    fn is_idle(&self, now: Instant) -> bool {
        self.open_connections == 0 && self.theoretical_arrival <= now
    }
}

/// Limit that a refused connection would exceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LimitExceeded {
    Concurrent,
    Rate,
}

#[derive(Debug)]
struct PrefixUsageTable {
    by_prefix: HashMap<ClientPrefix, PrefixUsage>,
    last_purge: Option<Instant>,
}

/// Usage of all stored prefixes. One lock suffices for all threads: it is held for tens of
/// nanoseconds per connection, and a handshake takes hundreds of microseconds.
#[derive(Debug)]
pub(crate) struct PrefixLimiter(Mutex<PrefixUsageTable>);

impl PrefixLimiter {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(PrefixUsageTable { by_prefix: HashMap::new(), last_purge: None }))
    }

    /// Records a new connection, or returns the limit that it would exceed; [`LimitExceeded::Rate`]
    /// also if the table has no room for its prefix.
    pub(crate) fn admit(
        &self,
        prefix: ClientPrefix,
        limits: &NtsKeLimits,
        now: Instant,
    ) -> Result<(), LimitExceeded> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !table.ensure_capacity(prefix, now) {
            return Err(LimitExceeded::Rate);
        }
        let unused = PrefixUsage { open_connections: 0, theoretical_arrival: now };
        let usage = table.by_prefix.entry(prefix).or_insert(unused);
        let theoretical_arrival = usage.theoretical_arrival.max(now);
        if limits.connections_per_prefix != 0
            && usage.open_connections >= limits.connections_per_prefix
        {
            return Err(LimitExceeded::Concurrent);
        }
        if limits.rate_per_prefix != 0 {
            let interval = Duration::from_secs(1) / limits.rate_per_prefix;
            if theoretical_arrival - now > interval * limits.burst_per_prefix.saturating_sub(1) {
                return Err(LimitExceeded::Rate);
            }
            usage.theoretical_arrival = theoretical_arrival + interval;
        }
        usage.open_connections += 1;
        Ok(())
    }

    /// Records the end of an admitted connection.
    pub(crate) fn release(&self, prefix: ClientPrefix, now: Instant) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut entry) = table.by_prefix.entry(prefix) {
            entry.get_mut().open_connections = entry.get().open_connections.saturating_sub(1);
            if entry.get().is_idle(now) {
                entry.remove();
            }
        }
    }
}

impl PrefixUsageTable {
    /// Returns true if the prefix is in the table or can be added; removes idle prefixes if the
    /// table is full.
    fn ensure_capacity(&mut self, prefix: ClientPrefix, now: Instant) -> bool {
        if self.by_prefix.len() < PREFIXES_MAX || self.by_prefix.contains_key(&prefix) {
            return true;
        }
        // Limited in frequency, because it visits all prefixes.
        let pause = Duration::from_millis(100);
        if self.last_purge.is_none_or(|last| now.duration_since(last) >= pause) {
            self.last_purge = Some(now);
            self.by_prefix.retain(|_, usage| !usage.is_idle(now));
        }
        self.by_prefix.len() < PREFIXES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> ClientPrefix {
        ClientPrefix::from_address(text.parse().unwrap())
    }

    #[test]
    fn who_counts_as_one() {
        assert_eq!(prefix("192.0.2.1"), prefix("::ffff:192.0.2.1"));
        assert_ne!(prefix("192.0.2.1"), prefix("192.0.2.2"));
        assert_eq!(prefix("2001:db8:1:2::1"), prefix("2001:db8:1:2:ffff::9"));
        assert_ne!(prefix("2001:db8:1:2::1"), prefix("2001:db8:1:3::1"));
    }

    #[test]
    fn so_many_at_a_time() {
        let limits =
            NtsKeLimits { connections_per_prefix: 2, rate_per_prefix: 0, ..NtsKeLimits::default() };
        let (neighbours, now) = (PrefixLimiter::new(), Instant::now());
        let (one, other) = (prefix("192.0.2.1"), prefix("192.0.2.2"));
        assert_eq!(neighbours.admit(one, &limits, now), Ok(()));
        assert_eq!(neighbours.admit(one, &limits, now), Ok(()));
        assert_eq!(neighbours.admit(one, &limits, now), Err(LimitExceeded::Concurrent));
        assert_eq!(neighbours.admit(other, &limits, now), Ok(()));
        neighbours.release(one, now);
        assert_eq!(neighbours.admit(one, &limits, now), Ok(()));
    }

    #[test]
    fn so_many_a_second_after_a_burst() {
        let limits = NtsKeLimits {
            connections_per_prefix: 0,
            rate_per_prefix: 10,
            burst_per_prefix: 3,
            ..NtsKeLimits::default()
        };
        let (neighbours, start) = (PrefixLimiter::new(), Instant::now());
        let one = prefix("192.0.2.1");
        let admitted = |now| {
            let mut admitted = 0;
            while neighbours.admit(one, &limits, now).is_ok() {
                admitted += 1;
            }
            admitted
        };
        assert_eq!(admitted(start), 3);
        assert_eq!(admitted(start + Duration::from_millis(99)), 0);
        assert_eq!(admitted(start + Duration::from_millis(200)), 2);
        assert_eq!(admitted(start + Duration::from_mins(1)), 3);
    }

    #[test]
    fn the_known_are_bounded() {
        let limits = NtsKeLimits { rate_per_prefix: 1, ..NtsKeLimits::default() };
        let (neighbours, now) = (PrefixLimiter::new(), Instant::now());
        let nth = |number: usize| ClientPrefix(number as u128);
        for number in 0..PREFIXES_MAX {
            assert_eq!(neighbours.admit(nth(number), &limits, now), Ok(()));
            neighbours.release(nth(number), now);
        }
        assert_eq!(neighbours.admit(nth(PREFIXES_MAX), &limits, now), Err(LimitExceeded::Rate));
        assert_eq!(neighbours.admit(nth(0), &limits, now), Ok(()), "who is known stays welcome");
        let later = now + Duration::from_secs(2);
        assert_eq!(neighbours.admit(nth(PREFIXES_MAX), &limits, later), Ok(()));
        assert_eq!(neighbours.0.lock().unwrap().by_prefix.len(), 2);
    }
}
