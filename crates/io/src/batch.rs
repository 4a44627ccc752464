//! Packet buffers of a fixed number and size, allocated once and reused.

use horolog_sys::message::{AncillaryData, ReceivedDatagramInfo};
use horolog_time::{Monotonic, Timestamp, Utc};

/// Packets to send, or as received: `slots` buffers of `capacity` bytes each, of which the first
/// [`Batch::len`] are in use. Only [`Batch::new`] allocates memory.
#[derive(Debug)]
pub struct Batch<A> {
    bytes: Box<[u8]>,
    metadata: Box<[PacketMetadata<A>]>,
    capacity: usize,
    len: usize,
}

/// Metadata of a packet in a batch; the bytes are in its buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketMetadata<A> {
    pub(crate) len: usize,
    pub(crate) truncated: bool,
    pub(crate) received_at: Option<Timestamp<Utc>>,
    pub(crate) received_monotonic: Option<Timestamp<Monotonic>>,
    pub(crate) hardware: Option<HardwareTimestamp>,
    pub(crate) wants_timestamp: bool,
    pub(crate) address: A,
}

impl<A> PacketMetadata<A> {
    /// Returns the kernel's metadata of a received packet, with its address.
    pub(crate) fn received(received: &ReceivedDatagramInfo, address: A) -> Self {
        Self {
            len: received.len,
            truncated: received.truncated,
            received_at: received.control.received_at,
            received_monotonic: None,
            hardware: HardwareTimestamp::from_ancillary(&received.control),
            wants_timestamp: false,
            address,
        }
    }

    /// Returns the metadata of a packet to send.
    const fn outgoing(len: usize, address: A) -> Self {
        Self {
            len,
            truncated: false,
            received_at: None,
            received_monotonic: None,
            hardware: None,
            wants_timestamp: false,
            address,
        }
    }
}

/// Hardware timestamp: an instant on the PHC of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HardwareTimestamp {
    /// Index of the interface whose PHC took the timestamp; if the kernel does not report it, of
    /// the interface that received the packet, or 0.
    pub interface: u32,
    /// Time of that PHC, in ns since its epoch.
    pub ns: i64,
}

impl HardwareTimestamp {
    fn from_ancillary(control: &AncillaryData) -> Option<Self> {
        let interface = match control.clock_interface {
            0 => control.interface,
            index => index,
        };
        control.hardware_ns.map(|ns| Self { interface, ns })
    }
}

/// Packet of a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchPacket<'a, A> {
    /// Bytes received or to send.
    pub bytes: &'a [u8],
    /// Source or destination address.
    pub address: A,
    /// True if the packet was longer than the buffer; `bytes` is its beginning.
    pub truncated: bool,
    /// Kernel receive timestamp (`CLOCK_REALTIME`), or transmit timestamp of a looped-back packet;
    /// `None` if none was taken.
    pub received_at: Option<Timestamp<Utc>>,
    /// Receive timestamp of a BPF program in the driver, on the monotonic clock; `None` without
    /// one.
    pub received_monotonic: Option<Timestamp<Monotonic>>,
    /// Hardware receive timestamp, or transmit timestamp of a looped-back packet, on the PHC of the
    /// interface; `None` if disabled or not taken.
    pub hardware: Option<HardwareTimestamp>,
    /// True if a packet to send requests a transmit timestamp
    /// ([`crate::BatchDevice::receive_transmitted`]).
    pub wants_timestamp: bool,
}

/// Packet of a batch, mutable in place.
#[derive(Debug)]
pub struct PacketMut<'a, A> {
    /// Bytes to send. To change the length, see [`Batch::push_with`].
    pub bytes: &'a mut [u8],
    /// Destination address.
    pub address: &'a mut A,
    /// True to request a transmit timestamp ([`crate::BatchDevice::receive_transmitted`]).
    pub wants_timestamp: &'a mut bool,
}

