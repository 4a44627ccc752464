//! Group of the relay, and the state that user space keeps in addition to the kernel's tables.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use horolog_wire::prefix::Prefix;
use libbpf_rs::MapHandle;

use super::abi::{FanOutRateState, GroupEntry, SOURCE_ALLOWED, SOURCE_CHILD, SOURCE_OWN};
use super::completion::CopyCompletionTracker;
use super::{RelayChild, RelayGroupError};
use crate::map::MappedArrayMap;

/// Length of the longest packet that is copied, in bytes, from the IP header on. The kernel clones
/// a frame only if it fits into one page with its headroom (`xdpf_clone` of `net/core/xdp.c`).
pub const RELAY_LENGTH_MAX: u32 = 3_500;

/// Rate limit of a group's packets: the generic cell rate algorithm (ITU-T I.371), with times in
/// ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RelayPacketRateLimit {
    /// Emission interval (T of the GCRA) of one packet, in ns.
    pub interval_ns: NonZeroU64,
    /// Time by which packets may be ahead of the evenly spaced schedule, including the present one
    /// (tau + T of the GCRA); below `interval_ns` none is copied.
    pub tolerance_ns: u64,
}

impl RelayPacketRateLimit {
    /// Returns interval and tolerance; (0, 0) without a limit.
    fn to_ns(limit: Option<Self>) -> (u64, u64) {
        limit.map_or((0, 0), |limit| (limit.interval_ns.get(), limit.tolerance_ns))
    }
}

/// Group of the relay, and the conditions on which packets to it are copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RelayGroup {
    /// Number of the group, below
    /// [`RelayTableCapacities::groups`](super::RelayTableCapacities::groups); no other group has
    /// it.
    pub number: u32,
    /// Listen address of the group; identifies it.
    pub address: SocketAddr,
    /// Destination addresses of its packets: of this host or a multicast group; the port is that of
    /// `address`.
    pub addresses: Vec<IpAddr>,
    /// Index of the only ingress interface, if any; packets that arrive by another are passed to
    /// the network stack.
    pub interface: Option<u32>,
    /// Permitted sources; packets from others are dropped.
    pub sources: Vec<Prefix>,
    /// Addresses of this host. A packet with such a source is passed to the network stack, unless
    /// it arrives by the send interface; there it is refused if its source port is the port of a
    /// group.
    pub local_addresses: Vec<IpAddr>,
    /// Length of the longest packet that is copied, in bytes, from the IP header on: the smallest
    /// path MTU of its children. Longer ones, and those above [`RELAY_LENGTH_MAX`], are passed to
    /// the network stack.
    pub length_max: u32,
    /// Upper limit of the TTL or hop limit of copies, which otherwise is one less than that of the
    /// packet.
    pub hops_max: u8,
    /// True if copies have the TTL or hop limit `hops_max` regardless of the packet.
    pub hops_reset: bool,
    /// Rate limit of the packets that are copied; `None` sets none.
    pub limit: Option<RelayPacketRateLimit>,
    /// Cost of the copies of one packet in ns, charged to the limit of
    /// [`RelayPrograms::limit_copies`](super::RelayPrograms::limit_copies).
    pub copy_cost_ns: u64,
}

/// Roles of source addresses in a group, by prefix: bits of `RELAY_SOURCE_*`.
pub(super) type RoleBitsByPrefix = BTreeMap<(IpAddr, u8), u8>;

impl RelayGroup {
    /// Checks that the sources, the destination addresses and the addresses of children are of the
    /// group's IP version, and that no two children have the same destination. Addresses of this
    /// host may be of either version.
    pub(super) fn check(&self, children: &[RelayChild]) -> Result<(), RelayGroupError> {
        let of_children =
            children.iter().flat_map(|child| [child.destination.ip(), child.source.ip()]);
        let listed = self.sources.iter().map(Prefix::address).chain(self.addresses.iter().copied());
        for other in listed.chain(of_children) {
            if other.is_ipv4() != self.address.is_ipv4() {
                return Err(RelayGroupError::IpVersionMismatch { group: self.address, other });
            }
        }
        let mut destinations: Vec<_> = children.iter().map(|child| child.destination).collect();
        destinations.sort_unstable();
        match destinations.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => {
                Err(RelayGroupError::DuplicateChild { group: self.address, child: pair[0] })
            }
            None => Ok(()),
        }
    }

    /// Returns the roles of source addresses of the group's IP version. Only the longest matching
    /// prefix is looked up, so the entry of a single address also has the bit that permits it to
    /// send if it lies in a permitted prefix.
    pub(super) fn source_roles(&self, children: &[RelayChild]) -> RoleBitsByPrefix {
        let allowed = self.sources.iter().map(Prefix::network);
        let mut sources: RoleBitsByPrefix =
            allowed.map(|prefix| ((prefix.address(), prefix.length()), SOURCE_ALLOWED)).collect();
        let local_addresses = self.local_addresses.iter().map(|&address| (address, SOURCE_OWN));
        let of_children = children.iter().map(|child| (child.destination.ip(), SOURCE_CHILD));
        for (address, role) in local_addresses.chain(of_children) {
            if address.is_ipv4() == self.address.is_ipv4() {
                let may_send = self.sources.iter().any(|prefix| prefix.contains(address));
                let host = (address, Prefix::host(address).length());
                let roles = sources.entry(host).or_default();
                *roles |= role | if may_send { SOURCE_ALLOWED } else { 0 };
            }
        }
        sources
    }

    /// Returns interval and tolerance of the rate limit; (0, 0) without a limit.
    pub(super) fn limit_ns(&self) -> (u64, u64) {
        RelayPacketRateLimit::to_ns(self.limit)
    }
}

