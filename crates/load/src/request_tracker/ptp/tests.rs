//! Counts of hand-made PTP messages: which complete a request, and which are invalid or late.

use super::*;
use crate::clients::LaneClients;
use crate::offset::ServerOffsetParameters;
use crate::ptp::{
    PtpLoadTransport, PtpRequestOptions, UnicastMessageTypes, UnicastRequestParameters, port_number,
};
use crate::request_tracker::{ExpectedReplies, LaneCarryOver, TrackerConfig, TrialCounts};
use crate::token::RequestTokenCodec;
use horolog_wire::ptp::monitor::{CurrentDataSet, NetSyncMonitorResponse, ParentDataSet};
use horolog_wire::ptp::tlv::{UNICAST_LEN_MAX, UnicastCancellation, UnicastNegotiationTlv};
use horolog_wire::ptp::{Message, MessageType, PtpFlags, PtpMessageBody, PtpTimestamp};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};

const START: Timestamp<Monotonic> = Timestamp::from_ns(5_000_000_000);
const TIMEOUT: Span = Span::from_ms(10);
const MASTER: PortIdentity = PortIdentity { clock: 0xfeed, port: 1 };
/// When the master received the first request, in seconds of its epoch.
const EPOCH: u64 = 1_700_000_000;

fn token() -> RequestTokenCodec {
    RequestTokenCodec::new(0x1234_5678_9abc_def0, START)
}

