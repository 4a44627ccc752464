//! Counts of the relay, summed over all CPUs.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::RelayPrograms;
use super::abi::{PASSED_REASONS, REFUSALS, RawChildCounts};
use super::group::{ChildState, GroupState};

/// Reason for which the relay passed a packet to the network stack, in the order of `enum
/// relay_passed`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelayPassedReason {
    /// Not a complete UDP packet to a group, or one with IP options or extension headers; or a
    /// packet by another interface or to another MAC address than the group accepts, or over a link
    /// with a source address of this host or one that is invalid there.
    Other,
    /// The lengths do not match, a checksum is wrong, bytes follow the datagram, or a UDP checksum
    /// over IPv6 is missing.
    Malformed,
    /// Longer than the longest packet that the group copies, or in more than one buffer.
    TooLong,
    /// The group has no children in the kernel.
    NoChildren,
}

impl RelayPassedReason {
    /// All reasons, in the order of the counters.
    pub const ALL: [Self; PASSED_REASONS] =
        [Self::Other, Self::Malformed, Self::TooLong, Self::NoChildren];
}

/// Reason for which the relay dropped a packet to a group, in the order of `enum relay_refusal`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelayDropReason {
    /// The group does not accept packets from this source.
    Source,
    /// The source address and port are those of a child of the group.
    Child,
    /// The source is the relay itself: an address of this host with the port of a group.
    Relay,
    /// The TTL or hop limit was 0 or 1 and the group does not reset it, so the packet may not be
    /// forwarded.
    HopLimit,
    /// The packets to the group exceeded its rate limit.
    Rate,
    /// All groups together exceeded the limit of copies.
    FanOut,
}

impl RelayDropReason {
    /// All reasons, in the order of the counters.
    pub const ALL: [Self; REFUSALS] =
        [Self::Source, Self::Child, Self::Relay, Self::HopLimit, Self::Rate, Self::FanOut];
}

/// Counts of all packets since the relay was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RelayCounts {
    /// Packets that were copied.
    pub packets: u64,
    /// Copies that could not be assigned to a child, and were dropped. There are none as long as
    /// the kernel sends the copies of a packet by each interface in the order of the device map's
    /// entries.
    pub unmatched: u64,
    /// Packets passed to the network stack, in the order of [`RelayPassedReason::ALL`].
    pub passed: [u64; PASSED_REASONS],
}

/// Counts of a group's packets since it was added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RelayGroupCounts {
    /// Packets that were copied.
    pub packets: u64,
    /// Bytes of UDP payload of the packets that were copied.
    pub bytes: u64,
    /// Packets dropped, in the order of [`RelayDropReason::ALL`].
    pub refused: [u64; REFUSALS],
    /// Bytes of the UDP payloads of dropped packets.
    pub refused_bytes: u64,
}

/// Counts of a child's copies since it was added. `sent`, `unresolved`, `driver_full` and
/// `interface_down` add up to the number of packets copied for the group since then, except for a
/// few in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RelayChildCounts {
    /// Copies sent: those that were made and not dropped by the driver.
    pub sent: u64,
    /// Bytes of the UDP payloads of the copies sent.
    pub bytes: u64,
    /// Copies dropped because the MAC address of the next hop is unknown.
    pub unresolved: u64,
    /// Copies dropped because the driver had no room for them. They count as sent if
    /// [`RelayPrograms::uncounted_drops_reason`] returns a reason.
    pub driver_full: u64,
    /// Copies that the kernel did not make: no route to the child, interface down or without
    /// support for redirected frames, or no memory. A copy is counted here only once it certainly
    /// will not be made, which requires calls of [`RelayPrograms::poll_completions`]; so the count
    /// never falls.
    pub interface_down: u64,
}

impl RelayPrograms {
    /// Returns the counts of all packets since the programs were loaded, over all CPUs.
    #[must_use]
    pub fn counts(&self) -> RelayCounts {
        let mut counts = RelayCounts::default();
        for processor in 0..self.states.entries() {
            let state = self.states.read(processor);
            counts.packets += state.packets;
            counts.unmatched += state.strays;
            add(&mut counts.passed, state.passed);
        }
        counts
    }

