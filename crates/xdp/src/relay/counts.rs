//! What the relay counted, over all processors.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::Relay;
use super::abi::{ChildCounts, PASSED_REASONS, REFUSALS};
use super::group::{Book, Known};

/// Why the relay left a packet to the network stack, in the order of `enum relay_passed`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelayPassed {
    /// Not a whole UDP packet, without options or extension headers, to a group.
    Other,
    /// Lengths do not fit, there are trailing bytes, or no UDP checksum over IPv6.
    Malformed,
    /// It is longer than the group's copies may be.
    Long,
    /// The group has no children here.
    NoChildren,
}

impl RelayPassed {
    /// All of them, in the order of the counters.
    pub const ALL: [Self; PASSED_REASONS] =
        [Self::Other, Self::Malformed, Self::Long, Self::NoChildren];
}

/// Why the relay dropped a packet to a group, in the order of `enum relay_refusal`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelayRefusal {
    /// The group does not take packets from there.
    Source,
    /// One of the group's children sent it.
    Child,
    /// The relay itself sent it.
    Oneself,
    /// It may not go further: its TTL or hop limit was 1.
    Hops,
    /// The group had too many.
    Rate,
    /// All groups together made too many copies.
    FanOut,
}

impl RelayRefusal {
    /// All of them, in the order of the counters.
    pub const ALL: [Self; REFUSALS] =
        [Self::Source, Self::Child, Self::Oneself, Self::Hops, Self::Rate, Self::FanOut];
}

/// What was counted of all packets since the relay was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RelayCounts {
    /// Packets that copies were made of.
    pub packets: u64,
    /// Copies that were nobody's and were dropped. There are none as long as the kernel lets the
    /// copies of a packet leave an interface in the order of its map's entries.
    pub strays: u64,
    /// Packets that were left to the network stack, in the order of [`RelayPassed::ALL`].
    pub passed: [u64; PASSED_REASONS],
}

/// What was counted of a group's packets since it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RelayGroupCounts {
    /// Packets that copies were made of.
    pub packets: u64,
    /// Bytes of their UDP payloads.
    pub bytes: u64,
    /// Packets that were dropped, in the order of [`RelayRefusal::ALL`].
    pub refused: [u64; REFUSALS],
    /// Bytes of the UDP payloads of these.
    pub refused_bytes: u64,
}

/// What was counted of a child's copies since it came. All of them together are the packets that
/// the group copied meanwhile; while packets are on their way, a few of them may be missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RelayChildCounts {
    /// Copies that left.
    pub sent: u64,
    /// Bytes of the UDP payloads of those.
    pub bytes: u64,
    /// Copies that were dropped, because the MAC address of the next hop is not known.
    pub unresolved: u64,
    /// Copies that were dropped, because the driver had no room for them. They count as sent where
    /// [`Relay::driver_drops_unseen`] says why.
    pub driver_full: u64,
    /// Copies that the kernel did not make: there was no way to the child, the interface was down
    /// or did not take frames from BPF programs, or there was no memory. A copy counts here once it
    /// is sure that none is to come, for which [`Relay::look`] has to be called; so it never falls.
    pub interface_down: u64,
}

impl Relay {
    /// What was counted of all packets.
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

    /// What was counted of the packets to this address, where it is a group's.
    #[must_use]
    pub fn group_counts(&self, address: SocketAddr) -> Option<RelayGroupCounts> {
        self.books.get(&address).map(|book| self.of_group(book))
    }

    /// What was counted of the copies to the children of the group with this address, by
    /// [`RelayChild::destination`](super::RelayChild::destination).
    #[must_use]
    pub fn child_counts(&self, address: SocketAddr) -> Vec<(SocketAddr, RelayChildCounts)> {
        let Some(book) = self.books.get(&address) else { return Vec::new() };
        let by_processor = self.packets_by_processor(book.slot(book.side));
        let under_way = book.settled.under_way(&by_processor);
        let packets = by_processor.iter().sum::<u64>().saturating_sub(book.packets_before);
        let of = |child: &Known| (child.destination, self.of_child(child, packets, under_way));
        book.children.iter().map(of).collect()
    }

    /// Notes which packets have had their copies made by now. To be called a few times in a second:
    /// while packets come, what is counted of copies that the kernel did not make is behind by 64
    /// packets of each processor at most, and from the third call after the last one it is right.
    pub fn look(&mut self) {
        let now = Instant::now();
        let mut books = std::mem::take(&mut self.books);
        for book in books.values_mut() {
            let slot = book.slot(book.side);
            book.settled.look(now, || self.packets_by_processor(slot));
        }
        self.books = books;
    }

    pub(super) fn of_group(&self, book: &Book) -> RelayGroupCounts {
        let [mut counts, other] = [0, 1].map(|side| self.slot_counts(book.slot(side)));
        counts.packets += other.packets;
        counts.bytes += other.bytes;
        counts.refused_bytes += other.refused_bytes;
        add(&mut counts.refused, other.refused);
        counts
    }

    /// Packets that were ever copied from a slot, by processor.
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

    /// Packets that were copied since the group's last change.
    pub(super) fn packets_now(&self, book: &Book) -> u64 {
        let counted = self.packets_by_processor(book.slot(book.side)).iter().sum::<u64>();
        counted.saturating_sub(book.packets_before)
    }

    /// A child's counts, where so many packets were copied since its group's last change, and of so
    /// many of them copies may still be made.
    pub(super) fn of_child(&self, child: &Known, packets: u64, under_way: u64) -> RelayChildCounts {
        let (mut given, mut counts) = (0, RelayChildCounts::default());
        for processor in 0..self.states.entries() {
            let entry = processor * self.config.children + child.number;
            let ChildCounts { copies, bytes, unresolved, driver_full } =
                self.child_counts.read(entry);
            given += copies;
            counts.bytes = counts.bytes.wrapping_add(bytes);
            counts.unresolved += unresolved;
            counts.driver_full += driver_full;
        }
        counts.sent = given.saturating_sub(counts.driver_full);
        let seen = given + counts.unresolved;
        // Where there is no way, none is made.
        let under_way = child.interface.map_or(0, |_| under_way);
        let unmade = (child.packets_before + packets).saturating_sub(seen + under_way);
        counts.interface_down = child.unmade.fetch_max(unmade, Relaxed).max(unmade);
        counts
    }
}

fn add<const N: usize>(sums: &mut [u64; N], values: [u64; N]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}
