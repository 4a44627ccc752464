//! Two devices joined in memory, in simulated time: the packets sent by one are received by the
//! other after the link's delay. Waiting advances the clock instead of taking time. Meant for one
//! thread, for tests and replays; it allocates.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use horolog_time::{Clock, SimulatedClock, Span, Timestamp, Utc};

use crate::batch::{Batch, BatchPacket, HardwareTime};
use crate::device::BatchDevice;

/// Link between two simulated devices.
#[derive(Clone, Debug)]
pub struct SimulatedLink {
    /// Clock of the link. Its instants also serve as receive timestamps.
    pub clock: Arc<SimulatedClock>,
    /// Delay from sending to receiving, equal in both directions.
    pub delay: Span,
    /// Packets in flight or waiting to be received, for each direction; more are dropped.
    pub queue_packets: usize,
    /// Lead of the interface clock at either end over `clock`, if it timestamps received packets.
    pub phc_ahead: Option<Span>,
}

/// One end of a [`SimulatedLink`]. See [`BatchDevice`] for its behaviour.
#[derive(Debug)]
pub struct Simulated<A> {
    link: SimulatedLink,
    /// Address of every packet that is received at the other end.
    address: A,
    incoming: Arc<Mutex<SimulatedQueue<A>>>,
    outgoing: Arc<Mutex<SimulatedQueue<A>>>,
}

/// Packets of one direction, in the order of arrival.
#[derive(Debug)]
struct SimulatedQueue<A> {
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
    /// Returns the two ends of a link. Packets of the first are received by the second with the
    /// address `addresses[0]`, and those of the second with `addresses[1]`.
    #[must_use]
    pub fn pair(link: &SimulatedLink, addresses: [A; 2]) -> [Self; 2] {
        let lane = || Arc::new(Mutex::new(SimulatedQueue { parcels: VecDeque::new(), dropped: 0 }));
        let (there, back) = (lane(), lane());
        let end = |address, incoming: &Arc<_>, outgoing: &Arc<_>| Self {
            link: link.clone(),
            address,
            incoming: Arc::clone(incoming),
            outgoing: Arc::clone(outgoing),
        };
        [end(addresses[0], &back, &there), end(addresses[1], &there, &back)]
    }

    /// Returns the number of packets for this end that the link had no room for.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        open(&self.incoming).dropped
    }

    fn now(&self) -> Timestamp<Utc> {
        self.link.clock.now()
    }
}

impl<A: Copy + Default> BatchDevice for Simulated<A> {
    type Address = A;

    fn receive(&mut self, batch: &mut Batch<A>, wait: Duration) -> io::Result<usize> {
        batch.clear();
        let mut lane = open(&self.incoming);
        let timeout = Span::from_ns(i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX));
        let until_next = lane.parcels.front().map_or(timeout, |next| next.arrives - self.now());
        self.link.clock.advance(until_next.clamp(Span::ZERO, timeout));
        let now = self.now();
        while !batch.is_full() {
            let Some(parcel) = lane.parcels.pop_front_if(|parcel| parcel.arrives <= now) else {
                break;
            };
            // The batch has room, and a longer packet is truncated.
            let _ = batch.push_packet(&BatchPacket {
                bytes: &parcel.bytes,
                address: parcel.address,
                truncated: false,
                received_at: Some(parcel.arrives),
                received_monotonic: None,
                hardware: self.link.phc_ahead.map(|ahead| HardwareTime {
                    interface: 1,
                    ns: (parcel.arrives + ahead).as_ns(),
                }),
                wants_timestamp: false,
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

/// Locks a lane. It is consistent after every statement, so one left by a panicking thread is
/// usable.
fn open<A>(lane: &Mutex<SimulatedQueue<A>>) -> MutexGuard<'_, SimulatedQueue<A>> {
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
            phc_ahead: None,
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
