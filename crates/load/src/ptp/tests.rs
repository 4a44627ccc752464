//! Requests as a master reads them, and each fault of an answer with its reason.

use super::*;
use horolog_time::Timestamp;
use horolog_wire::ptp::monitor::{CurrentDataSet, ParentDataSet, REQUEST_TLV_TYPE};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

const TOKEN: u64 = 0x0123_4567_89ab_cdef;
const RECEIVE: PtpTimestamp = PtpTimestamp::new(1_700_000_000, 5);
const MASTER_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const MASTER_V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
const LANES: usize = 2;
const CLIENTS: u32 = 10;

fn plan(kind: PtpRequestKind, multicast: bool) -> PtpRequestOptions {
    PtpRequestOptions {
        kind,
        domain: 7,
        minor_version: 1,
        multicast,
        transport: PtpLoadTransport::Udp,
    }
}

fn expected(plan: PtpRequestOptions, lane: usize) -> PtpMessageVerifier {
    let token = RequestTokenCodec::new(99, Timestamp::from_ns(1));
    PtpMessageVerifier { plan, token, lane, lanes: LANES, clients: CLIENTS, master: MASTER_V4 }
}

fn block(lane: usize) -> LaneClients {
    LaneClients::in_turn(CLIENTS, lane, LANES, 1)
}

/// What a lane makes of a message to a client.
fn read(
    plan: PtpRequestOptions,
    lane: usize,
    message: &Message<'_>,
    client: Option<u32>,
) -> Option<Result<PtpReply, InvalidReplyReason>> {
    let mut bytes = [0; 256];
    let length = message.emit(&mut bytes);
    let read = expected(plan, lane).validate(&bytes[..length], client, &block(lane));
    read.map(|read| read.map(|(_, answer)| answer))
}

fn header(plan: PtpRequestOptions) -> Header {
    Header {
        domain: plan.domain,
        flags: if plan.multicast { PtpFlags::default() } else { PtpFlags::UNICAST },
        source: PortIdentity { clock: 1, port: 1 },
        ..Header::default()
    }
}

fn delay_resp(plan: PtpRequestOptions, lane: usize) -> Message<'static> {
    let requesting = PortIdentity { clock: TOKEN, port: port_number(lane) };
    Message::new(header(plan), PtpMessageBody::DelayResp { receive: RECEIVE, requesting })
}

fn response(time_flags: PtpFlags) -> NetSyncMonitorResponse<'static> {
    NetSyncMonitorResponse {
        port_state: 6,
        protocol: 1,
        address: &[192, 0, 2, 1],
        parent: ParentDataSet::default(),
        current: CurrentDataSet::default(),
        utc_offset: 37,
        time_flags: time_flags.0 as u8,
        time_source: 0xa0,
        last_sync: PtpTimestamp::ZERO,
    }
}

#[test]
fn a_good_answer_is_good() {
    for multicast in [false, true] {
        let plan = plan(PtpRequestKind::Delay, multicast);
        let client = (!multicast).then_some(3);
        let answer = read(plan, 0, &delay_resp(plan, 0), client);
        let receive_ns = 1_700_000_000_000_000_005;
        let untraceable = false;
        assert_eq!(answer, Some(Ok(PtpReply::Delay { token: TOKEN, receive_ns, untraceable })));
    }
}

