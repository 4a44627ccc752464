//! A group, and its state in user space in addition to the kernel's tables.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use horolog_sys::netlink::Prefix;
use libbpf_rs::MapHandle;

use super::abi::{SOURCE_ALLOWED, SOURCE_CHILD, SOURCE_OWN};
use super::completion::CompletionTracker;
use super::{RelayChild, RelayGroupError};

/// Bytes of the longest packet that is copied, its IP header included. The kernel copies a frame
/// only with its surroundings in one page (`xdpf_clone` of `net/core/xdp.c`).
pub const RELAY_LENGTH_MAX: u32 = 3_500;

/// Rate limit: the generic cell rate algorithm (ITU-T I.371), with times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RelayLimit {
    /// Cost of one packet or copy: the time between two if they were evenly spaced.
    pub interval_ns: NonZeroU64,
    /// Tolerance by which they may be ahead of that: the cost of the largest burst.
    pub tolerance_ns: u64,
}

impl RelayLimit {
    /// Returns interval and tolerance; zeroes without a limit.
    fn ns(limit: Option<Self>) -> (u64, u64) {
        limit.map_or((0, 0), |limit| (limit.interval_ns.get(), limit.tolerance_ns))
    }
}

/// A group, and the conditions under which packets to it are copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RelayGroup {
    /// Number of the group, below [`RelaySettings::groups`](super::RelaySettings::groups); no other
    /// group has it.
    pub number: u32,
    /// Address at which it listens; identifies the group.
    pub address: SocketAddr,
    /// Destinations of its packets: addresses of this host or of a multicast group; the port is
    /// that of `address`.
    pub addresses: Vec<IpAddr>,
    /// Index of its ingress interface; packets that come in by another are passed to the network
    /// stack.
    pub interface: Option<u32>,
    /// Permitted sources; packets from others are refused.
    pub sources: Vec<Prefix>,
    /// Addresses of this host. Packets with such a source over a link are passed to the network
    /// stack, and those with such a source and the port of a group are refused.
    pub own: Vec<IpAddr>,
    /// Bytes of the longest packet that is copied, its IP header included: the least MTU on the
    /// paths to its children. Longer ones are passed to the network stack, and so are those above
    /// [`RELAY_LENGTH_MAX`].
    pub length_max: u32,
    /// TTL or hop limit of copies: one less than the packet's, and at most this.
    pub hops_max: u8,
    /// True if copies leave with `hops_max`, whatever the packet had.
    pub hops_reset: bool,
    /// Rate limit of the packets that are copied.
    pub limit: Option<RelayLimit>,
    /// Cost of the copies of one packet in the limit of
    /// [`RelayPrograms::limit_copies`](super::RelayPrograms::limit_copies), in ns.
    pub copies_ns: u64,
}

/// Roles of addresses for a group, by prefix: bits of `RELAY_SOURCE_*`.
pub(super) type Sources = BTreeMap<(IpAddr, u8), u8>;

impl RelayGroup {
    /// Checks that all addresses are of the group's IP version, and no child is listed twice.
    pub(super) fn check(&self, children: &[RelayChild]) -> Result<(), RelayGroupError> {
        let of_children =
            children.iter().flat_map(|child| [child.destination.ip(), child.source.ip()]);
        let listed = self.sources.iter().map(Prefix::address).chain(self.addresses.iter().copied());
        for other in listed.chain(of_children) {
            if other.is_ipv4() != self.address.is_ipv4() {
                return Err(RelayGroupError::Family { group: self.address, other });
            }
        }
        let mut destinations: Vec<_> = children.iter().map(|child| child.destination).collect();
        destinations.sort_unstable();
        match destinations.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(RelayGroupError::Twice { group: self.address, child: pair[0] }),
            None => Ok(()),
        }
    }

    /// Returns the roles of addresses for it. The longest prefix counts, so the entry of a single
    /// address also states whether it may send.
    pub(super) fn listed(&self, children: &[RelayChild]) -> Sources {
        let allowed = self.sources.iter().map(Prefix::network);
        let mut sources: Sources =
            allowed.map(|prefix| ((prefix.address(), prefix.length()), SOURCE_ALLOWED)).collect();
        let own = self.own.iter().map(|&address| (address, SOURCE_OWN));
        let of_children = children.iter().map(|child| (child.destination.ip(), SOURCE_CHILD));
        for (address, what) in own.chain(of_children) {
            if address.is_ipv4() == self.address.is_ipv4() {
                let may_send = self.sources.iter().any(|prefix| prefix.contains(address));
                let host = (address, Prefix::host(address).length());
                let listed = sources.entry(host).or_default();
                *listed |= what | if may_send { SOURCE_ALLOWED } else { 0 };
            }
        }
        sources
    }

    /// Returns interval and tolerance of its packets.
    pub(super) fn limit_ns(&self) -> (u64, u64) {
        RelayLimit::ns(self.limit)
    }
}

