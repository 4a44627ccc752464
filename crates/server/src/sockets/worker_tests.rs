//! Tests of a worker on a device and a clock made for them.

use std::collections::VecDeque;

use horolog_source::{ClockPages, shared_pages};
use horolog_time::{SimulatedClock, Utc};
use horolog_wire::ethernet::MacAddress;
use horolog_wire::frame::UdpFrameBuilder;
use horolog_wire::ntp::{AssociationMode, Header};

use super::*;
use crate::config::LimitsConfig;
use crate::reply::address_hash::AddressHashKey;
use crate::reply::interleaved::as_transmit;
use crate::sockets::response_time::BOUNDS_NS;

const OFFSET_NS: i64 = 1_700_000_000_000_000_000;

/// A device that hands out what is queued and takes up to `room` packets in a call.
#[derive(Default)]
struct Queue {
    incoming: VecDeque<(DatagramEndpoints, Vec<u8>)>,
    /// When all of it came, by the kernel.
    received_at: Option<Timestamp<Utc>>,
    outgoing: Vec<(DatagramEndpoints, Vec<u8>)>,
    room: usize,
    /// Frames of what was to be timestamped, and the time of their transmission.
    looped: Vec<Vec<u8>>,
    left_at: Option<Timestamp<Utc>>,
    /// Nothing of it comes back yet.
    late: bool,
}

impl BatchDevice for Queue {
    type Address = DatagramEndpoints;

    fn receive(&mut self, batch: &mut Batch<DatagramEndpoints>, _: Duration) -> io::Result<usize> {
        batch.clear();
        while let Some((address, bytes)) = self.incoming.pop_front() {
            assert!(batch.push_packet(&packet(address, &bytes, self.received_at)));
        }
        Ok(batch.len())
    }

    fn send(&mut self, batch: &mut Batch<DatagramEndpoints>) -> io::Result<usize> {
        let sent =
            batch.iter().take(self.room).map(|packet| (packet.address, packet.bytes.to_vec()));
        self.outgoing.extend(sent);
        let marked = batch.iter().take(self.room).filter(|packet| packet.wants_timestamp);
        self.looped.extend(marked.map(|packet| frame_of(&packet)));
        Ok(batch.len().min(self.room))
    }

    fn receive_transmitted(&mut self, batch: &mut Batch<DatagramEndpoints>) -> io::Result<usize> {
        batch.clear();
        if self.late {
            return Ok(0);
        }
        for frame in self.looped.drain(..) {
            assert!(batch.push_packet(&packet(DatagramEndpoints::default(), &frame, self.left_at)));
        }
        Ok(batch.len())
    }
}

fn packet(
    address: DatagramEndpoints,
    bytes: &[u8],
    received_at: Option<Timestamp<Utc>>,
) -> BatchPacket<'_, DatagramEndpoints> {
    BatchPacket {
        bytes,
        address,
        truncated: false,
        received_at,
        received_monotonic: None,
        hardware: None,
        wants_timestamp: false,
    }
}

fn frame_of(packet: &BatchPacket<'_, DatagramEndpoints>) -> Vec<u8> {
    let builder = UdpFrameBuilder {
        destination_mac: MacAddress([2; 6]),
        source_mac: MacAddress([4; 6]),
        vlan: None,
        source: "192.0.2.1:123".parse().unwrap(),
        destination: packet.address.remote,
    };
    let mut frame = vec![0; builder.headers_len() + packet.bytes.len()];
    builder.emit(packet.bytes, &mut frame);
    frame
}

fn client() -> DatagramEndpoints {
    DatagramEndpoints::to_remote("192.0.2.7:40000".parse().unwrap())
}

fn request(version: u8) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    Header::request(version, NtpTimestamp::from_bits(42)).emit(&mut bytes);
    bytes
}

