//! Addresses of an agent's host.

use std::net::{IpAddr, ToSocketAddrs, UdpSocket};

use horolog_sys::netlink::{Netlink, NetlinkError};

use crate::nats::BrokerOptions;

/// Returns the addresses at which other hosts can reach this one: first the source address towards
/// the NATS server, then all others that are neither loopback nor link-local.
pub fn reachable_addresses(broker: &BrokerOptions) -> Result<Vec<IpAddr>, NetlinkError> {
    let all = Netlink::open()?.addresses()?;
    let all = all.into_iter().map(|entry| entry.prefix.address());
    let mut best: Vec<_> =
        broker.servers.iter().find_map(|server| source_address(server)).into_iter().collect();
    for address in all {
        let is_local = match address {
            IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
        };
        if !is_local && !best.contains(&address) {
            best.push(address);
        }
    }
    Ok(best)
}

/// Returns the source address that the kernel selects for packets to a NATS server; `None` if the
/// server's name does not resolve or there is no route.
fn source_address(server: &str) -> Option<IpAddr> {
    let authority = server.split_once("://").map_or(server, |(_, authority)| authority);
    let authority = authority.trim_end_matches('/');
    let to = [authority.to_owned(), format!("{authority}:4222")]
        .iter()
        .find_map(|address| address.to_socket_addrs().ok()?.next())?;
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    // Nothing is sent: the kernel only looks up the route.
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_address_follows_from_the_route_to_a_server() {
        let loopback = Some(IpAddr::from([127, 0, 0, 1]));
        for server in ["nats://127.0.0.1:4222", "127.0.0.1", "tls://127.0.0.1:1/"] {
            assert_eq!(source_address(server), loopback, "{server}");
        }
        assert_eq!(source_address("nats://"), None);
    }
}
