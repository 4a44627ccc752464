//! Stored state for interleaved mode (RFC 9769, section 2): for each client the receive and
//! transmit timestamps of its last reply, so that the next reply can carry the transmit timestamp
//! taken when the last one was really sent. It reads no clock and sends nothing.
//!
//! Every receive timestamp of this server is even and every transmit timestamp odd (a unit is 0.23
//! ns). So a request with an odd or zero origin refers to no receive timestamp of this server, and
//! no lookup is made: clients in basic mode cost nothing and leave no state.
//!
//! The table is direct-mapped: one slot of 16 bytes for each value of a keyed hash of the address.
//! Clients that collide in a slot get basic replies, which are just as correct.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use horolog_time::{NtpTimestamp, Span};
use horolog_wire::ntp::{AssociationMode, Header};
use zerocopy::FromZeros;

use crate::address_hash::HashKey;

/// Bytes of memory per stored client.
pub const INTERLEAVED_BYTES_PER_CLIENT: usize = size_of::<InterleavedSlot>();

/// Returns the receive timestamp of this server for this instant: even.
#[must_use]
pub const fn as_receive(instant: NtpTimestamp) -> NtpTimestamp {
    NtpTimestamp::from_bits(instant.to_bits() & !1)
}

/// Returns the transmit timestamp of this server for this instant: odd.
#[must_use]
pub const fn as_transmit(instant: NtpTimestamp) -> NtpTimestamp {
    NtpTimestamp::from_bits(instant.to_bits() | 1)
}

/// Returns true if a request may be in interleaved mode: its origin can be a receive timestamp of
/// this server, and its receive and transmit timestamps differ (RFC 9769, section 2: a request with
/// equal ones is answered in basic mode). A request in symmetric active mode never is: that
/// requires an association (section 3).
#[must_use]
pub fn may_be_interleaved(request: &Header) -> bool {
    let origin = request.origin.to_bits();
    request.mode != AssociationMode::SymmetricActive
        && origin != 0
        && origin & 1 == 0
        && request.receive != request.transmit
}

/// Two timestamps of one reply: their exclusive or, and the transmit timestamp. The receive
/// timestamp follows from both, so a slot with halves of different replies yields a receive
/// timestamp that was never sent to any client.
#[derive(Debug, FromZeros)]
#[repr(C, align(16))]
struct InterleavedSlot {
    both: AtomicU64,
    transmit: AtomicU64,
}

/// Timestamps of each client's last reply; any number of threads read and write it.
#[derive(Debug)]
pub struct InterleavedTable {
    slots: Vec<InterleavedSlot>,
    key: HashKey,
}

impl InterleavedTable {
    /// Creates a table with a slot for each of `clients`, rounded up to a power of two; 0 slots
    /// disable interleaved mode. The kernel allocates memory as slots are first written. Returns
    /// `None` if there is not enough memory.
    #[must_use]
    pub fn new(clients: usize, key: HashKey) -> Option<Self> {
        let slots = match clients {
            0 => Vec::new(),
            clients => {
                InterleavedSlot::new_vec_zeroed(clients.checked_next_power_of_two()?).ok()?
            }
        };
        Some(Self { slots, key })
    }

    /// Returns the number of slots.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of slots that hold a client.
    #[must_use]
    pub fn clients(&self) -> u64 {
        self.slots.iter().filter(|slot| slot.transmit.load(Ordering::Relaxed) != 0).count() as u64
    }

    fn slot(&self, client: IpAddr) -> Option<&InterleavedSlot> {
        let mask = self.slots.len().checked_sub(1)?;
        self.slots.get(self.key.of(client) as usize & mask)
    }

    /// Returns the transmit timestamp of the last reply to this client, if `origin` is its receive
    /// timestamp.
    #[must_use]
    pub fn transmit_of(&self, client: IpAddr, origin: NtpTimestamp) -> Option<NtpTimestamp> {
        self.slot(client)?.transmit_of(origin)
    }

    /// Stores the timestamps of a reply to this client, replacing those of an earlier one.
    pub fn remember(&self, client: IpAddr, receive: NtpTimestamp, transmit: NtpTimestamp) {
        if let Some(slot) = self.slot(client) {
            slot.write(receive, transmit);
        }
    }

    /// Replaces the stored transmit timestamp by a better one, if the slot still holds the reply
    /// with this receive timestamp. A timestamp before the stored one, which was taken before the
    /// reply was sent, is impossible and changes nothing; the result is then `false`.
    #[must_use]
    pub fn correct(&self, client: IpAddr, receive: NtpTimestamp, transmit: NtpTimestamp) -> bool {
        let Some(slot) = self.slot(client) else { return true };
        let Some(remembered) = slot.transmit_of(receive) else { return true };
        let is_possible = as_transmit(transmit).since(remembered) >= Span::ZERO;
        if is_possible {
            slot.write(receive, transmit);
        }
        is_possible
    }
}

impl InterleavedSlot {
    fn transmit_of(&self, origin: NtpTimestamp) -> Option<NtpTimestamp> {
        let both = self.both.load(Ordering::Relaxed);
        let transmit = self.transmit.load(Ordering::Relaxed);
        let is_of_origin = transmit != 0 && both ^ transmit == origin.to_bits();
        is_of_origin.then(|| NtpTimestamp::from_bits(transmit))
    }

    fn write(&self, receive: NtpTimestamp, transmit: NtpTimestamp) {
        let (receive, transmit) = (as_receive(receive).to_bits(), as_transmit(transmit).to_bits());
        self.both.store(receive ^ transmit, Ordering::Relaxed);
        self.transmit.store(transmit, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    const KEY: HashKey = HashKey([1, 2]);

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
        table.remember(client(), stamp(100), stamp(201));
        assert_eq!(table.transmit_of(client(), stamp(100)), Some(stamp(201)));
        assert_eq!(table.transmit_of(client(), stamp(102)), None);
        table.remember(client(), stamp(300), stamp(401));
        assert_eq!(table.transmit_of(client(), stamp(100)), None);
        assert_eq!(table.transmit_of(client(), stamp(300)), Some(stamp(401)));
    }

    #[test]
    fn only_the_reply_that_it_is_of_is_corrected() {
        let table = table(16);
        table.remember(client(), stamp(100), stamp(201));
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
        off.remember(client(), stamp(100), stamp(201));
        assert_eq!(off.transmit_of(client(), stamp(100)), None);
    }

    #[test]
    fn a_torn_slot_matches_no_client() {
        let table = table(1);
        // What a reader meets when a writer is stopped between the halves.
        table.remember(client(), stamp(0xaaaa_0000), stamp(0xaaaa_1111));
        let [slot] = &table.slots[..] else { panic!("one slot") };
        slot.both.store(0xbbbb_0000 ^ 0xbbbb_2223, Ordering::Relaxed);
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
                        table.remember(client(), receive, transmit);
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
            table.remember(ip, stamp(receive), stamp(transmit));
            let receive = as_receive(stamp(receive));
            prop_assert_eq!(table.transmit_of(ip, receive), Some(as_transmit(stamp(transmit))));
            prop_assume!(stamp(other) != receive);
            prop_assert_eq!(table.transmit_of(ip, stamp(other)), None);
        }
    }
}