impl<A: Copy + Default> Batch<A> {
    /// Returns an empty batch of `slots` buffers of `capacity` bytes each.
    ///
    /// # Panics
    ///
    /// If either is zero.
    #[must_use]
    pub fn new(slots: usize, capacity: usize) -> Self {
        assert!(slots > 0 && capacity > 0, "a batch holds at least one byte of one packet");
        let metadata = PacketMetadata::outgoing(0, A::default());
        Self {
            bytes: vec![0; slots * capacity].into_boxed_slice(),
            metadata: vec![metadata; slots].into_boxed_slice(),
            capacity,
            len: 0,
        }
    }

    /// Returns the maximum number of packets.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.metadata.len()
    }

    /// Returns the maximum length of a packet in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of packets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the batch holds no packet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if the batch has no room for another packet.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len == self.slots()
    }

    /// Removes all packets; the buffers retain their bytes.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Sets the number of packets to `len`. Each slot has the bytes, length and address that it
    /// last had, so that a batch filled once from a template can be reused.
    ///
    /// # Panics
    ///
    /// If `len` exceeds the number of slots.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.slots(), "{len} packets in a batch of {}", self.slots());
        self.len = len;
    }

    /// Appends a packet. Returns true on success, false if the batch is full or the packet is
    /// longer than a buffer.
    #[must_use]
    pub fn push(&mut self, address: A, bytes: &[u8]) -> bool {
        bytes.len() <= self.capacity
            && self.push_with(address, |buffer| {
                buffer[..bytes.len()].copy_from_slice(bytes);
                bytes.len()
            })
    }

    /// Appends a packet that `write` puts into its buffer (the slot's full capacity, with its
    /// previous bytes); `write` returns the packet's length, which is limited to the capacity.
    /// Returns false without calling `write` if there is no room.
    #[must_use]
    pub fn push_with(&mut self, address: A, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        if self.is_full() {
            return false;
        }
        let start = self.len * self.capacity;
        let len = write(&mut self.bytes[start..start + self.capacity]).min(self.capacity);
        self.metadata[self.len] = PacketMetadata::outgoing(len, address);
        self.len += 1;
        true
    }

    /// Shortens the packet at `index` to `len` bytes, if it is longer.
    ///
    /// # Panics
    ///
    /// If the batch holds no such packet.
    pub fn shorten(&mut self, index: usize, len: usize) {
        assert!(index < self.len, "packet {index} of {}", self.len);
        let metadata = &mut self.metadata[index];
        metadata.len = metadata.len.min(len);
    }

    /// Removes the packet at `index`; the last one takes its place.
    ///
    /// # Panics
    ///
    /// If the batch holds no such packet.
    pub fn swap_remove(&mut self, index: usize) {
        assert!(index < self.len, "packet {index} of {}", self.len);
        self.len -= 1;
        let last = self.len * self.capacity;
        self.bytes.copy_within(last..last + self.capacity, index * self.capacity);
        self.metadata[index] = self.metadata[self.len];
    }

    /// Returns the packet at `index`.
    ///
    /// # Panics
    ///
    /// If the batch holds no such packet.
    #[must_use]
    pub fn packet(&self, index: usize) -> BatchPacket<'_, A> {
        assert!(index < self.len, "packet {index} of {}", self.len);
        let metadata = &self.metadata[index];
        packet_view(&self.bytes[index * self.capacity..][..self.capacity], metadata)
    }

    /// Returns the packet at `index`, mutable in place.
    ///
    /// # Panics
    ///
    /// If the batch holds no such packet.
    #[must_use]
    pub fn packet_mut(&mut self, index: usize) -> PacketMut<'_, A> {
        assert!(index < self.len, "packet {index} of {}", self.len);
        let metadata = &mut self.metadata[index];
        PacketMut {
            bytes: &mut self.bytes[index * self.capacity..][..metadata.len],
            address: &mut metadata.address,
            wants_timestamp: &mut metadata.wants_timestamp,
        }
    }

    /// Iterates over the packets in order.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = BatchPacket<'_, A>> {
        self.bytes
            .chunks_exact(self.capacity)
            .zip(&self.metadata)
            .take(self.len)
            .map(|(buffer, metadata)| packet_view(buffer, metadata))
    }

    /// Iterates over the packets in order, mutable in place.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = PacketMut<'_, A>> {
        self.bytes.chunks_exact_mut(self.capacity).zip(&mut self.metadata).take(self.len).map(
            |(buffer, metadata)| PacketMut {
                bytes: &mut buffer[..metadata.len],
                address: &mut metadata.address,
                wants_timestamp: &mut metadata.wants_timestamp,
            },
        )
    }

    /// Returns all buffers with their full capacity, for a device to receive into; [`Batch::fill`]
    /// then sets the number of packets received.
    pub(crate) fn buffers_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [u8]> {
        self.bytes.chunks_exact_mut(self.capacity)
    }

    /// Sets the number of packets to `len`, with the metadata that `metadata_at` returns for each
    /// index; lengths are limited to the capacity.
    pub(crate) fn fill(
        &mut self,
        len: usize,
        mut metadata_at: impl FnMut(usize) -> PacketMetadata<A>,
    ) {
        self.set_len(len);
        for (index, slot) in self.metadata[..len].iter_mut().enumerate() {
            *slot = metadata_at(index);
            slot.len = slot.len.min(self.capacity);
        }
    }

    /// Appends a packet with its receive timestamp `received`, truncated to the capacity. Returns
    /// false if the batch is full.
    pub(crate) fn push_received(
        &mut self,
        address: A,
        bytes: &[u8],
        received: Timestamp<Monotonic>,
    ) -> bool {
        let length = bytes.len().min(self.capacity);
        let is_stored = self.push(address, &bytes[..length]);
        if is_stored {
            let metadata = &mut self.metadata[self.len - 1];
            metadata.truncated = length < bytes.len();
            metadata.received_monotonic = Some(received);
        }
        is_stored
    }

    /// Appends an empty packet marked as truncated, for one whose bytes cannot be read. Returns
    /// false if the batch is full.
    pub(crate) fn push_unread(&mut self, address: A) -> bool {
        let is_stored = self.push(address, &[]);
        if is_stored {
            self.metadata[self.len - 1].truncated = true;
        }
        is_stored
    }

    /// Appends a packet with all its metadata, truncated to the capacity. Returns false if the
    /// batch is full.
    #[must_use]
    pub fn push_packet(&mut self, packet: &BatchPacket<'_, A>) -> bool {
        let length = packet.bytes.len().min(self.capacity);
        let is_stored = self.push(packet.address, &packet.bytes[..length]);
        if is_stored {
            let metadata = &mut self.metadata[self.len - 1];
            metadata.truncated = packet.truncated || length < packet.bytes.len();
            metadata.received_at = packet.received_at;
            metadata.received_monotonic = packet.received_monotonic;
            metadata.hardware = packet.hardware;
            metadata.wants_timestamp = packet.wants_timestamp;
        }
        is_stored
    }
}

