//! Timestamps stored for interleaved mode (RFC 9769, section 2): the receive and transmit
//! timestamps of the last reply to each client. The next reply can then carry the actual transmit
//! timestamp of the last one. No clock is read here.
//!
//! All receive timestamps of this server are even and all transmit timestamps odd (in units of 0.23
//! ns). A request whose origin timestamp is odd or zero therefore refers to no receive timestamp of
//! this server and needs no lookup, so that clients in basic mode cost nothing and leave no state.
//!
//! The table is direct-mapped: a keyed hash of the client's address selects one slot of 16 bytes.
//! Clients that collide in a slot may get basic replies, which are correct too.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use horolog_time::{NtpTimestamp, Span};
use horolog_wire::ntp::{AssociationMode, Header};
use zerocopy::FromZeros;

use super::address_hash::AddressHashKey;

/// Bytes of memory per stored client.
pub const INTERLEAVED_BYTES_PER_CLIENT: usize = size_of::<InterleavedSlot>();

/// Converts an instant to a receive timestamp of this server: an even one.
#[must_use]
pub const fn as_receive(instant: NtpTimestamp) -> NtpTimestamp {
    NtpTimestamp::from_bits(instant.to_bits() & !1)
}

/// Converts an instant to a transmit timestamp of this server: an odd one.
#[must_use]
pub const fn as_transmit(instant: NtpTimestamp) -> NtpTimestamp {
    NtpTimestamp::from_bits(instant.to_bits() | 1)
}

/// Returns true if a request may be in interleaved mode: its origin can be a receive timestamp of
/// this server, and its receive and transmit timestamps differ (RFC 9769, section 2). Requests in
/// symmetric active mode are excluded, because interleaved mode then requires an association
/// (section 3).
#[must_use]
pub fn may_be_interleaved(request: &Header) -> bool {
    let origin = request.origin.to_bits();
    request.mode != AssociationMode::SymmetricActive
        && origin != 0
        && origin & 1 == 0
        && request.receive != request.transmit
}

/// Timestamps of one reply: transmit timestamp, and receive timestamp XOR transmit timestamp. If
/// the two words are of different replies, because of concurrent writes, they yield a receive
/// timestamp that was never sent to any client.
#[derive(Debug, FromZeros)]
#[repr(C, align(16))]
struct InterleavedSlot {
    receive_xor_transmit: AtomicU64,
    transmit: AtomicU64,
}

/// Timestamps of the last reply to each client. Threads read and write concurrently without locks.
#[derive(Debug)]
pub struct InterleavedTable {
    slots: Vec<InterleavedSlot>,
    key: AddressHashKey,
}

impl InterleavedTable {
    /// Creates a table for at least `clients` clients; the number of slots is a power of two. 0
    /// disables interleaved mode. The kernel allocates memory when a slot is first written. `None`
    /// without enough memory.
    #[must_use]
    pub fn new(clients: usize, key: AddressHashKey) -> Option<Self> {
        let slots = match clients {
            0 => Vec::new(),
            clients => {
                InterleavedSlot::new_vec_zeroed(clients.checked_next_power_of_two()?).ok()?
            }
        };
        Some(Self { slots, key })
    }

    /// Returns the number of slots; 0 if interleaved mode is disabled.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of occupied slots.
    #[must_use]
    pub fn clients(&self) -> u64 {
        self.slots.iter().filter(|slot| slot.transmit.load(Ordering::Relaxed) != 0).count() as u64
    }

    fn slot(&self, client: IpAddr) -> Option<&InterleavedSlot> {
        let mask = self.slots.len().checked_sub(1)?;
        self.slots.get(self.key.hash_address(client) as usize & mask)
    }

    /// Returns the transmit timestamp of the last reply to this client, if its receive timestamp
    /// was `origin`; otherwise `None`.
    #[must_use]
    pub fn transmit_of(&self, client: IpAddr, origin: NtpTimestamp) -> Option<NtpTimestamp> {
        self.slot(client)?.transmit_of(origin)
    }

    /// Stores the timestamps of a reply to this client and replaces any earlier ones.
    pub fn store_timestamps(&self, client: IpAddr, receive: NtpTimestamp, transmit: NtpTimestamp) {
        if let Some(slot) = self.slot(client) {
            slot.write(receive, transmit);
        }
    }

    /// Replaces the stored transmit timestamp by the actual one, if the slot still holds the reply
    /// with this receive timestamp; otherwise changes nothing. Returns false, without a change,
    /// only if the actual timestamp is before the stored one, which was taken before sending.
    #[must_use]
    pub fn correct(&self, client: IpAddr, receive: NtpTimestamp, transmit: NtpTimestamp) -> bool {
        let Some(slot) = self.slot(client) else { return true };
        let Some(stored) = slot.transmit_of(receive) else { return true };
        let is_possible = as_transmit(transmit).since(stored) >= Span::ZERO;
        if is_possible {
            slot.write(receive, transmit);
        }
        is_possible
    }
}

impl InterleavedSlot {
    fn transmit_of(&self, origin: NtpTimestamp) -> Option<NtpTimestamp> {
        let receive_xor_transmit = self.receive_xor_transmit.load(Ordering::Relaxed);
        let transmit = self.transmit.load(Ordering::Relaxed);
        let is_of_origin = transmit != 0 && receive_xor_transmit ^ transmit == origin.to_bits();
        is_of_origin.then(|| NtpTimestamp::from_bits(transmit))
    }

