//! Counters for loss attribution: those of the local interface and, if the server runs on this
//! host, those of its side. The peer of a veth is searched for in the accessible network
//! namespaces. Counters that cannot be read are absent. If the server's host exports a counter
//! snapshot, that is the only source for its side.

use std::fs;
use std::net::IpAddr;
use std::os::fd::AsFd;

use horolog_sys::ethtool;
use horolog_sys::namespace::{NetNs, list_named};
use horolog_sys::netlink::{self, Netlink};

use crate::loss_attribution::{
    InterfacePacketCounts, LossAttributionCounts, ServerRequestCounts, UdpCounts,
};
use crate::ptp::PtpLoadTransport;
use crate::remote_counters::{RemoteCounterErrors, RemoteCounterReader};
use crate::target::Route;

/// Function that reads the counters of a server in this process, or of one that accepts queries for
/// them; `None` if they are unavailable.
pub type ServerRequestCountsFn = Box<dyn FnMut() -> Option<ServerRequestCounts> + Send>;

/// Reader of the counters for loss attribution, used before and after each trial.
pub struct LossAttributionCounterReader {
    local_interface: Option<InterfaceCounterReader>,
    peer: Option<VethPeer>,
    remote_counters: Option<RemoteCounterReader>,
    /// True if the target is an address of this host.
    shared_host: bool,
    ipv4: bool,
    ptp: Option<PtpLoadTransport>,
    counter_source: Option<ServerRequestCountsFn>,
}

/// Reader of an interface's counters, with the Netlink connection to its namespace.
struct InterfaceCounterReader {
    netlink: Netlink,
    index: u32,
    name: String,
    is_veth: bool,
}

/// The other end of the local interface's veth pair.
struct VethPeer {
    namespace: NetNs,
    interface: InterfaceCounterReader,
    /// True if the namespace has the target's address, so that its UDP counters are the server's.
    has_target: bool,
}

impl LossAttributionCounterReader {
    /// Finds the counters to read for a target behind `route`. Searches the named namespaces and
    /// `namespaces` for the peer of a veth.
    #[must_use]
    pub fn new(target: IpAddr, route: &Route, namespaces: &[NetNs]) -> Self {
        let link = match route {
            Route::ThisHost => None,
            Route::Link(link) => Some(link),
        };
        let local_interface = link.and_then(|link| {
            let (index, name) = (link.index, link.interface.clone());
            let mut netlink = Netlink::open().ok()?;
            let is_veth = netlink.link_by_index(index).is_ok_and(|link| is_veth(&link));
            Some(InterfaceCounterReader { netlink, index, name, is_veth })
        });
        let mut watch = Self {
            local_interface,
            peer: None,
            remote_counters: None,
            shared_host: link.is_none(),
            ipv4: target.is_ipv4(),
            ptp: None,
            counter_source: None,
        };
        watch.peer =
            watch.local_interface.as_mut().and_then(|own| own.find_peer(target, namespaces));
        watch
    }

    /// Sets the source of the server's own counters.
    #[must_use]
    pub fn with_server_counters(mut self, source: Option<ServerRequestCountsFn>) -> Self {
        self.counter_source = source;
        self
    }

    /// Sets the PTP transport, so that unsolicited messages of a master are not taken for replies.
    #[must_use]
    pub const fn with_ptp(mut self, transport: Option<PtpLoadTransport>) -> Self {
        self.ptp = transport;
        self
    }

    /// Sets the counter snapshots of the server's host as the source for its side.
    #[must_use]
    pub(crate) fn with_remote_counters(
        mut self,
        remote_counters: Option<RemoteCounterReader>,
    ) -> Self {
        self.remote_counters = remote_counters;
        self
    }

    /// Returns the errors of the remote counters; `None` without remote counters.
    pub(crate) fn remote_errors(&self) -> Option<&RemoteCounterErrors> {
        self.remote_counters.as_ref().map(RemoteCounterReader::errors)
    }

    /// Returns true if the server was found to run on this host.
    #[must_use]
    pub fn is_server_local(&self) -> bool {
        self.shared_host
            || self.counter_source.is_some()
            || self.peer.as_ref().is_some_and(|peer| peer.has_target)
    }