#[test]
fn each_fault_has_its_reason() {
    let plan = plan(PtpRequestKind::Delay, false);
    let good = delay_resp(plan, 0);
    let PtpMessageBody::DelayResp { requesting, .. } = good.body else { unreachable!() };
    let with = |header: Header| Message { header, ..good };
    let at = |receive| Message { body: PtpMessageBody::DelayResp { receive, requesting }, ..good };
    let stranger = PortIdentity { port: 77, ..requesting };
    let to_stranger = PtpMessageBody::DelayResp { receive: RECEIVE, requesting: stranger };
    let cases = [
        (Message { body: PtpMessageBody::Sync(RECEIVE), ..good }, InvalidReplyReason::Mode),
        (Message { body: PtpMessageBody::Other(0xf, &[0; 20]), ..good }, InvalidReplyReason::Mode),
        (with(Header { domain: 8, ..good.header }), InvalidReplyReason::Domain),
        (with(Header { sdo_id: 0x100, ..good.header }), InvalidReplyReason::Domain),
        (with(Header { sdo_id: 1, ..good.header }), InvalidReplyReason::Domain),
        (Message { suffix: &[0x7f, 0, 0, 2], ..good }, InvalidReplyReason::Length),
        (Message { suffix: &[0x7f, 0, 0, 1, 0], ..good }, InvalidReplyReason::Length),
        (with(Header { flags: PtpFlags::default(), ..good.header }), InvalidReplyReason::Flags),
        (Message { body: to_stranger, ..good }, InvalidReplyReason::Origin),
        (at(PtpTimestamp::ZERO), InvalidReplyReason::Timestamp),
        (at(PtpTimestamp::new(5, 1_000_000_000)), InvalidReplyReason::Timestamp),
        (at(PtpTimestamp::new(1 << 47, 0)), InvalidReplyReason::Timestamp),
    ];
    for (message, reason) in cases {
        assert_eq!(read(plan, 0, &message, Some(0)), Some(Err(reason)), "{message:?}");
    }
    let mut bytes = [0; 60];
    let length = good.emit(&mut bytes);
    let judge = |bytes: &[u8]| expected(plan, 0).validate(bytes, Some(0), &block(0));
    for wrong in [0, 33, length - 1, length + 2] {
        let judged = judge(&bytes[..wrong]);
        assert_eq!(judged, Some(Err(InvalidReplyReason::Length)), "{wrong} bytes");
    }
    bytes[1] = 0x11;
    assert_eq!(judge(&bytes[..length]), Some(Err(InvalidReplyReason::Version)));
}

#[test]
fn over_ipv6_two_bytes_may_follow() {
    let plan = plan(PtpRequestKind::Delay, false);
    let mut bytes = [0; 60];
    let length = delay_resp(plan, 0).emit(&mut bytes);
    let judge = PtpMessageVerifier { master: MASTER_V6, ..expected(plan, 0) };
    for (more, valid) in [(0, true), (2, true), (3, false)] {
        let judged = judge.validate(&bytes[..length + more], Some(0), &block(0)).unwrap();
        assert_eq!(judged.is_ok(), valid, "{more} bytes");
    }
}

#[test]
fn over_ethernet_short_frames_are_filled_up() {
    let plan = PtpRequestOptions {
        transport: PtpLoadTransport::Ethernet,
        ..plan(PtpRequestKind::Delay, false)
    };
    let mut bytes = [0; 120];
    let length = delay_resp(plan, 0).emit(&mut bytes);
    for (more, valid) in [(0, true), (46, true), (47, false)] {
        let judged = expected(plan, 0).validate(&bytes[..length + more], None, &block(0)).unwrap();
        assert_eq!(judged.is_ok(), valid, "{more} bytes");
    }
}

#[test]
fn every_message_is_one_lane_s() {
    let unicast = plan(PtpRequestKind::Nsm, false);
    let sync = Message::new(header(unicast), PtpMessageBody::Sync(RECEIVE));
    let wrong = Message::new(header(unicast), PtpMessageBody::Announce(ptp::Announce::default()));
    for client in [None, Some(0), Some(4), Some(5), Some(9), Some(10)] {
        let of_lane = usize::from(client.is_some_and(|client| (5..10).contains(&client)));
        for message in [sync, wrong] {
            for lane in 0..LANES {
                let read = read(unicast, lane, &message, client);
                assert_eq!(read.is_some(), lane == of_lane, "{client:?} {message:?}");
            }
        }
        // A delay response names the requesting lane itself, at any destination address.
        for requesting_lane in 0..LANES {
            let message = delay_resp(unicast, requesting_lane);
            for lane in 0..LANES {
                assert_eq!(
                    read(unicast, lane, &message, client).is_some(),
                    lane == requesting_lane
                );
            }
        }
    }
}

#[test]
fn in_a_group_others_messages_are_not_judged() {
    let plan = plan(PtpRequestKind::Delay, true);
    let Message { header, .. } = delay_resp(plan, 0);
    for body in [
        PtpMessageBody::Sync(RECEIVE),
        PtpMessageBody::FollowUp(RECEIVE),
        PtpMessageBody::Signaling(PortIdentity::ALL),
    ] {
        assert_eq!(read(plan, 0, &Message::new(header, body), None), None);
    }
    let requesting = PortIdentity { clock: 1, port: 77 };
    let to_other = PtpMessageBody::DelayResp { receive: RECEIVE, requesting };
    assert_eq!(read(plan, 0, &Message::new(header, to_other), None), None);
    assert_eq!(expected(plan, 0).validate(&[1, 2, 3], None, &block(0)), None);
}

