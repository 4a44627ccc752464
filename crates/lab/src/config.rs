//! Configuration of a lab: numbers of hosts and queues, names and addresses of hosts. Pure:
//! computes and checks, and does not touch the kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use horolog_sys::netlink::MacAddress;
use horolog_wire::prefix::Prefix;

use crate::LabError;

/// Largest number of hosts: one /30 network for each link fits 64 times into TEST-NET-1, so there
/// are 64 servers and the client.
pub const HOSTS_MAX: usize = 65;
/// Largest number of queues with which the kernel creates an interface.
pub const QUEUES_MAX: u32 = 4096;
/// Default networks of simulated clients: the largest private networks of IPv4 (RFC 1918) and IPv6
/// (RFC 4193).
pub const DEFAULT_CLIENT_NETWORKS: [(IpAddr, u8); 2] = [
    (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), 8),
    (IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0)), 8),
];

/// Network of all IPv4 links, TEST-NET-1 (RFC 5737), which is divided into /30 networks.
const LINKS_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 0);
const LINK_V4_LENGTH: u8 = 30;
/// Prefix length of an IPv6 link: each link has a /64 network of the documentation prefix (RFC
/// 3849).
const LINK_V6_LENGTH: u8 = 64;

/// Configuration of a lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabConfig {
    /// Number of hosts, 2 to [`HOSTS_MAX`]: a client, and servers.
    pub hosts: usize,
    /// Number of receive queues and of transmit queues of every interface, 1 to [`QUEUES_MAX`].
    pub queues: u32,
    /// True if the links carry IPv6 as well as IPv4.
    pub ipv6: bool,
    /// Networks of simulated clients, to which the servers have routes through the client host.
    /// IPv6 networks are ignored without `ipv6`.
    pub client_networks: Vec<Prefix>,
}

impl Default for LabConfig {
    /// Two hosts, one queue, IPv4 and IPv6, the default client networks.
    fn default() -> Self {
        let client_networks = DEFAULT_CLIENT_NETWORKS
            .iter()
            .filter_map(|&(address, length)| Prefix::new(address, length).ok())
            .collect();
        Self { hosts: 2, queues: 1, ipv6: true, client_networks }
    }
}

impl LabConfig {
    pub(crate) fn check(&self) -> Result<(), LabError> {
        if !(2..=HOSTS_MAX).contains(&self.hosts) {
            return Err(LabError::HostCount(self.hosts));
        }
        if !(1..=QUEUES_MAX).contains(&self.queues) {
            return Err(LabError::QueueCount(self.queues));
        }
        Ok(())
    }

    /// Returns the client networks of the IP versions that the lab supports.
    pub(crate) fn routed_networks(&self) -> impl Iterator<Item = Prefix> + '_ {
        self.client_networks
            .iter()
            .filter(|prefix| self.ipv6 || prefix.address().is_ipv4())
            .map(Prefix::network)
    }
}

/// Checks that each server of a tree is joined to a host with a smaller number.
pub(crate) fn check_tree(parents: &[usize]) -> Result<(), LabError> {
    let invalid = (1..).zip(parents).find(|(number, above)| above >= &number);
    invalid.map_or(Ok(()), |(number, _)| Err(LabError::InvalidParent(number)))
}

/// End of a link: at the client or parent host, or at the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkEnd {
    Client,
    Server,
}

impl LinkEnd {
    /// Returns the host number within the network of the link.
    fn number(self) -> u8 {
        match self {
            Self::Client => 1,
            Self::Server => 2,
        }
    }
}

/// Returns the IPv4 address and prefix length at one end of the link of a server, counted from 1.
pub(crate) fn link_v4(server: usize, end: LinkEnd) -> (Ipv4Addr, u8) {
    let offset = 4 * (server as u32 - 1) + u32::from(end.number());
    (Ipv4Addr::from_bits(LINKS_V4.to_bits() + offset), LINK_V4_LENGTH)
}

