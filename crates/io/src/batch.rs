//! A fixed number of packet buffers, allocated once and used again and again. It does no I/O and
//! never grows.

use horolog_sys::message::{Control, Received};
use horolog_time::{Monotonic, Timestamp, Utc};

/// Packets to send, or as received: `slots` buffers of `capacity` bytes each, of which the first
/// [`Batch::len`] are in use. Its memory is allocated by [`Batch::new`] and never again.
#[derive(Debug)]
pub struct Batch<A> {
    bytes: Box<[u8]>,
    notes: Box<[Note<A>]>,
    capacity: usize,
    len: usize,
}

/// What stands beside a packet's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note<A> {
    pub(crate) len: usize,
    pub(crate) truncated: bool,
    pub(crate) received_at: Option<Timestamp<Utc>>,
    pub(crate) received_monotonic: Option<Timestamp<Monotonic>>,
    pub(crate) hardware: Option<HardwareTime>,
    pub(crate) stamp: bool,
    pub(crate) address: A,
}

impl<A> Note<A> {
    /// What the kernel told about a packet, with the address that stands beside it.
    pub(crate) fn received(received: &Received, address: A) -> Self {
        Self {
            len: received.len,
            truncated: received.truncated,
            received_at: received.control.received_at,
            received_monotonic: None,
            hardware: HardwareTime::of(&received.control),
            stamp: false,
            address,
        }
    }

    /// A packet to send.
    const fn outgoing(len: usize, address: A) -> Self {
        Self {
            len,
            truncated: false,
            received_at: None,
            received_monotonic: None,
            hardware: None,
            stamp: false,
            address,
        }
    }
}

/// An instant on the clock of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HardwareTime {
    /// Index of the interface.
    pub interface: u32,
    /// Nanoseconds since that clock's zero.
    pub ns: i64,
}

impl HardwareTime {
    fn of(control: &Control) -> Option<Self> {
        let interface = match control.clock_interface {
            0 => control.interface,
            index => index,
        };
        control.hardware_ns.map(|ns| Self { interface, ns })
    }
}

/// One packet of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a, A> {
    /// What was received, or what will be sent.
    pub bytes: &'a [u8],
    /// Where it came from or goes to.
    pub address: A,
    /// The packet was longer than the buffer; `bytes` is its beginning.
    pub truncated: bool,
    /// When the kernel received it (software timestamp, `CLOCK_REALTIME`); `None` where the device
    /// takes no timestamps.
    pub received_at: Option<Timestamp<Utc>>,
    /// When a BPF program saw it in the driver, on the monotonic clock; `None` where none did.
    pub received_monotonic: Option<Timestamp<Monotonic>>,
    /// The same by the interface's own clock; `None` where hardware timestamps are off or were not
    /// taken.
    pub hardware: Option<HardwareTime>,
    /// Whether a packet to send is to be timestamped on its way out ([`crate::Device::sent`]).
    pub stamp: bool,
}

/// One packet of a batch, to be changed in place.
#[derive(Debug)]
pub struct PacketMut<'a, A> {
    /// The bytes that will be sent. To change how many, see [`Batch::push_with`].
    pub bytes: &'a mut [u8],
    /// Where it goes to.
    pub address: &'a mut A,
    /// Whether it is to be timestamped on its way out ([`crate::Device::sent`]).
    pub stamp: &'a mut bool,
}

impl<A: Copy + Default> Batch<A> {
    /// An empty batch of `slots` buffers of `capacity` bytes each.
    ///
    /// # Panics
    ///
    /// When either is zero.
    #[must_use]
    pub fn new(slots: usize, capacity: usize) -> Self {
        assert!(slots > 0 && capacity > 0, "a batch holds at least one byte of one packet");
        let note = Note::outgoing(0, A::default());
        Self {
            bytes: vec![0; slots * capacity].into_boxed_slice(),
            notes: vec![note; slots].into_boxed_slice(),
            capacity,
            len: 0,
        }
    }