fn worker(now_ns: i64, packets: &[Vec<u8>]) -> Worker<Queue, SimulatedClock> {
    let incoming = packets.iter().map(|bytes| (client(), bytes.clone())).collect();
    let device = Queue { incoming, room: 32, ..Queue::default() };
    let (_, page) =
        shared_pages(&ClockPages { stepped: ClockPage::SAMPLE, smeared: ClockPage::SAMPLE });
    let stop = Arc::new(AtomicBool::new(false));
    let surroundings = WorkerContext {
        page,
        stop,
        age_max: Span::from_ms(1_000),
        interleaved: Arc::new(InterleavedTable::new(16, AddressHashKey([1, 2])).unwrap()),
        has_transmit_timestamps: true,
        limiter: Arc::default(),
        hardware: Arc::default(),
        secrets: Secrets::default(),
    };
    let nonces = NonceStream::new().unwrap();
    Worker::new(device, SimulatedClock::new(now_ns), surroundings, Arc::default(), nonces, 32)
}

#[test]
fn a_batch_is_answered_and_counted() {
    let mut worker = worker(100_500_000_000, &[request(4), request(7), request(3), vec![0; 7]]);
    let turn = worker.process_batch().unwrap();
    assert_eq!((turn.received, turn.answered), (4, 2));
    assert_eq!(
        (turn.ignored.count_of(IgnoreReason::Version), turn.ignored.count_of(IgnoreReason::Length)),
        (1, 1)
    );
    assert_eq!((turn.expired, turn.refused), (0, 0));
    for ((address, bytes), version) in worker.device.outgoing.iter().zip([4, 3]) {
        let (reply, rest) = Header::parse(bytes).unwrap();
        assert!(rest.is_empty() && *address == client());
        assert_eq!((reply.mode, reply.version), (AssociationMode::Server, version));
        let since_anchor = reply.transmit.since(ClockPage::SAMPLE.timebase.ntp_at_anchor);
        assert_eq!(since_anchor, Span::from_ms(500));
        assert_eq!(as_transmit(reply.receive), reply.transmit);
    }
}

#[test]
fn what_was_sent_to_several_hosts_is_not_answered() {
    let mut worker = worker(100_500_000_000, &[request(4), request(7), request(3)]);
    worker.device.incoming[0].0.unicast = false;
    worker.device.incoming[1].0.unicast = false;
    let turn = worker.process_batch().unwrap();
    assert_eq!((turn.received, turn.answered), (3, 1));
    assert_eq!(turn.ignored.count_of(IgnoreReason::NotUnicast), 2, "whatever else it is");
}

#[test]
fn response_times_are_of_replies_and_from_the_kernel_s_receive_timestamp_on() {
    let received_ns = 100_500_000_000;
    let mut worker = worker(received_ns + 3_000_000, &[request(4), request(7), request(3)]);
    worker.device.received_at = Some(Timestamp::from_ns(OFFSET_NS + received_ns));
    let times = worker.process_batch().unwrap().response_times;
    // Timestamps are in steps of 2^-32 s.
    assert!((5_999_998..=6_000_002).contains(&times.sum_ns), "{times:?}");
    let between_2_and_5_ms = BOUNDS_NS.iter().position(|bound| *bound == 5_000_000).unwrap();
    assert_eq!((times.counts[between_2_and_5_ms], times.total()), (2, 2));
}

#[test]
fn the_response_time_of_an_interleaved_reply_is_its_own() {
    let mut worker = worker(100_500_000_000, &[]);
    let (first, _) = exchange_again(&mut worker, None);
    // Asked 10 ms later, it has waited 4 ms by then.
    worker.device.received_at = Some(Timestamp::from_ns(OFFSET_NS + 100_516_000_000));
    let (second, turn) = exchange_again(&mut worker, Some(first));
    assert_eq!((turn.interleaved, second.transmit), (1, first.transmit));
    let times = turn.response_times;
    assert!(times.total() == 1 && times.sum_ns.abs_diff(4_000_000) <= 1, "{times:?}");
}

#[test]
fn nothing_is_answered_from_an_expired_page() {
    let mut worker = worker(101_000_000_000, &[request(4), request(7)]);
    let turn = worker.process_batch().unwrap();
    assert_eq!((turn.expired, turn.ignored.total(), turn.answered), (1, 1, 0));
    assert!(worker.device.outgoing.is_empty());
}

#[test]
fn what_the_kernel_refuses_is_counted() {
    let mut worker = worker(100_000_000_000, &[request(4), request(4), request(4)]);
    worker.device.room = 1;
    let turn = worker.process_batch().unwrap();
    assert_eq!((turn.answered, turn.refused), (1, 2));
}

