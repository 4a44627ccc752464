//! Reader of this host's counters. Counters that this process cannot read are listed with the
//! reason.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use horolog_record::rfc3339_now;
use horolog_source::{ChronydAddress, ChronydSocket};
use horolog_sys::ethtool;
use horolog_sys::netlink::{Link, Netlink, NetlinkError};

use crate::{
    CounterQuery, CounterSnapshot, InterfaceCounts, SCHEMA, ServerCounts, SoftnetCounts, UdpCounts,
    UdpSocketCounts, UnavailableCounter,
};

/// Suffix of veth's per-queue counters of frames that an XDP program sent back (`XDP_TX`) and that
/// did not fit into the peer's ring.
const XDP_TX_ERRORS: &str = "_xdp_tx_errors";

/// Counts of a time server, or the reason why they are not available.
pub type ServerCountsResult = Result<ServerCounts, String>;

/// Function that requests the counts of Horolog's servers on this host, with a deadline.
pub type ServerQueryFn = Box<dyn FnMut(Instant) -> Vec<ServerCountsResult> + Send>;

/// Timeout of all servers together. A server that does not reply costs only its own entry and not
/// the snapshot, for which [`crate::remote`] waits longer.
pub(crate) const SERVERS_TIMEOUT: Duration = Duration::from_secs(2);

/// Reader of this host's counters, from the kernel, chronyd and Horolog's servers.
pub struct CounterReader {
    /// Names of the exported interfaces; all if empty.
    interfaces: Vec<String>,
    chronyd_socket: PathBuf,
    query_servers: ServerQueryFn,
}

/// Verifies that all named interfaces exist, since a snapshot would silently lack missing ones.
pub fn check_interfaces(names: &[String]) -> Result<(), NetlinkError> {
    if names.is_empty() {
        return Ok(());
    }
    let mut netlink = Netlink::open()?;
    names.iter().try_for_each(|name| netlink.link_by_name(name).map(drop))
}

impl CounterReader {
    /// Creates a reader of these interfaces (all if empty), of chronyd if this command socket
    /// exists, and of the servers that `query_servers` queries.
    #[must_use]
    pub fn new(interfaces: Vec<String>, chronyd: PathBuf, query_servers: ServerQueryFn) -> Self {
        Self { interfaces, chronyd_socket: chronyd, query_servers }
    }

    /// Reads all counters; the query restricts only the interfaces and the sockets.
    pub fn read_snapshot(&mut self, query: &CounterQuery) -> CounterSnapshot {
        let mut snapshot = CounterSnapshot {
            schema: SCHEMA.to_owned(),
            read_at: rfc3339_now(),
            ..CounterSnapshot::default()
        };
        match self.read_interfaces(query) {
            Ok(interfaces) => snapshot.interfaces = interfaces,
            Err(why) => snapshot.add_unavailable("interfaces", why),
        }
        snapshot.softnet = snapshot.read_proc_net("softnet_stat", SoftnetCounts::parse);
        snapshot.udp_ipv4 = snapshot.read_proc_net("snmp", UdpCounts::parse_snmp);
        snapshot.udp_ipv6 = snapshot.read_proc_net("snmp6", UdpCounts::parse_snmp6);
        for table in ["udp", "udp6"] {
            let sockets =
                snapshot.read_proc_net(table, |text| Some(UdpSocketCounts::parse_table(text)));
            let wanted =
                |socket: &UdpSocketCounts| query.port.is_none_or(|port| port == socket.port);
            snapshot.sockets.extend(sockets.into_iter().flatten().filter(wanted));
        }
        for (program, reading) in self.query_all_servers() {
            match reading {
                Ok(server) => snapshot.servers.push(server),
                Err(why) => snapshot.add_unavailable(program, why),
            }
        }
        snapshot
    }

    fn read_interfaces(&self, query: &CounterQuery) -> Result<Vec<InterfaceCounts>, String> {
        let links = wanted_links(query.address).map_err(|error| error.to_string())?;
        let is_selected =
            |link: &Link| self.interfaces.is_empty() || self.interfaces.contains(&link.name);
        let links: Vec<_> = links.into_iter().filter(is_selected).collect();
        match query.address {
            Some(address) if links.is_empty() => {
                Err(format!("no exported interface has the address {address}"))
            }
            _ => Ok(links.iter().map(InterfaceCounts::from_link).collect()),
        }
    }