    /// Reads the counters of both sides; those that cannot be read are `None`, or 0 for the driver
    /// counters of a veth.
    pub fn read(&mut self) -> LossAttributionCounts {
        let ipv4 = self.ipv4;
        let mut local_counters =
            self.local_interface.as_mut().and_then(InterfaceCounterReader::read_counters);
        let mut counters = LossAttributionCounts {
            shared_host: self.shared_host,
            is_local_veth: self.local_interface.as_ref().is_some_and(|own| own.is_veth),
            server: self.counter_source.as_mut().and_then(|source| source()),
            ptp: self.ptp,
            ..LossAttributionCounts::default()
        };
        if self.shared_host {
            counters.udp = udp_counters(ipv4);
        }
        if let Some(remote_counters) = &mut self.remote_counters {
            let reading = remote_counters.read();
            (counters.peer, counters.udp) = (reading.interface, reading.udp);
            counters.server = reading.server;
            if let (Some(own), true) = (&mut local_counters, counters.is_local_veth) {
                own.rx_dropped_at_peer = reading.xdp_tx_errors;
            }
        } else if let Some(peer) = &mut self.peer {
            let (name, has_target) = (peer.interface.name.clone(), peer.has_target);
            let peer_readings = peer.namespace.run(|| {
                let udp = if has_target { udp_counters(ipv4) } else { None };
                (driver_counter_sum(&name, XDP_TX_ERRORS), udp)
            });
            let (tx_errors, udp) = peer_readings.unwrap_or_default();
            counters.udp = udp;
            counters.peer = peer.interface.read_counters();
            // Packets that one end of a veth could not send count as dropped at both ends.
            if let (Some(own), Some(tx_errors)) = (&mut local_counters, tx_errors) {
                own.rx_dropped_at_peer = tx_errors;
            }
        }
        // Only a veth has these counters; its peer end counts the same drops in `rx_dropped`.
        if let (Some(peer), Some(own)) = (&mut counters.peer, &self.local_interface) {
            peer.rx_dropped_at_peer = driver_counter_sum(&own.name, XDP_XMIT_ERRORS).unwrap_or(0);
        }
        counters.local = local_counters;
        counters
    }
}

/// Suffix of a veth's per-queue counters of frames that its XDP program returned (`XDP_TX`) and
/// that did not fit into the peer's ring.
const XDP_TX_ERRORS: &str = "_xdp_tx_errors";
/// Suffix of a veth's per-queue counters of frames that were redirected to it and did not fit into
/// the peer's ring.
const XDP_XMIT_ERRORS: &str = "_xdp_xmit_errors";

/// Returns the sum over all queues of the driver counters whose name ends in `suffix`; `None` if
/// they cannot be read.
fn driver_counter_sum(interface: &str, suffix: &str) -> Option<u64> {
    let stats = ethtool::stats(interface).ok()?;
    Some(stats.iter().filter(|(name, _)| name.ends_with(suffix)).map(|(_, count)| count).sum())
}

/// Returns the UDP counters of the calling thread's network namespace.
fn udp_counters(ipv4: bool) -> Option<UdpCounts> {
    if ipv4 {
        UdpCounts::parse_snmp(&fs::read_to_string("/proc/thread-self/net/snmp").ok()?)
    } else {
        UdpCounts::parse_snmp6(&fs::read_to_string("/proc/thread-self/net/snmp6").ok()?)
    }
}

fn is_veth(link: &netlink::Link) -> bool {
    link.kind.as_deref() == Some("veth")
}

impl InterfaceCounterReader {
    fn read_counters(&mut self) -> Option<InterfacePacketCounts> {
        let counters = self.netlink.link_by_index(self.index).ok()?.counters;
        Some(InterfacePacketCounts {
            rx_packets: counters.rx_packets,
            tx_packets: counters.tx_packets,
            tx_dropped: counters.tx_dropped,
            rx_dropped: counters.rx_dropped,
            rx_dropped_at_peer: 0,
            rx_missed: counters.rx_missed,
        })
    }

    fn find_peer(&mut self, target: IpAddr, namespaces: &[NetNs]) -> Option<VethPeer> {
        let link = self.netlink.link_by_index(self.index).ok()?;
        let (peer_index, nsid) = (link.peer_index?, link.peer_nsid?);
        if !self.is_veth {
            return None;
        }
        let named = list_named().unwrap_or_default();
        let named = named.iter().filter_map(|name| NetNs::open_named(name).ok());
        let namespace = namespaces.iter().cloned().chain(named).find(|namespace| {
            self.netlink.nsid_of(namespace.as_fd()).is_ok_and(|found| found == Some(nsid))
        })?;
        let mut netlink = namespace.run(Netlink::open).ok()?.ok()?;
        let peer: netlink::Link = netlink.link_by_index(peer_index).ok()?;
        let addresses = netlink.addresses().ok()?;
        let has_target = addresses.iter().any(|own| own.prefix.address() == target);
        let interface =
            InterfaceCounterReader { netlink, index: peer_index, name: peer.name, is_veth: true };
        Some(VethPeer { namespace, interface, has_target })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_this_host_is_watched_through_the_host_s_own_counters() {
        let target = IpAddr::from([127, 0, 0, 1]);
        let mut watch = LossAttributionCounterReader::new(target, &Route::ThisHost, &[]);
        assert!(watch.is_server_local());
        let counters = watch.read();
        assert!(counters.shared_host && counters.udp.is_some());
        assert_eq!((counters.local, counters.peer, counters.server), (None, None, None));
    }

    #[test]
    fn a_server_with_a_counter_source_is_read() {
        let target = IpAddr::from([127, 0, 0, 1]);
        let counters = ServerRequestCounts { received: 5, answered: 4 };
        let mut watch = LossAttributionCounterReader::new(target, &Route::ThisHost, &[])
            .with_server_counters(Some(Box::new(move || Some(counters))));
        assert_eq!(watch.read().server, Some(counters));
    }
}
