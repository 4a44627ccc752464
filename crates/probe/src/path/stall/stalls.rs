//! Stall counts of one watched connection, from packets or socket states.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::net::SocketAddr;

use horolog_record::{
    AckCounts, CONNECTIONS_MISSED_MAX, Distribution, StallMechanism, WatchedConnection,
};
use horolog_stats::Histogram;

use super::judge::DELAYED_ACK_BAND_NS;

/// Addresses of a connection's ends, client first.
pub(super) type ConnectionAddresses = (SocketAddr, SocketAddr);

/// Set of the connections that were not tracked for lack of room, bounded by
/// [`CONNECTIONS_MISSED_MAX`].
#[derive(Debug, Default)]
pub(super) struct UntrackedConnectionSet(HashSet<ConnectionAddresses>);

impl UntrackedConnectionSet {
    /// Adds a connection, unless the set is full.
    pub(super) fn insert(&mut self, ends: ConnectionAddresses) {
        if self.count() < CONNECTIONS_MISSED_MAX {
            self.0.insert(ends);
        }
    }

    /// Returns the number of connections; a lower bound once it is [`CONNECTIONS_MISSED_MAX`].
    pub(super) fn count(&self) -> u64 {
        self.0.len() as u64
    }
}

/// Stall counts of one connection.
#[derive(Debug, Default)]
pub(super) struct StallCounts {
    /// Number of stalls of the client's and of the server's data.
    counts_by_end: [u64; 2],
    durations: Option<Histogram>,
    in_band: u64,
    by_nagle: u64,
    by_window: u64,
}

impl StallCounts {
    /// Counts a stall of `took_ns` of an end's data (0 is the client), held back by the congestion
    /// window or otherwise by Nagle's algorithm.
    pub(super) fn count_stall(&mut self, end: usize, took_ns: u64, by: StallMechanism) {
        self.counts_by_end[end] += 1;
        self.durations.get_or_insert_with(Histogram::new).record(took_ns);
        self.in_band += u64::from(DELAYED_ACK_BAND_NS.contains(&took_ns));
        if by == StallMechanism::WindowDelayedAck {
            self.by_window += 1;
        } else {
            self.by_nagle += 1;
        }
    }

    /// Returns the number of stalls of both ends.
    pub(super) const fn total(&self) -> u64 {
        self.counts_by_end[0] + self.counts_by_end[1]
    }

    /// Returns the mechanism that held data most often, Nagle's algorithm on a tie; `None` without
    /// stalls.
    fn mechanism(&self) -> Option<StallMechanism> {
        (self.total() > 0).then_some(if self.by_window > self.by_nagle {
            StallMechanism::WindowDelayedAck
        } else {
            StallMechanism::NagleDelayedAck
        })
    }

    /// Returns a snapshot for the live view.
    pub(super) fn snapshot(
        &self,
        (client, server): ConnectionAddresses,
        answers: Option<u64>,
    ) -> WatchedConnectionSnapshot {
        WatchedConnectionSnapshot {
            server,
            client,
            answers,
            stalls: self.counts_by_end,
            longest_ns: self.durations.as_ref().and_then(Histogram::max),
            mechanism: self.mechanism(),
        }
    }

    /// Returns the record. `answers` and `acks` come from captured packets; `None` without a
    /// capture.
    pub(super) fn into_record(
        self,
        (client, server): ConnectionAddresses,
        answers: Option<u64>,
        acks: Option<AckCounts>,
    ) -> WatchedConnection {
        let mechanism = self.mechanism();
        let [client_stalls, server_stalls] = self.counts_by_end;
        WatchedConnection {
            server: server.to_string(),
            client: client.to_string(),
            answers,
            client_stalls,
            server_stalls,
            stall_ns: self.durations.as_ref().and_then(Distribution::from_histogram),
            in_band: self.in_band,
            mechanism,
            acks,
        }
    }
}

/// Sorts by stalls, most first, then by client.
pub(super) fn sort_by_stalls<T, C: Ord>(
    connections: impl Iterator<Item = T>,
    sort_key: impl Fn(&T) -> ([u64; 2], C),
) -> Vec<T> {
    let mut all: Vec<_> = connections.collect();
    all.sort_by_cached_key(|one| {
        let ([client, server], name) = sort_key(one);
        (Reverse(client.saturating_add(server)), name)
    });
    all
}