fn plan(kind: PtpRequestKind, clients: u32) -> TrackerConfig {
    let plan = PtpRequestOptions {
        kind,
        domain: 0,
        minor_version: 0,
        multicast: false,
        transport: PtpLoadTransport::Udp,
    };
    let ptp = PtpMessageVerifier {
        plan,
        token: token(),
        lane: 0,
        lanes: 1,
        clients,
        master: IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    TrackerConfig {
        expected: ExpectedReplies::Ptp(ptp),
        clients: LaneClients::in_turn(clients, 0, 1, 1),
        start: START,
        timeout: TIMEOUT,
        rate: 1000.0,
        offset: None,
        interval: None,
        fairness: false,
    }
}

/// A trial with a master that is played by hand.
struct Scene {
    account: RequestTracker,
    source: PortIdentity,
    timestamps: ReceiveTimestamps,
}

/// A request, as the master sees it.
#[derive(Clone, Copy)]
struct RegisteredRequest {
    client: u32,
    intended: Timestamp<Monotonic>,
    requesting: PortIdentity,
    sequence_id: u16,
}

impl Scene {
    fn new(kind: PtpRequestKind, clients: u32) -> Self {
        Self::carrying(kind, clients, LaneCarryOver::default())
    }

    fn carrying(kind: PtpRequestKind, clients: u32, carried: LaneCarryOver) -> Self {
        Self::with(&plan(kind, clients), carried)
    }

    fn with(plan: &TrackerConfig, carried: LaneCarryOver) -> Self {
        let timestamps = ReceiveTimestamps::default();
        Self { account: RequestTracker::open(plan, carried).unwrap(), source: MASTER, timestamps }
    }

    fn register(&mut self, ms: i64) -> RegisteredRequest {
        let intended = START + Span::from_ms(ms);
        let next = self.account.next(intended);
        let bytes = self.account.payload(&next).unwrap();
        let (message, _) = Message::parse(bytes).unwrap();
        let (requesting, sequence_id) = (message.header.source, message.header.sequence_id);
        self.account.register();
        self.account.count_sent(intended, intended, false);
        RegisteredRequest { client: next.client, intended, requesting, sequence_id }
    }

    fn receive(&mut self, request: &RegisteredRequest, message: &Message<'_>, ms: i64) {
        let mut bytes = [0; 256];
        let length = message.emit(&mut bytes);
        let at = request.intended + Span::from_ms(ms);
        self.account.receive(&bytes[..length], Some(request.client), at, at, self.timestamps);
    }

    fn header(&self, request: &RegisteredRequest) -> Header {
        let (source, sequence_id) = (self.source, request.sequence_id);
        Header { flags: PtpFlags::UNICAST, source, sequence_id, ..Header::default() }
    }

    fn delay(&mut self, request: &RegisteredRequest, ms: i64) {
        let response = NetSyncMonitorResponse {
            port_state: 6,
            protocol: 1,
            address: &[192, 0, 2, 1],
            parent: ParentDataSet::default(),
            current: CurrentDataSet::default(),
            utc_offset: 37,
            time_flags: PtpFlags::TIME_TRACEABLE.0 as u8,
            time_source: 0x20,
            last_sync: PtpTimestamp::ZERO,
        };
        let mut suffix = [0; NetSyncMonitorResponse::tlv_len(4)];
        response.emit(&mut suffix);
        let receive = PtpTimestamp::new(EPOCH, 0);
        let body = PtpMessageBody::DelayResp { receive, requesting: request.requesting };
        let message = Message { header: self.header(request), body, suffix: &suffix };
        self.receive(request, &message, ms);
    }

    fn grant(&mut self, request: &RegisteredRequest, kind: MessageType, duration_s: u32, ms: i64) {
        let grant = UnicastNegotiationTlv::Grant {
            kind,
            log_interval: 0,
            duration_s,
            renewal_invited: false,
        };
        self.negotiate(request, grant, ms);
    }

    fn negotiate(&mut self, request: &RegisteredRequest, unicast: UnicastNegotiationTlv, ms: i64) {
        let mut suffix = [0; UNICAST_LEN_MAX];
        let length = unicast.emit(&mut suffix);
        // The master numbers its signaling messages by itself.
        let header = Header { sequence_id: 4711, ..self.header(request) };
        let body = PtpMessageBody::Signaling(request.requesting);
        self.receive(request, &Message { header, body, suffix: &suffix[..length] }, ms);
    }

    fn sync(&mut self, request: &RegisteredRequest, ms: i64) {
        let header = self.header(request);
        let header = Header { flags: header.flags.union(PtpFlags::TWO_STEP), ..header };
        self.receive(request, &Message::new(header, PtpMessageBody::Sync(PtpTimestamp::ZERO)), ms);
    }

    fn one_step(&mut self, request: &RegisteredRequest, ms: i64, transmit_ns: u32) {
        let at = PtpTimestamp::new(EPOCH, transmit_ns);
        self.receive(request, &Message::new(self.header(request), PtpMessageBody::Sync(at)), ms);
    }

    fn follow_up(&mut self, request: &RegisteredRequest, ms: i64, transmit_ns: u32) {
        let at = PtpTimestamp::new(EPOCH, transmit_ns);
        self.receive(
            request,
            &Message::new(self.header(request), PtpMessageBody::FollowUp(at)),
            ms,
        );
    }

    fn close(self) -> (TrialCounts, LaneCarryOver) {
        let (intervals, carried) = self.account.close(0);
        (TrialCounts::sum_intervals(&intervals), carried)
    }

    fn counts(self) -> TrialCounts {
        self.close().0
    }
}

fn parts(counts: &TrialCounts) -> (u64, u64) {
    let ptp = counts.ptp.unwrap();
    (ptp.delay, ptp.sync_follow_up)
}

fn invalid(counts: &TrialCounts, reason: InvalidReplyReason) -> u64 {
    assert_eq!(counts.invalid.iter().sum::<u64>(), counts.invalid[reason as usize], "{counts:?}");
    counts.invalid[reason as usize]
}

#[test]
fn a_delay_request_is_answered_once() {
    let mut scene = Scene::new(PtpRequestKind::Delay, 3);
    let requests: Vec<_> = (0..4).map(|ms| scene.register(ms)).collect();
    scene.delay(&requests[3], 2);
    scene.delay(&requests[0], 1);
    scene.delay(&requests[0], 3);
    scene.delay(&requests[1], 11);
    let counts = scene.counts();
    assert_eq!((counts.sent, counts.received, counts.lost()), (4, 2, 2));
    assert_eq!((counts.duplicate, counts.late), (1, 1));
    assert_eq!((parts(&counts), counts.rtt.max()), ((2, 0), Some(2_000_000)));
    assert_eq!((counts.response.count(), counts.invalid.iter().sum::<u64>()), (0, 0));
}

#[test]
fn all_parts_complete_a_request_in_whatever_order() {
    type Part = fn(&mut Scene, &RegisteredRequest, i64);
    const PARTS: [Part; 3] =
        [Scene::delay, Scene::sync, |scene, request, ms| scene.follow_up(request, ms, 700)];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut scene = Scene::new(PtpRequestKind::Nsm, 2);
        let requests = [scene.register(0), scene.register(1)];
        for (step, part) in order.into_iter().enumerate() {
            assert_eq!(scene.account.answered(), 0);
            PARTS[part](&mut scene, &requests[1], 1 + step as i64);
        }
        assert_eq!((scene.account.answered(), scene.account.outstanding()), (1, 1));
        let counts = scene.counts();
        assert_eq!((counts.received, counts.lost(), parts(&counts)), (1, 1, (1, 1)));
        assert_eq!((counts.rtt.count(), counts.rtt.max()), (1, Some(3_000_000)));
        assert_eq!(counts.response.max(), Some(700));
    }
}

