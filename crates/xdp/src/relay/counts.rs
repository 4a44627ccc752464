//! Counts of the relay, over all CPUs.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::RelayPrograms;
use super::abi::{PASSED_REASONS, REFUSALS, RawChildCounts};
use super::group::{ChildState, GroupState};

/// Reason for which the relay passed a packet to the network stack, in the order of `enum
/// relay_passed`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelayPassed {
    /// Not a whole UDP packet, without options or extension headers, to a group.
    Other,
    /// Lengths do not fit, there are trailing bytes, or no UDP checksum over IPv6.
    Malformed,
    /// Longer than the limit of the group's copies.
    Long,
    /// The group has no children here.
    NoChildren,
}

impl RelayPassed {
    /// All reasons, in the order of the counters.
    pub const ALL: [Self; PASSED_REASONS] =
        [Self::Other, Self::Malformed, Self::Long, Self::NoChildren];
}

/// Reason for which the relay dropped a packet to a group, in the order of `enum relay_refusal`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelayRefusal {
    /// The group does not accept packets from this source.
    Source,
    /// One of the group's children sent it.
    Child,
    /// The relay itself sent it.
    Oneself,
    /// The TTL or hop limit was 1, so it may not be forwarded.
    Hops,
    /// The group exceeded its rate.
    Rate,
    /// All groups together exceeded the copy rate.
    FanOut,
}

impl RelayRefusal {
    /// All reasons, in the order of the counters.
    pub const ALL: [Self; REFUSALS] =
        [Self::Source, Self::Child, Self::Oneself, Self::Hops, Self::Rate, Self::FanOut];
}

/// Counts of all packets since the relay was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RelayCounts {
    /// Packets that were copied.
    pub packets: u64,
    /// Copies without an owner, which were dropped. There are none as long as the kernel lets the
    /// copies of a packet leave an interface in the order of its map's entries.
    pub strays: u64,
    /// Packets passed to the network stack, in the order of [`RelayPassed::ALL`].
    pub passed: [u64; PASSED_REASONS],
}

/// Counts of a group's packets since it was added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RelayGroupCounts {
    /// Packets that were copied.
    pub packets: u64,
    /// Bytes of their UDP payloads.
    pub bytes: u64,
    /// Packets dropped, in the order of [`RelayRefusal::ALL`].
    pub refused: [u64; REFUSALS],
    /// Bytes of the UDP payloads of dropped packets.
    pub refused_bytes: u64,
}

/// Counts of a child's copies since it was added. Their sum is the number of packets that the group
/// copied meanwhile; while packets are in flight, a few may be missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RelayChildCounts {
    /// Copies sent.
    pub sent: u64,
    /// Bytes of the UDP payloads of the copies sent.
    pub bytes: u64,
    /// Copies dropped because the MAC address of the next hop is unknown.
    pub unresolved: u64,
    /// Copies dropped because the driver had no room for them. They count as sent if
    /// [`RelayPrograms::uncounted_drops_reason`] returns a reason.
    pub driver_full: u64,
    /// Copies that the kernel did not make: there was no route to the child, the interface was down
    /// or did not accept frames from BPF programs, or memory was exhausted. A copy counts here once
    /// it certainly will not be made, which requires calls of [`RelayPrograms::poll_completions`];
    /// so the count never falls.
    pub interface_down: u64,
}

impl RelayPrograms {
    /// Returns the counts of all packets.
    #[must_use]
    pub fn counts(&self) -> RelayCounts {
        let mut counts = RelayCounts::default();
        for processor in 0..self.states.entries() {
            let state = self.states.read(processor);
            counts.packets += state.packets;
            counts.strays += state.strays;
            add(&mut counts.passed, state.passed);
        }
        counts
    }

    /// Returns the counts of the packets to this address, if it is a group's.
    #[must_use]
    pub fn group_counts(&self, address: SocketAddr) -> Option<RelayGroupCounts> {
        self.group_states.get(&address).map(|group_state| self.of_group(group_state))
    }