/// The reply to a request that was received then; none where its time is not believed.
fn judge_received(received_at: Option<Timestamp<Utc>>) -> Option<Header> {
    let bytes = request(4);
    match judge_packet(&bytes, received_at, false) {
        WorkerDecision::Reply(reply) => Some(reply.header),
        WorkerDecision::Kiss(reply) => panic!("{reply:?}"),
        WorkerDecision::Expired => None,
        WorkerDecision::Ignore(reason) => panic!("ignored: {reason:?}"),
    }
}

fn judge_packet(bytes: &[u8], received_at: Option<Timestamp<Utc>>, cut: bool) -> WorkerDecision {
    let packet = BatchPacket { truncated: cut, ..packet(client(), bytes, received_at) };
    let now = Timestamp::from_ns(100_500_000_000);
    let surroundings = worker(0, &[]).context;
    decide_request(
        &packet,
        &surroundings.batch_config(now),
        now,
        &surroundings,
        &mut SocketEngineCounts::default(),
    )
}

#[test]
fn the_kernel_timestamp_is_t2() {
    let at = |ns: i64| Some(Timestamp::from_ns(1_700_000_000_000_000_000 + ns));
    // The second one lies before the anchor, as happens whenever a page was just renewed.
    for (ns, since_anchor) in [(100_499_000_000, 499), (99_900_000_000, -100)] {
        let reply = judge_received(at(ns)).expect("a reply");
        let off = reply.receive.since(ClockPage::SAMPLE.timebase.ntp_at_anchor)
            - Span::from_ms(since_anchor);
        assert!(off.as_ns().abs() <= 1, "{reply:?}");
    }
}

#[test]
fn a_timestamp_that_cannot_be_is_not_served() {
    for ns in [100_500_000_001, 99_499_999_999, 0, i64::from(i32::MAX) * 1_000_000] {
        let at = Some(Timestamp::from_ns(1_700_000_000_000_000_000 + ns));
        assert_eq!(judge_received(at), None, "{ns}");
    }
}

#[test]
fn a_cut_datagram_is_ignored() {
    let bytes = request(4);
    assert!(matches!(
        judge_packet(&bytes, None, true),
        WorkerDecision::Ignore(IgnoreReason::Length)
    ));
}

#[test]
fn a_worker_stops_on_request() {
    let worker = worker(100_000_000_000, &[]);
    worker.context.stop.store(true, Ordering::Relaxed);
    worker.run();
}

/// Asks once more in interleaved mode, and returns the reply.
fn exchange_again(
    worker: &mut Worker<Queue, SimulatedClock>,
    last: Option<Header>,
) -> (Header, SocketEngineCounts) {
    let origin = last.map_or(NtpTimestamp::from_bits(2), |last| last.receive);
    let mut bytes = vec![0; HEADER_LEN];
    let receive = NtpTimestamp::from_bits(77);
    Header { origin, receive, ..Header::request(4, NtpTimestamp::from_bits(42)) }.emit(&mut bytes);
    worker.device.incoming.push_back((client(), bytes));
    worker.clock.advance(Span::from_ms(10));
    let turn = worker.process_batch().unwrap();
    let (_, reply) = worker.device.outgoing.pop().unwrap();
    let (reply, _) = Header::parse(&reply).unwrap();
    assert_eq!((reply.receive.to_bits() & 1, reply.transmit.to_bits() & 1), (0, 1));
    (reply, turn)
}

#[test]
fn an_interleaved_reply_has_the_transmit_time_of_the_previous_one() {
    let mut worker = worker(100_500_000_000, &[]);
    let (first, turn) = exchange_again(&mut worker, None);
    assert_eq!(first.origin.to_bits(), 42, "a basic reply");
    assert_eq!((turn.interleaved, turn.transmit_timestamps_requested), (0, 1));
    let (second, turn) = exchange_again(&mut worker, Some(first));
    assert_eq!((second.origin.to_bits(), second.transmit), (77, first.transmit));
    assert_eq!((turn.interleaved, turn.transmit_kernel_timestamps), (1, 0));
    // From now on the kernel says when replies left.
    let (third, turn) = exchange_with_late_timestamp(&mut worker, second, Span::from_ms(3));
    assert_eq!((turn.interleaved, turn.transmit_kernel_timestamps), (0, 1));
    let (fourth, _) = exchange_again(&mut worker, Some(third));
    let left = fourth.transmit.since(ClockPage::SAMPLE.timebase.ntp_at_anchor);
    assert_eq!(left, Span::from_ms(533));
    // A reply that nothing is remembered of is a basic one.
    let (other, turn) = exchange_again(&mut worker, Some(second));
    assert_eq!((other.origin.to_bits(), turn.interleaved), (42, 0));
}

