//! Counters of the server's side, from the counter snapshot of its host (`horolog counters`), read
//! before and after each trial. A failed reading becomes a finding and does not end the run; only
//! the first one, before the first trial, is an error.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use horolog_counters::{
    BearerToken, CounterQuery, CounterSnapshot, InterfaceCounts, RemoteSnapshotError,
    SnapshotLocation,
};
use horolog_http::Url;

use crate::loss_attribution::{InterfacePacketCounts, ServerRequestCounts, UdpCounts};

/// Location of a counter snapshot, and the token for access to it.
#[derive(Clone, Debug)]
pub struct RemoteCounterOptions {
    /// URL of the counter snapshot.
    pub url: Url,
    /// Token that grants access.
    pub token: BearerToken,
}

/// Counters of the server's side at one instant; `None` where unavailable.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct RemoteCounterReading {
    pub(crate) interface: Option<InterfacePacketCounts>,
    /// Frames that the server sent back by XDP and that did not fit into the other end of a veth.
    pub(crate) xdp_tx_errors: u64,
    pub(crate) udp: Option<UdpCounts>,
    pub(crate) server: Option<ServerRequestCounts>,
}

/// Reader of the counter snapshot of the server's host, with the errors of its readings.
#[derive(Debug)]
pub(crate) struct RemoteCounterReader {
    remote: SnapshotLocation,
    ipv4: bool,
    errors: RemoteCounterErrors,
}

/// Errors of the remote counters.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RemoteCounterErrors {
    /// Number of readings attempted after the first one.
    pub readings: usize,
    /// Number of readings that failed.
    pub failed: usize,
    /// Reason of the first failure.
    pub reason: Option<String>,
    /// Counters that the server's host could not read, each with the reason.
    pub unavailable: BTreeSet<String>,
}

impl RemoteCounterReader {
    /// Reads the snapshot once, so that a wrong URL or token is reported before the first trial.
    pub(crate) fn open(
        options: RemoteCounterOptions,
        target: SocketAddr,
    ) -> Result<Self, RemoteSnapshotError> {
        let query = CounterQuery { address: Some(target.ip()), port: Some(target.port()) };
        let remote = SnapshotLocation::new(&options.url, options.token, &query)?;
        let errors = RemoteCounterErrors {
            unavailable: unavailable_counters(&remote.read()?),
            ..RemoteCounterErrors::default()
        };
        Ok(Self { remote, ipv4: target.is_ipv4(), errors })
    }

    /// Reads the snapshot; all counters are absent if that fails.
    pub(crate) fn read(&mut self) -> RemoteCounterReading {
        self.errors.readings += 1;
        match self.remote.read() {
            Ok(snapshot) => {
                self.errors.unavailable.append(&mut unavailable_counters(&snapshot));
                RemoteCounterReading::from_snapshot(&snapshot, self.ipv4)
            }
            Err(error) => {
                self.errors.failed += 1;
                self.errors.reason.get_or_insert_with(|| error.to_string());
                RemoteCounterReading::default()
            }
        }
    }

    pub(crate) const fn errors(&self) -> &RemoteCounterErrors {
        &self.errors
    }
}

fn unavailable_counters(snapshot: &CounterSnapshot) -> BTreeSet<String> {
    let without_controls = |text: &str| text.replace(char::is_control, " ");
    snapshot
        .unavailable
        .iter()
        .map(|one| without_controls(&format!("{}: {}", one.item, one.reason)))
        .collect()
}

impl RemoteCounterReading {
    fn from_snapshot(snapshot: &CounterSnapshot, ipv4: bool) -> Self {
        // One interface was requested. If the snapshot contains several, the server's is unknown.
        let interface = match &snapshot.interfaces[..] {
            [one] => Some(one),
            _ => None,
        };
        let sum = |count: fn(&horolog_counters::ServerCounts) -> u64| {
            snapshot.servers.iter().fold(0, |sum: u64, server| sum.saturating_add(count(server)))
        };
        let udp = if ipv4 { snapshot.udp_ipv4 } else { snapshot.udp_ipv6 };
        Self {
            interface: interface.map(interface_counters),
            xdp_tx_errors: interface.map_or(0, |interface| interface.xdp_tx_errors),
            udp,
            server: (!snapshot.servers.is_empty()).then(|| ServerRequestCounts {
                received: sum(|server| server.received),
                answered: sum(|server| server.answered),
            }),
        }
    }
}

const fn interface_counters(interface: &InterfaceCounts) -> InterfacePacketCounts {
    InterfacePacketCounts {
        rx_packets: interface.rx_packets,
        tx_packets: interface.tx_packets,
        tx_dropped: interface.tx_dropped,
        rx_dropped: interface.rx_dropped,
        rx_dropped_at_peer: 0,
        rx_missed: interface.rx_missed,
    }
}

#[cfg(test)]
mod tests {
    use horolog_counters::{ServerCounts, UnavailableCounter};

    use super::*;

    #[test]
    fn a_page_is_the_server_s_side() {
        let server =
            |received, answered| ServerCounts { received, answered, ..ServerCounts::default() };
        let page = CounterSnapshot {
            interfaces: vec![InterfaceCounts {
                rx_missed: 3,
                xdp_tx_errors: 2,
                ..InterfaceCounts::default()
            }],
            udp_ipv6: Some(UdpCounts { no_ports: 4, ..UdpCounts::default() }),
            servers: vec![server(5, 4), server(u64::MAX, 1)],
            unavailable: vec![UnavailableCounter { item: "a\nb".into(), reason: "c".into() }],
            ..CounterSnapshot::default()
        };
        let reading = RemoteCounterReading::from_snapshot(&page, true);
        assert_eq!(reading.interface.unwrap().rx_missed, 3);
        assert_eq!((reading.xdp_tx_errors, reading.udp), (2, None));
        assert_eq!(reading.server, Some(ServerRequestCounts { received: u64::MAX, answered: 5 }));
        assert_eq!(RemoteCounterReading::from_snapshot(&page, false).udp.unwrap().no_ports, 4);
        assert_eq!(unavailable_counters(&page), BTreeSet::from(["a b: c".to_owned()]));
        let two = CounterSnapshot {
            interfaces: vec![InterfaceCounts::default(); 2],
            ..CounterSnapshot::default()
        };
        assert_eq!(
            RemoteCounterReading::from_snapshot(&two, true),
            RemoteCounterReading::default()
        );
    }
}