    fn write(&self, receive: NtpTimestamp, transmit: NtpTimestamp) {
        let (receive, transmit) = (as_receive(receive).to_bits(), as_transmit(transmit).to_bits());
        self.receive_xor_transmit.store(receive ^ transmit, Ordering::Relaxed);
        self.transmit.store(transmit, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    const KEY: AddressHashKey = AddressHashKey([1, 2]);

    fn stamp(bits: u64) -> NtpTimestamp {
        NtpTimestamp::from_bits(bits)
    }

    fn client() -> IpAddr {
        "192.0.2.7".parse().unwrap()
    }

    fn table(clients: usize) -> InterleavedTable {
        InterleavedTable::new(clients, KEY).unwrap()
    }

    #[test]
    fn only_an_own_receive_timestamp_as_origin_may_be_interleaved() {
        let request = |origin, receive, transmit| {
            let (origin, receive, transmit) = (stamp(origin), stamp(receive), stamp(transmit));
            Header { origin, receive, ..Header::request(4, transmit) }
        };
        assert!(may_be_interleaved(&request(2, 7, 8)));
        assert!(!may_be_interleaved(&request(0, 7, 8)), "no origin");
        assert!(!may_be_interleaved(&request(3, 7, 8)), "a transmit timestamp of ours");
        assert!(!may_be_interleaved(&request(2, 7, 7)), "basic mode is asked for");
    }

    #[test]
    fn the_last_reply_is_remembered_and_no_other() {
        let table = table(1);
        assert_eq!(table.transmit_of(client(), stamp(0)), None, "an empty slot");
        table.store_timestamps(client(), stamp(100), stamp(201));
        assert_eq!(table.transmit_of(client(), stamp(100)), Some(stamp(201)));
        assert_eq!(table.transmit_of(client(), stamp(102)), None);
        table.store_timestamps(client(), stamp(300), stamp(401));
        assert_eq!(table.transmit_of(client(), stamp(100)), None);
        assert_eq!(table.transmit_of(client(), stamp(300)), Some(stamp(401)));
    }

    #[test]
    fn only_the_reply_that_it_is_of_is_corrected() {
        let table = table(16);
        table.store_timestamps(client(), stamp(100), stamp(201));
        assert!(table.correct(client(), stamp(98), stamp(301)));
        assert_eq!(table.transmit_of(client(), stamp(100)), Some(stamp(201)));
        assert!(table.correct(client(), stamp(100), stamp(302)));
        assert_eq!(table.transmit_of(client(), stamp(100)), Some(stamp(303)), "odd, as always");
        assert!(table.correct(client(), stamp(100), stamp(305)));
        assert_eq!(table.transmit_of(client(), stamp(100)), Some(stamp(305)), "even twice");
        assert!(!table.correct(client(), stamp(100), stamp(305_u64.wrapping_sub(1_000))));
        assert_eq!(table.transmit_of(client(), stamp(100)), Some(stamp(305)), "never back");
    }

    #[test]
    fn sizes() {
        assert_eq!(INTERLEAVED_BYTES_PER_CLIENT, 16);
        assert_eq!([0, 1, 3, 1 << 20].map(|clients| table(clients).slots()), [0, 1, 4, 1 << 20]);
        assert!(InterleavedTable::new(usize::MAX, KEY).is_none());
        let off = table(0);
        off.store_timestamps(client(), stamp(100), stamp(201));
        assert_eq!(off.transmit_of(client(), stamp(100)), None);
    }

    #[test]
    fn a_torn_slot_matches_no_client() {
        let table = table(1);
        // What a reader meets when a writer is stopped between the halves.
        table.store_timestamps(client(), stamp(0xaaaa_0000), stamp(0xaaaa_1111));
        let [slot] = &table.slots[..] else { panic!("one slot") };
        slot.receive_xor_transmit.store(0xbbbb_0000 ^ 0xbbbb_2223, Ordering::Relaxed);
        assert_eq!(table.transmit_of(client(), stamp(0xaaaa_0000)), None);
        assert_eq!(table.transmit_of(client(), stamp(0xbbbb_0000)), None);
    }

    /// The receive timestamp of reply `n`, and the transmit timestamp that goes with it.
    fn reply(n: u64) -> (NtpTimestamp, NtpTimestamp) {
        let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (stamp(mixed & !1), stamp(mixed.rotate_left(17) | 1))
    }

    #[test]
    fn readers_never_take_a_transmit_timestamp_of_another_reply() {
        let (table, stop) = (table(1), AtomicBool::new(false));
        thread::scope(|scope| {
            for writer in 0..2 {
                let (table, stop) = (&table, &stop);
                scope.spawn(move || {
                    let mut n = writer;
                    while !stop.load(Ordering::Relaxed) {
                        let (receive, transmit) = reply(n % 64);
                        table.store_timestamps(client(), receive, transmit);
                        n += 1;
                    }
                });
            }
            let mut matched = 0_u64;
            for n in 0..2_000_000 {
                let (receive, transmit) = reply(n % 64);
                if let Some(found) = table.transmit_of(client(), receive) {
                    assert_eq!(found, transmit);
                    matched += 1;
                }
            }
            stop.store(true, Ordering::Relaxed);
            assert!(matched > 0, "nothing was ever found, so nothing was tested");
        });
    }

    proptest! {
        #[test]
        fn what_is_remembered_is_found(ip: IpAddr, receive: u64, transmit: u64, other: u64) {
            let table = table(64);
            table.store_timestamps(ip, stamp(receive), stamp(transmit));
            let receive = as_receive(stamp(receive));
            prop_assert_eq!(table.transmit_of(ip, receive), Some(as_transmit(stamp(transmit))));
            prop_assume!(stamp(other) != receive);
            prop_assert_eq!(table.transmit_of(ip, stamp(other)), None);
        }
    }
}
