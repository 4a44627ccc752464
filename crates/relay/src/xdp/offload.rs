//! Selection of the groups that the XDP programs can have: pure, except for the question whether an
//! interface accepts redirected frames.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;

use horolog_sys::netlink::Link;
use horolog_xdp::{Interface, RELAY_LENGTH_MAX, RelayChild, RelayGroup, RelayPacketRateLimit};

use crate::limits::{cost_ns, packet_tolerance_ns};
use crate::route_cache::RouteCache;
use crate::{Group, GroupChild, IpNetwork, RoutingTable};

/// Number of frames that the transmit ring of every interface can hold: the ring of a virtual link
/// holds as many, and no NIC's holds fewer. The copies of one packet must fit into it.
pub(crate) const RING_FRAMES_MIN: usize = 256;
/// Bit in the first byte of a MAC address: broadcast or multicast (IEEE 802, I/G bit).
const GROUP_ADDRESS_BIT: u8 = 1;

/// Group with its children, as map entries for the XDP programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct GroupMapEntries {
    pub(super) group: RelayGroup,
    pub(super) children: Vec<RelayChild>,
}

/// Returns the group's map entries, or the reason for which the programs cannot have it, as the
/// predicate of a sentence about the group. Packets arrive by the interface `sole_interface`, or by
/// any. One child that only sockets can reach keeps the whole group with the sockets, because one
/// engine makes all copies of a packet.
pub(super) fn plan_offload(
    table: &RoutingTable,
    group: &Group,
    route_cache: &RouteCache,
    sole_interface: Option<u32>,
    accepts_redirects: &mut impl FnMut(u32) -> bool,
) -> Result<GroupMapEntries, String> {
    let spec = &group.spec;
    if group.children.is_empty() {
        return Err("it has no children".to_owned());
    }
    let mut children_per_egress: HashMap<u32, usize> = HashMap::new();
    let mut length_max = RELAY_LENGTH_MAX;
    let mut children = Vec::with_capacity(group.children.len());
    for child in &group.children {
        let Some(route) = route_cache.route(spec.listen, child.address) else {
            children.push(unroutable_child(child, group));
            continue;
        };
        if route.local {
            return Err(format!("its child {} is on this host", child.address));
        }
        // The kernel would have a MAC address for it, and every host of the link would receive a
        // copy.
        if route.is_group {
            return Err(format!("its child {} is a broadcast address", child.address));
        }
        let known = route_cache.link(route.index);
        let link = known.ok_or_else(|| format!("the route to {} is unknown", child.address))?;
        let count = children_per_egress.entry(link.index).or_default();
        if *count == 0 && !accepts_redirects(link.index) {
            return Err(redirect_error(link));
        }
        *count += 1;
        if *count > RING_FRAMES_MIN {
            return Err(format!(
                "more than {RING_FRAMES_MIN} of its children are behind '{}', which exceeds the guaranteed \
                 size of a transmit ring",
                link.name
            ));
        }
        length_max = length_max.min(route_cache.mtu(&route).unwrap_or(link.mtu));
        children.push(routed_child(child, group, route_cache, link, route.source)?);
    }
    let rate = NonZeroU64::new(cost_ns(1, spec.rate));
    let limit = rate.map(|interval_ns| RelayPacketRateLimit {
        interval_ns,
        tolerance_ns: packet_tolerance_ns(spec.rate),
    });
    let group = RelayGroup {
        number: group.index as u32,
        address: spec.listen,
        addresses: group_addresses(table, spec.listen, route_cache),
        interface: sole_interface,
        sources: source_prefixes(group),
        local_addresses: local_addresses(spec.listen, route_cache),
        length_max,
        hops_max: spec.hop_limit,
        hops_reset: group.is_multicast(),
        limit,
        copy_cost_ns: cost_ns(group.children.len() as u64, table.copy_rate()),
    };
    Ok(GroupMapEntries { group, children })
}

fn redirect_error(link: &Link) -> String {
    let name = &link.name;
    match link.kind.as_deref() {
        Some("veth") => format!(
            "'{name}', the egress interface of copies, accepts none from BPF programs; enable GRO \
             at the peer end of this virtual link, or attach an XDP program there"
        ),
        _ => format!("'{name}', the egress interface of copies, accepts none from BPF programs"),
    }
}

/// Returns a child without a route: copies for it count as dropped.
fn unroutable_child(child: &GroupChild, group: &Group) -> RelayChild {
    RelayChild {
        destination: child.address,
        source: group.spec.listen,
        interface: None,
        source_mac: [0; 6],
        next_hop: None,
    }
}