    /// Returns the counts of the copies to the children of the group with this address, by
    /// [`RelayChild::destination`](super::RelayChild::destination).
    #[must_use]
    pub fn child_counts(&self, address: SocketAddr) -> Vec<(SocketAddr, RelayChildCounts)> {
        let Some(group_state) = self.group_states.get(&address) else { return Vec::new() };
        let by_processor = self.packets_by_processor(group_state.slot(group_state.side));
        let under_way = group_state.settled.in_flight(&by_processor);
        let packets = by_processor.iter().sum::<u64>().saturating_sub(group_state.packets_before);
        let of = |child: &ChildState| (child.destination, self.of_child(child, packets, under_way));
        group_state.children.iter().map(of).collect()
    }

    /// Records the packets whose copies have been made by now. Must be called a few times a second:
    /// while packets arrive, the count of copies that the kernel did not make lags by at most 64
    /// packets of each CPU, and from the third call after the last packet it is exact.
    pub fn poll_completions(&mut self) {
        let now = Instant::now();
        let mut group_states = std::mem::take(&mut self.group_states);
        for group_state in group_states.values_mut() {
            let slot = group_state.slot(group_state.side);
            group_state.settled.record(now, || self.packets_by_processor(slot));
        }
        self.group_states = group_states;
    }

    pub(super) fn of_group(&self, group_state: &GroupState) -> RelayGroupCounts {
        let [mut counts, other] = [0, 1].map(|side| self.slot_counts(group_state.slot(side)));
        counts.packets += other.packets;
        counts.bytes += other.bytes;
        counts.refused_bytes += other.refused_bytes;
        add(&mut counts.refused, other.refused);
        counts
    }

    /// Returns the packets ever copied from a slot, by CPU.
    pub(super) fn packets_by_processor(&self, slot: u32) -> Vec<u64> {
        let of = |processor| self.slot_counts.read(processor * self.config.slots + slot).packets;
        (0..self.states.entries()).map(of).collect()
    }

    fn slot_counts(&self, slot: u32) -> RelayGroupCounts {
        let mut counts = RelayGroupCounts::default();
        for processor in 0..self.states.entries() {
            let one = self.slot_counts.read(processor * self.config.slots + slot);
            counts.packets += one.packets;
            counts.bytes += one.bytes;
            counts.refused_bytes += one.refused_bytes;
            add(&mut counts.refused, one.refused);
        }
        counts
    }

    /// Returns the packets copied since the group's last change.
    pub(super) fn packets_now(&self, group_state: &GroupState) -> u64 {
        let counted =
            self.packets_by_processor(group_state.slot(group_state.side)).iter().sum::<u64>();
        counted.saturating_sub(group_state.packets_before)
    }

    /// Returns a child's counts, if `packets` were copied since its group's last change, and copies
    /// of `under_way` of them may be pending.
    pub(super) fn of_child(
        &self,
        child: &ChildState,
        packets: u64,
        under_way: u64,
    ) -> RelayChildCounts {
        let (mut made, mut counts) = (0, RelayChildCounts::default());
        for processor in 0..self.states.entries() {
            let entry = processor * self.config.children + child.number;
            let RawChildCounts { copies, bytes, unresolved, driver_full } =
                self.child_counts.read(entry);
            made += copies;
            counts.bytes = counts.bytes.wrapping_add(bytes);
            counts.unresolved += unresolved;
            counts.driver_full += driver_full;
        }
        counts.sent = made.saturating_sub(counts.driver_full);
        let accounted = made + counts.unresolved;
        // Without a route, none is made.
        let under_way = child.interface.map_or(0, |_| under_way);
        let unmade = (child.packets_before + packets).saturating_sub(accounted + under_way);
        counts.interface_down = child.unmade.fetch_max(unmade, Relaxed).max(unmade);
        counts
    }
}

fn add<const N: usize>(sums: &mut [u64; N], values: [u64; N]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}