#[test]
fn netsync_monitor_reports_whether_time_is_traceable() {
    let plan = plan(PtpRequestKind::Nsm, false);
    for (flags, traceable) in [
        (PtpFlags::default(), false),
        (PtpFlags::TIME_TRACEABLE, true),
        (PtpFlags::FREQUENCY_TRACEABLE, true),
        (PtpFlags::PTP_TIMESCALE, false),
    ] {
        let mut suffix = [0; NetSyncMonitorResponse::tlv_len(4)];
        response(flags).emit(&mut suffix);
        let message = Message { suffix: &suffix, ..delay_resp(plan, 0) };
        let Some(Ok(PtpReply::Delay { untraceable, .. })) = read(plan, 0, &message, Some(0)) else {
            panic!("{flags:?}")
        };
        assert_eq!(untraceable, !traceable, "{flags:?}");
    }
    let without = read(plan, 0, &delay_resp(plan, 0), Some(0));
    assert_eq!(without, Some(Err(InvalidReplyReason::Monitor)));
}

#[test]
fn a_sync_carries_its_time_or_leaves_it_to_the_follow_up() {
    let plan = plan(PtpRequestKind::Nsm, false);
    let one_step = header(plan);
    let two_step = Header { flags: one_step.flags.union(PtpFlags::TWO_STEP), ..one_step };
    let sync = |header, origin| {
        read(plan, 0, &Message::new(header, PtpMessageBody::Sync(origin)), Some(0))
    };
    let transmit_ns = Some(1_700_000_000_000_000_005);
    assert_eq!(sync(one_step, RECEIVE), Some(Ok(PtpReply::Sync { transmit_ns })));
    let untold = sync(two_step, PtpTimestamp::ZERO);
    assert_eq!(untold, Some(Ok(PtpReply::Sync { transmit_ns: None })));
    assert_eq!(sync(one_step, PtpTimestamp::ZERO), Some(Err(InvalidReplyReason::Timestamp)));
}

fn contract(kinds: &[MessageType]) -> PtpRequestKind {
    let messages = UnicastMessageTypes::new(kinds).unwrap();
    PtpRequestKind::Unicast(UnicastRequestParameters { messages, log_interval: -2, duration_s: 60 })
}

#[test]
fn unicast_requests_name_each_message_type_in_turn() {
    let kinds = [MessageType::Announce, MessageType::DelayResp];
    let plan = plan(contract(&kinds), false);
    let mut template = PtpRequestTemplate::new(&plan, 1, MASTER_V4);
    for sequence in 0..5 {
        let (message, rest) = Message::parse(template.build_request(TOKEN, sequence)).unwrap();
        assert_eq!((message.body, rest.len()), (PtpMessageBody::Signaling(PortIdentity::ALL), 0));
        assert_eq!(message.header.source, PortIdentity { clock: TOKEN, port: 2 });
        let tlvs: Vec<_> = message
            .tlvs()
            .map(|tlv| UnicastNegotiationTlv::from_tlv(&tlv.unwrap()).unwrap().unwrap())
            .collect();
        let kind = kinds[sequence as usize % 2];
        assert_eq!(
            tlvs,
            [UnicastNegotiationTlv::Request { kind, log_interval: -2, duration_s: 60 }]
        );
        assert!(plan.is_request_for(sequence, kind) && !plan.is_request_for(sequence + 1, kind));
    }
    assert_eq!(UnicastMessageTypes::new(&[]), None);
    assert_eq!(UnicastMessageTypes::new(&[MessageType::Sync, MessageType::Management]), None);
}