fn routed_child(
    child: &GroupChild,
    group: &Group,
    route_cache: &RouteCache,
    link: &Link,
    source: Option<IpAddr>,
) -> Result<RelayChild, String> {
    let listen = group.spec.listen;
    let is_single_address = !listen.ip().is_multicast() && !listen.ip().is_unspecified();
    // A socket that is bound to one address sends from it, any other from the route's source.
    let source = if is_single_address { Some(listen.ip()) } else { source };
    let source =
        source.ok_or_else(|| format!("the source address for {} is unknown", child.address))?;
    let no_mac = || format!("'{}', the egress interface of copies, has no MAC address", link.name);
    let next_hop = route_cache.next_hop(listen, child.address).and_then(|hop| route_cache.mac(hop));
    if next_hop.is_some_and(|mac| mac[0] & GROUP_ADDRESS_BIT != 0) {
        return Err(format!(
            "the MAC address of the next hop to {} is a multicast address",
            child.address
        ));
    }
    Ok(RelayChild {
        destination: child.address,
        source: SocketAddr::new(source, listen.port()),
        interface: Some(Interface { index: link.index, name: link.name.clone() }),
        source_mac: link.mac.ok_or_else(no_mac)?,
        next_hop,
    })
}

/// Returns the destination addresses of a group's packets: for one that listens on all addresses of
/// this host, those but the loopback's on which no other group listens.
fn group_addresses(
    table: &RoutingTable,
    listen: SocketAddr,
    route_cache: &RouteCache,
) -> Vec<IpAddr> {
    if !listen.ip().is_unspecified() {
        return vec![listen.ip()];
    }
    let is_taken = |ip: &IpAddr| {
        table.groups().iter().any(|other| other.spec.listen == SocketAddr::new(*ip, listen.port()))
    };
    local_addresses(listen, route_cache)
        .into_iter()
        .filter(|ip| !ip.is_loopback() && !is_taken(ip))
        .collect()
}

/// Returns the permitted source networks of the group's IP version.
fn source_prefixes(group: &Group) -> Vec<horolog_wire::prefix::Prefix> {
    let of_version = |prefix: &horolog_wire::prefix::Prefix| {
        prefix.address().is_ipv4() == group.spec.listen.is_ipv4()
    };
    group.spec.sources.iter().copied().map(IpNetwork::prefix).filter(of_version).collect()
}

