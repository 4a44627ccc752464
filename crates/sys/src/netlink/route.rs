//! Routes of the main table: adding and deleting them, and looking up the route of a packet.

use std::net::IpAddr;

use horolog_wire::prefix::Prefix;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
    RouteScope, RouteType,
};

use super::address::family;
use super::{KernelRefusal, Netlink, NetlinkError};

/// Route of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteInfo {
    /// Index of the egress interface.
    pub index: u32,
    /// Next-hop router; `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// Source address that the kernel would choose.
    pub source: Option<IpAddr>,
    /// True if the destination is an address of this host.
    pub local: bool,
    /// True if the destination is a broadcast address of the interface or a multicast group.
    pub is_group: bool,
    /// Path MTU in bytes, if set for the route or learned from a router (RFC 1191, RFC 8201); the
    /// interface's MTU applies in addition.
    pub mtu: Option<u32>,
}

impl Netlink {
    /// Adds a route to `destination` by the interface `index`, via `gateway` if given.
    pub fn add_route(
        &mut self,
        destination: Prefix,
        gateway: Option<IpAddr>,
        index: u32,
    ) -> Result<(), NetlinkError> {
        let mut message = route_message(destination);
        message.header.protocol = RouteProtocol::Static;
        message.header.kind = RouteType::Unicast;
        message.header.scope =
            if gateway.is_some() { RouteScope::Universe } else { RouteScope::Link };
        message.attributes.push(RouteAttribute::Oif(index));
        message.attributes.extend(gateway.map(|address| RouteAttribute::Gateway(address.into())));
        self.change(
            &format!("add the route to {destination}"),
            RouteNetlinkMessage::NewRoute(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
        .map_err(|error| error.for_index(index))
    }

    /// Deletes the first route of the main table to exactly this destination.
    pub fn delete_route(&mut self, destination: Prefix) -> Result<(), NetlinkError> {
        let mut message = route_message(destination);
        message.header.scope = RouteScope::NoWhere; // matches any scope
        self.change(
            &format!("delete the route to {destination}"),
            RouteNetlinkMessage::DelRoute(message),
            0,
        )
    }

    /// Returns the route of a packet to `destination`, as `ip route get` does; only by the
    /// interface `through` if given.
    pub fn route_get(
        &mut self,
        destination: IpAddr,
        through: Option<u32>,
    ) -> Result<RouteInfo, NetlinkError> {
        self.route_get_from(None, destination, through)
    }

    /// Returns the route of a packet from `source`, an address of this host, if given: routing
    /// rules may depend on it.
    pub fn route_get_from(
        &mut self,
        source: Option<IpAddr>,
        destination: IpAddr,
        through: Option<u32>,
    ) -> Result<RouteInfo, NetlinkError> {
        let action = format!("look up the route to {destination}");
        let mut request = route_message(Prefix::host(destination));
        request.header.table = RouteHeader::RT_TABLE_UNSPEC;
        request.attributes.extend(through.map(RouteAttribute::Oif));
        if let Some(source) = source {
            request.header.source_prefix_length = Prefix::host(source).length();
            request.attributes.push(RouteAttribute::Source(source.into()));
        }
        let answer = self
            .get(&action, RouteNetlinkMessage::GetRoute(request))
            .map_err(|error| route_error(error, destination, through))?;
        match answer {
            Some(RouteNetlinkMessage::NewRoute(message)) => parse(&action, destination, &message),
            _ => Err(NetlinkError::malformed(&action, "no route in the answer")),
        }
    }
}

pub(super) fn route_message(destination: Prefix) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(destination.address());
    message.header.destination_prefix_length = destination.length();
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.attributes.push(RouteAttribute::Destination(destination.address().into()));
    message
}

fn route_error(error: NetlinkError, destination: IpAddr, through: Option<u32>) -> NetlinkError {
    match error {
        // EACCES is a "prohibit" route and EINVAL a "blackhole" route here, since reading a route
        // needs no privilege.
        NetlinkError::Refused { refusal, .. } | NetlinkError::NotPermitted { refusal, .. }
            if matches!(
                refusal.errno,
                libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL
            ) =>
        {
            NetlinkError::Unreachable { destination, refusal }
        }
        other => match through {
            Some(index) => other.for_index(index),
            None => other,
        },
    }
}

fn parse(
    action: &str,
    destination: IpAddr,
    message: &RouteMessage,
) -> Result<RouteInfo, NetlinkError> {
    let errno = match message.header.kind {
        RouteType::Unreachable => Some(libc::EHOSTUNREACH),
        RouteType::BlackHole => Some(libc::EINVAL),
        RouteType::Prohibit => Some(libc::EACCES),
        _ => None,
    };
    if let Some(errno) = errno {
        let refusal = KernelRefusal { errno, explanation: None };
        return Err(NetlinkError::Unreachable { destination, refusal });
    }
    let mut index = None;
    let mut info = RouteInfo {
        index: 0,
        gateway: None,
        source: None,
        local: message.header.kind == RouteType::Local,
        is_group: matches!(message.header.kind, RouteType::Broadcast | RouteType::Multicast),
        mtu: None,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(found) => index = Some(*found),
            RouteAttribute::Gateway(address) => info.gateway = ip(address),
            RouteAttribute::PrefSource(address) => info.source = ip(address),
            RouteAttribute::Via(via) => info.gateway = via_ip(via),
            RouteAttribute::Metrics(metrics) => info.mtu = metrics.iter().find_map(mtu),
            _ => {}
        }
    }
    info.index =
        index.ok_or_else(|| NetlinkError::malformed(action, "no interface in the route"))?;
    Ok(info)
}