#[test]
fn a_sync_of_one_step_needs_no_follow_up() {
    let mut scene = Scene::new(PtpRequestKind::Nsm, 1);
    let request = scene.register(0);
    scene.one_step(&request, 1, 900);
    scene.delay(&request, 2);
    scene.follow_up(&request, 3, 900);
    let counts = scene.counts();
    assert_eq!((counts.received, parts(&counts), counts.duplicate), (1, (1, 1), 1));
    assert_eq!(counts.response.max(), Some(900));
}

#[test]
fn grants_and_denials_are_answers_and_what_was_granted_is_not() {
    let messages = UnicastMessageTypes::new(&[MessageType::Announce, MessageType::Sync]).unwrap();
    let contract = UnicastRequestParameters { messages, log_interval: 0, duration_s: 10 };
    let mut scene = Scene::new(PtpRequestKind::Unicast(contract), 2);
    let requests: Vec<_> = (0..4).map(|ms| scene.register(ms)).collect();
    scene.grant(&requests[0], MessageType::Announce, 10, 1);
    scene.sync(&requests[1], 1);
    scene.grant(&requests[1], MessageType::Sync, 0, 2);
    scene.grant(&requests[1], MessageType::Sync, 10, 3);
    scene.grant(&requests[2], MessageType::Sync, 10, 1);
    scene.grant(&requests[3], MessageType::Sync, 10, 11);
    let counts = scene.counts();
    let ptp = counts.ptp.unwrap();
    assert_eq!((ptp.grant, ptp.denial, ptp.granted_messages, ptp.delay), (1, 1, 1, 0));
    assert_eq!((counts.received, counts.lost(), counts.duplicate, counts.late), (2, 2, 1, 1));
    assert_eq!(
        invalid(&counts, InvalidReplyReason::UnicastTerms),
        1,
        "another kind than was asked for"
    );
}

#[test]
fn what_is_taken_back_is_no_answer_and_no_fault() {
    let messages = UnicastMessageTypes::new(&[MessageType::Sync]).unwrap();
    let contract = UnicastRequestParameters { messages, log_interval: 0, duration_s: 10 };
    let mut scene = Scene::new(PtpRequestKind::Unicast(contract), 2);
    let requests: Vec<_> = (0..3).map(|ms| scene.register(ms)).collect();
    let cancel = |kind| {
        UnicastNegotiationTlv::Cancel(UnicastCancellation {
            kind,
            maintain_request: false,
            maintain_grant: false,
        })
    };
    scene.grant(&requests[0], MessageType::Sync, 10, 1);
    // Long after the grant, since it may end at any time.
    scene.negotiate(&requests[0], cancel(MessageType::Sync), 5_000);
    scene.negotiate(&requests[1], cancel(MessageType::Sync), 1);
    scene.negotiate(&requests[2], cancel(MessageType::Announce), 1);
    let counts = scene.counts();
    let ptp = counts.ptp.unwrap();
    assert_eq!((ptp.grant, ptp.denial, ptp.cancellation), (1, 0, 2));
    assert_eq!((counts.received, counts.lost(), counts.duplicate, counts.late), (1, 2, 0, 0));
    assert_eq!(invalid(&counts, InvalidReplyReason::UnicastTerms), 1, "nobody asked for these");
}

