//! What the kernel says of this host's network, as it was when it was last asked: interfaces,
//! addresses, routes, neighbours.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use horolog_sys::netlink::{
    InterfaceAddress, Link, MacAddress, Neighbour, Netlink, NetlinkError, RouteInfo,
};

use crate::Own;

/// A neighbour: the index of an interface, and an address there.
pub(crate) type Hop = (u32, IpAddr);

/// From an address of this host, where it is settled, to another, by an interface where that names
/// one.
type Trip = (Option<IpAddr>, IpAddr, Option<u32>);

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// As it was last seen; `None` where the kernel has no entry.
    seen: Option<Neighbour>,
    /// The MAC address that copies go to: the last one known, until it is found wrong.
    mac: Option<MacAddress>,
}

/// The network as it was last seen.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    links: HashMap<u32, Link>,
    addresses: Vec<InterfaceAddress>,
    routes: HashMap<Trip, Option<RouteInfo>>,
    /// Routes as they were before they were last forgotten.
    former: HashMap<Trip, Option<RouteInfo>>,
    neighbours: HashMap<Hop, Known>,
}

impl Ways {
    /// Asks for interfaces and addresses anew, and forgets routes. What cannot be learnt stays as
    /// it was.
    pub(crate) fn renew(&mut self, netlink: &mut Netlink) {
        if let Ok(links) = netlink.links() {
            self.links = links.into_iter().map(|link| (link.index, link)).collect();
        }
        if let Ok(addresses) = netlink.addresses() {
            self.addresses = addresses;
        }
        self.former = std::mem::take(&mut self.routes);
    }

    /// Asks for the way of what a group at `at` sends to an address, unless that is known. What
    /// cannot be learnt stays as it was.
    pub(crate) fn ask_route(&mut self, netlink: &mut Netlink, at: SocketAddr, to: SocketAddr) {
        let trip @ (from, to, by) = trip(at, to);
        let Self { routes, former, .. } = self;
        routes.entry(trip).or_insert_with(|| {
            let before = former.get(&trip).copied().flatten();
            learnt(&netlink.route_get_from(from, to, by), before)
        });
    }

    /// Asks for a neighbour; what is known of it then. What cannot be learnt stays as it was.
    pub(crate) fn ask_neighbour(
        &mut self,
        netlink: &mut Netlink,
        hop: Hop,
    ) -> Result<Option<Neighbour>, NetlinkError> {
        let seen = netlink.neighbour(hop.0, hop.1)?;
        let known = self.neighbours.entry(hop).or_default();
        known.seen = seen;
        match seen {
            Some(neighbour) if neighbour.usable => known.mac = neighbour.mac,
            Some(neighbour) if neighbour.failed => known.mac = None,
            // It is being asked for, or has been forgotten, which does not make it wrong.
            _ => {}
        }
        Ok(seen)
    }

    /// Forgets neighbours that no child is behind any more.
    pub(crate) fn keep_neighbours(&mut self, is_used: impl Fn(&Hop) -> bool) {
        self.neighbours.retain(|hop, _| is_used(hop));
    }

    /// Whether a neighbour was ever seen with a MAC address, or found not to have one.
    pub(crate) fn is_settled(&self, hop: Hop) -> bool {
        self.neighbours.get(&hop).is_some_and(|known| {
            known.mac.is_some() || known.seen.is_some_and(|seen| seen.failed || seen.usable)
        })
    }

    /// Whether the kernel should ask for a neighbour again: it is not sure to be right.
    pub(crate) fn is_doubtful(&self, hop: Hop) -> bool {
        let seen = self.neighbours.get(&hop).and_then(|known| known.seen);
        !seen.is_some_and(|seen| seen.confirmed)
    }

    /// The MAC address that copies to a neighbour go to.
    pub(crate) fn mac(&self, hop: Hop) -> Option<MacAddress> {
        self.neighbours.get(&hop).and_then(|known| known.mac)
    }

