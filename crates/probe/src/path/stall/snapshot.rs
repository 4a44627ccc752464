//! Snapshot of a running watch.

use std::net::SocketAddr;
use std::time::Duration;

use horolog_record::StallMechanism;

use super::stalls::worst_first;

/// Interval between snapshots.
pub(super) const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(500);

/// State of a watch at one instant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StallSnapshot {
    /// Elapsed time.
    pub elapsed: Duration,
    /// Total time.
    pub total: Duration,
    /// Connections, most stalls first.
    pub connections: Vec<ConnectionSnapshot>,
    /// Connections not tracked for lack of room; at [`horolog_record::CONNECTIONS_MISSED_MAX`], at
    /// least that many.
    pub missed: u64,
}

/// State of one connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionSnapshot {
    /// Server: the end with the watched port.
    pub server: SocketAddr,
    /// Client.
    pub client: SocketAddr,
    /// Answers: data in one direction after data in the other; `None` without packets.
    pub answers: Option<u64>,
    /// Number of waits of data, at the client and at the server.
    pub stalls: [u64; 2],
    /// Longest wait in ns, if there was one.
    pub longest_ns: Option<u64>,
    /// Mechanism that held most of them.
    pub mechanism: Option<StallMechanism>,
}

/// Sorts connections into display order.
pub(super) fn sorted(
    connections: impl Iterator<Item = ConnectionSnapshot>,
) -> Vec<ConnectionSnapshot> {
    worst_first(connections, |one| (one.stalls, one.client))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stalls_most_is_first() {
        let one = |port: u16, stalls| ConnectionSnapshot {
            server: SocketAddr::from(([192, 0, 2, 1], 80)),
            client: SocketAddr::from(([192, 0, 2, 2], port)),
            answers: None,
            stalls,
            longest_ns: None,
            mechanism: None,
        };
        let all =
            sorted([one(4, [1, 0]), one(3, [0, 0]), one(2, [1, 2]), one(1, [0, 1])].into_iter());
        let ports: Vec<_> = all.iter().map(|one| one.client.port()).collect();
        assert_eq!(ports, [2, 1, 4, 3]);
    }
}