#[test]
fn a_request_that_misses_a_part_is_lost_once() {
    let mut scene = Scene::new(PtpRequestKind::Nsm, 2);
    let requests: Vec<_> = (0..4).map(|ms| scene.register(ms)).collect();
    scene.delay(&requests[0], 1);
    scene.delay(&requests[1], 1);
    scene.sync(&requests[1], 1);
    scene.sync(&requests[2], 1);
    scene.follow_up(&requests[2], 1, 5);
    for late in [1, 11] {
        scene.sync(&requests[3], late);
        scene.follow_up(&requests[3], late, 5);
    }
    scene.delay(&requests[3], 11);
    let counts = scene.counts();
    assert_eq!((counts.sent, counts.received, counts.lost()), (4, 0, 4));
    assert_eq!(parts(&counts), (2, 2));
    assert_eq!((counts.duplicate, counts.late, counts.rtt.count()), (2, 1, 0));
}

#[test]
fn another_port_than_the_first_is_no_master() {
    let mut scene = Scene::new(PtpRequestKind::Delay, 1);
    let requests = [scene.register(0), scene.register(1)];
    scene.delay(&requests[0], 1);
    scene.source = PortIdentity { port: 2, ..MASTER };
    scene.delay(&requests[1], 1);
    let (counts, carried) = scene.close();
    assert_eq!((counts.received, invalid(&counts, InvalidReplyReason::Source)), (1, 1));
    assert_eq!(carried.master, Some(MASTER));
    // It stays so in the next trial.
    let mut scene = Scene::carrying(PtpRequestKind::Delay, 1, carried);
    scene.source = PortIdentity { clock: 1, ..MASTER };
    let request = scene.register(2);
    scene.delay(&request, 1);
    assert_eq!(invalid(&scene.counts(), InvalidReplyReason::Source), 1);
}

#[test]
fn each_unsolicited_reply_has_a_reason() {
    type Change = fn(&mut RegisteredRequest);
    const CASES: [(Change, InvalidReplyReason); 4] = [
        (|request| request.sequence_id += 1, InvalidReplyReason::Sequence),
        (|request| request.client = 1, InvalidReplyReason::Client),
        (|request| request.requesting.clock ^= 1, InvalidReplyReason::Origin),
        (|request| request.requesting.clock ^= 1 << 20, InvalidReplyReason::Origin),
    ];
    for (change, reason) in CASES {
        let mut scene = Scene::new(PtpRequestKind::Delay, 2);
        let mut request = scene.register(0);
        change(&mut request);
        scene.delay(&request, 1);
        assert_eq!(invalid(&scene.counts(), reason), 1, "{reason:?}");
    }
    let mut scene = Scene::new(PtpRequestKind::Nsm, 2);
    let mut request = scene.register(0);
    request.sequence_id += 7;
    scene.sync(&request, 1);
    assert_eq!(invalid(&scene.counts(), InvalidReplyReason::Sequence), 1);
}

#[test]
fn a_sync_before_the_receipt_of_its_request_is_a_fault() {
    let mut scene = Scene::new(PtpRequestKind::Nsm, 1);
    let request = scene.register(0);
    let receive = PtpTimestamp::new(EPOCH - 1, 999_999_999);
    scene.delay(&request, 1);
    let early = Message::new(scene.header(&request), PtpMessageBody::FollowUp(receive));
    scene.receive(&request, &early, 1);
    scene.sync(&request, 1);
    let counts = scene.counts();
    assert_eq!((counts.received, parts(&counts)), (0, (1, 0)));
    assert_eq!(invalid(&counts, InvalidReplyReason::Timestamp), 1);
}

