//! Cache of this host's network as of the latest query to the kernel: interfaces, addresses,
//! routes, neighbours.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use horolog_sys::netlink::{
    InterfaceAddress, Link, MacAddress, Neighbour, Netlink, NetlinkError, RouteInfo,
};
use horolog_sys::zone::zone_index;

use crate::LocalAddresses;

/// Next hop: index of an interface, and the neighbour's address on its link.
pub(crate) type NextHop = (u32, IpAddr);

/// Key of a route: source address if the group is bound to one, destination, and the destination's
/// scope ID.
type RouteKey = (Option<IpAddr>, IpAddr, Option<u32>);

/// State of a neighbour.
#[derive(Clone, Copy, Debug, Default)]
struct NeighbourState {
    /// Entry of the kernel's neighbour table at the latest query; `None` if there was none.
    entry: Option<Neighbour>,
    /// MAC address for copies: the last known one, until its resolution fails.
    mac: Option<MacAddress>,
}

/// Links, addresses, routes and neighbours of this host at the latest query.
#[derive(Debug, Default)]
pub(crate) struct RouteCache {
    links: HashMap<u32, Link>,
    addresses: Vec<InterfaceAddress>,
    routes: HashMap<RouteKey, Option<RouteInfo>>,
    /// Routes before the latest refresh.
    previous_routes: HashMap<RouteKey, Option<RouteInfo>>,
    neighbours: HashMap<NextHop, NeighbourState>,
}

impl RouteCache {
    /// Queries interfaces and addresses again, and discards routes, except as values for queries
    /// that fail. Values that cannot be read remain unchanged.
    pub(crate) fn refresh(&mut self, netlink: &mut Netlink) {
        if let Ok(links) = netlink.links() {
            self.links = links.into_iter().map(|link| (link.index, link)).collect();
        }
        if let Ok(addresses) = netlink.addresses() {
            self.addresses = addresses;
        }
        self.previous_routes = std::mem::take(&mut self.routes);
    }

    /// Queries the route to an address for a group that listens on `listen`, unless it is cached. A
    /// value that cannot be read remains unchanged.
    pub(crate) fn query_route(
        &mut self,
        netlink: &mut Netlink,
        listen: SocketAddr,
        to: SocketAddr,
    ) {
        let key @ (from, to, by) = route_key(listen, to);
        let Self { routes, previous_routes, .. } = self;
        routes.entry(key).or_insert_with(|| {
            let previous = previous_routes.get(&key).copied().flatten();
            updated_route(&netlink.route_get_from(from, to, by), previous)
        });
    }

    /// Queries a neighbour, and returns its entry; `None` if the kernel has none. After an error
    /// the cached value remains unchanged.
    pub(crate) fn query_neighbour(
        &mut self,
        netlink: &mut Netlink,
        next_hop: NextHop,
    ) -> Result<Option<Neighbour>, NetlinkError> {
        let entry = netlink.neighbour(next_hop.0, next_hop.1)?;
        let state = self.neighbours.entry(next_hop).or_default();
        state.entry = entry;
        match entry {
            Some(neighbour) if neighbour.usable => state.mac = neighbour.mac,
            Some(neighbour) if neighbour.failed => state.mac = None,
            // The neighbour is being resolved, or its entry has been removed, which does not make
            // the address wrong.
            _ => {}
        }
        Ok(entry)
    }

    /// Discards neighbours that no child uses any more.
    pub(crate) fn retain_neighbours(&mut self, is_used: impl Fn(&NextHop) -> bool) {
        self.neighbours.retain(|hop, _| is_used(hop));
    }

    /// Returns true if the resolution of a neighbour has finished: it has an address, or it has
    /// failed.
    pub(crate) fn is_resolution_complete(&self, next_hop: NextHop) -> bool {
        self.neighbours.get(&next_hop).is_some_and(|known| {
            known.mac.is_some()
                || known.entry.is_some_and(|neighbour| neighbour.failed || neighbour.usable)
        })
    }

    /// Returns true if the kernel should resolve a neighbour again, because it has no entry or its
    /// entry is not confirmed.
    pub(crate) fn is_unconfirmed(&self, next_hop: NextHop) -> bool {
        let neighbour = self.neighbours.get(&next_hop).and_then(|known| known.entry);
        !neighbour.is_some_and(|entry| entry.confirmed)
    }

    /// Returns the MAC address for copies to a neighbour; `None` if none is known, or its
    /// resolution failed.
    pub(crate) fn mac(&self, next_hop: NextHop) -> Option<MacAddress> {
        self.neighbours.get(&next_hop).and_then(|known| known.mac)
    }

