//! What is answered, byte for byte, and what is refused.

use horolog_wire::ptp::TimeInterval;
use horolog_wire::ptp::message::{DELAY_RESP_LEN, TIMESTAMP_MESSAGE_LEN};
use horolog_wire::ptp::monitor::{NetSyncMonitorResponse, REQUEST_TLV};
use horolog_wire::ptp::tlv::Tlv;

use super::*;

#[test]
fn a_request_to_the_port_is_answered_to_its_sender() {
    let (mut port, now) = master();
    let mut request = delay_req();
    request.header.correction = TimeInterval(0x2_8000);
    let [answer] = &replies_to(&mut port, &request, now)[..] else { panic!() };
    assert_eq!(
        (answer.to, answer.event, answer.stamp),
        (PtpDestination::To(CLIENT_ADDRESS), false, false)
    );
    let message = answer.message();
    assert_eq!(message.body, PtpMessageBody::DelayResp { receive: RECEIVED, requesting: CLIENT });
    let expected = Header {
        flags: PtpFlags::UNICAST,
        correction: TimeInterval(0x2_8000),
        source: PortIdentity { clock: OWN, port: 1 },
        ..header()
    };
    assert_eq!(message.header, expected);
    assert_eq!(message.len(), DELAY_RESP_LEN);
}

#[test]
fn a_request_to_the_group_is_answered_to_the_group() {
    let (mut port, now) =
        master_of(PortSettings { log_min_delay_req: -3, ..settings(PtpProfile::DefaultE2e) });
    let [answer] = &replies_to_group(&mut port, &delay_req(), now)[..] else { panic!() };
    assert_eq!(answer.to, PtpDestination::Group);
    let header = answer.message().header;
    assert_eq!((header.flags, header.log_interval), (PtpFlags(0), -3));
}

/// The order that linuxptp's client asks for: the answer, then a Sync with the request's number.
#[test]
fn net_sync_monitor_gets_the_data_sets_and_a_sync() {
    let (mut port, now) = master();
    let request = Message { suffix: &REQUEST_TLV, ..delay_req() };
    let sent = replies_to(&mut port, &request, now);
    let [answer, sync] = &sent[..] else { panic!("{sent:?}") };
    let tlv = answer.message().tlvs().next().unwrap().unwrap();
    let response = NetSyncMonitorResponse::from_tlv(&tlv).unwrap().unwrap();
    assert_eq!(
        (response.port_state, response.protocol, response.address),
        (6, 1, &[192, 0, 2, 1][..])
    );
    assert_eq!(response.parent.grandmaster.identity, OWN);
    assert_eq!((response.utc_offset, response.time_flags, response.time_source), (37, 0x3c, 0x20));
    assert_eq!((sync.to, sync.event, sync.stamp), (PtpDestination::To(CLIENT_ADDRESS), true, true));
    let header = sync.message().header;
    assert_eq!((sync.kind(), header.sequence_id), (MessageType::Sync, 0xabcd));
    assert_eq!(header.flags, PtpFlags::UNICAST.union(PtpFlags::TWO_STEP));

    let mut out = RecordingOutbox::default();
    port.process_transmitted(&sync.bytes, sync.to, SENT, &mut out);
    let [follow_up] = &out.0[..] else { panic!() };
    assert_eq!((follow_up.to, follow_up.event, follow_up.stamp), (sync.to, false, false));
    assert_eq!(follow_up.message().body, PtpMessageBody::FollowUp(SENT));
    let header = follow_up.message().header;
    assert_eq!((header.sequence_id, header.flags), (0xabcd, PtpFlags::UNICAST));
}

#[test]
fn net_sync_monitor_is_for_those_on_the_link() {
    let (mut port, now) = master();
    let request = bytes(&Message { suffix: &REQUEST_TLV, ..delay_req() });
    let mut out = RecordingOutbox::default();
    let stranger = ReceivedPtpMessage { admitted: false, on_link: false, ..arrival(&request) };
    port.receive(&stranger, &GOOD, now, &mut out);
    assert_eq!((out.0.len(), port.counts.refused(PtpRefusal::NotAdmitted)), (0, 1));
}

