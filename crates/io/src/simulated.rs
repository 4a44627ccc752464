//! Two devices joined in memory, in simulated time: packets sent by one are received by the other
//! after the link's delay. Waiting advances the simulated clock and takes no real time. For tests
//! and replays in one thread; it allocates.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use horolog_time::{Clock, SimulatedClock, Span, Timestamp, Utc};

use crate::batch::{Batch, BatchPacket, HardwareTimestamp};
use crate::device::BatchDevice;

/// Link between two simulated devices.
#[derive(Clone, Debug)]
pub struct SimulatedLink {
    /// Simulated clock. The arrival times of packets on it serve as kernel receive timestamps.
    pub clock: Arc<SimulatedClock>,
    /// Delay from sending to receiving, equal in both directions.
    pub delay: Span,
    /// Capacity of each direction, in packets in flight or waiting to be received; more are
    /// dropped.
    pub queue_packets: usize,
    /// Offset of the ends' PHCs from `clock`; `None` without hardware receive timestamps.
    pub phc_offset: Option<Span>,
}

/// One end of a [`SimulatedLink`].
#[derive(Debug)]
pub struct SimulatedDevice<A> {
    link: SimulatedLink,
    /// Address that the other end reports for packets sent by this one.
    address: A,
    incoming: Arc<Mutex<SimulatedQueue<A>>>,
    outgoing: Arc<Mutex<SimulatedQueue<A>>>,
}

/// Packets of one direction, in the order of arrival.
#[derive(Debug)]
struct SimulatedQueue<A> {
    packets: VecDeque<SimulatedPacket<A>>,
    dropped: u64,
}

#[derive(Debug)]
struct SimulatedPacket<A> {
    arrives_at: Timestamp<Utc>,
    bytes: Vec<u8>,
    address: A,
}

impl<A: Copy + Default> SimulatedDevice<A> {
    /// Returns the two ends of a link. The second end receives packets with the address
    /// `addresses[0]`, the first one with `addresses[1]`.
    #[must_use]
    pub fn pair(link: &SimulatedLink, addresses: [A; 2]) -> [Self; 2] {
        let new_queue =
            || Arc::new(Mutex::new(SimulatedQueue { packets: VecDeque::new(), dropped: 0 }));
        let (first_to_second, second_to_first) = (new_queue(), new_queue());
        let end = |address, incoming: &Arc<_>, outgoing: &Arc<_>| Self {
            link: link.clone(),
            address,
            incoming: Arc::clone(incoming),
            outgoing: Arc::clone(outgoing),
        };
        [
            end(addresses[0], &second_to_first, &first_to_second),
            end(addresses[1], &first_to_second, &second_to_first),
        ]
    }

    /// Returns the number of packets for this end that were dropped because the queue was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        lock_queue(&self.incoming).dropped
    }

    fn now(&self) -> Timestamp<Utc> {
        self.link.clock.now()
    }
}

impl<A: Copy + Default> BatchDevice for SimulatedDevice<A> {
    type Address = A;

    fn receive(&mut self, batch: &mut Batch<A>, wait: Duration) -> io::Result<usize> {
        batch.clear();
        let mut queue = lock_queue(&self.incoming);
        let timeout = Span::from_ns(i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX));
        let until_next = queue.packets.front().map_or(timeout, |next| next.arrives_at - self.now());
        self.link.clock.advance(until_next.clamp(Span::ZERO, timeout));
        let now = self.now();
        while !batch.is_full() {
            let Some(packet) = queue.packets.pop_front_if(|parcel| parcel.arrives_at <= now) else {
                break;
            };
            // The batch has room, and a longer packet is truncated.
            let _ = batch.push_packet(&BatchPacket {
                bytes: &packet.bytes,
                address: packet.address,
                truncated: false,
                received_at: Some(packet.arrives_at),
                received_monotonic: None,
                hardware: self.link.phc_offset.map(|ahead| HardwareTimestamp {
                    interface: 1,
                    ns: (packet.arrives_at + ahead).as_ns(),
                }),
                wants_timestamp: false,
            });
        }
        Ok(batch.len())
    }

    fn send(&mut self, batch: &mut Batch<A>) -> io::Result<usize> {
        let arrives_at = self.now() + self.link.delay;
        let mut queue = lock_queue(&self.outgoing);
        for packet in batch.iter() {
            if queue.packets.len() == self.link.queue_packets {
                queue.dropped += 1;
                continue;
            }
            let (bytes, address) = (packet.bytes.to_vec(), self.address);
            queue.packets.push_back(SimulatedPacket { arrives_at, bytes, address });
        }
        Ok(batch.len())
    }
}

/// Locks a queue. The queue is consistent after every statement, so it remains usable after a
/// thread has panicked.
fn lock_queue<A>(queue: &Mutex<SimulatedQueue<A>>) -> MutexGuard<'_, SimulatedQueue<A>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Span = Span::from_ms(3);

    fn pair(queue_packets: usize) -> (Arc<SimulatedClock>, [SimulatedDevice<u8>; 2]) {
        let clock = Arc::new(SimulatedClock::new(1_000));
        let link = SimulatedLink {
            clock: Arc::clone(&clock),
            delay: DELAY,
            queue_packets,
            phc_offset: None,
        };
        (clock, SimulatedDevice::pair(&link, [1, 2]))
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