    /// The way of what a group at `at` sends to an address, where that was asked for.
    pub(crate) fn route(&self, at: SocketAddr, to: SocketAddr) -> Option<RouteInfo> {
        self.routes.get(&trip(at, to)).copied().flatten()
    }

    /// The neighbour that this goes to; `None` where there is no way, or it is this host or many.
    pub(crate) fn hop(&self, at: SocketAddr, to: SocketAddr) -> Option<Hop> {
        let way = self.route(at, to).filter(|way| !way.local && !way.to_many)?;
        Some((way.index, way.gateway.unwrap_or(to.ip())))
    }

    /// The longest IP packet for a way, in bytes; `None` where its interface is not known.
    pub(crate) fn mtu(&self, way: &RouteInfo) -> Option<u32> {
        let link = self.link(way.index)?;
        Some(way.mtu.map_or(link.mtu, |mtu| link.mtu.min(mtu)))
    }

    pub(crate) fn link(&self, index: u32) -> Option<&Link> {
        self.links.get(&index)
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    /// The interface that has an address.
    pub(crate) fn owner(&self, address: IpAddr) -> Option<u32> {
        self.addresses.iter().find(|one| one.prefix.address() == address).map(|one| one.index)
    }

    /// This host's own addresses.
    pub(crate) fn own_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter().map(|one| one.prefix.address())
    }

    pub(crate) fn own(&self) -> Own {
        self.own_addresses().collect()
    }
}

#[cfg(test)]
impl Ways {
    /// Ways as they might be.
    pub(crate) fn with(
        links: Vec<Link>,
        addresses: Vec<InterfaceAddress>,
        routes: Vec<(Option<IpAddr>, IpAddr, Option<RouteInfo>)>,
        macs: Vec<(Hop, MacAddress)>,
    ) -> Self {
        let known = |(hop, mac)| (hop, Known { seen: None, mac: Some(mac) });
        Self {
            links: links.into_iter().map(|link| (link.index, link)).collect(),
            addresses,
            routes: routes.into_iter().map(|(at, to, way)| ((at, to, None), way)).collect(),
            former: HashMap::new(),
            neighbours: macs.into_iter().map(known).collect(),
        }
    }
}

/// The way that there is when the kernel was asked for it, and `before` was known.
fn learnt(
    answer: &Result<RouteInfo, NetlinkError>,
    before: Option<RouteInfo>,
) -> Option<RouteInfo> {
    match answer {
        Ok(way) => Some(*way),
        // There is none, or not even the interface that the address names.
        Err(NetlinkError::Unreachable { .. } | NetlinkError::NoSuchIndex(_)) => None,
        Err(_) => before,
    }
}

/// A group that listens at one address sends from there.
fn trip(at: SocketAddr, to: SocketAddr) -> Trip {
    let is_one = !at.ip().is_multicast() && !at.ip().is_unspecified();
    (is_one.then_some(at.ip()), to.ip(), scope(to))
}

/// The interface that a link-local address names.
fn scope(address: SocketAddr) -> Option<u32> {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => Some(v6.scope_id()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use horolog_sys::netlink::Refusal;

    use super::*;

    #[test]
    fn a_way_is_lost_only_where_the_kernel_says_so() {
        let way = RouteInfo {
            index: 7,
            gateway: None,
            source: None,
            local: false,
            to_many: false,
            mtu: None,
        };
        let refusal = |errno| Refusal { errno, explanation: None };
        let destination = "192.0.2.1".parse().unwrap();
        let unreachable = NetlinkError::Unreachable { destination, refusal: refusal(101) };
        assert_eq!(learnt(&Err(unreachable), Some(way)), None);
        assert_eq!(learnt(&Err(NetlinkError::NoSuchIndex(7)), Some(way)), None);
        for error in [
            NetlinkError::Socket(io::Error::from_raw_os_error(105)),
            NetlinkError::Refused { action: "look".into(), refusal: refusal(12) },
        ] {
            assert_eq!(learnt(&Err(error), Some(way)), Some(way));
        }
        assert_eq!(learnt(&Ok(way), None), Some(way));
    }
}
