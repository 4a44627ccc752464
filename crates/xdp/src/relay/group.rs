//! What a group is, and what is remembered of it beside the kernel's tables.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use horolog_sys::netlink::Prefix;
use libbpf_rs::MapHandle;

use super::abi::{SOURCE_ALLOWED, SOURCE_CHILD, SOURCE_OWN};
use super::settled::Settled;
use super::{RelayChild, RelayError};

/// Bytes of the longest packet that is copied, its IP header included. The kernel copies a frame
/// only with what stands around it in one page (`xdpf_clone` of `net/core/xdp.c`).
pub const RELAY_LENGTH_MAX: u32 = 3_500;

/// A limit: the generic cell rate algorithm (ITU-T I.371), with times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RelayLimit {
    /// What one more costs: the time from one to the next if they came evenly.
    pub interval_ns: NonZeroU64,
    /// How far they may be ahead of that: what may come at once costs no more.
    pub tolerance_ns: u64,
}

impl RelayLimit {
    /// Interval and tolerance; zeroes where nothing is limited.
    fn ns(limit: Option<Self>) -> (u64, u64) {
        limit.map_or((0, 0), |limit| (limit.interval_ns.get(), limit.tolerance_ns))
    }
}

/// A group, and whose packets to it are copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RelayGroup {
    /// Its number, below [`RelaySettings::groups`](super::RelaySettings::groups); no other group
    /// has it.
    pub number: u32,
    /// What it is known by: where it listens.
    pub address: SocketAddr,
    /// Where its packets go: addresses of this host or of a multicast group; the port is that of
    /// `address`.
    pub addresses: Vec<IpAddr>,
    /// Index of the interface that they come in by; what comes in by another is left to the network
    /// stack.
    pub interface: Option<u32>,
    /// Who may send to it; nobody else is heard.
    pub sources: Vec<Prefix>,
    /// This host's own addresses. What comes from one of them over a link is left to the network
    /// stack, and what comes from there and a port of a group is refused.
    pub own: Vec<IpAddr>,
    /// Bytes of the longest packet that is copied, its IP header included: the least MTU on the
    /// way to its children. Longer ones are left to the network stack, and so are those above
    /// [`RELAY_LENGTH_MAX`].
    pub length_max: u32,
    /// TTL or hop limit that copies leave with: one less than the packet's, and this at most.
    pub hops_max: u8,
    /// Whether they leave with `hops_max`, whatever the packet had.
    pub hops_anew: bool,
    /// How many packets are copied.
    pub limit: Option<RelayLimit>,
    /// What the copies of one packet cost of what
    /// [`Relay::limit_copies`](super::Relay::limit_copies) allows, in ns.
    pub copies_ns: u64,
}

/// What addresses are to a group, by prefix: bits of `RELAY_SOURCE_*`.
pub(super) type Sources = BTreeMap<(IpAddr, u8), u8>;

impl RelayGroup {
    /// Checks that everything is of the group's IP version, and no child there twice.
    pub(super) fn check(&self, children: &[RelayChild]) -> Result<(), RelayError> {
        let of_children =
            children.iter().flat_map(|child| [child.destination.ip(), child.source.ip()]);
        let listed = self.sources.iter().map(Prefix::address).chain(self.addresses.iter().copied());
        for other in listed.chain(of_children) {
            if other.is_ipv4() != self.address.is_ipv4() {
                return Err(RelayError::Family { group: self.address, other });
            }
        }
        let mut destinations: Vec<_> = children.iter().map(|child| child.destination).collect();
        destinations.sort_unstable();
        match destinations.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(RelayError::Twice { group: self.address, child: pair[0] }),
            None => Ok(()),
        }
    }

    /// What addresses are to it. The longest prefix counts, so an address that is listed by itself
    /// says as well whether it may send.
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

    /// Interval and tolerance of its packets.
    pub(super) fn limit_ns(&self) -> (u64, u64) {
        RelayLimit::ns(self.limit)
    }
}

/// What is remembered of a child.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) destination: SocketAddr,
    /// The number of its counters.
    pub(super) number: u32,
    /// Index of the interface that its copies leave by.
    pub(super) interface: Option<u32>,
    /// Packets of the group that were copied while it was a child, up to the group's last change.
    pub(super) packets_before: u64,
    /// Copies that were said not to have been made.
    pub(super) unmade: Arc<AtomicU64>,
}

/// What is remembered of a group.
pub(super) struct Book {
    /// The group's number.
    pub(super) number: u32,
    /// Which of its two slots its children are in, or were last.
    pub(super) side: u32,
    /// What makes the copies there.
    pub(super) copies: Option<MapHandle>,
    /// Where its packets go.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) sources: Sources,
    pub(super) children: Vec<Known>,
    /// Packets that were counted in the slot before the group's last change.
    pub(super) packets_before: u64,
    /// Those counted since whose copies are made.
    pub(super) settled: Settled,
}

impl Book {
    pub(super) const fn new(number: u32) -> Self {
        Self {
            number,
            side: 0,
            copies: None,
            addresses: Vec::new(),
            sources: Sources::new(),
            children: Vec::new(),
            packets_before: 0,
            settled: Settled::new(Vec::new()),
        }
    }

    /// The slot on one of the group's two sides.
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
            hops_anew: false,
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
    fn what_cannot_be_in_one_group_is_told() {
        let twice = group(&[], &[]).check(&[child("10.0.0.7:1"), child("10.0.0.7:1")]);
        assert!(matches!(twice, Err(RelayError::Twice { .. })), "{twice:?}");
        let mixed = group(&[], &[]).check(&[child("[2001:db8::7]:1")]);
        assert!(matches!(mixed, Err(RelayError::Family { .. })), "{mixed:?}");
        let source = group(&["fd00::/8"], &[]).check(&[]);
        assert!(matches!(source, Err(RelayError::Family { .. })), "{source:?}");
        assert!(group(&["10.0.0.0/8"], &[]).check(&[child("10.0.0.7:1")]).is_ok());
    }
}
