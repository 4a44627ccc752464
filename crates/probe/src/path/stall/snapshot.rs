//! Snapshots of a watch in progress, for the live view.

use std::net::SocketAddr;
use std::time::Duration;

use horolog_record::StallMechanism;

use super::stalls::sort_by_stalls;

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
    /// Number of connections that were not tracked for lack of room; a lower bound once it is
    /// [`horolog_record::CONNECTIONS_MISSED_MAX`].
    pub untracked: u64,
}

/// State of one connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionSnapshot {
    /// Server: end with the watched port.
    pub server: SocketAddr,
    /// Client.
    pub client: SocketAddr,
    /// Number of changes of direction of the data; `None` without packets.
    pub answers: Option<u64>,
    /// Number of stalls of the client's and of the server's data.
    pub stalls: [u64; 2],
    /// Longest stall in ns; `None` if there was none.
    pub longest_ns: Option<u64>,
    /// Most frequent mechanism of the stalls.
    pub mechanism: Option<StallMechanism>,
}

/// Sorts connections by number of stalls, most first.
pub(super) fn sort_snapshots(
    connections: impl Iterator<Item = ConnectionSnapshot>,
) -> Vec<ConnectionSnapshot> {
    sort_by_stalls(connections, |one| (one.stalls, one.client))
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
        let all = sort_snapshots(
            [one(4, [1, 0]), one(3, [0, 0]), one(2, [1, 2]), one(1, [0, 1])].into_iter(),
        );
        let ports: Vec<_> = all.iter().map(|one| one.client.port()).collect();
        assert_eq!(ports, [2, 1, 4, 3]);
    }
}