#[test]
fn answers_to_an_earlier_trial_are_late() {
    let mut scene = Scene::new(PtpRequestKind::Nsm, 2);
    let requests: Vec<_> = (0..3).map(|ms| scene.register(ms)).collect();
    let (_, carried) = scene.close();
    let mut next = plan(PtpRequestKind::Nsm, 2);
    next.start = START + Span::from_ms(100);
    let account = RequestTracker::open(&next, carried).unwrap();
    let mut scene = Scene { account, source: MASTER, timestamps: ReceiveTimestamps::default() };
    let own = scene.register(100);
    scene.delay(&requests[2], 101);
    scene.sync(&requests[1], 101);
    scene.follow_up(&requests[2], 101, 5);
    scene.delay(&own, 1);
    scene.sync(&own, 1);
    scene.follow_up(&own, 1, 5);
    let counts = scene.counts();
    assert_eq!((counts.received, counts.late, counts.lost()), (1, 3, 0));
    assert_eq!((counts.invalid.iter().sum::<u64>(), counts.duplicate), (0, 0));
}

#[test]
fn lanes_have_port_numbers_from_one() {
    assert_eq!((port_number(0), port_number(32_767)), (1, 32_768));
}

proptest! {
    /// A Sync finds the request whose number it has, however many clients there are and however
    /// often the sequence numbers began again.
    #[test]
    fn a_sync_finds_its_request(
        clients in 1u32..40, before in 0u64..1 << 40, back in 0usize..50,
    ) {
        let carried = LaneCarryOver { registered: before, ..LaneCarryOver::default() };
        let mut scene = Scene::carrying(PtpRequestKind::Nsm, clients, carried);
        let asked: Vec<_> = (0..50).map(|_| scene.register(0)).collect();
        let one = asked[back];
        let found = scene.account.latest_request_of(one.client, one.sequence_id);
        prop_assert_eq!(found, Some(before + back as u64));
    }

    /// Whatever comes, in whatever order and how often: nothing is counted twice.
    #[test]
    fn no_more_is_received_than_was_asked(
        clients in 1u32..5,
        events in proptest::collection::vec((0usize..20, 0u8..4, 0i64..20), 0..200),
    ) {
        let mut scene = Scene::new(PtpRequestKind::Nsm, clients);
        let asked: Vec<_> = (0..20).map(|_| scene.register(0)).collect();
        for &(which, part, ms) in &events {
            match part {
                0 => scene.delay(&asked[which], ms),
                1 => scene.sync(&asked[which], ms),
                2 => scene.follow_up(&asked[which], ms, 9),
                _ => scene.one_step(&asked[which], ms, 9),
            }
        }
        let counts = scene.counts();
        let (delay, sync_follow_up) = parts(&counts);
        prop_assert!(counts.received <= delay.min(sync_follow_up));
        prop_assert!(delay.max(sync_follow_up) <= counts.sent);
        prop_assert_eq!(counts.rtt.count(), counts.received);
    }
}

/// The master's clock keeps TAI; the Sync comes 9 µs after it left, and not when it is read.
#[test]
fn a_sync_is_held_against_its_own_receipt() {
    let offset = Some(ServerOffsetParameters::default());
    let plan = TrackerConfig { offset, ..plan(PtpRequestKind::Nsm, 2) };
    let mut scene = Scene::with(&plan, LaneCarryOver::default());
    let at = |ns: i64| {
        let utc = (EPOCH as i64 - 37) * 1_000_000_000 + ns;
        ReceiveTimestamps { kernel: Some(Timestamp::from_ns(utc)), phc_ns: None }
    };
    for first in [true, false] {
        let request = scene.register(i64::from(!first));
        scene.timestamps = at(500_000);
        scene.delay(&request, 1);
        scene.timestamps = if first { at(10_000) } else { ReceiveTimestamps::default() };
        scene.sync(&request, 2);
        scene.timestamps = at(900_000);
        scene.follow_up(&request, 3, 1_000);
    }
    let counts = scene.counts();
    let found = counts.offsets.unwrap();
    assert_eq!((counts.received, found.timestamped), (2, 1));
    let summary = found.offsets.summary().unwrap();
    assert_eq!((summary.count, summary.min, summary.max), (1, 9_000, 9_000));
}