/// Returns the IPv6 address and prefix length at one end of the link of a server, counted from 1.
pub(crate) fn link_v6(server: usize, end: LinkEnd) -> (Ipv6Addr, u8) {
    let link = server as u16;
    let address = Ipv6Addr::new(0x2001, 0xdb8, 0, link, 0, 0, 0, u16::from(end.number()));
    (address, LINK_V6_LENGTH)
}

/// Returns the MAC address for an IPv4 address: locally administered (IEEE 802, bit 1 of the first
/// byte), and containing the IPv4 address, so that packet dumps are readable.
pub(crate) fn mac_of(address: Ipv4Addr) -> MacAddress {
    let [a, b, c, d] = address.octets();
    [0x02, 0x00, a, b, c, d]
}

/// Returns the name of a host by its number: `client`, `server`, `server2`, `server3`, …
pub(crate) fn host_name(number: usize) -> String {
    match number {
        0 => "client".to_owned(),
        1 => "server".to_owned(),
        _ => format!("server{number}"),
    }
}

/// Returns the number of a host by its name; `None` if no host can have this name.
pub(crate) fn host_number(name: &str) -> Option<usize> {
    (0..HOSTS_MAX).find(|&number| host_name(number) == name)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_defaults_are_as_documented() {
        let config = LabConfig::default();
        config.check().unwrap();
        let networks: Vec<String> = config.routed_networks().map(|p| p.to_string()).collect();
        assert_eq!(networks, ["10.0.0.0/8", "fd00::/8"]);
        let only_v4 = LabConfig { ipv6: false, ..config };
        assert_eq!(only_v4.routed_networks().count(), 1);
    }

    #[test]
    fn impossible_labs_are_refused() {
        for hosts in [0, 1, HOSTS_MAX + 1] {
            let config = LabConfig { hosts, ..LabConfig::default() };
            assert!(matches!(config.check(), Err(LabError::HostCount(_))), "{hosts}");
        }
        for queues in [0, QUEUES_MAX + 1] {
            let config = LabConfig { queues, ..LabConfig::default() };
            assert!(matches!(config.check(), Err(LabError::QueueCount(_))), "{queues}");
        }
    }

    #[test]
    fn a_server_hangs_below_an_earlier_host() {
        check_tree(&[0, 1, 1, 0, 4]).unwrap();
        for (above, number) in [(&[1][..], 1), (&[0, 2], 2), (&[0, 0, 9], 3)] {
            let error = check_tree(above).unwrap_err();
            assert!(matches!(error, LabError::InvalidParent(wrong) if wrong == number), "{error}");
        }
    }

    #[test]
    fn addresses_are_as_documented() {
        assert_eq!(link_v4(1, LinkEnd::Client), ("192.0.2.1".parse().unwrap(), 30));
        assert_eq!(link_v4(1, LinkEnd::Server), ("192.0.2.2".parse().unwrap(), 30));
        assert_eq!(link_v4(2, LinkEnd::Client).0.to_string(), "192.0.2.5");
        assert_eq!(link_v6(1, LinkEnd::Client), ("2001:db8:0:1::1".parse().unwrap(), 64));
        assert_eq!(link_v6(2, LinkEnd::Server).0.to_string(), "2001:db8:0:2::2");
        assert_eq!(mac_of("192.0.2.1".parse().unwrap()), [2, 0, 192, 0, 2, 1]);
    }

    #[test]
    fn the_largest_lab_stays_in_test_net_1_and_repeats_no_address() {
        let test_net_1: Prefix = "192.0.2.0/24".parse().unwrap();
        let mut addresses = HashSet::new();
        for server in 1..HOSTS_MAX {
            for end in [LinkEnd::Client, LinkEnd::Server] {
                let (address, _) = link_v4(server, end);
                assert!(test_net_1.contains(address.into()), "{address}");
                assert!(addresses.insert(address), "{address}");
            }
        }
    }

    #[test]
    fn names_and_numbers_of_hosts_agree() {
        for number in 0..HOSTS_MAX {
            assert_eq!(host_number(&host_name(number)), Some(number));
        }
        for name in ["", "server0", "server1", "server01", "server65", "client2", "Client"] {
            assert_eq!(host_number(name), None, "{name}");
        }
    }
}