    /// How many packets it can hold.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.notes.len()
    }

    /// How many bytes each of its packets can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many packets it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds no packet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it has no room for another packet.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len == self.slots()
    }

    /// Forgets all packets. Their bytes stay where they are.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Makes the batch hold its first `len` slots, each with the bytes, length and address that it
    /// last had. So a batch once filled from a template is used again without writing it anew.
    ///
    /// # Panics
    ///
    /// When `len` exceeds the number of slots.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.slots(), "{len} packets in a batch of {}", self.slots());
        self.len = len;
    }

    /// Appends a packet; says whether it was taken. It is not when the batch is full or the packet
    /// is longer than a buffer.
    #[must_use]
    pub fn push(&mut self, address: A, bytes: &[u8]) -> bool {
        bytes.len() <= self.capacity
            && self.push_with(address, |buffer| {
                buffer[..bytes.len()].copy_from_slice(bytes);
                bytes.len()
            })
    }

    /// Appends a packet that `write` puts into the buffer handed to it (all of the slot's capacity,
    /// with whatever stood there before); `write` returns the packet's length, which is cut to the
    /// capacity. Says whether there was room; if not, `write` is not called.
    #[must_use]
    pub fn push_with(&mut self, address: A, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        if self.is_full() {
            return false;
        }
        let start = self.len * self.capacity;
        let len = write(&mut self.bytes[start..start + self.capacity]).min(self.capacity);
        self.notes[self.len] = Note::outgoing(len, address);
        self.len += 1;
        true
    }

    /// Makes the packet at `index` shorter: `len` bytes, if it has so many.
    ///
    /// # Panics
    ///
    /// When the batch holds no such packet.
    pub fn shorten(&mut self, index: usize, len: usize) {
        assert!(index < self.len, "packet {index} of {}", self.len);
        let note = &mut self.notes[index];
        note.len = note.len.min(len);
    }

    /// Takes out the packet at `index`; the last one takes its place.
    ///
    /// # Panics
    ///
    /// When the batch holds no such packet.
    pub fn swap_remove(&mut self, index: usize) {
        assert!(index < self.len, "packet {index} of {}", self.len);
        self.len -= 1;
        let last = self.len * self.capacity;
        self.bytes.copy_within(last..last + self.capacity, index * self.capacity);
        self.notes[index] = self.notes[self.len];
    }

    /// The packet at `index`.
    ///
    /// # Panics
    ///
    /// When the batch holds no such packet.
    #[must_use]
    pub fn packet(&self, index: usize) -> Packet<'_, A> {
        assert!(index < self.len, "packet {index} of {}", self.len);
        let note = &self.notes[index];
        view(&self.bytes[index * self.capacity..][..self.capacity], note)
    }

    /// The packet at `index`, to be changed in place.
    ///
    /// # Panics
    ///
    /// When the batch holds no such packet.
    #[must_use]
    pub fn packet_mut(&mut self, index: usize) -> PacketMut<'_, A> {
        assert!(index < self.len, "packet {index} of {}", self.len);
        let note = &mut self.notes[index];
        PacketMut {
            bytes: &mut self.bytes[index * self.capacity..][..note.len],
            address: &mut note.address,
            stamp: &mut note.stamp,
        }
    }

    /// The packets in order.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Packet<'_, A>> {
        self.bytes
            .chunks_exact(self.capacity)
            .zip(&self.notes)
            .take(self.len)
            .map(|(buffer, note)| view(buffer, note))
    }

    /// The packets in order, to be changed in place.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = PacketMut<'_, A>> {
        self.bytes.chunks_exact_mut(self.capacity).zip(&mut self.notes).take(self.len).map(
            |(buffer, note)| PacketMut {
                bytes: &mut buffer[..note.len],
                address: &mut note.address,
                stamp: &mut note.stamp,
            },
        )
    }

    /// All buffers in full, for a device to receive into; [`Batch::fill`] says what it received.
    pub(crate) fn buffers_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [u8]> {
        self.bytes.chunks_exact_mut(self.capacity)
    }

    /// Makes the batch hold the first `len` slots, as `note` describes each.
    pub(crate) fn fill(&mut self, len: usize, mut note: impl FnMut(usize) -> Note<A>) {
        self.set_len(len);
        for (index, slot) in self.notes[..len].iter_mut().enumerate() {
            *slot = note(index);
            slot.len = slot.len.min(self.capacity);
        }
    }

    /// Appends a packet that came at `received`, cut to the capacity; says whether there was room.
    pub(crate) fn push_received(
        &mut self,
        address: A,
        bytes: &[u8],
        received: Timestamp<Monotonic>,
    ) -> bool {
        let kept = bytes.len().min(self.capacity);
        let taken = self.push(address, &bytes[..kept]);
        if taken {
            let note = &mut self.notes[self.len - 1];
            note.truncated = kept < bytes.len();
            note.received_monotonic = Some(received);
        }
        taken
    }

    /// Appends a packet of which nothing could be read: one that is cut off at its beginning. Says
    /// whether there was room.
    pub(crate) fn push_unread(&mut self, address: A) -> bool {
        let taken = self.push(address, &[]);
        if taken {
            self.notes[self.len - 1].truncated = true;
        }
        taken
    }

    /// Takes over a packet with everything that stands beside it, cut to the capacity; says whether
    /// there was room.
    #[must_use]
    pub fn push_packet(&mut self, packet: &Packet<'_, A>) -> bool {
        let kept = packet.bytes.len().min(self.capacity);
        let taken = self.push(packet.address, &packet.bytes[..kept]);
        if taken {
            let note = &mut self.notes[self.len - 1];
            note.truncated = packet.truncated || kept < packet.bytes.len();
            note.received_at = packet.received_at;
            note.received_monotonic = packet.received_monotonic;
            note.hardware = packet.hardware;
            note.stamp = packet.stamp;
        }
        taken
    }
}