    fn query_all_servers(&mut self) -> Vec<(&'static str, ServerCountsResult)> {
        let deadline = Instant::now() + SERVERS_TIMEOUT;
        let chronyd = match fs::metadata(&self.chronyd_socket) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(Err(chronyd_error(&self.chronyd_socket, &error.to_string()))),
            Ok(_) => Some(self.query_chronyd()),
        };
        let horolog_servers =
            (self.query_servers)(deadline).into_iter().map(|reading| ("horolog", reading));
        chronyd.map(|reading| ("chronyd", reading)).into_iter().chain(horolog_servers).collect()
    }

    fn query_chronyd(&self) -> ServerCountsResult {
        // A new socket for each request: chronyd may have been restarted since the last one.
        let mut socket = ChronydSocket::new(ChronydAddress::Unix(self.chronyd_socket.clone()));
        match socket.statistics() {
            Ok(Ok(counted)) => Ok(ServerCounts {
                program: "chronyd".to_owned(),
                received: counted.ntp_received,
                answered: counted.ntp_received.saturating_sub(counted.ntp_dropped),
                limited: counted.ntp_dropped,
            }),
            Ok(Err(status)) => Err(format!("it refuses the request (status {status})")),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err("no reply in time".to_owned())
            }
            Err(error) => Err(chronyd_error(&self.chronyd_socket, &error.to_string())),
        }
    }
}

fn chronyd_error(socket: &std::path::Path, error: &str) -> String {
    format!("{}: {error}; run as root or as chronyd's user", socket.display())
}

/// Returns all interfaces, or the one that has this address; none if no interface has it.
fn wanted_links(address: Option<IpAddr>) -> Result<Vec<Link>, NetlinkError> {
    let mut netlink = Netlink::open()?;
    let Some(address) = address else { return netlink.links() };
    let addresses = netlink.addresses()?;
    let owner = addresses.iter().find(|own| own.prefix.address() == address);
    owner.map(|own| netlink.link_by_index(own.index)).transpose().map(Vec::from_iter)
}

impl InterfaceCounts {
    fn from_link(link: &Link) -> Self {
        let counters = &link.counters;
        let is_veth = link.kind.as_deref() == Some("veth");
        Self {
            name: link.name.clone(),
            rx_packets: counters.rx_packets,
            tx_packets: counters.tx_packets,
            rx_errors: counters.rx_errors,
            tx_errors: counters.tx_errors,
            rx_dropped: counters.rx_dropped,
            tx_dropped: counters.tx_dropped,
            rx_missed: counters.rx_missed,
            xdp_tx_errors: if is_veth { driver_counter_sum(&link.name, XDP_TX_ERRORS) } else { 0 },
        }
    }
}

/// Returns the sum of the driver's counters whose names end in `ending`; 0 if there are none or
/// they cannot be read.
fn driver_counter_sum(interface: &str, ending: &str) -> u64 {
    let stats = ethtool::stats(interface).unwrap_or_default();
    stats.iter().filter(|(name, _)| name.ends_with(ending)).map(|(_, count)| count).sum()
}

impl CounterSnapshot {
    fn add_unavailable(&mut self, what: &str, why: String) {
        self.unavailable.push(UnavailableCounter { item: what.to_owned(), reason: why });
    }

    /// Reads and parses a file of `/proc/thread-self/net`. Returns `None` if it does not exist
    /// (`snmp6` without IPv6); on any other failure it also becomes an entry of `unavailable`.
    fn read_proc_net<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let path = format!("/proc/thread-self/net/{name}");
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                self.add_unavailable(name, format!("{path}: {error}"));
                None
            }
            Ok(text) => {
                let read = parse(&text);
                if read.is_none() {
                    self.add_unavailable(name, format!("{path} has an unknown format"));
                }
                read
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gatherer(interfaces: &[&str]) -> CounterReader {
        let server_query = |deadline: Instant| {
            assert!(deadline <= Instant::now() + SERVERS_TIMEOUT);
            let server =
                ServerCounts { program: "horolog".into(), received: 5, ..ServerCounts::default() };
            vec![Ok(server), Err("it is silent".to_owned())]
        };
        let interfaces = interfaces.iter().map(|name| (*name).to_owned()).collect();
        CounterReader::new(interfaces, "/nowhere/chronyd.sock".into(), Box::new(server_query))
    }

    #[test]
    fn this_machine_is_read_without_privileges() {
        let page = gatherer(&[]).read_snapshot(&CounterQuery::default());
        assert!(page.interfaces.iter().any(|interface| interface.name == "lo"));
        assert!(page.softnet.is_some() && page.udp_ipv4.is_some());
        assert_eq!((page.servers.len(), page.servers[0].received), (1, 5));
        let unread = UnavailableCounter { item: "horolog".into(), reason: "it is silent".into() };
        assert_eq!(page.unavailable, [unread], "a chronyd that is not there is not missed");
    }

    #[test]
    fn snapshot_is_limited_to_the_query() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let query = CounterQuery { address: Some([127, 0, 0, 1].into()), port: Some(port) };
        let page = gatherer(&[]).read_snapshot(&query);
        assert_eq!((page.interfaces.len(), page.sockets.len()), (1, 1));
        assert_eq!((page.interfaces[0].name.as_str(), page.sockets[0].port), ("lo", port));
        let page = gatherer(&["eth9"]).read_snapshot(&query);
        assert!(page.interfaces.is_empty() && page.unavailable[0].reason.contains("127.0.0.1"));
    }
}