/// Returns the records of connections, most stalls first.
pub(super) fn into_sorted_records(
    connections: impl Iterator<Item = WatchedConnection>,
) -> Vec<WatchedConnection> {
    sort_by_stalls(connections, |one| ([one.client_stalls, one.server_stalls], one.client.clone()))
}

/// Largest number of connections in a snapshot.
const CONNECTIONS_SHOWN_MAX: usize = 200;

/// Values of a watch in a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StallWatchValues {
    /// Connections, most stalls first, at most 200.
    pub connections: Vec<WatchedConnectionSnapshot>,
    /// Number of stalls of all connections.
    pub stalls: u64,
    /// Number of connections that were not tracked for lack of room; a lower bound once it is
    /// [`horolog_record::CONNECTIONS_MISSED_MAX`].
    pub untracked: u64,
}

impl StallWatchValues {
    /// Creates the values from all connections, most stalls first, and the number of untracked
    /// ones.
    #[must_use]
    pub fn new(mut connections: Vec<WatchedConnectionSnapshot>, untracked: u64) -> Self {
        let stalls = connections.iter().flat_map(|one| one.stalls).fold(0, u64::saturating_add);
        connections.truncate(CONNECTIONS_SHOWN_MAX);
        Self { connections, stalls, untracked }
    }
}

/// State of one connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchedConnectionSnapshot {
    /// Server: end with the watched port.
    pub server: SocketAddr,
    /// Client: the other end.
    pub client: SocketAddr,
    /// Number of changes of direction of the data; `None` without packets.
    pub answers: Option<u64>,
    /// Number of stalls of the client's and of the server's data.
    pub stalls: [u64; 2],
    /// Longest stall in ns; `None` if there was none.
    pub longest_ns: Option<u64>,
    /// Most frequent mechanism of the stalls; `None` if there were none.
    pub mechanism: Option<StallMechanism>,
}

/// Sorts connections by number of stalls, most first.
pub(super) fn sort_snapshots(
    connections: impl Iterator<Item = WatchedConnectionSnapshot>,
) -> Vec<WatchedConnectionSnapshot> {
    sort_by_stalls(connections, |one| (one.stalls, one.client))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dominant_mechanism_is_reported_and_the_band_is_counted() {
        let ends = ("192.0.2.2:40000".parse().unwrap(), "192.0.2.1:80".parse().unwrap());
        let mut stalls = StallCounts::default();
        assert_eq!(stalls.snapshot(ends, None).mechanism, None);
        for (end, took_ns, by) in [
            (0, 40_000_000, StallMechanism::WindowDelayedAck),
            (1, 12_000_000, StallMechanism::NagleDelayedAck),
            (1, 41_000_000, StallMechanism::WindowDelayedAck),
        ] {
            stalls.count_stall(end, took_ns, by);
        }
        let now = stalls.snapshot(ends, Some(7));
        assert_eq!((now.stalls, now.longest_ns, now.answers), ([1, 2], Some(41_000_000), Some(7)));
        assert_eq!(now.mechanism, Some(StallMechanism::WindowDelayedAck));
        let record = stalls.into_record(ends, Some(7), None);
        assert_eq!((record.client_stalls, record.server_stalls, record.in_band), (1, 2, 2));
        assert_eq!(record.mechanism, now.mechanism);
        assert_eq!(record.stall_ns.unwrap().max, 41_000_000);
    }

    #[test]
    fn who_stalls_most_is_first() {
        let one = |port: u16, stalls| WatchedConnectionSnapshot {
            server: SocketAddr::from(([192, 0, 2, 1], 80)),
            client: SocketAddr::from(([192, 0, 2, 2], port)),
            answers: None,
            stalls,
            longest_ns: None,
            mechanism: None,
        };
        let all = sort_snapshots(
            [one(4, [1, 0]), one(3, [0, 0]), one(2, [1, 2]), one(1, [0, 1])].into_iter(),
        );
        let ports: Vec<_> = all.iter().map(|one| one.client.port()).collect();
        assert_eq!(ports, [2, 1, 4, 3]);
        let values = StallWatchValues::new(vec![one(1, [2, 1]); CONNECTIONS_SHOWN_MAX + 9], 0);
        let of_all = 3 * (CONNECTIONS_SHOWN_MAX as u64 + 9);
        assert_eq!((values.connections.len(), values.stalls), (CONNECTIONS_SHOWN_MAX, of_all));
    }
}
