//! The way to a target: route, interface, source address and, where frames are built by
//! hand, the MAC addresses at the two ends of the first link. The kernel is asked; nothing
//! is guessed or changed.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use horolog_sys::netlink::{Netlink, NetlinkError};
use horolog_wire::ethernet::MacAddress;

use super::TargetError;

/// How long a neighbour may take to tell its MAC address. The kernel asks three times, a second
/// apart (`mcast_solicit`, `retrans_time_ms`).
const NEIGHBOUR_TIMEOUT: Duration = Duration::from_millis(3_500);

/// The way to a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Route {
    /// The target is this very host, so no frame reaches it.
    ThisHost,
    /// Through an interface.
    Link(Link),
}

/// The first link on the way to a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The interface's name.
    pub interface: String,
    /// The interface's index.
    pub index: u32,
    /// Whether the interface was named by the user rather than found.
    pub asked_for: bool,
    /// The interface's address, which the server has to route replies to.
    pub source: IpAddr,
    /// The router, where the target is not on the link.
    pub gateway: Option<IpAddr>,
    /// The interface's and the next hop's MAC addresses; `None` where it has none or they were not
    /// asked for.
    pub macs: Option<Macs>,
}

/// The two ends of the first link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Macs {
    /// The interface's.
    pub source: MacAddress,
    /// The target's, or the router's.
    pub destination: MacAddress,
}

/// What the user has said about the way.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Hints {
    /// The interface to leave by.
    pub interface: Option<String>,
    /// The MAC address to send to, so that nobody is asked for it.
    pub mac: Option<MacAddress>,
}

/// Gives a link-local target the scope that it needs (RFC 4007).
pub fn scoped(
    netlink: &mut Netlink,
    target: SocketAddr,
    hints: &Hints,
) -> Result<SocketAddr, TargetError> {
    match (target, &hints.interface) {
        (SocketAddr::V6(mut v6), interface)
            if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 =>
        {
            let interface =
                interface.as_ref().ok_or(TargetError::NeedsInterface((*v6.ip()).into()))?;
            v6.set_scope_id(netlink.link_by_name(interface)?.index);
            Ok(v6.into())
        }
        _ => Ok(target),
    }
}

/// Finds the way to `target`: route, interface and source address, and with `with_macs` the MAC
/// addresses too, for which the target or its router may be asked.
pub fn find_route(
    netlink: &mut Netlink,
    target: IpAddr,
    hints: &Hints,
    with_macs: bool,
) -> Result<Route, TargetError> {
    let through = match &hints.interface {
        Some(name) => Some(netlink.link_by_name(name)?.index),
        None => None,
    };
    let own = netlink.addresses()?.iter().any(|own| own.prefix.address() == target);
    let route = netlink.route_get(target, through)?;
    if route.local || own || target.is_loopback() {
        return Ok(Route::ThisHost);
    }
    let link = netlink.link_by_index(route.index)?;
    if !link.up {
        return Err(TargetError::Down(link.name));
    }
    let source = match route.source {
        Some(source) => source,
        None => own_address(netlink, route.index, target)?
            .ok_or_else(|| TargetError::NoSource(link.name.clone(), target))?,
    };
    let macs = if with_macs {
        let own_mac = link.mac.ok_or_else(|| TargetError::NoEthernet(link.name.clone()))?;
        let next_hop = route.gateway.unwrap_or(target);
        let destination = match hints.mac {
            Some(mac) => mac,
            None => MacAddress(netlink.resolve_mac(link.index, next_hop, NEIGHBOUR_TIMEOUT)?),
        };
        Some(Macs { source: MacAddress(own_mac), destination })
    } else {
        None
    };
    Ok(Route::Link(Link {
        interface: link.name,
        index: link.index,
        asked_for: hints.interface.is_some(),
        source,
        gateway: route.gateway,
        macs,
    }))
}

fn own_address(
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
    fn loopback_is_this_host() {
        let mut netlink = Netlink::open().unwrap();
        let route = find_route(&mut netlink, Ipv4Addr::LOCALHOST.into(), &Hints::default(), true);
        assert_eq!(route.unwrap(), Route::ThisHost);
    }
}