/// State of a child between changes of its group.
#[derive(Clone, Debug)]
pub(super) struct ChildState {
    pub(super) destination: SocketAddr,
    /// Number of the counters of the child.
    pub(super) number: u32,
    /// Index of the egress interface of its copies; `None` without a route.
    pub(super) interface: Option<u32>,
    /// Packets copied for the group while it had this child, up to the group's last change.
    pub(super) packets_before: u64,
    /// Largest number of copies reported as not made, so that the reported count never falls.
    pub(super) not_made_max: Arc<AtomicU64>,
}

/// State of a group that user space keeps between changes: its slot, lists and counts.
pub(super) struct GroupState {
    /// Number of the group.
    pub(super) number: u32,
    /// Side of the group's two slots (0 or 1) that is, or was last, selected.
    pub(super) side: u32,
    /// Device map that makes the copies; `None` without children.
    pub(super) copy_map: Option<MapHandle>,
    /// Destination addresses and port of its packets.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) sources: RoleBitsByPrefix,
    pub(super) children: Vec<ChildState>,
    /// Packets counted in the slot up to the group's last change.
    pub(super) packets_before: u64,
    /// Tracks the packets since the last change whose copies are complete.
    pub(super) completion: CopyCompletionTracker,
}

impl GroupState {
    pub(super) const fn new(number: u32) -> Self {
        Self {
            number,
            side: 0,
            copy_map: None,
            addresses: Vec::new(),
            sources: RoleBitsByPrefix::new(),
            children: Vec::new(),
            packets_before: 0,
            completion: CopyCompletionTracker::new(Vec::new()),
        }
    }

    /// Returns the slot on one of the group's two sides.
    pub(super) const fn slot(&self, side: u32) -> u32 {
        2 * self.number + side
    }
}

/// Theoretical arrival times (GCRA) of each group and of all copies, in ns of the monotonic clock.
/// BPF programs update them concurrently, so changes require compare-and-exchange.
#[derive(Clone)]
pub struct RelayTheoreticalArrivalTimes {
    groups: Arc<MappedArrayMap<GroupEntry>>,
    fan_out: Arc<MappedArrayMap<FanOutRateState>>,
}

impl RelayTheoreticalArrivalTimes {
    pub(super) const fn new(
        groups: Arc<MappedArrayMap<GroupEntry>>,
        fan_out: Arc<MappedArrayMap<FanOutRateState>>,
    ) -> Self {
        Self { groups, fan_out }
    }

    /// Returns the theoretical arrival time of the packets of the group with this number, in ns of
    /// the monotonic clock; `None` if the number is out of range.
    #[must_use]
    pub fn packet_arrival(&self, number: u32) -> Option<&AtomicU64> {
        let offset = std::mem::offset_of!(GroupEntry, arrival);
        (number < self.groups.entries()).then(|| self.groups.atomic(number, offset))
    }

    /// Returns the theoretical arrival time of all copies, in ns of the monotonic clock.
    #[must_use]
    pub fn copy_arrival(&self) -> &AtomicU64 {
        self.fan_out.atomic(0, std::mem::offset_of!(FanOutRateState, arrival))
    }
}

impl fmt::Debug for RelayTheoreticalArrivalTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayTheoreticalArrivalTimes").finish_non_exhaustive()
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
            local_addresses: own.iter().map(|address| address.parse().unwrap()).collect(),
            length_max: 1500,
            hops_max: 32,
            hops_reset: false,
            limit: None,
            copy_cost_ns: 0,
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
        let listed =
            group.source_roles(&[child("10.0.0.7:1"), child("10.0.0.7:2"), child("12.0.0.1:1")]);
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
        assert!(matches!(twice, Err(RelayGroupError::DuplicateChild { .. })), "{twice:?}");
        let mixed = group(&[], &[]).check(&[child("[2001:db8::7]:1")]);
        assert!(matches!(mixed, Err(RelayGroupError::IpVersionMismatch { .. })), "{mixed:?}");
        let source = group(&["fd00::/8"], &[]).check(&[]);
        assert!(matches!(source, Err(RelayGroupError::IpVersionMismatch { .. })), "{source:?}");
        assert!(group(&["10.0.0.0/8"], &[]).check(&[child("10.0.0.7:1")]).is_ok());
    }
}
