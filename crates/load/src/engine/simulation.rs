//! Tests of the lane loop and its counters in simulated time, against a server and a network with
//! known faults: the counts must match these faults.

mod foreign_replies;
mod interleaved;
mod ntp;
mod offsets;
mod profiles;
mod ptp;
mod search;

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use horolog_io::{
    Batch, BatchDevice, DatagramEndpoints, FaultCounts, FaultInjectionPlan, FaultyDevice,
    SimulatedDevice, SimulatedLink,
};
use horolog_record::{InvalidReplyReason, RequestSpacing};
use horolog_time::{Clock, Monotonic, NtpTimestamp, SimulatedClock, Span, Timestamp, Utc};
use horolog_wire::ethernet::MacAddress;
use horolog_wire::frame::{UdpFrame, UdpFrameBuilder};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header};

use super::lane::{LaneClock, LaneDevice, LaneTrial};
use super::packet::LanePacketSocket;
use super::udp::{DropCountingDevice, LaneUdpSockets};
use crate::clients::{LaneClients, SimulatedClientNetwork};
use crate::offset::{ServerOffsetOptions, ServerOffsetParameters};
use crate::request::LaneFrameParameters;
use crate::request_tracker::{
    ExpectedReplies, LaneCarryOver, RequestTracker, TrackerConfig, TrialCounts,
};
use crate::schedule::LaneSchedule;
use crate::token::RequestTokenCodec;
use crate::verify::ReplyVerifier;

const START_NS: i64 = 1_000_000_000_000;
const LINK_DELAY: Span = Span::from_ns(10_000);
const TIMEOUT: Span = Span::from_ms(50);
const CAPACITY: usize = 256;
const SLOTS: usize = 32;
const CLIENTS: u32 = 7;
/// The interfaces' own clocks keep TAI.
const PHC_AHEAD: Option<Span> = Some(Span::from_ms(37_000));

/// Simulated clock that advances by 100 ns at each reading.
struct TickingClock(Arc<SimulatedClock>);

impl Clock<Monotonic> for TickingClock {
    fn now(&self) -> Timestamp<Monotonic> {
        self.0.advance(Span::from_ns(100));
        self.0.now()
    }
}

impl LaneClock for TickingClock {
    fn sleep_until(&self, instant: Timestamp<Monotonic>) {
        let now: Timestamp<Monotonic> = self.0.now();
        self.0.advance((instant - now).max(Span::ZERO));
    }

    fn spin(&self) {
        self.0.advance(Span::from_ns(400));
    }

    fn realtime_ahead(&self) -> Span {
        Span::ZERO
    }
}

/// Replies of the server to its `n`-th request, each with its delay.
type ServerBehaviour = fn(n: u64, reply: Header) -> Vec<(Span, Header)>;

fn answer(_: u64, reply: Header) -> Vec<(Span, Header)> {
    vec![(Span::ZERO, reply)]
}

/// Encapsulation of payloads in packets: extracts the payload of a request, and wraps a reply's
/// payload for the sender of its request.
trait PayloadEncapsulation: Copy + Default {
    fn payload(packet: &[u8]) -> Option<Vec<u8>>;
    fn wrap(request: &[u8], payload: &[u8]) -> Vec<u8>;
}

impl PayloadEncapsulation for DatagramEndpoints {
    fn payload(packet: &[u8]) -> Option<Vec<u8>> {
        Some(packet.to_vec())
    }

    fn wrap(_: &[u8], payload: &[u8]) -> Vec<u8> {
        payload.to_vec()
    }
}

impl PayloadEncapsulation for () {
    fn payload(packet: &[u8]) -> Option<Vec<u8>> {
        UdpFrame::parse(packet).ok().map(|frame| frame.payload.to_vec())
    }

    fn wrap(request: &[u8], payload: &[u8]) -> Vec<u8> {
        let request = UdpFrame::parse(request).unwrap();
        let builder = UdpFrameBuilder {
            destination_mac: request.ethernet.source,
            source_mac: request.ethernet.destination,
            vlan: None,
            source: request.destination,
            destination: request.source,
        };
        let mut frame = vec![0; builder.headers_len() + payload.len()];
        builder.emit(payload, &mut frame);
        frame
    }
}