    /// Returns the cached route to an address for a group that listens on `listen`; `None` if it
    /// was not queried or there is none.
    pub(crate) fn route(&self, listen: SocketAddr, to: SocketAddr) -> Option<RouteInfo> {
        self.routes.get(&route_key(listen, to)).copied().flatten()
    }

    /// Returns the next hop of a route; `None` without a route, or if the destination is this host
    /// or a group of hosts.
    pub(crate) fn next_hop(&self, listen: SocketAddr, to: SocketAddr) -> Option<NextHop> {
        let route = self.route(listen, to).filter(|way| !way.local && !way.is_group)?;
        Some((route.index, route.gateway.unwrap_or(to.ip())))
    }

    /// Returns the longest IP packet for a route, in bytes; `None` if its interface is unknown.
    pub(crate) fn mtu(&self, route: &RouteInfo) -> Option<u32> {
        let link = self.link(route.index)?;
        Some(route.mtu.map_or(link.mtu, |mtu| link.mtu.min(mtu)))
    }

    pub(crate) fn link(&self, index: u32) -> Option<&Link> {
        self.links.get(&index)
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    /// Returns the index of the interface that has an address; `None` if it is not one of this
    /// host.
    pub(crate) fn interface_of(&self, address: IpAddr) -> Option<u32> {
        self.addresses.iter().find(|one| one.prefix.address() == address).map(|one| one.index)
    }

    /// Returns the addresses of this host.
    pub(crate) fn host_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter().map(|one| one.prefix.address())
    }

    pub(crate) fn local_addresses(&self) -> LocalAddresses {
        self.host_addresses().collect()
    }
}

#[cfg(test)]
impl RouteCache {
    /// Returns a cache with these links, addresses, routes (source, destination, route) and MAC
    /// addresses of next hops.
    pub(crate) fn with(
        links: Vec<Link>,
        addresses: Vec<InterfaceAddress>,
        routes: Vec<(Option<IpAddr>, IpAddr, Option<RouteInfo>)>,
        macs: Vec<(NextHop, MacAddress)>,
    ) -> Self {
        let known = |(hop, mac)| (hop, NeighbourState { entry: None, mac: Some(mac) });
        Self {
            links: links.into_iter().map(|link| (link.index, link)).collect(),
            addresses,
            routes: routes.into_iter().map(|(at, to, way)| ((at, to, None), way)).collect(),
            previous_routes: HashMap::new(),
            neighbours: macs.into_iter().map(known).collect(),
        }
    }
}

/// Returns the route by the kernel's response; `None` if there is none, `previous` if the query
/// failed for another reason.
fn updated_route(
    answer: &Result<RouteInfo, NetlinkError>,
    previous: Option<RouteInfo>,
) -> Option<RouteInfo> {
    match answer {
        Ok(route) => Some(*route),
        // There is no route, or not even the interface that the address names.
        Err(NetlinkError::Unreachable { .. } | NetlinkError::NoSuchIndex(_)) => None,
        Err(_) => previous,
    }
}

/// Returns the key of a route; a group that listens on one address sends from that address.
fn route_key(listen: SocketAddr, to: SocketAddr) -> RouteKey {
    let is_single_address = !listen.ip().is_multicast() && !listen.ip().is_unspecified();
    (is_single_address.then_some(listen.ip()), to.ip(), zone_index(to))
}

#[cfg(test)]
mod tests {
    use std::io;

    use horolog_sys::netlink::KernelRefusal;

    use super::*;

    #[test]
    fn route_is_lost_only_if_the_kernel_reports_it() {
        let way = RouteInfo {
            index: 7,
            gateway: None,
            source: None,
            local: false,
            is_group: false,
            mtu: None,
        };
        let refusal = |errno| KernelRefusal { errno, explanation: None };
        let destination = "192.0.2.1".parse().unwrap();
        let unreachable = NetlinkError::Unreachable { destination, refusal: refusal(101) };
        assert_eq!(updated_route(&Err(unreachable), Some(way)), None);
        assert_eq!(updated_route(&Err(NetlinkError::NoSuchIndex(7)), Some(way)), None);
        for error in [
            NetlinkError::Socket(io::Error::from_raw_os_error(105)),
            NetlinkError::Refused { action: "look".into(), refusal: refusal(12) },
        ] {
            assert_eq!(updated_route(&Err(error), Some(way)), Some(way));
        }
        assert_eq!(updated_route(&Ok(way), None), Some(way));
    }
}
