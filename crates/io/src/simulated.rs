//! Two devices joined in memory, in simulated time: what one sends, the other receives after the
//! link's delay. Waiting moves the clock instead of taking time. Meant for one thread, for tests
//! and replays; it allocates.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use horolog_time::{Clock, SimulatedClock, Span, Timestamp, Utc};

use crate::batch::{Batch, HardwareTime, Packet};
use crate::device::Device;

/// What joins two simulated devices.
#[derive(Clone, Debug)]
pub struct SimulatedLink {
    /// The clock by which packets travel. Its instants also serve as receive timestamps.
    pub clock: Arc<SimulatedClock>,
    /// From sending to receiving, the same either way.
    pub delay: Span,
    /// Packets on their way or waiting to be received, for each direction; more are dropped.
    pub queue_packets: usize,
    /// What the clock of the interface at either end is ahead of `clock`, where it stamps what it
    /// receives.
    pub card_ahead: Option<Span>,
}

/// One end of a [`SimulatedLink`]. See [`Device`] for what it does.
#[derive(Debug)]
pub struct Simulated<A> {
    link: SimulatedLink,
    /// What stands beside every packet that comes out at the other end.
    address: A,
    incoming: Arc<Mutex<Lane<A>>>,
    outgoing: Arc<Mutex<Lane<A>>>,
}

/// The packets of one direction, in the order in which they arrive.
#[derive(Debug)]
struct Lane<A> {
    parcels: VecDeque<Parcel<A>>,
    dropped: u64,
}

#[derive(Debug)]
struct Parcel<A> {
    arrives: Timestamp<Utc>,
    bytes: Vec<u8>,
    address: A,
}

impl<A: Copy + Default> Simulated<A> {
    /// The two ends of a link. What the first sends comes out of the second with the address
    /// `seen_from[0]` beside it, and the other way round with `seen_from[1]`.
    #[must_use]
    pub fn pair(link: &SimulatedLink, seen_from: [A; 2]) -> [Self; 2] {
        let lane = || Arc::new(Mutex::new(Lane { parcels: VecDeque::new(), dropped: 0 }));
        let (there, back) = (lane(), lane());
        let end = |address, incoming: &Arc<_>, outgoing: &Arc<_>| Self {
            link: link.clone(),
            address,
            incoming: Arc::clone(incoming),
            outgoing: Arc::clone(outgoing),
        };
        [end(seen_from[0], &back, &there), end(seen_from[1], &there, &back)]
    }

    /// Packets for this end that the link had no room for.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        open(&self.incoming).dropped
    }

    fn now(&self) -> Timestamp<Utc> {
        self.link.clock.now()
    }
}

impl<A: Copy + Default> Device for Simulated<A> {
    type Address = A;

    fn receive(&mut self, batch: &mut Batch<A>, wait: Duration) -> io::Result<usize> {
        batch.clear();
        let mut lane = open(&self.incoming);
        let patience = Span::from_ns(i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX));
        let until_next = lane.parcels.front().map_or(patience, |next| next.arrives - self.now());
        self.link.clock.advance(until_next.clamp(Span::ZERO, patience));
        let now = self.now();
        while !batch.is_full() {
            let Some(parcel) = lane.parcels.pop_front_if(|parcel| parcel.arrives <= now) else {
                break;
            };
            // The batch has room, and what is too long for it is cut.
            let _ = batch.push_packet(&Packet {
                bytes: &parcel.bytes,
                address: parcel.address,
                truncated: false,
                received_at: Some(parcel.arrives),
                received_monotonic: None,
                hardware: self.link.card_ahead.map(|ahead| HardwareTime {
                    interface: 1,
                    ns: (parcel.arrives + ahead).as_ns(),
                }),
                stamp: false,
            });
        }
        Ok(batch.len())
    }

    fn send(&mut self, batch: &mut Batch<A>) -> io::Result<usize> {
        let arrives = self.now() + self.link.delay;
        let mut lane = open(&self.outgoing);
        for packet in batch.iter() {
            if lane.parcels.len() == self.link.queue_packets {
                lane.dropped += 1;
                continue;
            }
            let (bytes, address) = (packet.bytes.to_vec(), self.address);
            lane.parcels.push_back(Parcel { arrives, bytes, address });
        }
        Ok(batch.len())
    }
}

/// A lane is whole after every statement, so one that a panicking thread left can be used.
fn open<A>(lane: &Mutex<Lane<A>>) -> MutexGuard<'_, Lane<A>> {
    lane.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Span = Span::from_ms(3);

    fn pair(queue_packets: usize) -> (Arc<SimulatedClock>, [Simulated<u8>; 2]) {
        let clock = Arc::new(SimulatedClock::new(1_000));
        let link = SimulatedLink {
            clock: Arc::clone(&clock),
            delay: DELAY,
            queue_packets,
            card_ahead: None,
        };
        (clock, Simulated::pair(&link, [1, 2]))
    }

    fn batch_of(packets: &[&[u8]]) -> Batch<u8> {
        let mut batch = Batch::new(8, 4);
        for bytes in packets {
            assert!(batch.push(0, bytes));
        }
        batch
    }

    #[test]
    fn a_packet_arrives_after_the_delay_and_not_before() {
        let (clock, [mut left, mut right]) = pair(8);
        let start: Timestamp<Utc> = clock.now();
        assert_eq!(left.send(&mut batch_of(&[b"one", b"two"])).unwrap(), 2);
        let mut batch = Batch::new(8, 2);
        assert_eq!(right.receive(&mut batch, Duration::from_millis(2)).unwrap(), 0);
        assert_eq!(Clock::<Utc>::now(&*clock) - start, Span::from_ms(2), "the wait took its time");
        assert_eq!(right.receive(&mut batch, Duration::from_secs(1)).unwrap(), 2);
        assert_eq!(Clock::<Utc>::now(&*clock) - start, DELAY, "no longer than to the arrival");
        let first = batch.packet(0);
        assert_eq!((first.bytes, first.truncated, first.address), (&b"on"[..], true, 1));
        assert_eq!(first.received_at, Some(start + DELAY));
    }

    #[test]
    fn directions_are_apart_and_a_full_queue_drops() {
        let (_, [mut left, mut right]) = pair(1);
        assert_eq!(left.send(&mut batch_of(&[b"a", b"b"])).unwrap(), 2);
        let mut batch = Batch::new(8, 4);
        assert_eq!(left.receive(&mut batch, Duration::from_secs(1)).unwrap(), 0);
        assert_eq!(right.receive(&mut batch, Duration::from_secs(1)).unwrap(), 1);
        assert_eq!((right.dropped(), left.dropped()), (1, 0));
        assert_eq!(right.send(&mut batch).unwrap(), 1);
        assert_eq!(left.receive(&mut batch, Duration::from_secs(1)).unwrap(), 1);
        assert_eq!((batch.packet(0).bytes, batch.packet(0).address), (&b"a"[..], 2));
    }
}