    /// Returns the counts of the group with this address; `None` if there is none.
    #[must_use]
    pub fn group_counts(&self, address: SocketAddr) -> Option<RelayGroupCounts> {
        self.group_states.get(&address).map(|group_state| self.counts_of_group(group_state))
    }

    /// Returns the counts of the copies to the children of the group with this address, by
    /// [`RelayChild::destination`](super::RelayChild::destination); empty if there is no such
    /// group.
    #[must_use]
    pub fn child_counts(&self, address: SocketAddr) -> Vec<(SocketAddr, RelayChildCounts)> {
        let Some(group_state) = self.group_states.get(&address) else { return Vec::new() };
        let by_processor = self.packets_by_processor(group_state.slot(group_state.side));
        let in_flight = group_state.completion.in_flight(&by_processor);
        let packets = by_processor.iter().sum::<u64>().saturating_sub(group_state.packets_before);
        let with_counts = |child: &ChildState| {
            (child.destination, self.counts_of_child(child, packets, in_flight))
        };
        group_state.children.iter().map(with_counts).collect()
    }

    /// Records the packets whose copies are complete by now. Call it a few times a second: while
    /// packets arrive, [`RelayChildCounts::interface_down`] lags by at most 64 packets of each CPU;
    /// from the third call after the last packet it is exact.
    pub fn poll_completions(&mut self) {
        let now = Instant::now();
        let mut group_states = std::mem::take(&mut self.group_states);
        for group_state in group_states.values_mut() {
            let slot = group_state.slot(group_state.side);
            group_state.completion.record(now, || self.packets_by_processor(slot));
        }
        self.group_states = group_states;
    }

    pub(super) fn counts_of_group(&self, group_state: &GroupState) -> RelayGroupCounts {
        let [mut counts, other] = [0, 1].map(|side| self.slot_counts(group_state.slot(side)));
        counts.packets += other.packets;
        counts.bytes += other.bytes;
        counts.refused_bytes += other.refused_bytes;
        add(&mut counts.refused, other.refused);
        counts
    }

    /// Returns the number of packets copied from a slot since its group was added, by CPU.
    pub(super) fn packets_by_processor(&self, slot: u32) -> Vec<u64> {
        let packets_of =
            |processor| self.slot_counts.read(processor * self.config.slots + slot).packets;
        (0..self.states.entries()).map(packets_of).collect()
    }

    fn slot_counts(&self, slot: u32) -> RelayGroupCounts {
        let mut counts = RelayGroupCounts::default();
        for processor in 0..self.states.entries() {
            let counts_of_processor = self.slot_counts.read(processor * self.config.slots + slot);
            counts.packets += counts_of_processor.packets;
            counts.bytes += counts_of_processor.bytes;
            counts.refused_bytes += counts_of_processor.refused_bytes;
            add(&mut counts.refused, counts_of_processor.refused);
        }
        counts
    }

    /// Returns the number of packets copied since the group's last change.
    pub(super) fn packets_since_change(&self, group_state: &GroupState) -> u64 {
        let counted =
            self.packets_by_processor(group_state.slot(group_state.side)).iter().sum::<u64>();
        counted.saturating_sub(group_state.packets_before)
    }

    /// Returns a child's counts, given that `packets` were copied since its group's last change and
    /// the copies of `in_flight` of them may be pending. Raises the largest reported number of
    /// copies not made.
    pub(super) fn counts_of_child(
        &self,
        child: &ChildState,
        packets: u64,
        in_flight: u64,
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
        // No copy is pending without a route.
        let in_flight = child.interface.map_or(0, |_| in_flight);
        let not_made = (child.packets_before + packets).saturating_sub(accounted + in_flight);
        counts.interface_down = child.not_made_max.fetch_max(not_made, Relaxed).max(not_made);
        counts
    }
}

fn add<const N: usize>(sums: &mut [u64; N], values: [u64; N]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}
