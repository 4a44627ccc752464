//! Tests of a worker on a device and a clock made for them.

use std::collections::VecDeque;

use horolog_time::{SimulatedClock, Utc};
use horolog_wire::ntp::Mode;

use super::*;
use crate::page;
use crate::page::tests::{both, page};

/// A device that hands out what is queued and takes up to `room` packets in a call.
#[derive(Default)]
struct Queue {
    incoming: VecDeque<(Endpoints, Vec<u8>)>,
    outgoing: Vec<(Endpoints, Vec<u8>)>,
    room: usize,
}

impl Device for Queue {
    type Address = Endpoints;

    fn receive(&mut self, batch: &mut Batch<Endpoints>, _: Duration) -> io::Result<usize> {
        batch.clear();
        while let Some((address, bytes)) = self.incoming.pop_front() {
            assert!(batch.push(address, &bytes));
        }
        Ok(batch.len())
    }

    fn send(&mut self, batch: &mut Batch<Endpoints>) -> io::Result<usize> {
        let sent =
            batch.iter().take(self.room).map(|packet| (packet.address, packet.bytes.to_vec()));
        self.outgoing.extend(sent);
        Ok(batch.len().min(self.room))
    }
}

fn client() -> Endpoints {
    Endpoints::to("192.0.2.7:40000".parse().unwrap())
}

fn request(version: u8) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    Header::request(version, NtpTimestamp::from_bits(42)).emit(&mut bytes);
    bytes
}

fn worker(now_ns: i64, packets: &[Vec<u8>]) -> Worker<Queue, SimulatedClock> {
    let incoming = packets.iter().map(|bytes| (client(), bytes.clone())).collect();
    let device = Queue { incoming, room: 32, ..Queue::default() };
    let (_, page) = page::shared(&both(page()));
    let stop = Arc::new(AtomicBool::new(false));
    let surroundings = Surroundings { page, stop, age_max: Span::from_ms(1_000) };
    Worker::new(device, SimulatedClock::new(now_ns), surroundings, Arc::default(), 32)
}

#[test]
fn a_batch_is_answered_and_counted() {
    let mut worker = worker(100_500_000_000, &[request(4), request(7), request(3), vec![0; 7]]);
    let turn = worker.turn().unwrap();
    assert_eq!((turn.received, turn.answered), (4, 2));
    assert_eq!((turn.ignored.of(Reason::Version), turn.ignored.of(Reason::Length)), (1, 1));
    assert_eq!((turn.expired, turn.refused), (0, 0));
    for ((address, bytes), version) in worker.device.outgoing.iter().zip([4, 3]) {
        let (reply, rest) = Header::parse(bytes).unwrap();
        assert!(rest.is_empty() && *address == client());
        assert_eq!((reply.mode, reply.version), (Mode::Server, version));
        let since_anchor = reply.transmit.since(page().timebase.ntp_at_anchor);
        assert_eq!(since_anchor, Span::from_ms(500));
        assert_eq!(reply.receive, reply.transmit);
    }
}

#[test]
fn nothing_is_answered_from_an_expired_page() {
    let mut worker = worker(101_000_000_000, &[request(4), request(7)]);
    let turn = worker.turn().unwrap();
    assert_eq!((turn.expired, turn.ignored.total(), turn.answered), (1, 1, 0));
    assert!(worker.device.outgoing.is_empty());
}

#[test]
fn what_the_kernel_refuses_is_counted() {
    let mut worker = worker(100_000_000_000, &[request(4), request(4), request(4)]);
    worker.device.room = 1;
    let turn = worker.turn().unwrap();
    assert_eq!((turn.answered, turn.refused), (1, 2));
}

fn judge_received(received_at: Option<Timestamp<Utc>>, truncated: bool) -> Judgement {
    let bytes = request(4);
    let packet = Packet { bytes: &bytes, address: client(), truncated, received_at };
    let now = Timestamp::from_ns(100_500_000_000);
    judge(&packet, &page(), now, Span::from_ms(1_000))
}

#[test]
fn the_kernel_timestamp_is_t2() {
    let at = |ns: i64| Some(Timestamp::from_ns(1_700_000_000_000_000_000 + ns));
    let Judgement::Reply(reply) = judge_received(at(100_499_000_000), false) else {
        panic!("not answered");
    };
    assert_eq!(reply.receive.since(page().timebase.ntp_at_anchor), Span::from_ms(499));
    // Before the anchor, as happens whenever a page was just renewed.
    let Judgement::Reply(reply) = judge_received(at(99_900_000_000), false) else {
        panic!("not answered");
    };
    assert_eq!(reply.receive.since(page().timebase.ntp_at_anchor), Span::from_ms(-100));
}

#[test]
fn a_timestamp_that_cannot_be_is_not_served() {
    for ns in [100_500_000_001, 99_499_999_999, 0, i64::from(i32::MAX) * 1_000_000] {
        let at = Some(Timestamp::from_ns(1_700_000_000_000_000_000 + ns));
        assert!(matches!(judge_received(at, false), Judgement::Expired), "{ns}");
    }
}

#[test]
fn a_cut_datagram_is_ignored() {
    assert!(matches!(judge_received(None, true), Judgement::Ignore(Reason::Length)));
}

#[test]
fn a_worker_told_to_stop_stops() {
    let worker = worker(100_000_000_000, &[]);
    worker.surroundings.stop.store(true, Ordering::Relaxed);
    worker.run();
}
