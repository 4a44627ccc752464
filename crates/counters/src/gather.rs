//! Reads all counters of this machine that this process may read, and names the others.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use horolog_record::rfc3339_now;
use horolog_source::{ChronydAddress, CommandSocket};
use horolog_sys::ethtool;
use horolog_sys::netlink::{Link, Netlink, NetlinkError};

use crate::{Interface, Page, Query, SCHEMA, Server, Socket, Softnet, UdpCounters, Unread};

/// Ending of the names under which a veth counts, for each queue, frames that its XDP program sent
/// back and that did not fit into the other end's ring.
const XDP_TX_ERRORS: &str = "_xdp_tx_errors";

/// What a time server told, or why it told nothing.
pub type Told = Result<Server, String>;

/// Asks the servers of this project that run here, until an instant at which it has to be through.
pub type AskServers = Box<dyn FnMut(Instant) -> Vec<Told> + Send>;

/// How long servers may take to tell, all together: one that is stopped costs its own entry, and
/// not the page, for which [`crate::Remote`] waits a little longer.
pub(crate) const SERVERS_PATIENCE: Duration = Duration::from_secs(2);

/// What reads the counters.
pub struct Gatherer {
    /// Only these interfaces; all where none is named.
    interfaces: Vec<String>,
    chronyd: PathBuf,
    ask_servers: AskServers,
}

impl Gatherer {
    /// Reads of these interfaces (of all where none is named), of the chronyd with this command
    /// socket where there is one, and of the servers that `ask_servers` knows.
    #[must_use]
    pub fn new(interfaces: Vec<String>, chronyd: PathBuf, ask_servers: AskServers) -> Self {
        Self { interfaces, chronyd, ask_servers }
    }

    /// Reads what is asked for.
    pub fn page(&mut self, query: &Query) -> Page {
        let mut page =
            Page { schema: SCHEMA.to_owned(), read_at: rfc3339_now(), ..Page::default() };
        match self.interfaces(query) {
            Ok(interfaces) => page.interfaces = interfaces,
            Err(why) => page.miss("interfaces", why),
        }
        page.softnet = page.read("softnet_stat", Softnet::parse);
        page.udp_ipv4 = page.read("snmp", UdpCounters::parse_snmp);
        page.udp_ipv6 = page.read("snmp6", UdpCounters::parse_snmp6);
        for table in ["udp", "udp6"] {
            let sockets = page.read(table, |text| Some(Socket::parse_table(text)));
            let wanted = |socket: &Socket| query.port.is_none_or(|port| port == socket.port);
            page.sockets.extend(sockets.into_iter().flatten().filter(wanted));
        }
        for (program, told) in self.servers() {
            match told {
                Ok(server) => page.servers.push(server),
                Err(why) => page.miss(program, why),
            }
        }
        page
    }

    fn interfaces(&self, query: &Query) -> Result<Vec<Interface>, String> {
        let links = wanted_links(query.address).map_err(|error| error.to_string())?;
        let asked =
            |link: &Link| self.interfaces.is_empty() || self.interfaces.contains(&link.name);
        let links: Vec<_> = links.into_iter().filter(asked).collect();
        match query.address {
            Some(address) if links.is_empty() => {
                Err(format!("no interface that may be told of has the address {address}"))
            }
            _ => Ok(links.iter().map(Interface::of).collect()),
        }
    }

    fn servers(&mut self) -> Vec<(&'static str, Told)> {
        let deadline = Instant::now() + SERVERS_PATIENCE;
        let chronyd = match fs::metadata(&self.chronyd) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(Err(of_chronyd(&self.chronyd, &error.to_string()))),
            Ok(_) => Some(self.chronyd()),
        };
        let own = (self.ask_servers)(deadline).into_iter().map(|told| ("horolog", told));
        chronyd.map(|told| ("chronyd", told)).into_iter().chain(own).collect()
    }

    fn chronyd(&self) -> Told {
        // A socket for each question: chronyd may have been started anew since the last.
        let mut socket = CommandSocket::new(ChronydAddress::Unix(self.chronyd.clone()));
        match socket.statistics() {
            Ok(Ok(counted)) => Ok(Server {
                program: "chronyd".to_owned(),
                received: counted.ntp_received,
                answered: counted.ntp_received.saturating_sub(counted.ntp_dropped),
                limited: counted.ntp_dropped,
            }),
            Ok(Err(status)) => Err(format!("it refuses to tell (status {status})")),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err("no answer in time".to_owned())
            }
            Err(error) => Err(of_chronyd(&self.chronyd, &error.to_string())),
        }
    }
}

fn of_chronyd(socket: &std::path::Path, error: &str) -> String {
    format!("{}: {error}; that takes root or chronyd's own user", socket.display())
}

/// All interfaces, or the one that has an address.
fn wanted_links(address: Option<IpAddr>) -> Result<Vec<Link>, NetlinkError> {
    let mut netlink = Netlink::open()?;
    let Some(address) = address else { return netlink.links() };
    let addresses = netlink.addresses()?;
    let own = addresses.iter().find(|own| own.prefix.address() == address);
    own.map(|own| netlink.link_by_index(own.index)).transpose().map(Vec::from_iter)
}

impl Interface {
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

/// The sum over all queues of the driver's counters whose names end so; 0 where it tells none.
fn sum_of(interface: &str, ending: &str) -> u64 {
    let stats = ethtool::stats(interface).unwrap_or_default();
    stats.iter().filter(|(name, _)| name.ends_with(ending)).map(|(_, count)| count).sum()
}

impl Page {
    fn miss(&mut self, what: &str, why: String) {
        self.unread.push(Unread { what: what.to_owned(), why });
    }

    /// Reads one of the kernel's texts. One that is not there, as where IPv6 is off, is no
    /// shortcoming.
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
                    self.miss(name, format!("{path} has a form that is not known here"));
                }
                read
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gatherer(interfaces: &[&str]) -> Gatherer {
        let told = |deadline: Instant| {
            assert!(deadline <= Instant::now() + SERVERS_PATIENCE);
            let server = Server { program: "horolog".into(), received: 5, ..Server::default() };
            vec![Ok(server), Err("it is silent".to_owned())]
        };
        let interfaces = interfaces.iter().map(|name| (*name).to_owned()).collect();
        Gatherer::new(interfaces, "/nowhere/chronyd.sock".into(), Box::new(told))
    }

    #[test]
    fn this_machine_is_read_without_privileges() {
        let page = gatherer(&[]).page(&Query::default());
        assert!(page.interfaces.iter().any(|interface| interface.name == "lo"));
        assert!(page.softnet.is_some() && page.udp_ipv4.is_some());
        assert_eq!((page.servers.len(), page.servers[0].received), (1, 5));
        let unread = Unread { what: "horolog".into(), why: "it is silent".into() };
        assert_eq!(page.unread, [unread], "a chronyd that is not there is not missed");
    }

    #[test]
    fn no_more_is_told_than_is_asked() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let query = Query { address: Some([127, 0, 0, 1].into()), port: Some(port) };
        let page = gatherer(&[]).page(&query);
        assert_eq!((page.interfaces.len(), page.sockets.len()), (1, 1));
        assert_eq!((page.interfaces[0].name.as_str(), page.sockets[0].port), ("lo", port));
        let page = gatherer(&["eth9"]).page(&query);
        assert!(page.interfaces.is_empty() && page.unread[0].why.contains("127.0.0.1"));
    }
}
