//! Decision about a packet: a pure function of the packet, the table and the limits. It reads no
//! clock and uses no socket, so that every engine can be compared with it.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use crate::table::endpoint_key;
use crate::{CopyDrop, Group, GroupChild, PacketRefusal, RelayRateLimiter, RoutingTable};

/// Packet as received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceivedPacket {
    /// Sender of the packet.
    pub source: SocketAddr,
    /// Address and port to which the packet was sent.
    pub destination: SocketAddr,
    /// True if it was sent to several hosts, by a multicast or broadcast address of IP or of the
    /// link.
    pub to_group: bool,
    /// Remaining TTL or hop limit; `None` if the kernel did not report it.
    pub hop_limit: Option<u8>,
    /// Length of the payload, in bytes.
    pub payload_len: usize,
}

/// Addresses of this host; every loopback address counts as one of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LocalAddresses(HashSet<IpAddr>);

impl LocalAddresses {
    fn contains(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.0.contains(&address)
    }
}

impl FromIterator<IpAddr> for LocalAddresses {
    fn from_iter<T: IntoIterator<Item = IpAddr>>(addresses: T) -> Self {
        Self(addresses.into_iter().collect())
    }
}

/// Copies of a packet that was accepted for relaying.
#[derive(Clone, Copy, Debug)]
pub struct PacketCopies<'a> {
    /// Group whose children receive the copies.
    pub group: &'a Group,
    /// TTL or hop limit with which the copies leave.
    pub hop_limit: u8,
    /// Length of the payload, in bytes.
    pub payload_len: usize,
}

impl<'a> PacketCopies<'a> {
    /// Returns each child in the order of the table, with the decision about its copy. Each call
    /// may use up one trial copy of an unreachable child (see [`GroupChild::allow_trial_copy`]).
    pub fn children(self) -> impl Iterator<Item = (&'a GroupChild, Result<(), CopyDrop>)> {
        let fragment = self.group.spec.fragment;
        let admitted = move |child: &GroupChild| child.admit_copy(self.payload_len, fragment);
        self.group.children.iter().map(move |child| (&**child, admitted(child)))
    }
}

/// Decides about a packet received at `now_ns`, on a clock that never goes back; the error is the
/// reason for which it is refused. Charges the group's rate and then the relay's copy rate; the
/// former also if the latter is exceeded.
///
/// The hop limit of copies is one less than that of the packet, and at most the group's, so that a
/// loop over any relays ends. A packet sent to a multicast group starts with the group's hop limit,
/// because senders usually set such packets to 1. That cannot close a loop of relays, since relays
/// send only unicast copies. A loop through another program that sends copies back to the group is
/// bounded only by the rates.
pub fn decide<'a>(
    table: &'a RoutingTable,
    local_addresses: &LocalAddresses,
    limits: &mut RelayRateLimiter,
    packet: &ReceivedPacket,
    now_ns: u64,
) -> Result<PacketCopies<'a>, PacketRefusal> {
    let group = table.find_group(packet.destination).ok_or(PacketRefusal::Destination)?;
    if packet.to_group != group.is_multicast() {
        return Err(PacketRefusal::Destination);
    }
    if !group.allows_source(packet.source.ip()) {
        return Err(PacketRefusal::Source);
    }
    let (address, port) = endpoint_key(packet.source);
    if table.has_port(port) && local_addresses.contains(address) {
        return Err(PacketRefusal::Relay);
    }
    if group.has_child(packet.source) {
        return Err(PacketRefusal::Child);
    }
    let hop_limit = if packet.to_group {
        group.spec.hop_limit
    } else {
        packet.hop_limit.unwrap_or(0).saturating_sub(1).min(group.spec.hop_limit)
    };
    if hop_limit == 0 {
        return Err(PacketRefusal::HopLimit);
    }
    if !limits.admits_packet(group, now_ns) {
        return Err(PacketRefusal::Rate);
    }
    if !limits.admits_copies(table, group.children.len(), now_ns) {
        return Err(PacketRefusal::CopyRate);
    }
    Ok(PacketCopies { group, hop_limit, payload_len: packet.payload_len })
}