#[test]
fn one_step_needs_no_follow_up() {
    let (mut port, now) =
        master_of(PortSettings { one_step: true, ..settings(PtpProfile::DefaultE2e) });
    let mut out = RecordingOutbox::default();
    port.process_due(&GOOD, now + seconds(1), &mut out);
    let sync = out.0.iter().find(|sent| sent.kind() == MessageType::Sync).unwrap();
    assert!(sync.stamp, "a card writes into what it is to stamp");
    assert!(!sync.message().header.flags.contains(PtpFlags::TWO_STEP));
    let mut after = RecordingOutbox::default();
    port.process_transmitted(&sync.bytes, sync.to, SENT, &mut after);
    assert!(after.0.is_empty());
}

#[test]
fn a_neighbour_is_answered_in_two_steps() {
    let (mut port, now) = master_of(settings(PtpProfile::DefaultP2p));
    let mut request = Message::new(header(), PtpMessageBody::PdelayReq(PtpTimestamp::ZERO));
    request.header.correction = TimeInterval(7);
    let [answer] = &replies_to_group(&mut port, &request, now)[..] else { panic!() };
    assert_eq!((answer.to, answer.event, answer.stamp), (PtpDestination::PeerGroup, true, true));
    assert_eq!(answer.bytes.len(), bytes(&request).len(), "as long as the question");
    assert_eq!(
        answer.message().body,
        PtpMessageBody::PdelayResp { receive: RECEIVED, requesting: CLIENT }
    );
    let mut out = RecordingOutbox::default();
    port.process_transmitted(&answer.bytes, answer.to, SENT, &mut out);
    let [follow_up] = &out.0[..] else { panic!() };
    let body = PtpMessageBody::PdelayRespFollowUp { origin: SENT, requesting: CLIENT };
    assert_eq!(follow_up.message().body, body);
    let corrections =
        [answer, follow_up].map(|sent| sent.message().header.correction.0).iter().sum::<i64>();
    assert_eq!((corrections, follow_up.to), (7, PtpDestination::PeerGroup));
}

#[test]
fn a_question_of_the_other_mechanism_is_not_answered() {
    let peer = Message::new(header(), PtpMessageBody::PdelayReq(PtpTimestamp::ZERO));
    for (profile, request) in
        [(PtpProfile::DefaultP2p, delay_req()), (PtpProfile::DefaultE2e, peer)]
    {
        let (mut port, now) = master_of(settings(profile));
        assert!(replies_to_group(&mut port, &request, now).is_empty());
        assert_eq!(port.counts.refused(PtpRefusal::Mechanism), 1);
    }
}

/// The delay to a neighbour says nothing of the time, and is measured in every state.
#[test]
fn a_neighbour_is_answered_while_the_port_listens_but_not_from_an_unusable_clock() {
    let request = Message::new(header(), PtpMessageBody::PdelayReq(PtpTimestamp::ZERO));
    let mut port = port(PtpProfile::DefaultP2p);
    assert_eq!(replies_to_group(&mut port, &request, START).len(), 1);
    let bytes = bytes(&request);
    let mut out = RecordingOutbox::default();
    for (clock, on_link) in [(UNUSABLE, true), (GOOD, false)] {
        let arrival = ReceivedPtpMessage { group: true, on_link, ..arrival(&bytes) };
        port.receive(&arrival, &clock, START, &mut out);
    }
    assert!(out.0.is_empty());
    let refused =
        [PtpRefusal::State, PtpRefusal::NotAdmitted].map(|reason| port.counts.refused(reason));
    assert_eq!(refused, [1, 1]);
}

#[test]
fn what_was_sent_by_others_is_followed_by_nothing() {
    let (mut port, _) = master();
    let mut sync = Message::new(header(), PtpMessageBody::Sync(PtpTimestamp::ZERO));
    sync.header.flags = PtpFlags::TWO_STEP;
    let mut out = RecordingOutbox::default();
    port.process_transmitted(&bytes(&sync), PtpDestination::Group, SENT, &mut out);
    port.process_transmitted(&[1, 2, 3], PtpDestination::Group, SENT, &mut out);
    assert!(out.0.is_empty());
}