fn mtu(metric: &RouteMetric) -> Option<u32> {
    match metric {
        RouteMetric::Mtu(mtu) => Some(*mtu).filter(|mtu| *mtu > 0),
        _ => None,
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    }
}

/// Returns the gateway of an IPv4 route via an IPv6 router (RFC 5549).
fn via_ip(via: &netlink_packet_route::route::RouteVia) -> Option<IpAddr> {
    use netlink_packet_route::route::RouteVia;
    match via {
        RouteVia::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteVia::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_local() {
        let route = Netlink::open().unwrap().route_get("127.0.0.1".parse().unwrap(), None).unwrap();
        assert!(route.local);
        assert_eq!(route.gateway, None);
        assert_eq!(route.source, Some("127.0.0.1".parse().unwrap()));
    }

    fn parsed(message: &RouteMessage) -> RouteInfo {
        parse("look up", "192.0.2.255".parse().unwrap(), message).unwrap()
    }

    #[test]
    fn a_broadcast_address_is_distinguished_from_a_host() {
        let mut message = route_message("192.0.2.255/32".parse().unwrap());
        message.attributes.push(RouteAttribute::Oif(7));
        for (kind, to_many) in [
            (RouteType::Unicast, false),
            (RouteType::Local, false),
            (RouteType::Broadcast, true),
            (RouteType::Multicast, true),
        ] {
            message.header.kind = kind;
            assert_eq!(parsed(&message).is_group, to_many, "{kind:?}");
        }
    }

    #[test]
    fn a_route_may_have_an_mtu_of_its_own() {
        let mut message = route_message("192.0.2.255/32".parse().unwrap());
        message.attributes.push(RouteAttribute::Oif(7));
        assert_eq!(parsed(&message).mtu, None);
        let metrics = vec![RouteMetric::Hoplimit(9), RouteMetric::Mtu(1_400)];
        message.attributes.push(RouteAttribute::Metrics(metrics));
        assert_eq!(parsed(&message).mtu, Some(1_400));
    }

    #[test]
    fn a_prohibiting_route_is_unreachable_and_not_a_lack_of_privilege() {
        let refusal = KernelRefusal { errno: libc::EACCES, explanation: None };
        let error = NetlinkError::refused("look up", refusal);
        let destination = "192.0.2.1".parse().unwrap();
        let error = route_error(error, destination, None);
        assert!(matches!(error, NetlinkError::Unreachable { .. }));
        assert_eq!(error.errno(), Some(libc::EACCES));
    }

    #[test]
    fn a_route_through_an_unknown_interface_is_an_error() {
        let index = u32::MAX >> 1;
        let result = Netlink::open().unwrap().route_get("127.0.0.1".parse().unwrap(), Some(index));
        assert!(matches!(result, Err(NetlinkError::NoSuchIndex(i)) if i == index), "{result:?}");
    }
}
