//! Route to a target: interface, source address and, for engines that build frames, the MAC
//! addresses of the first link. Queries the kernel and changes nothing.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use horolog_sys::netlink::{Netlink, NetlinkError};
use horolog_sys::zone::zone_index;
use horolog_wire::ethernet::MacAddress;

use super::TargetError;

/// Longest time for neighbour resolution. The kernel sends three solicitations, a second apart
/// (`mcast_solicit`, `retrans_time_ms`).
const NEIGHBOUR_TIMEOUT: Duration = Duration::from_millis(3_500);

/// Route to a target: within this host, or by a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Route {
    /// The target is an address of this host, so no frame is sent.
    ThisHost,
    /// The target is reached by an interface.
    Link(FirstLink),
}

/// First link of the route to a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FirstLink {
    /// Name of the interface.
    pub interface: String,
    /// Index of the interface.
    pub index: u32,
    /// True if the user named the interface; false if it was looked up.
    pub is_explicit: bool,
    /// Address of the interface, the gateway of the server's return route to simulated clients.
    pub source: IpAddr,
    /// Address of the router; `None` if the target is on the link.
    pub gateway: Option<IpAddr>,
    /// MAC addresses of the interface and the next hop; `None` if they were not requested.
    pub macs: Option<LinkMacs>,
}

/// MAC addresses at the two ends of the first link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkMacs {
    /// MAC address of the interface.
    pub source: MacAddress,
    /// MAC address of the target, or of the router.
    pub destination: MacAddress,
}

/// The user's settings for the route.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RouteHints {
    /// Interface to send by.
    pub interface: Option<String>,
    /// Destination MAC address; `None` uses neighbour resolution.
    pub mac: Option<MacAddress>,
}

/// Returns the command for the server that adds a return route to simulated clients in `network`.
/// For a link-local gateway the user must insert the interface.
pub(crate) fn return_route_command(network: &impl fmt::Display, gateway: IpAddr) -> String {
    let command = format!("ip route add {network} via {gateway}");
    match gateway {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => format!("{command} dev INTERFACE"),
        _ => command,
    }
}

/// Finds the route to a target: interface and source address, and with `with_macs` also the MAC
/// addresses, by neighbour resolution if necessary. The interface in `hints` takes precedence over
/// the zone of the address.
pub fn find_route(
    netlink: &mut Netlink,
    address: SocketAddr,
    hints: &RouteHints,
    with_macs: bool,
) -> Result<Route, TargetError> {
    let target = address.ip();
    let through = match &hints.interface {
        Some(name) => Some(netlink.link_by_name(name)?.index),
        None => zone_index(address),
    };
    let is_local = netlink.addresses()?.iter().any(|own| own.prefix.address() == target);
    let route = netlink.route_get(target, through)?;
    if route.local || is_local || target.is_loopback() {
        return Ok(Route::ThisHost);
    }
    let link = netlink.link_by_index(route.index)?;
    if !link.up {
        return Err(TargetError::Down(link.name));
    }
    let source = match route.source {
        Some(source) => source,
        None => source_address(netlink, route.index, target)?
            .ok_or_else(|| TargetError::NoSource(link.name.clone(), target))?,
    };
    let macs = if with_macs {
        let own_mac = link.mac.ok_or_else(|| TargetError::NoEthernet(link.name.clone()))?;
        let next_hop = route.gateway.unwrap_or(target);
        let destination = match hints.mac {
            Some(mac) => mac,
            None => MacAddress(
                netlink
                    .resolve_mac(link.index, next_hop, NEIGHBOUR_TIMEOUT)
                    .map_err(|error| neighbour_error(error, &link.name))?,
            ),
        };
        Some(LinkMacs { source: MacAddress(own_mac), destination })
    } else {
        None
    };
    Ok(Route::Link(FirstLink {
        interface: link.name,
        index: link.index,
        is_explicit: hints.interface.is_some(),
        source,
        gateway: route.gateway,
        macs,
    }))
}

/// Replaces the index of the interface by its name in an error.
fn neighbour_error(error: NetlinkError, interface: &str) -> TargetError {
    match error {
        NetlinkError::NeighbourUnreachable { address, timeout: waited, .. } => {
            TargetError::NoNeighbour { address, interface: interface.to_owned(), waited }
        }
        error => error.into(),
    }
}

fn source_address(
    netlink: &mut Netlink,
    index: u32,
    target: IpAddr,
) -> Result<Option<IpAddr>, NetlinkError> {
    let fits = |address: IpAddr| address.is_ipv4() == target.is_ipv4();
    let addresses = netlink.addresses()?;
    Ok(addresses
        .iter()
        .filter(|own| own.index == index)
        .map(|own| own.prefix.address())
        .find(|&address| fits(address)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_neighbour_without_an_answer_is_missing_on_an_interface_with_a_name() {
        let address = Ipv4Addr::new(192, 0, 2, 1).into();
        let error =
            NetlinkError::NeighbourUnreachable { address, index: 4, timeout: NEIGHBOUR_TIMEOUT };
        let text = neighbour_error(error, "eth0").to_string();
        assert!(text.contains("interface 'eth0'") && !text.contains("index"), "{text}");
    }

    #[test]
    fn loopback_is_this_host() {
        let mut netlink = Netlink::open().unwrap();
        let at = (Ipv4Addr::LOCALHOST, 123).into();
        let route = find_route(&mut netlink, at, &RouteHints::default(), true);
        assert_eq!(route.unwrap(), Route::ThisHost);
    }
}
