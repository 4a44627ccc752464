//! IP addresses of interfaces: listing and adding them.

use std::net::IpAddr;

use horolog_wire::prefix::Prefix;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{Netlink, NetlinkError};

/// IP address of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// Index of its interface.
    pub index: u32,
    /// Address, and the prefix length of its network.
    pub prefix: Prefix,
}

impl Netlink {
    /// Returns all addresses of all interfaces in this namespace, IPv4 and IPv6, loopback and
    /// link-local ones included.
    pub fn addresses(&mut self) -> Result<Vec<InterfaceAddress>, NetlinkError> {
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        Ok(self
            .dump("list the addresses", &request)?
            .into_iter()
            .filter_map(|item| match item {
                RouteNetlinkMessage::NewAddress(message) => parse(&message),
                _ => None,
            })
            .collect())
    }

    /// Adds an address to an interface. For IPv6, duplicate address detection (RFC 4862, section
    /// 5.4) is skipped; the kernel still accepts packets for the address only a little later, once
    /// [`Netlink::route_get`] reports it as local.
    pub fn add_address(&mut self, index: u32, prefix: Prefix) -> Result<(), NetlinkError> {
        let mut message = AddressMessage::default();
        message.header.index = index;
        message.header.prefix_len = prefix.length();
        message.header.scope = AddressScope::Universe;
        message.header.family = family(prefix.address());
        message.attributes.push(AddressAttribute::Local(prefix.address()));
        message.attributes.push(AddressAttribute::Address(prefix.address()));
        if prefix.address().is_ipv6() {
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        self.change(
            &format!("add the address {prefix}"),
            RouteNetlinkMessage::NewAddress(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
        .map_err(|error| error.for_index(index))
    }
}

/// Returns the netlink address family of an IP address.
pub(super) fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn parse(message: &AddressMessage) -> Option<InterfaceAddress> {
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    // On a point-to-point link IFA_LOCAL is the local address and IFA_ADDRESS that of the far end;
    // without IFA_LOCAL (IPv6 on other links) IFA_ADDRESS is the local address.
    let interface_address = local.or_else(|| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    })?;
    let prefix = Prefix::new(interface_address, message.header.prefix_len).ok()?;
    Some(InterfaceAddress { index: message.header.index, prefix })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_far_end_of_a_point_to_point_link_is_not_ours() {
        let mut message = AddressMessage::default();
        message.header.index = 3;
        message.header.prefix_len = 32;
        message.attributes = vec![
            AddressAttribute::Address("192.0.2.2".parse().unwrap()),
            AddressAttribute::Local("192.0.2.1".parse().unwrap()),
        ];
        let parsed = parse(&message).unwrap();
        assert_eq!(parsed.prefix.to_string(), "192.0.2.1/32");
        message.attributes.pop();
        assert_eq!(parse(&message).unwrap().prefix.to_string(), "192.0.2.2/32");
    }

    #[test]
    fn loopback_has_its_address() {
        let addresses = Netlink::open().unwrap().addresses().unwrap();
        assert!(addresses.iter().any(|entry| entry.prefix.to_string() == "127.0.0.1/8"));
    }
}