#[test]
fn a_request_for_messages_is_granted_or_denied() {
    let kind = MessageType::Sync;
    let plan = plan(contract(&[kind]), false);
    for duration_s in [0, 60] {
        let grant = UnicastNegotiationTlv::Grant {
            kind,
            log_interval: 0,
            duration_s,
            renewal_invited: duration_s > 0,
        };
        let mut suffix = [0; UNICAST_LEN_MAX];
        grant.emit(&mut suffix);
        let target = PortIdentity { clock: TOKEN, port: 2 };
        let signaling = Message {
            suffix: &suffix,
            ..Message::new(header(plan), PtpMessageBody::Signaling(target))
        };
        let answer = PtpReply::Grant { token: TOKEN, kind, duration_s };
        // By the port number it is the second lane's, at any destination address.
        assert_eq!(read(plan, 1, &signaling, Some(0)), Some(Ok(answer)));
        assert_eq!(read(plan, 0, &signaling, Some(0)), None);
        let bare = Message { suffix: &[], ..signaling };
        assert_eq!(read(plan, 1, &bare, Some(0)), Some(Err(InvalidReplyReason::UnicastTerms)));
    }
    let sync = Message::new(header(plan), PtpMessageBody::Sync(PtpTimestamp::ZERO));
    assert_eq!(read(plan, 0, &sync, Some(0)), Some(Ok(PtpReply::Granted)));
    let resp = read(plan, 0, &delay_resp(plan, 0), Some(0));
    assert_eq!(resp, Some(Err(InvalidReplyReason::Mode)), "nobody asked for a delay");
}

#[test]
fn answers_come_from_the_master_s_two_ports() {
    let master: IpAddr = "192.0.2.1".parse().unwrap();
    let is_answer = |multicast, from: &str, to: &str| {
        let plan = plan(PtpRequestKind::Delay, multicast);
        plan.can_be_reply(master, from.parse().unwrap(), to.parse().unwrap())
    };
    assert!(is_answer(false, "192.0.2.1:320", "10.0.0.1:320"));
    assert!(is_answer(false, "192.0.2.1:319", "10.0.0.1:319"));
    assert!(is_answer(true, "192.0.2.1:320", "224.0.1.129:320"));
    assert!(!is_answer(false, "192.0.2.1:320", "224.0.1.129:320"));
    assert!(!is_answer(true, "192.0.2.1:320", "10.0.0.1:320"));
    assert!(!is_answer(false, "192.0.2.2:320", "10.0.0.1:320"));
    assert!(!is_answer(false, "192.0.2.1:320", "10.0.0.1:319"));
    assert!(!is_answer(false, "192.0.2.1:123", "10.0.0.1:123"));
}

proptest! {
    #[test]
    fn requests_are_what_was_asked_for(
        nsm: bool, multicast: bool, ipv6: bool, domain: u8, minor_version in 0u8..2,
        lane in 0usize..32_768, token: u64, sequence: u32, ethernet: bool,
    ) {
        let transport = if ethernet { PtpLoadTransport::Ethernet } else { PtpLoadTransport::Udp };
        let master = if ipv6 { MASTER_V6 } else { MASTER_V4 };
        let kind = if nsm { PtpRequestKind::Nsm } else { PtpRequestKind::Delay };
        let plan = PtpRequestOptions { kind, domain, minor_version, multicast, transport };
        let mut template = PtpRequestTemplate::new(&plan, lane, master);
        let bytes = template.build_request(token, sequence);
        let (message, padding) = Message::parse(bytes).unwrap();
        prop_assert_eq!(padding, if ipv6 && !ethernet { &[0_u8, 0][..] } else { &[] });
        prop_assert_eq!(message.body, PtpMessageBody::DelayReq(PtpTimestamp::ZERO));
        let header = message.header;
        prop_assert_eq!(header.source, PortIdentity { clock: token, port: lane as u16 + 1 });
        prop_assert_eq!((header.sequence_id, header.domain), (sequence as u16, domain));
        prop_assert_eq!((header.minor_version, header.log_interval), (minor_version, NO_INTERVAL));
        prop_assert_eq!(header.flags.contains(PtpFlags::UNICAST), !multicast);
        let tlvs: Vec<_> = message.tlvs().map(|tlv| tlv.unwrap().type_number).collect();
        prop_assert_eq!(tlvs, if nsm { vec![REQUEST_TLV_TYPE] } else { vec![] });
    }

    #[test]
    fn never_panics(
        bytes in proptest::collection::vec(any::<u8>(), 0..140),
        nsm: bool, multicast: bool, client: Option<u32>,
    ) {
        let kind = if nsm { PtpRequestKind::Nsm } else { PtpRequestKind::Delay };
        let _ = expected(plan(kind, multicast), 0).validate(&bytes, client, &block(0));
    }
}
