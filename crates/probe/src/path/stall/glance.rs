//! What there is to see of a watch that goes on.

use std::net::SocketAddr;
use std::time::Duration;

use horolog_record::Mechanism;

use super::stalls::worst_first;

/// How often a watch is shown.
pub(super) const EVERY: Duration = Duration::from_millis(500);

/// A watch as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchGlance {
    /// How long it has gone on.
    pub elapsed: Duration,
    /// How long it is to.
    pub total: Duration,
    /// The connections, those that stalled most first.
    pub connections: Vec<WatchedNow>,
    /// Connections that there was no room for; at [`horolog_record::CONNECTIONS_MISSED_MAX`], at
    /// least so many.
    pub missed: u64,
}

/// One connection so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchedNow {
    /// The end whose port is watched.
    pub server: SocketAddr,
    /// The other end.
    pub client: SocketAddr,
    /// Answers: data one way after data the other way; `None` where packets are not seen.
    pub answers: Option<u64>,
    /// Times that data waited, at the client and at the server.
    pub stalls: [u64; 2],
    /// The longest wait in ns, if there was one.
    pub longest_ns: Option<u64>,
    /// What held most of them.
    pub mechanism: Option<Mechanism>,
}

/// In the order in which they are shown.
pub(super) fn sorted(connections: impl Iterator<Item = WatchedNow>) -> Vec<WatchedNow> {
    worst_first(connections, |one| (one.stalls, one.client))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stalls_most_is_first() {
        let one = |port: u16, stalls| WatchedNow {
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