/// Each fault in an otherwise good request has its reason.
#[test]
fn each_fault_has_its_reason() {
    let good = bytes(&delay_req());
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let own = bytes(&Message {
        header: Header { source: PortIdentity { clock: OWN, port: 2 }, ..header() },
        ..delay_req()
    });
    let broken = bytes(&Message { suffix: &[0x21, 0xfe, 0], ..delay_req() });
    let sync = bytes(&Message::new(header(), PtpMessageBody::Sync(PtpTimestamp::ZERO)));
    let cases = [
        (with(3, 43), PtpRefusal::Length),
        (with(3, 45), PtpRefusal::Length),
        (good[..33].to_vec(), PtpRefusal::Length),
        (with(1, 0x01), PtpRefusal::Version),
        (with(1, 0x13), PtpRefusal::Version),
        (with(0, 0x04), PtpRefusal::Type),
        (with(0, 0x0e), PtpRefusal::Type),
        (with(4, 1), PtpRefusal::Domain),
        (with(0, 0x11), PtpRefusal::Domain),
        (with(5, 1), PtpRefusal::Domain),
        (own, PtpRefusal::Own),
        (broken, PtpRefusal::Length),
        (sync, PtpRefusal::Unwanted),
    ];
    for (bytes, reason) in cases {
        let (mut port, now) = master();
        let mut out = RecordingOutbox::default();
        port.receive(&arrival(&bytes), &GOOD, now, &mut out);
        let counted = PtpRefusal::ALL.map(|reason| port.counts.refused(reason));
        assert_eq!(port.counts.refused(reason), 1, "{reason:?} of {bytes:02x?}: {counted:?}");
        assert_eq!((counted.iter().sum::<u64>(), out.0.len()), (1, 0), "{reason:?}");
    }
}

#[test]
fn any_minor_version_is_answered() {
    for minor in 0..16 {
        let (mut port, now) = master();
        let mut request = delay_req();
        request.header.minor_version = minor;
        let answers = replies_to(&mut port, &request, now);
        assert_eq!(answers[0].message().header.minor_version, MINOR_VERSION);
    }
}

#[test]
fn an_event_message_by_the_way_of_general_ones_has_no_timestamp() {
    let (mut port, now) = master();
    let mut out = RecordingOutbox::default();
    let request = bytes(&delay_req());
    port.receive(&ReceivedPtpMessage { event: false, ..arrival(&request) }, &GOOD, now, &mut out);
    assert_eq!((out.0.len(), port.counts.refused(PtpRefusal::Channel)), (0, 1));
}

#[test]
fn without_hybrid_mode_a_request_needs_a_grant() {
    let (mut port, now) =
        master_of(PortSettings { hybrid: false, ..settings(PtpProfile::DefaultE2e) });
    assert!(replies_to(&mut port, &delay_req(), now).is_empty());
    assert_eq!(port.counts.refused(PtpRefusal::NotGranted), 1);
}

#[test]
fn the_pure_answer_is_the_port_s() {
    let (mut port, now) = master();
    for suffix in [&[][..], &REQUEST_TLV] {
        let request = bytes(&Message { suffix, ..delay_req() });
        for group in [false, true] {
            let context = DelayReqClassification { group, granted: false, admitted: true };
            let fast = port
                .delay_responder(&GOOD)
                .unwrap()
                .respond_to_bytes(&request, context, RECEIVED)
                .unwrap();
            let mut out = RecordingOutbox::default();
            port.receive(&ReceivedPtpMessage { group, ..arrival(&request) }, &GOOD, now, &mut out);
            assert_eq!(out.0[0].bytes, fast.bytes());
            assert_eq!(out.0.len() == 2, fast.needs_sync);
        }
    }
}

#[test]
fn what_follows_a_message_is_passed_over() {
    let (mut port, now) = master();
    let mut request = bytes(&delay_req());
    request.extend([0xff; 2]);
    let mut out = RecordingOutbox::default();
    port.receive(&arrival(&request), &GOOD, now, &mut out);
    assert_eq!((out.0.len(), request.len()), (1, TIMESTAMP_MESSAGE_LEN + 2));
    let mut unknown = [0; 8];
    let length = Tlv { type_number: 0x2fff, value: &[1, 2] }.emit(&mut unknown);
    let request = Message { suffix: &unknown[..length], ..delay_req() };
    assert_eq!(replies_to(&mut port, &request, now).len(), 1, "an unknown TLV");
}
