//! Reader of all counters of this host that this process may read; names the others.

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
    CounterQuery, CounterSnapshot, InterfaceCounts, SCHEMA, ServerCounts, Softnet, UdpCounters,
    UdpSocketCounts, UnavailableCounter,
};

/// Ending of the veth counter names, one for each queue, of frames that its XDP program sent back
/// and that did not fit into the peer's ring.
const XDP_TX_ERRORS: &str = "_xdp_tx_errors";

/// Counts of a time server, or the reason why they are not available.
pub type ServerReading = Result<ServerCounts, String>;

/// Requests the counts of this project's servers on this host, with a deadline.
pub type QueryServers = Box<dyn FnMut(Instant) -> Vec<ServerReading> + Send>;

/// Timeout of all servers together: a stopped one costs its own entry, not the snapshot, for which
/// [`crate::remote`] waits a little longer.
pub(crate) const SERVERS_TIMEOUT: Duration = Duration::from_secs(2);

/// Reader of the counters.
pub struct CounterReader {
    /// Exported interfaces; all if empty.
    interfaces: Vec<String>,
    chronyd: PathBuf,
    query_servers: QueryServers,
}

impl CounterReader {
    /// Creates a reader of these interfaces (all if empty), of the chronyd with this command socket
    /// if present, and of the servers that `query_servers` queries.
    #[must_use]
    pub fn new(interfaces: Vec<String>, chronyd: PathBuf, query_servers: QueryServers) -> Self {
        Self { interfaces, chronyd, query_servers }
    }

    /// Reads the counters that the query selects.
    pub fn page(&mut self, query: &CounterQuery) -> CounterSnapshot {
        let mut page = CounterSnapshot {
            schema: SCHEMA.to_owned(),
            read_at: rfc3339_now(),
            ..CounterSnapshot::default()
        };
        match self.interfaces(query) {
            Ok(interfaces) => page.interfaces = interfaces,
            Err(why) => page.miss("interfaces", why),
        }
        page.softnet = page.read("softnet_stat", Softnet::parse);
        page.udp_ipv4 = page.read("snmp", UdpCounters::parse_snmp);
        page.udp_ipv6 = page.read("snmp6", UdpCounters::parse_snmp6);
        for table in ["udp", "udp6"] {
            let sockets = page.read(table, |text| Some(UdpSocketCounts::parse_table(text)));
            let wanted =
                |socket: &UdpSocketCounts| query.port.is_none_or(|port| port == socket.port);
            page.sockets.extend(sockets.into_iter().flatten().filter(wanted));
        }
        for (program, reading) in self.servers() {
            match reading {
                Ok(server) => page.servers.push(server),
                Err(why) => page.miss(program, why),
            }
        }
        page
    }

    fn interfaces(&self, query: &CounterQuery) -> Result<Vec<InterfaceCounts>, String> {
        let links = wanted_links(query.address).map_err(|error| error.to_string())?;
        let is_selected =
            |link: &Link| self.interfaces.is_empty() || self.interfaces.contains(&link.name);
        let links: Vec<_> = links.into_iter().filter(is_selected).collect();
        match query.address {
            Some(address) if links.is_empty() => {
                Err(format!("no exported interface has the address {address}"))
            }
            _ => Ok(links.iter().map(InterfaceCounts::of).collect()),
        }
    }

    fn servers(&mut self) -> Vec<(&'static str, ServerReading)> {
        let deadline = Instant::now() + SERVERS_TIMEOUT;
        let chronyd = match fs::metadata(&self.chronyd) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(Err(of_chronyd(&self.chronyd, &error.to_string()))),
            Ok(_) => Some(self.chronyd()),
        };
        let own = (self.query_servers)(deadline).into_iter().map(|reading| ("horolog", reading));
        chronyd.map(|reading| ("chronyd", reading)).into_iter().chain(own).collect()
    }

    fn chronyd(&self) -> ServerReading {
        // A new socket for each request: chronyd may have been restarted since the last one.
        let mut socket = ChronydSocket::new(ChronydAddress::Unix(self.chronyd.clone()));
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
            Err(error) => Err(of_chronyd(&self.chronyd, &error.to_string())),
        }
    }
}

fn of_chronyd(socket: &std::path::Path, error: &str) -> String {
    format!("{}: {error}; run as root or as chronyd's user", socket.display())
}

/// All interfaces, or the one that has an address.
fn wanted_links(address: Option<IpAddr>) -> Result<Vec<Link>, NetlinkError> {
    let mut netlink = Netlink::open()?;
    let Some(address) = address else { return netlink.links() };
    let addresses = netlink.addresses()?;
    let own = addresses.iter().find(|own| own.prefix.address() == address);
    own.map(|own| netlink.link_by_index(own.index)).transpose().map(Vec::from_iter)
}

impl InterfaceCounts {
    fn of(link: &Link) -> Self {
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
            xdp_tx_errors: if is_veth { sum_of(&link.name, XDP_TX_ERRORS) } else { 0 },
        }
    }
}

/// The sum over all queues of the driver's counters with this name ending; 0 if it has none.
fn sum_of(interface: &str, ending: &str) -> u64 {
    let stats = ethtool::stats(interface).unwrap_or_default();
    stats.iter().filter(|(name, _)| name.ends_with(ending)).map(|(_, count)| count).sum()
}

impl CounterSnapshot {
    fn miss(&mut self, what: &str, why: String) {
        self.unavailable.push(UnavailableCounter { item: what.to_owned(), reason: why });
    }

    /// Reads one of the kernel's texts. A missing one, for instance without IPv6, is not an error.
    fn read<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let path = format!("/proc/thread-self/net/{name}");
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                self.miss(name, format!("{path}: {error}"));
                None
            }
            Ok(text) => {
                let read = parse(&text);
                if read.is_none() {
                    self.miss(name, format!("{path} has an unknown format"));
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
        let page = gatherer(&[]).page(&CounterQuery::default());
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
        let page = gatherer(&[]).page(&query);
        assert_eq!((page.interfaces.len(), page.sockets.len()), (1, 1));
        assert_eq!((page.interfaces[0].name.as_str(), page.sockets[0].port), ("lo", port));
        let page = gatherer(&["eth9"]).page(&query);
        assert!(page.interfaces.is_empty() && page.unavailable[0].reason.contains("127.0.0.1"));
    }
}