/// State of a child.
#[derive(Clone, Debug)]
pub(super) struct ChildState {
    pub(super) destination: SocketAddr,
    /// Number of its counters.
    pub(super) number: u32,
    /// Index of the egress interface of its copies.
    pub(super) interface: Option<u32>,
    /// Packets of the group that were copied while it was a child, up to the group's last change.
    pub(super) packets_before: u64,
    /// Copies reported as not made.
    pub(super) unmade: Arc<AtomicU64>,
}

/// State of a group.
pub(super) struct GroupState {
    /// Number of the group.
    pub(super) number: u32,
    /// Side of its two slots that its children are in, or were last.
    pub(super) side: u32,
    /// Map that makes the copies there.
    pub(super) copies: Option<MapHandle>,
    /// Destinations of its packets.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) sources: Sources,
    pub(super) children: Vec<ChildState>,
    /// Packets counted in the slot before the group's last change.
    pub(super) packets_before: u64,
    /// Packets counted since whose copies are made.
    pub(super) settled: CompletionTracker,
}

impl GroupState {
    pub(super) const fn new(number: u32) -> Self {
        Self {
            number,
            side: 0,
            copies: None,
            addresses: Vec::new(),
            sources: Sources::new(),
            children: Vec::new(),
            packets_before: 0,
            settled: CompletionTracker::new(Vec::new()),
        }
    }

    /// Returns the slot on one of the group's two sides.
    pub(super) const fn slot(&self, side: u32) -> u32 {
        2 * self.number + side
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interface;

    fn group(sources: &[&str], own: &[&str]) -> RelayGroup {
        RelayGroup {
            number: 0,
            address: "192.0.2.1:5000".parse().unwrap(),
            addresses: vec!["192.0.2.1".parse().unwrap()],
            interface: None,
            sources: sources.iter().map(|prefix| prefix.parse().unwrap()).collect(),
            own: own.iter().map(|address| address.parse().unwrap()).collect(),
            length_max: 1500,
            hops_max: 32,
            hops_reset: false,
            limit: None,
            copies_ns: 0,
        }
    }

    fn child(destination: &str) -> RelayChild {
        RelayChild {
            destination: destination.parse().unwrap(),
            source: "192.0.2.1:5000".parse().unwrap(),
            interface: Some(Interface { index: 2, name: "eth0".to_owned() }),
            source_mac: [0; 6],
            next_hop: None,
        }
    }

    #[test]
    fn an_address_is_listed_with_all_that_it_is() {
        let group = group(&["10.0.0.7/32", "10.0.0.1/8"], &["10.0.0.8", "11.0.0.1", "2001:db8::1"]);
        let listed = group.listed(&[child("10.0.0.7:1"), child("10.0.0.7:2"), child("12.0.0.1:1")]);
        let expected = [
            (("10.0.0.0", 8), SOURCE_ALLOWED),
            (("10.0.0.7", 32), SOURCE_ALLOWED | SOURCE_CHILD),
            (("10.0.0.8", 32), SOURCE_ALLOWED | SOURCE_OWN),
            (("11.0.0.1", 32), SOURCE_OWN),
            (("12.0.0.1", 32), SOURCE_CHILD),
        ];
        let expected = expected
            .map(|((address, length), what)| ((address.parse::<IpAddr>().unwrap(), length), what));
        assert_eq!(listed.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_inconsistent_group_is_refused() {
        let twice = group(&[], &[]).check(&[child("10.0.0.7:1"), child("10.0.0.7:1")]);
        assert!(matches!(twice, Err(RelayGroupError::Twice { .. })), "{twice:?}");
        let mixed = group(&[], &[]).check(&[child("[2001:db8::7]:1")]);
        assert!(matches!(mixed, Err(RelayGroupError::Family { .. })), "{mixed:?}");
        let source = group(&["fd00::/8"], &[]).check(&[]);
        assert!(matches!(source, Err(RelayGroupError::Family { .. })), "{source:?}");
        assert!(group(&["10.0.0.0/8"], &[]).check(&[child("10.0.0.7:1")]).is_ok());
    }
}