/// Simulated path: the near end of a link and the server at the far end, which is run whenever the
/// near end is used.
struct SimulatedPath<A: PayloadEncapsulation> {
    near: FaultyDevice<SimulatedDevice<A>>,
    far: SimulatedDevice<A>,
    clock: Arc<SimulatedClock>,
    behaviour: ServerBehaviour,
    /// Behaviour of a PTP master, if the server is one.
    master: Option<ptp::MasterBehaviour>,
    /// Transmit time of each reply, by the receive timestamp of its request; `None` if the server
    /// does not support interleaved mode.
    departures: Option<HashMap<u64, NtpTimestamp>>,
    /// Error of the server's transmit timestamps: time by which they precede the departure of the
    /// reply; `None` for exact timestamps.
    transmit_error: Option<Span>,
    /// Each reply goes to the client of the previous request.
    is_misdirected: bool,
    requests: u64,
    inbox: Batch<A>,
    previous: Vec<u8>,
    pending: Vec<(Timestamp<Monotonic>, Vec<u8>)>,
    /// Time that sending one request takes.
    send_cost: Span,
}

impl<A: PayloadEncapsulation> SimulatedPath<A> {
    fn new(
        clock: &Arc<SimulatedClock>,
        faults: FaultInjectionPlan,
        behaviour: ServerBehaviour,
    ) -> Self {
        let link = SimulatedLink {
            clock: Arc::clone(clock),
            delay: LINK_DELAY,
            queue_packets: 100_000,
            phc_offset: PHC_AHEAD,
        };
        let [near, far] = SimulatedDevice::pair(&link, [A::default(); 2]);
        let time: Arc<SimulatedClock> = Arc::clone(clock);
        Self {
            near: FaultyDevice::new(near, faults, time, SLOTS, CAPACITY),
            far,
            clock: Arc::clone(clock),
            behaviour,
            master: None,
            departures: None,
            transmit_error: None,
            is_misdirected: false,
            requests: 0,
            inbox: Batch::new(SLOTS, CAPACITY),
            previous: Vec::new(),
            pending: Vec::new(),
            send_cost: Span::from_ns(300),
        }
    }

    fn serve(&mut self) {
        while self.far.receive(&mut self.inbox, Duration::ZERO).unwrap() > 0 {
            for packet in self.inbox.iter() {
                let Some(payload) = A::payload(packet.bytes) else { continue };
                let at = packet.received_at.unwrap();
                let replies = match self.master {
                    Some(master) => master(self.requests, &ptp::correct_replies(&payload, at)),
                    None => ntp::replies(
                        (self.behaviour, self.requests),
                        &payload,
                        at,
                        self.departures.as_mut(),
                    ),
                };
                let request = if self.is_misdirected && self.requests > 0 {
                    self.previous.as_slice()
                } else {
                    packet.bytes
                };
                let now: Timestamp<Monotonic> = self.clock.now();
                for (after, reply) in replies {
                    self.pending.push((now + after, A::wrap(request, &reply)));
                }
                self.previous = packet.bytes.to_vec();
                self.requests += 1;
            }
        }
        self.deliver();
    }

    fn deliver(&mut self) {
        let now: Timestamp<Monotonic> = self.clock.now();
        for (_, mut bytes) in self.pending.extract_if(.., |(at, _)| *at <= now) {
            if let Some(early) = self.transmit_error {
                let left = Timestamp::from_ns((now - early).as_ns());
                if self.master.is_some() {
                    ptp::set_sync_timestamp(&mut bytes, left);
                } else {
                    let left = NtpTimestamp::from_utc(left);
                    offsets::set_transmit_timestamp(&mut bytes, left, self.departures.as_mut());
                }
            }
            self.inbox.clear();
            assert!(self.inbox.push(A::default(), &bytes));
            self.far.send(&mut self.inbox).unwrap();
        }
    }
}

impl<A: PayloadEncapsulation> BatchDevice for SimulatedPath<A> {
    type Address = A;

