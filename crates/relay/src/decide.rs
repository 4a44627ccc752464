//! What becomes of a packet: a pure function of the packet, the table and the limits. It reads no
//! clock and touches no socket, so that every engine can be held against it.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use crate::table::end;
use crate::{Child, Drop, Group, Limits, Refusal, Table};

/// A packet as it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Who sent it.
    pub source: SocketAddr,
    /// The address and port that it was sent to.
    pub destination: SocketAddr,
    /// Whether that is a multicast group's address: the kernel tells it where it does not tell the
    /// address.
    pub to_group: bool,
    /// What was left of its TTL or hop limit; `None` where the kernel did not tell.
    pub hop_limit: Option<u8>,
    /// Bytes of payload.
    pub payload: usize,
}

/// This host's own addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Own(HashSet<IpAddr>);

impl Own {
    fn has(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.0.contains(&address)
    }
}

impl FromIterator<IpAddr> for Own {
    fn from_iter<T: IntoIterator<Item = IpAddr>>(addresses: T) -> Self {
        Self(addresses.into_iter().collect())
    }
}

/// The copies of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Copies<'a> {
    /// Whose children get them.
    pub group: &'a Group,
    /// The TTL or hop limit that they leave with.
    pub hop_limit: u8,
    /// Bytes of payload.
    pub payload: usize,
}

impl<'a> Copies<'a> {
    /// Each child in the order of the table, and whether it gets its copy. A child may be admitted
    /// on trial, once for each time that it is asked.
    pub fn children(self) -> impl Iterator<Item = (&'a Child, Result<(), Drop>)> {
        self.group.children.iter().map(move |child| (&**child, child.admits(self.payload)))
    }
}

/// Decides about a packet that came at `now_ns`, on a clock that never goes back.
///
/// The hop limit of copies is one less than that of the packet, and no more than the group's: so
/// a loop over any relays dies. What was sent to a multicast group begins anew with the group's:
/// its senders limit it to the link as a rule, and no relay sends to a multicast group, so no loop
/// of relays alone goes that way. One over a program that sends copies to the group again would not
/// die; rates bound it.
pub fn decide<'a>(
    table: &'a Table,
    own: &Own,
    limits: &mut Limits,
    packet: &Packet,
    now_ns: u64,
) -> Result<Copies<'a>, Refusal> {
    let group = table.find(packet.destination).ok_or(Refusal::Destination)?;
    if packet.to_group != group.is_multicast() {
        return Err(Refusal::Destination);
    }
    if !group.allows(packet.source.ip()) {
        return Err(Refusal::Source);
    }
    let (address, port) = end(packet.source);
    if table.has_port(port) && own.has(address) {
        return Err(Refusal::Oneself);
    }
    if group.has_child(packet.source) {
        return Err(Refusal::Child);
    }
    let left = if packet.to_group {
        group.spec.hop_limit
    } else {
        packet.hop_limit.unwrap_or(0).saturating_sub(1).min(group.spec.hop_limit)
    };
    if left == 0 {
        return Err(Refusal::HopLimit);
    }
    if !limits.admits_packet(group, now_ns) {
        return Err(Refusal::Rate);
    }
    if !limits.admits_copies(table, group.children.len(), now_ns) {
        return Err(Refusal::CopyRate);
    }
    Ok(Copies { group, hop_limit: left, payload: packet.payload })
}