/// Asks once more; the reply left so long after it was made, as the kernel says 10 ms later.
fn exchange_with_late_timestamp(
    worker: &mut Worker<Queue, SimulatedClock>,
    last: Header,
    after: Span,
) -> (Header, SocketEngineCounts) {
    worker.device.late = true;
    let (reply, _) = exchange_again(worker, Some(last));
    let sent: Timestamp<Monotonic> = worker.clock.now();
    worker.device.late = false;
    worker.device.left_at = Some(Timestamp::from_ns(OFFSET_NS + sent.as_ns()) + after);
    worker.clock.advance(Span::from_ms(10));
    (reply, worker.process_batch().unwrap())
}

#[test]
fn transmit_timestamps_outside_the_exchange_are_rejected() {
    for (after, is_possible) in [
        (Span::from_ms(-1_000), false),
        (Span::from_ns(-10), false),
        (Span::from_ns(10), true),
        (Span::from_ms(10), true),
        (Span::from_ms(11), false),
        (Span::from_ms(400), false),
    ] {
        let mut worker = worker(100_300_000_000, &[]);
        let (first, _) = exchange_again(&mut worker, None);
        let (second, turn) = exchange_with_late_timestamp(&mut worker, first, after);
        assert_eq!(turn.transmit_kernel_timestamps, u64::from(is_possible), "{after:?}");
        let (third, turn) = exchange_again(&mut worker, Some(second));
        assert_eq!(turn.interleaved, 1);
        let left =
            third.transmit.since(ClockPage::SAMPLE.timebase.ntp_at_anchor) - Span::from_ms(320);
        let expected = if is_possible { after } else { Span::ZERO };
        assert!((left - expected).as_ns().abs() <= 1, "{after:?}: {left:?}");
    }
}

#[test]
fn plain_requests_leave_nothing_behind() {
    let mut worker = worker(100_500_000_000, &[request(4)]);
    let turn = worker.process_batch().unwrap();
    assert_eq!((turn.answered, turn.transmit_timestamps_requested), (1, 0));
    assert!(worker.device.looped.is_empty());
}

#[test]
fn more_requests_than_leave_by_one_call_are_all_answered() {
    let requests = vec![request(4); REPLIES_PER_SEND * 3 + 1];
    let mut worker = worker(100_500_000_000, &requests);
    assert_eq!(worker.process_batch().unwrap().answered, requests.len() as u64);
}

#[test]
fn clients_over_the_limit_or_denied_get_no_reply() {
    let limited = |config: LimitsConfig, class_len: usize, count: usize| {
        let mut bytes = request(4);
        bytes.resize(class_len, 0);
        let mut worker = worker(100_500_000_000, &vec![bytes; count]);
        let limiter = Limiter::new(&config, AddressHashKey([1, 2])).expect("something is limited");
        worker.context.limiter.store(Some(Arc::new(limiter)));
        let turn = worker.process_batch().unwrap();
        assert_eq!(turn.received, turn.answered + turn.ignored.total());
        (worker, turn)
    };
    let denied = LimitsConfig { deny: vec!["192.0.2.0/24".parse().unwrap()], ..Default::default() };
    let (_, turn) = limited(denied.clone(), 48, 3);
    assert_eq!((turn.answered, turn.ignored.count_of(IgnoreReason::Denied)), (0, 3));
    let (worker, turn) = limited(LimitsConfig { kiss_deny: true, ..denied.clone() }, 48, 3);
    assert!(turn.answered >= 1, "{turn:?}");
    let kiss = &worker.device.outgoing[0].1;
    assert_eq!((kiss.len(), kiss[1], &kiss[12..16]), (48, 0, &b"DENY"[..]));
    let (_, turn) = limited(LimitsConfig { kiss_deny: true, ..denied }, 68, 3);
    assert_eq!(turn.answered, 0, "long ones are never kissed");
}