    fn receive(&mut self, batch: &mut Batch<A>, wait: Duration) -> io::Result<usize> {
        self.serve();
        self.near.receive(batch, wait)
    }

    fn send(&mut self, batch: &mut Batch<A>) -> io::Result<usize> {
        self.clock.advance(Span::from_ns(self.send_cost.as_ns() * batch.len() as i64));
        self.near.send(batch)
    }
}

impl<A: PayloadEncapsulation> DropCountingDevice for SimulatedPath<A> {
    fn dropped(&mut self) -> io::Result<u64> {
        Ok(0)
    }
}

/// One lane with its device, clients and clock.
struct SimulatedLane<P> {
    clock: Arc<SimulatedClock>,
    port: P,
    token: RequestTokenCodec,
    carried: LaneCarryOver,
    rate: f64,
    timeout: Span,
    interleaved: bool,
    offset: Option<ServerOffsetParameters>,
    ptp: Option<crate::ptp::PtpMessageVerifier>,
    run: u32,
}

/// Returns the frame layout of a lane that sends NTP requests.
fn frame_plan() -> LaneFrameParameters {
    let target: IpAddr = "192.0.2.1".parse().unwrap();
    LaneFrameParameters {
        source_mac: MacAddress([2, 0, 0, 0, 0, 1]),
        destination_mac: MacAddress([2, 0, 0, 0, 0, 2]),
        network: SimulatedClientNetwork::new("10.64.0.0/10".parse().unwrap(), target, &[]).unwrap(),
        source_port: 32_768,
        target: (target, 123).into(),
        version: 4,
        ptp: None,
    }
}

impl SimulatedLane<LanePacketSocket<SimulatedPath<()>>> {
    fn with_frames(faults: FaultInjectionPlan, behaviour: ServerBehaviour) -> Self {
        let clock = Arc::new(SimulatedClock::new(START_NS));
        let port =
            LanePacketSocket::new(SimulatedPath::new(&clock, faults, behaviour), &frame_plan(), 0);
        Self::new(clock, port, 1)
    }

    fn path(&mut self) -> &mut SimulatedPath<()> {
        &mut self.port.device
    }
}

impl SimulatedLane<LaneUdpSockets<SimulatedPath<DatagramEndpoints>>> {
    fn with_sockets(behaviour: ServerBehaviour) -> Self {
        let clock = Arc::new(SimulatedClock::new(START_NS));
        let mut port = LaneUdpSockets::new(4, 0);
        for _ in 0..CLIENTS {
            port.sockets.push(SimulatedPath::new(&clock, FaultInjectionPlan::default(), behaviour));
        }
        Self::new(clock, port, 32)
    }
}

impl<P: LaneDevice> SimulatedLane<P> {
    fn new(clock: Arc<SimulatedClock>, port: P, run: u32) -> Self {
        let token = RequestTokenCodec::new(0x0123_4567_89ab_cdef, Timestamp::from_ns(START_NS));
        let carried = LaneCarryOver::default();
        let (interleaved, offset, ptp) = (false, None, None);
        Self {
            clock,
            port,
            token,
            carried,
            rate: 20_000.0,
            timeout: TIMEOUT,
            interleaved,
            offset,
            ptp,
            run,
        }
    }

    /// Returns the tracker configuration of a trial that begins at `start`.
    fn tracker_config(&self, start: Timestamp<Monotonic>) -> TrackerConfig {
        let (token, interleaved) = (self.token, self.interleaved);
        let ntp = ReplyVerifier { token, version: 4, interleaved, extended: false };
        TrackerConfig {
            expected: self.ptp.map_or(ExpectedReplies::Ntp(ntp), ExpectedReplies::Ptp),
            clients: LaneClients::in_turn(CLIENTS, 0, 1, self.run),
            start,
            timeout: self.timeout,
            rate: self.rate,
            offset: self.offset,
            interval: None,
            fairness: false,
        }
    }

