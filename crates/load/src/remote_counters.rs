//! Counters of the server's side, from the counter snapshot of its host (`horolog counters`). It is
//! read before and after each trial; a reading that fails becomes a finding about loss attribution,
//! and never ends a run.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use horolog_counters::{
    CounterQuery, CounterSnapshot, InterfaceCounts, RemoteError, SnapshotLocation, Token,
};
use horolog_http::Url;

use crate::loss_attribution::{InterfaceCounters, ServerCounters, UdpCounters};

/// Address of the counter snapshot, and its token.
#[derive(Clone, Debug)]
pub struct RemoteCounterOptions {
    /// URL of the counter snapshot.
    pub url: Url,
    /// Token that grants access.
    pub token: Token,
}

/// Counters of the server's side at one instant; unavailable ones are absent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct RemoteReading {
    pub(crate) interface: Option<InterfaceCounters>,
    /// Frames that the server sent back by XDP and that did not fit into the other end of a veth.
    pub(crate) xdp_tx_errors: u64,
    pub(crate) udp: Option<UdpCounters>,
    pub(crate) server: Option<ServerCounters>,
}

/// Counter snapshot that is read before and after each trial.
#[derive(Debug)]
pub(crate) struct RemoteCounters {
    remote: SnapshotLocation,
    ipv4: bool,
    errors: RemoteCounterErrors,
}

/// Errors of the remote counters.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RemoteCounterErrors {
    /// Number of readings attempted.
    pub readings: usize,
    /// Number of readings that failed.
    pub failed: usize,
    /// Reason of the first failure.
    pub reason: Option<String>,
    /// Counters that the server's host could not read, each with the reason.
    pub unread: BTreeSet<String>,
}

impl RemoteCounters {
    /// Reads the snapshot for the first time, so that a wrong URL or token is detected before
    /// anything is measured.
    pub(crate) fn open(
        options: RemoteCounterOptions,
        target: SocketAddr,
    ) -> Result<Self, RemoteError> {
        let query = CounterQuery { address: Some(target.ip()), port: Some(target.port()) };
        let remote = SnapshotLocation::new(&options.url, options.token, &query)?;
        let errors = RemoteCounterErrors {
            unread: unread(&remote.read()?),
            ..RemoteCounterErrors::default()
        };
        Ok(Self { remote, ipv4: target.is_ipv4(), errors })
    }

    /// Reads the snapshot. A failed reading returns no counters.
    pub(crate) fn read(&mut self) -> RemoteReading {
        self.errors.readings += 1;
        match self.remote.read() {
            Ok(page) => {
                self.errors.unread.append(&mut unread(&page));
                RemoteReading::of(&page, self.ipv4)
            }
            Err(error) => {
                self.errors.failed += 1;
                self.errors.reason.get_or_insert_with(|| error.to_string());
                RemoteReading::default()
            }
        }
    }

    pub(crate) const fn errors(&self) -> &RemoteCounterErrors {
        &self.errors
    }
}

fn unread(page: &CounterSnapshot) -> BTreeSet<String> {
    let plain = |text: &str| text.replace(char::is_control, " ");
    page.unavailable.iter().map(|one| plain(&format!("{}: {}", one.item, one.reason))).collect()
}

impl RemoteReading {
    fn of(page: &CounterSnapshot, ipv4: bool) -> Self {
        // One interface was requested; a snapshot with several does not identify the server's.
        let interface = match &page.interfaces[..] {
            [one] => Some(one),
            _ => None,
        };
        let sum = |count: fn(&horolog_counters::ServerCounts) -> u64| {
            page.servers.iter().fold(0, |sum: u64, server| sum.saturating_add(count(server)))
        };
        let udp = if ipv4 { page.udp_ipv4 } else { page.udp_ipv6 };
        Self {
            interface: interface.map(of_interface),
            xdp_tx_errors: interface.map_or(0, |interface| interface.xdp_tx_errors),
            udp,
            server: (!page.servers.is_empty()).then(|| ServerCounters {
                received: sum(|server| server.received),
                answered: sum(|server| server.answered),
            }),
        }
    }
}

const fn of_interface(interface: &InterfaceCounts) -> InterfaceCounters {
    InterfaceCounters {
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
            udp_ipv6: Some(UdpCounters { no_ports: 4, ..UdpCounters::default() }),
            servers: vec![server(5, 4), server(u64::MAX, 1)],
            unavailable: vec![UnavailableCounter { item: "a\nb".into(), reason: "c".into() }],
            ..CounterSnapshot::default()
        };
        let reading = RemoteReading::of(&page, true);
        assert_eq!(reading.interface.unwrap().rx_missed, 3);
        assert_eq!((reading.xdp_tx_errors, reading.udp), (2, None));
        assert_eq!(reading.server, Some(ServerCounters { received: u64::MAX, answered: 5 }));
        assert_eq!(RemoteReading::of(&page, false).udp.unwrap().no_ports, 4);
        assert_eq!(unread(&page), BTreeSet::from(["a b: c".to_owned()]));
        let two = CounterSnapshot {
            interfaces: vec![InterfaceCounts::default(); 2],
            ..CounterSnapshot::default()
        };
        assert_eq!(RemoteReading::of(&two, true), RemoteReading::default());
    }
}
