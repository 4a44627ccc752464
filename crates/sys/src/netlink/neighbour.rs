//! Neighbour table: MAC addresses of IP addresses on the same link (ARP, RFC 826; Neighbour
//! Discovery, RFC 4861).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};

use super::address::family;
use super::{MacAddress, Netlink, NetlinkError};

/// Discard service (RFC 863), which ignores datagrams.
const DISCARD_PORT: u16 = 9;
/// Poll interval, longer than a neighbour on a local link takes to reply.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Entry of the neighbour table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// MAC address; `None` before its resolution, or on a link without MAC addresses.
    pub mac: Option<MacAddress>,
    /// True if the kernel would send to the neighbour without resolving it first: reachable,
    /// permanent, stale or being checked, or on a link without address resolution.
    pub usable: bool,
    /// True if the kernel has confirmed the entry as recently reachable, or need not: it is
    /// permanent, or the link has no address resolution.
    pub confirmed: bool,
    /// True if the resolution failed.
    pub failed: bool,
}

impl Netlink {
    /// Returns the entry of the neighbour table for `address` on the interface `index`; `None` if
    /// there is none.
    pub fn neighbour(
        &mut self,
        index: u32,
        address: IpAddr,
    ) -> Result<Option<Neighbour>, NetlinkError> {
        let request = RouteNetlinkMessage::GetNeighbour(neighbour_message(index, address));
        match self.get(&format!("look up the neighbour {address}"), request) {
            Ok(Some(RouteNetlinkMessage::NewNeighbour(message))) => Ok(Some(parse(&message))),
            Ok(_) => Ok(None),
            Err(error) if error.errno() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error.for_index(index)),
        }
    }

    /// Makes the kernel use the entry of `address` as for a sent packet, which resolves a missing
    /// or stale MAC address. Does not wait.
    pub fn probe_neighbour(&mut self, index: u32, address: IpAddr) -> Result<(), NetlinkError> {
        let mut message = neighbour_message(index, address);
        message.header.flags = NeighbourFlags::Use;
        self.change(
            &format!("request the neighbour {address}"),
            RouteNetlinkMessage::NewNeighbour(message),
            NLM_F_CREATE,
        )
        .map_err(|error| error.for_index(index))
    }

    /// Adds a permanent entry for `address`, which the kernel never resolves, or replaces the
    /// existing entry.
    pub fn add_permanent_neighbour(
        &mut self,
        index: u32,
        address: IpAddr,
        mac: MacAddress,
    ) -> Result<(), NetlinkError> {
        let mut message = neighbour_message(index, address);
        message.header.state = NeighbourState::Permanent;
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
        self.change(
            &format!("add the neighbour {address}"),
            RouteNetlinkMessage::NewNeighbour(message),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
        .map_err(|error| error.for_index(index))
    }

    /// Returns the MAC address of `next_hop` on the interface `index`. If the table does not have
    /// it, an empty UDP datagram to the discard port makes the kernel resolve it, and the table is
    /// polled until `timeout`.
    ///
    /// The datagram leaves from the calling thread's namespace, which must be the one of this
    /// connection.
    pub fn resolve_mac(
        &mut self,
        index: u32,
        next_hop: IpAddr,
        timeout: Duration,
    ) -> Result<MacAddress, NetlinkError> {
        if let Some(mac) = self.usable_mac(index, next_hop)? {
            return Ok(mac);
        }
        trigger_resolution(index, next_hop)
            .map_err(|source| NetlinkError::ResolutionTrigger { address: next_hop, source })?;
        let started = Instant::now();
        loop {
            if let Some(mac) = self.usable_mac(index, next_hop)? {
                return Ok(mac);
            }
            if started.elapsed() >= timeout {
                return Err(NetlinkError::NeighbourUnreachable {
                    address: next_hop,
                    index,
                    timeout,
                });
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn usable_mac(
        &mut self,
        index: u32,
        address: IpAddr,
    ) -> Result<Option<MacAddress>, NetlinkError> {
        let found = self.neighbour(index, address)?;
        Ok(found.filter(|neighbour| neighbour.usable).and_then(|neighbour| neighbour.mac))
    }
}

fn trigger_resolution(index: u32, next_hop: IpAddr) -> io::Result<()> {
    let (any, target): (IpAddr, SocketAddr) = match next_hop {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), SocketAddr::new(next_hop, DISCARD_PORT)),
        IpAddr::V6(v6) => {
            // Only a link-local address needs the interface; for others the kernel ignores it.
            let target = SocketAddrV6::new(v6, DISCARD_PORT, 0, index);
            (Ipv6Addr::UNSPECIFIED.into(), target.into())
        }
    };
    UdpSocket::bind((any, 0))?.send_to(&[], target).map(drop)
}

fn neighbour_message(index: u32, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index;
    message.attributes.push(NeighbourAttribute::Destination(address.into()));
    message
}

fn parse(message: &NeighbourMessage) -> Neighbour {
    let mac = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => bytes.as_slice().try_into().ok(),
        _ => None,
    });
    let usable = matches!(
        message.header.state,
        NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Noarp
            | NeighbourState::Permanent
    );
    let confirmed = matches!(
        message.header.state,
        NeighbourState::Reachable | NeighbourState::Noarp | NeighbourState::Permanent
    );
    Neighbour { mac, usable, confirmed, failed: message.header.state == NeighbourState::Failed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_state(state: NeighbourState) -> Neighbour {
        let mut message = neighbour_message(1, "192.0.2.1".parse().unwrap());
        message.header.state = state;
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(vec![2, 0, 0, 0, 0, 1]));
        parse(&message)
    }

    #[test]
    fn a_failed_or_incomplete_entry_is_not_usable() {
        for state in [NeighbourState::Failed, NeighbourState::Incomplete, NeighbourState::None] {
            assert!(!in_state(state).usable, "{state}");
        }
        for state in [NeighbourState::Reachable, NeighbourState::Stale, NeighbourState::Permanent] {
            assert!(in_state(state).usable, "{state}");
        }
        assert!(in_state(NeighbourState::Failed).failed);
        assert!(!in_state(NeighbourState::Incomplete).failed);
        assert!(in_state(NeighbourState::Reachable).confirmed);
        assert!(!in_state(NeighbourState::Stale).confirmed);
        assert_eq!(in_state(NeighbourState::Stale).mac, Some([2, 0, 0, 0, 0, 1]));
    }
}