    /// Runs one trial of 100 ms and returns its counts.
    fn run_trial(&mut self) -> TrialCounts {
        let duration = Duration::from_millis(100);
        let now: Timestamp<Monotonic> = self.clock.now();
        let start = now + Span::from_ms(1);
        let carried = std::mem::take(&mut self.carried);
        let tracker = RequestTracker::open(&self.tracker_config(start), carried).unwrap();
        let lane = LaneTrial {
            device: &mut self.port,
            clock: &TickingClock(Arc::clone(&self.clock)),
            tracker,
            schedule: LaneSchedule::new(
                start,
                self.rate,
                duration,
                RequestSpacing::Constant,
                (0, 1),
                1,
            )
            .unwrap(),
            end: start + Span::from_ms(100),
            timeout: self.timeout,
            realtime_ahead: Span::ZERO,
            interval: None,
            stop: &AtomicBool::new(false),
            publisher: None,
        };
        let mut counts = TrialCounts::default();
        self.carried =
            lane.run(&mut |(_, interval_counts)| counts.merge(&interval_counts)).unwrap();
        counts
    }
}

fn faults(counts: impl Fn(&mut FaultInjectionPlan)) -> FaultInjectionPlan {
    let mut plan = FaultInjectionPlan { seed: 42, ..FaultInjectionPlan::default() };
    counts(&mut plan);
    plan
}

fn fault_counts(scene: &mut SimulatedLane<LanePacketSocket<SimulatedPath<()>>>) -> FaultCounts {
    scene.path().near.counts()
}

fn assert_clean(counts: &TrialCounts) {
    assert_eq!((counts.planned, counts.sent, counts.received), (2000, 2000, 2000));
    assert_eq!((counts.refused, counts.duplicate, counts.late), (0, 0, 0));
    assert_eq!(counts.invalid, [0; InvalidReplyReason::ALL.len()]);
    assert_eq!(counts.rtt.count(), 2000);
    assert_eq!(counts.response.min(), Some(700));
    assert_eq!(counts.response.max(), Some(700));
    // Twice the link's delay, and no less; each request within the time of a call.
    assert!(counts.rtt.min().unwrap() >= 20_000, "{:?}", counts.rtt.min());
    assert!(counts.lateness.max().unwrap() < 5_000, "{:?}", counts.lateness.max());
    let seconds = (counts.last_sent.unwrap() - counts.first_sent.unwrap()).as_seconds();
    assert!((1999.0 / seconds / 20_000.0 - 1.0).abs() < 1e-3, "{seconds}");
}

#[test]
fn a_perfect_server_is_counted_as_perfect_through_frames_and_sockets() {
    assert_clean(&SimulatedLane::with_frames(FaultInjectionPlan::default(), answer).run_trial());
    assert_clean(&SimulatedLane::with_sockets(answer).run_trial());
}

#[test]
fn what_the_network_loses_is_lost() {
    let mut scene = SimulatedLane::with_frames(faults(|plan| plan.loss = 0.05), answer);
    let counts = scene.run_trial();
    assert!(fault_counts(&mut scene).lost > 50);
    assert_eq!(counts.lost(), fault_counts(&mut scene).lost);
    assert_eq!((counts.sent, counts.duplicate, counts.late), (2000, 0, 0));
}

#[test]
fn what_the_network_doubles_is_duplicate_and_nothing_else() {
    let mut scene = SimulatedLane::with_frames(faults(|plan| plan.duplication = 0.05), answer);
    let counts = scene.run_trial();
    assert!(fault_counts(&mut scene).duplicated > 50);
    assert_eq!(counts.duplicate, fault_counts(&mut scene).duplicated);
    assert_eq!((counts.received, counts.late), (2000, 0));
}

#[test]
fn order_does_not_matter() {
    let mut scene = SimulatedLane::with_frames(faults(|plan| plan.reordering = 0.2), answer);
    assert_eq!(scene.run_trial().received, 2000);
    assert!(fault_counts(&mut scene).reordered > 100);
}