/// Returns this host's addresses of the IP version of `listen`, sorted, without duplicates.
fn local_addresses(listen: SocketAddr, route_cache: &RouteCache) -> Vec<IpAddr> {
    let addresses = route_cache.host_addresses().filter(|ip| ip.is_ipv4() == listen.is_ipv4());
    let mut addresses: Vec<IpAddr> = addresses.collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

#[cfg(test)]
mod tests {
    use horolog_sys::netlink::{InterfaceAddress, LinkCounters, RouteInfo};

    use super::*;
    use crate::GroupSpec;
    use crate::tests::{group, spec};

    fn link(index: u32, mtu: u32) -> Link {
        Link {
            index,
            name: format!("veth{index}"),
            mac: Some([2, 0, 0, 0, 0, index as u8]),
            mtu,
            up: true,
            operational: true,
            peer_index: None,
            peer_nsid: None,
            kind: Some("veth".to_owned()),
            vlan: None,
            num_rx_queues: 1,
            num_tx_queues: 1,
            counters: LinkCounters::default(),
        }
    }

    /// Interface 1 leads to 192.0.2.0/24 by a router, interface 2 to 10.0.0.1, and to 10.0.0.3 by
    /// a MAC address of many; the routes to 10.0.0.4 and .5 have an MTU; 10.0.0.9 is this host's,
    /// 10.0.0.2 is nowhere, 10.0.0.255 is all.
    fn ways() -> RouteCache {
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        let route = |index, gateway: Option<&str>, local| {
            let source = Some(ip(&format!("172.16.{index}.1")));
            let (gateway, to_many, mtu) = (gateway.map(ip), false, None);
            Some(RouteInfo { index, gateway, source, local, is_group: to_many, mtu })
        };
        let mut routes = Vec::new();
        // Of groups that listen on one address, and of others.
        for at in [Some(ip("10.0.0.9")), None] {
            routes.push((at, ip("10.0.0.1"), route(2, None, false)));
            routes.push((at, ip("10.0.0.3"), route(2, None, false)));
            let all = route(2, None, false).map(|way| RouteInfo { is_group: true, ..way });
            routes.push((at, ip("10.0.0.255"), all));
            let narrow = |mtu| route(2, None, false).map(|way| RouteInfo { mtu, ..way });
            routes.push((at, ip("10.0.0.4"), narrow(Some(700))));
            routes.push((at, ip("10.0.0.5"), narrow(Some(1_400))));
            routes.push((at, ip("10.0.0.9"), route(3, None, true)));
            routes.push((at, ip("10.0.0.2"), None));
            let far = (0..=255).map(|host| IpAddr::from([192, 0, 2, host]));
            routes.extend(far.map(|host| (at, host, route(1, Some("172.16.1.9"), false))));
        }
        let address = |text: &str| InterfaceAddress { index: 3, prefix: text.parse().unwrap() };
        RouteCache::with(
            vec![link(1, 1_500), link(2, 900)],
            vec![address("10.0.0.9/24"), address("127.0.0.1/8"), address("2001:db8::1/64")],
            routes,
            vec![((1, ip("172.16.1.9")), [4; 6]), ((2, ip("10.0.0.3")), [3, 0xbf, 10, 0, 0, 3])],
        )
    }

    fn table(groups: Vec<GroupSpec>) -> RoutingTable {
        let mut spec = spec(groups);
        spec.destinations.push("10.0.0.0/8".parse().unwrap());
        RoutingTable::new(&spec, None).unwrap()
    }

    fn chosen(listen: &str, children: &[&str]) -> Result<GroupMapEntries, String> {
        let table = table(vec![group("g", listen, children)]);
        plan_offload(&table, &table.groups()[0], &ways(), None, &mut |index| index != 7)
    }

    #[test]
    fn each_child_leaves_by_its_way() {
        let GroupMapEntries { group, children } =
            chosen("10.0.0.9:5", &["192.0.2.1:1", "10.0.0.1:2", "10.0.0.2:3"]).unwrap();
        let by: Vec<_> = children.iter().map(|child| child.interface.clone()).collect();
        let names: Vec<_> = by.iter().flatten().map(|interface| &*interface.name).collect();
        assert_eq!((names, by[2].is_none()), (vec!["veth1", "veth2"], true));
        // A router's MAC address, and one that is not resolved yet.
        assert_eq!([children[0].next_hop, children[1].next_hop], [Some([4; 6]), None]);
        assert_eq!(children[0].source, "10.0.0.9:5".parse().unwrap());
        assert_eq!((group.length_max, group.hops_reset, group.hops_max), (900, false, 32));
        assert_eq!(group.addresses, ["10.0.0.9".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn copies_are_as_long_as_route_and_interface_allow() {
        for (child, length_max) in [("10.0.0.1:1", 900), ("10.0.0.4:1", 700), ("10.0.0.5:1", 900)] {
            let wanted = chosen("10.0.0.9:5", &["192.0.2.1:1", child]).unwrap();
            assert_eq!(wanted.group.length_max, length_max, "{child}");
        }
    }

    #[test]
    fn a_multicast_group_sends_from_the_address_of_the_way() {
        let GroupMapEntries { group, children } = chosen("239.0.0.1:5", &["192.0.2.1:1"]).unwrap();
        assert_eq!(children[0].source, "172.16.1.1:5".parse().unwrap());
        assert!(group.hops_reset);
    }

    #[test]
    fn one_that_listens_everywhere_leaves_others_their_own() {
        let groups = vec![
            group("all", "0.0.0.0:5", &["192.0.2.1:1"]),
            group("one", "10.0.0.9:5", &["192.0.2.1:1"]),
        ];
        let table = table(groups);
        let of = |at: usize| {
            plan_offload(&table, &table.groups()[at], &ways(), None, &mut |_| true).unwrap().group
        };
        assert_eq!(of(0).addresses, [] as [IpAddr; 0]);
        assert_eq!(of(0).local_addresses.len(), 2, "of its IP version");
        assert_eq!(of(1).addresses.len(), 1);
    }

    #[test]
    fn reason_names_work_of_the_socket_engine() {
        let many: Vec<String> = (0..=255).map(|host| format!("192.0.2.{host}:1")).collect();
        let mut many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(chosen("10.0.0.9:5", &many).is_ok());
        many.push("192.0.2.1:2");
        for (children, words) in [
            (&[][..], "no children"),
            (&["192.0.2.1:1", "10.0.0.9:1"], "10.0.0.9:1 is on this host"),
            (&["192.0.2.1:1", "10.0.0.255:1"], "10.0.0.255:1 is a broadcast address"),
            (&["192.0.2.1:1", "10.0.0.3:1"], "the next hop to 10.0.0.3:1 is a multicast"),
            (&many, "more than 256"),
        ] {
            let why = chosen("10.0.0.9:5", children).unwrap_err();
            assert!(why.contains(words), "{why} lacks {words}");
        }
        let table = table(vec![group("g", "10.0.0.9:5", &["192.0.2.1:1"])]);
        let why =
            plan_offload(&table, &table.groups()[0], &ways(), None, &mut |_| false).unwrap_err();
        assert!(why.contains("GRO") && why.contains("veth1"), "{why}");
    }
}
