//! Arbitrary bytes as messages from the PTP master that is the target of a load. Counting never
//! panics, and no request counts as received twice or without all the messages of its answer.
//!
//! An input is a byte that selects the kind of request, and messages: each has the number of the
//! request that it answers, the fields to repair, its length and its bytes.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use horolog_load::clients::LaneClients;
use horolog_load::offset::ReceiveTimestamps;
use horolog_load::ptp::{
    PtpLoadTransport, PtpMessageVerifier, PtpRequestKind, PtpRequestOptions, UnicastMessageTypes,
    UnicastRequestParameters,
};
use horolog_load::request_tracker::{
    ExpectedReplies, LaneCarryOver, RequestTracker, TrackerConfig, TrialCounts,
};
use horolog_load::token::RequestTokenCodec;
use horolog_time::{Monotonic, Span, Timestamp};
use horolog_wire::ptp::message::{DELAY_RESP_LEN, SIGNALING_LEN};
use horolog_wire::ptp::{MessageType, SEQUENCE_ID_OFFSET, SOURCE_OFFSET};
use libfuzzer_sys::fuzz_target;

const START: Timestamp<Monotonic> = Timestamp::from_ns(5_000_000_000_000);
const CLIENTS: u32 = 3;
const REQUESTS: usize = 8;

fuzz_target!(|bytes: &[u8]| {
    let Some((&selector, mut rest)) = bytes.split_first() else { return };
    let mut tracker =
        RequestTracker::open(&plan(selector), LaneCarryOver::default()).expect("few requests");
    let requests: Vec<_> = (0..REQUESTS).map(|number| next_request(&mut tracker, number)).collect();
    while let Some((&[which, repairs, length], more)) = rest.split_first_chunk() {
        let (message, more) = more.split_at(more.len().min(length.into()));
        rest = more;
        let (client, request) = &requests[usize::from(which) % REQUESTS];
        let mut message = message.to_vec();
        repair(&mut message, request, repairs);
        let at = START + Span::from_ms(i64::from(which));
        tracker.receive(&message, Some(*client), at, at, ReceiveTimestamps::default());
    }
    let (interval_counts, _) = tracker.close(REQUESTS as u64);
    let counts = TrialCounts::sum_intervals(&interval_counts);
    let parts = counts.ptp.expect("a PTP load has PTP counts");
    assert!(counts.received <= parts.delay + parts.grant + parts.denial);
    assert!(parts.delay + parts.grant + parts.denial <= counts.sent);
    assert!(parts.sync_follow_up <= counts.sent);
    if selector & 0x11 == 1 {
        assert!(counts.received <= parts.sync_follow_up);
    }
    assert_eq!(counts.rtt.count(), counts.received);
});

fn plan(selector: u8) -> TrackerConfig {
    let kind = match selector & 0x11 {
        0 => PtpRequestKind::Delay,
        1 => PtpRequestKind::Nsm,
        _ => PtpRequestKind::Unicast(UnicastRequestParameters {
            messages: UnicastMessageTypes::new(&[MessageType::Sync]).expect("a known type"),
            log_interval: 0,
            duration_s: 10,
        }),
    };
    let transport =
        if selector & 8 != 0 { PtpLoadTransport::Ethernet } else { PtpLoadTransport::Udp };
    let plan = PtpRequestOptions {
        kind,
        domain: 0,
        minor_version: 0,
        multicast: selector & 3 == 2,
        transport,
    };
    let token = RequestTokenCodec::new(0xdead_beef_1234_5678, START);
    let localhost = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST));
    let master = if selector & 4 != 0 { localhost.1 } else { localhost.0 };
    TrackerConfig {
        clients: LaneClients::in_turn(CLIENTS, 0, 1, 1),
        start: START,
        timeout: Span::from_ms(100),
        rate: 1000.0,
        expected: ExpectedReplies::Ptp(PtpMessageVerifier {
            plan,
            token,
            lane: 0,
            lanes: 1,
            clients: CLIENTS,
            master,
        }),
        offset: None,
        interval: None,
        fairness: false,
    }
}

/// Sends a request, and returns its client and its bytes.
fn next_request(tracker: &mut RequestTracker, number: usize) -> (u32, Vec<u8>) {
    let intended = START + Span::from_ns(number as i64);
    let next = tracker.next(intended);
    let request = tracker.payload(&next).expect("a request has a payload").to_vec();
    tracker.register();
    tracker.count_sent(intended, intended, false);
    (next.client, request)
}

/// Sets the length, the sequence number and the requesting port of a message to those of the
/// request, except where a bit of `repairs` is 1: random bytes practically never contain them.
fn repair(message: &mut [u8], request: &[u8], repairs: u8) {
    let length = (message.len() as u16).to_be_bytes();
    let number = SEQUENCE_ID_OFFSET..SEQUENCE_ID_OFFSET + 2;
    let is_signaling = message.first().is_some_and(|first| first & 0xf == 0xc);
    let end = if is_signaling { SIGNALING_LEN } else { DELAY_RESP_LEN };
    let requesting = end - 10..end;
    let sources = [
        (2..4, &length[..]),
        (number.clone(), &request[number]),
        (requesting, &request[SOURCE_OFFSET..SOURCE_OFFSET + 10]),
    ];
    for (bit, (range, bytes)) in sources.into_iter().enumerate() {
        if let (true, Some(slice)) = (repairs >> bit & 1 == 0, message.get_mut(range)) {
            slice.copy_from_slice(bytes);
        }
    }
}