fn packet_view<'a, A: Copy>(buffer: &'a [u8], metadata: &PacketMetadata<A>) -> BatchPacket<'a, A> {
    BatchPacket {
        bytes: &buffer[..metadata.len],
        address: metadata.address,
        truncated: metadata.truncated,
        received_at: metadata.received_at,
        received_monotonic: metadata.received_monotonic,
        hardware: metadata.hardware,
        wants_timestamp: metadata.wants_timestamp,
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
    fn truncated_and_unread_packets_are_marked() {
        let mut batch = Batch::<u8>::new(3, 4);
        let received = Timestamp::from_ns(7);
        assert!(batch.push_received(1, b"abcd", received));
        assert!(batch.push_received(2, b"abcde", received));
        assert!(batch.push_unread(3));
        assert!(!batch.push_received(4, b"a", received) && !batch.push_unread(5), "it is full");
        let packets: Vec<_> = batch.iter().map(|it| (it.address, it.bytes, it.truncated)).collect();
        assert_eq!(packets, [(1, &b"abcd"[..], false), (2, b"abcd", true), (3, b"", true)]);
    }

    #[test]
    fn a_packet_is_appended_with_all_its_metadata() {
        let packet = BatchPacket {
            bytes: b"abcd",
            address: 1_u8,
            truncated: true,
            received_at: Some(Timestamp::from_ns(2)),
            received_monotonic: Some(Timestamp::from_ns(3)),
            hardware: Some(HardwareTimestamp { interface: 4, ns: 5 }),
            wants_timestamp: true,
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