/// Each fault for one request in ten, so that the counts are known beforehand.
#[test]
fn each_fault_of_the_server_is_counted_under_its_name() {
    fn faulty(n: u64, reply: Header) -> Vec<(Span, Header)> {
        let now = Span::ZERO;
        match n % 10 {
            0 => vec![],
            1 => vec![(now, reply), (now, reply), (now, reply)],
            2 => vec![(TIMEOUT + Span::from_ms(1), reply)],
            3 => vec![(now, Header { mode: AssociationMode::Broadcast, ..reply })],
            4 => vec![(now, Header { version: 3, ..reply })],
            5 => vec![(now, Header { origin: NtpTimestamp::UNKNOWN, ..reply })],
            6 => vec![(now, Header { stratum: 0, reference_id: *b"RATE", ..reply })],
            7 => vec![(now, Header { stratum: 17, ..reply })],
            8 => vec![(now, Header { transmit: NtpTimestamp::UNKNOWN, ..reply })],
            _ => vec![(now, reply)],
        }
    }
    let mut scene = SimulatedLane::with_frames(FaultInjectionPlan::default(), faulty);
    let trials = [scene.run_trial(), scene.run_trial()];
    for counts in &trials {
        let count = |reason: InvalidReplyReason| counts.invalid[reason as usize];
        assert_eq!((counts.sent, counts.received, counts.duplicate), (2000, 400, 400));
        for reason in InvalidReplyReason::ALL {
            use InvalidReplyReason::{KissRate, Mode, Origin, Stratum, Timestamp, Version};
            let met = matches!(reason, KissRate | Mode | Origin | Stratum | Timestamp | Version);
            assert_eq!(count(reason), if met { 200 } else { 0 }, "{reason:?}");
        }
    }
    // A trial does not wait for replies that can only be late; the next one meets the last of them.
    scene.path().behaviour = |_, _| Vec::new();
    let unanswered = scene.run_trial();
    assert_eq!(trials[0].late + trials[1].late + unanswered.late, 400);
    assert_eq!((unanswered.received, unanswered.lost()), (0, 2000));
}

#[test]
fn sequence_numbers_wrap_without_a_loss() {
    let mut scene = SimulatedLane::with_frames(FaultInjectionPlan::default(), answer);
    scene.carried.registered =
        u64::from(LaneClients::in_turn(CLIENTS, 0, 1, 1).sequence_end()) * 3 - 1000;
    assert_clean(&scene.run_trial());
}

#[test]
fn the_time_in_a_token_wraps_without_a_loss() {
    let mut scene = SimulatedLane::with_frames(FaultInjectionPlan::default(), answer);
    let reach = 1_i64 << crate::token::TIME_BITS;
    let next_wrap = (START_NS / reach + 1) * reach;
    scene.clock.advance(Span::from_ns(next_wrap - START_NS - 50_000_000));
    assert_clean(&scene.run_trial());
}

#[test]
fn the_lateness_of_a_sender_that_cannot_keep_up_is_counted() {
    let mut scene = SimulatedLane::with_frames(FaultInjectionPlan::default(), answer);
    scene.rate = 1_000_000.0;
    scene.path().send_cost = Span::from_ns(4_000);
    let counts = scene.run_trial();
    assert_eq!(counts.planned, 100_000);
    // 200 ms with the grace, a little more than 4 µs each.
    assert!((40_000..=50_100).contains(&counts.sent), "{}", counts.sent);
    // Latency counts from the intended instant, so the waiting before the sending is in it.
    assert_eq!(counts.received + counts.late, counts.sent);
    assert!(counts.late > counts.received);
    assert!(counts.lateness.max().unwrap() > 100_000_000);
}

#[test]
fn damaged_packets_never_count_as_received() {
    let plan = faults(|plan| plan.truncation = 0.1);
    let mut scene = SimulatedLane::with_frames(plan, answer);
    let counts = scene.run_trial();
    assert_eq!(counts.lost(), fault_counts(&mut scene).truncated);
    let plan = faults(|plan| plan.corruption = 0.1);
    let mut scene = SimulatedLane::with_frames(plan, answer);
    let counts = scene.run_trial();
    assert!(counts.received <= 2000);
    assert!(counts.lost() <= fault_counts(&mut scene).corrupted);
}