fn view<'a, A: Copy>(buffer: &'a [u8], note: &Note<A>) -> Packet<'a, A> {
    Packet {
        bytes: &buffer[..note.len],
        address: note.address,
        truncated: note.truncated,
        received_at: note.received_at,
        received_monotonic: note.received_monotonic,
        hardware: note.hardware,
        stamp: note.stamp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_full_batch_takes_no_more_and_keeps_what_it_has() {
        let mut batch = Batch::<u8>::new(2, 4);
        assert!(batch.push(1, b"abcd"));
        assert!(!batch.push(2, b"abcde"), "longer than a buffer");
        assert!(batch.push_with(3, |buffer| {
            buffer[0] = b'x';
            1
        }));
        assert!(batch.is_full() && !batch.push(4, b"y"));
        assert_eq!((batch.packet(0).bytes, batch.packet(0).address), (&b"abcd"[..], 1));
        assert_eq!((batch.packet(1).bytes, batch.packet(1).address), (&b"x"[..], 3));
    }

    #[test]
    fn what_was_received_and_does_not_fit_is_told() {
        let mut batch = Batch::<u8>::new(3, 4);
        let received = Timestamp::from_ns(7);
        assert!(batch.push_received(1, b"abcd", received));
        assert!(batch.push_received(2, b"abcde", received));
        assert!(batch.push_unread(3));
        assert!(!batch.push_received(4, b"a", received) && !batch.push_unread(5), "it is full");
        let seen: Vec<_> = batch.iter().map(|it| (it.address, it.bytes, it.truncated)).collect();
        assert_eq!(seen, [(1, &b"abcd"[..], false), (2, b"abcd", true), (3, b"", true)]);
    }

    #[test]
    fn a_packet_is_taken_over_with_all_that_stands_beside_it() {
        let packet = Packet {
            bytes: b"abcd",
            address: 1_u8,
            truncated: true,
            received_at: Some(Timestamp::from_ns(2)),
            received_monotonic: Some(Timestamp::from_ns(3)),
            hardware: Some(HardwareTime { interface: 4, ns: 5 }),
            stamp: true,
        };
        let mut batch = Batch::new(1, 4);
        assert!(batch.push_packet(&packet));
        assert_eq!(format!("{:?}", batch.packet(0)), format!("{packet:?}"));
    }

    #[test]
    fn what_is_taken_out_leaves_no_hole() {
        let mut batch = Batch::<u8>::new(3, 4);
        for (address, bytes) in [(1, b"abcd"), (2, b"efgh"), (3, b"ijkl")] {
            assert!(batch.push(address, bytes));
        }
        batch.shorten(2, 3);
        batch.shorten(2, 4);
        batch.swap_remove(0);
        let left: Vec<_> = batch.iter().map(|packet| (packet.address, packet.bytes)).collect();
        assert_eq!(left, [(3, &b"ijk"[..]), (2, b"efgh")]);
        batch.swap_remove(1);
        batch.swap_remove(0);
        assert!(batch.is_empty());
    }

    #[test]
    fn a_batch_cleared_and_set_again_has_its_template_back() {
        let mut batch = Batch::<()>::new(3, 8);
        while batch.push((), b"template") {}
        batch.clear();
        assert_eq!(batch.iter().len(), 0);
        batch.set_len(2);
        for packet in batch.iter_mut() {
            packet.bytes[0] = b'T';
        }
        batch.set_len(3);
        let bytes: Vec<_> = batch.iter().map(|packet| packet.bytes.to_vec()).collect();
        assert_eq!(bytes, [b"Template", b"Template", b"template"]);
    }

    proptest! {
        #[test]
        fn what_is_pushed_is_what_is_there(packets in proptest::collection::vec(
            (any::<u16>(), proptest::collection::vec(any::<u8>(), 0..12)), 0..8))
        {
            let mut batch = Batch::<u16>::new(8, 12);
            for (address, bytes) in &packets {
                prop_assert!(batch.push(*address, bytes));
            }
            let seen: Vec<_> =
                batch.iter().map(|packet| (packet.address, packet.bytes.to_vec())).collect();
            prop_assert_eq!(seen, packets);
        }
    }
}
