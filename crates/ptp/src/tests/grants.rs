//! What is granted, for how long, and what is denied.

use horolog_wire::ptp::tlv::{UnicastCancellation, UnicastNegotiationTlv};
use proptest::prelude::*;

use super::*;

fn request(kind: MessageType, log_interval: i8, duration_s: u32) -> UnicastNegotiationTlv {
    UnicastNegotiationTlv::Request { kind, log_interval, duration_s }
}

/// A message with these negotiations.
fn signaling_message(all: &[UnicastNegotiationTlv], target: PortIdentity) -> Vec<u8> {
    let mut suffix = [0; 512];
    let mut length = 0;
    for negotiation in all {
        length += negotiation.emit(&mut suffix[length..]);
    }
    bytes(&Message {
        header: header(),
        body: PtpMessageBody::Signaling(target),
        suffix: &suffix[..length],
    })
}

/// What is said in a message.
fn negotiations(sent: &Sent) -> Vec<UnicastNegotiationTlv> {
    sent.message()
        .tlvs()
        .map(|tlv| UnicastNegotiationTlv::from_tlv(&tlv.unwrap()).unwrap().unwrap())
        .collect()
}

/// What a client is answered.
fn negotiate(
    port: &mut ClockPort,
    all: &[UnicastNegotiationTlv],
    now: Timestamp<Monotonic>,
) -> Vec<UnicastNegotiationTlv> {
    let mut out = RecordingOutbox::default();
    port.receive(&arrival(&signaling_message(all, PortIdentity::ALL)), &GOOD, now, &mut out);
    assert!(out.0.len() <= 1);
    out.0.first().map(negotiations).unwrap_or_default()
}

/// Whether the answer to a request is for some time.
fn is_granted(answer: UnicastNegotiationTlv) -> bool {
    matches!(answer, UnicastNegotiationTlv::Grant { duration_s: 1.., .. })
}

fn unicast_master() -> (ClockPort, Timestamp<Monotonic>) {
    master_of(PortSettings { multicast: false, hybrid: false, ..settings(PtpProfile::DefaultE2e) })
}

/// All that is sent from `now` on for so many seconds.
fn run(port: &mut ClockPort, now: Timestamp<Monotonic>, duration_s: i64) -> Vec<MessageType> {
    let mut out = RecordingOutbox::default();
    let mut at = now;
    while at < now + seconds(duration_s) {
        port.process_due(&GOOD, at, &mut out);
        let next = port.next_due();
        assert!(next > at, "nothing stays due");
        at = next;
    }
    out.kinds()
}

#[test]
fn several_requests_in_a_message_are_granted_in_one() {
    let (mut port, now) = unicast_master();
    let requests = [
        request(MessageType::Announce, 0, 60),
        request(MessageType::Sync, -2, 60),
        request(MessageType::DelayResp, -2, 60),
        request(MessageType::PdelayResp, -2, 60),
    ];
    let answers = negotiate(&mut port, &requests, now);
    let granted: Vec<_> = answers.iter().copied().map(is_granted).collect();
    assert_eq!(granted, [true, true, true, false]);
    let renewal_invited = true;
    let first = UnicastNegotiationTlv::Grant {
        kind: MessageType::Announce,
        log_interval: 0,
        duration_s: 60,
        renewal_invited,
    };
    assert_eq!(answers[0], first);
    let sent = run(&mut port, now, 10);
    let count = |kind| sent.iter().filter(|&&sent| sent == kind).count();
    assert_eq!((count(MessageType::Announce), count(MessageType::Sync)), (10, 40));
    assert_eq!(
        replies_to(&mut port, &delay_req(), now).len(),
        1,
        "without hybrid mode, by the grant"
    );
}

#[test]
fn streams_are_unicast_and_numbered_each_by_itself() {
    let (mut port, now) = unicast_master();
    negotiate(&mut port, &[request(MessageType::Sync, 0, 60)], now);
    for sequence_id in 0..3 {
        let mut out = RecordingOutbox::default();
        port.process_due(&GOOD, now + Span::from_ms(125) + seconds(sequence_id), &mut out);
        let [sync] = &out.0[..] else { panic!() };
        assert_eq!(
            (sync.to, sync.event, sync.stamp),
            (PtpDestination::To(CLIENT_ADDRESS), true, true)
        );
        let header = sync.message().header;
        assert_eq!(i64::from(header.sequence_id), sequence_id);
        assert_eq!(header.flags, PtpFlags::UNICAST.union(PtpFlags::TWO_STEP));
        assert_eq!(header.log_interval, NO_INTERVAL);
    }
}

#[test]
fn a_grant_ends_with_its_time_unless_it_is_renewed() {
    let (mut port, now) = unicast_master();
    let requests = [request(MessageType::Sync, 0, 5), request(MessageType::DelayResp, 0, 5)];
    negotiate(&mut port, &requests, now);
    assert_eq!(run(&mut port, now, 4).len(), 4);
    assert!(negotiate(&mut port, &requests, now + seconds(4)).into_iter().all(is_granted));
    assert_eq!(run(&mut port, now + seconds(4), 20).len(), 5);
    assert_eq!(port.view(&GOOD).grants, 0);
    assert!(replies_to(&mut port, &delay_req(), now + seconds(9)).is_empty());
}

#[test]
fn renewals_do_not_bring_more_messages() {
    let (mut port, now) = unicast_master();
    let mut sent = 0;
    for count in 0..100 {
        let now = now + Span::from_ms(10 * count);
        let log_interval = (count % 2) as i8;
        negotiate(&mut port, &[request(MessageType::Sync, log_interval, 60)], now);
        let mut out = RecordingOutbox::default();
        port.process_due(&GOOD, now, &mut out);
        sent += out.0.len();
    }
    assert_eq!(sent, 1, "in a second, of one or half a message a second");
    let requested = request(MessageType::Sync, -7, 60);
    negotiate(&mut port, &[requested], now + seconds(1));
    let sent = run(&mut port, now + seconds(1), 1).len();
    assert!((127..=128).contains(&sent), "a shorter interval is kept to: {sent}");
}

#[test]
fn cancelling_and_requesting_again_does_not_bring_more_messages() {
    let (mut port, now) = unicast_master();
    let kind = MessageType::Sync;
    let ended = UnicastCancellation { kind, maintain_request: false, maintain_grant: false };
    let mut sent = 0;
    for count in 0..100 {
        let now = now + Span::from_ms(count);
        negotiate(&mut port, &[UnicastNegotiationTlv::Cancel(ended), request(kind, 0, 60)], now);
        let mut out = RecordingOutbox::default();
        port.process_due(&GOOD, now, &mut out);
        sent += out.0.len();
    }
    assert_eq!(sent, 0);
}

#[test]
fn one_address_does_not_get_everything() {
    let (mut port, now) = unicast_master();
    let signaling_request = |clock: u64, log_interval, from| {
        let header = Header { source: PortIdentity { clock, port: 1 }, ..delay_req().header };
        let suffix =
            signaling_message(&[request(MessageType::Sync, log_interval, 60)], PortIdentity::ALL);
        let message = Message::parse(&suffix).unwrap().0;
        let bytes = bytes(&Message {
            header: Header { source: header.source, ..message.header },
            ..message
        });
        (bytes, from)
    };
    for clock in 1..200 {
        let (bytes, from) = signaling_request(clock, 4, super::client(7));
        port.receive(
            &ReceivedPtpMessage { from, ..arrival(&bytes) },
            &GOOD,
            now,
            &mut RecordingOutbox::default(),
        );
    }
    assert_eq!(port.view(&GOOD).grants, 64);
    let (bytes, from) = signaling_request(1, -7, super::client(8));
    port.receive(
        &ReceivedPtpMessage { from, ..arrival(&bytes) },
        &GOOD,
        now,
        &mut RecordingOutbox::default(),
    );
    assert_eq!(port.view(&GOOD).grants, 65, "another is granted what it asks for");
}

#[test]
fn a_client_ends_its_grant() {
    let (mut port, now) = unicast_master();
    let kind = MessageType::Sync;
    negotiate(&mut port, &[request(kind, 0, 60)], now);
    let maintained = UnicastCancellation { kind, maintain_request: true, maintain_grant: false };
    assert_eq!(negotiate(&mut port, &[UnicastNegotiationTlv::Cancel(maintained)], now), []);
    assert_eq!(port.view(&GOOD).grants, 1, "it ended what it had granted, which is nothing");
    let ended = UnicastCancellation { maintain_request: false, ..maintained };
    let answers = negotiate(&mut port, &[UnicastNegotiationTlv::Cancel(ended)], now);
    assert_eq!(answers, [UnicastNegotiationTlv::AcknowledgeCancel(ended)]);
    assert_eq!((port.view(&GOOD).grants, run(&mut port, now, 3).len()), (0, 0));
}

#[test]
fn an_unusable_clock_ends_all_grants() {
    let (mut port, now) = unicast_master();
    let requests = [request(MessageType::Announce, 0, 60), request(MessageType::Sync, 0, 60)];
    negotiate(&mut port, &requests, now);
    let mut out = RecordingOutbox::default();
    port.process_due(&UNUSABLE, now, &mut out);
    let [cancel] = &out.0[..] else { panic!("{:?}", out.0) };
    assert_eq!(cancel.to, PtpDestination::To(CLIENT_ADDRESS));
    assert_eq!(cancel.message().body, PtpMessageBody::Signaling(CLIENT));
    let mut kinds: Vec<_> = negotiations(cancel)
        .into_iter()
        .map(|negotiation| match negotiation {
            UnicastNegotiationTlv::Cancel(ended) => ended.kind,
            other => panic!("{other:?}"),
        })
        .collect();
    kinds.sort_unstable();
    assert_eq!(kinds, [MessageType::Sync, MessageType::Announce]);
    assert_eq!(port.view(&GOOD).grants, 0);
    port.receive(
        &arrival(&signaling_message(&requests, PortIdentity::ALL)),
        &UNUSABLE,
        now,
        &mut out,
    );
    assert!(!negotiations(&out.0[1]).into_iter().any(is_granted));
}

#[test]
fn what_is_out_of_bounds_is_denied() {
    let bounds = UnicastGrantLimits {
        grants_max: 2,
        rate_max: 36,
        duration_max_s: 100,
        log_interval_min: -4,
    };
    let (mut port, now) =
        master_of(PortSettings { unicast: bounds, ..settings(PtpProfile::DefaultE2e) });
    for (requested, duration_s) in [
        (request(MessageType::Sync, -5, 60), 0),
        (request(MessageType::Sync, 11, 60), 0),
        (request(MessageType::Sync, 0, 0), 0),
        (request(MessageType::Management, 0, 60), 0),
        (request(MessageType::Sync, -4, 1000), 100),
        (request(MessageType::Announce, -3, 60), 0),
        (request(MessageType::Announce, -2, 60), 60),
        (request(MessageType::DelayResp, 4, 60), 0),
        (request(MessageType::Announce, -4, 60), 0),
        (request(MessageType::Sync, -4, 60), 60),
    ] {
        let [UnicastNegotiationTlv::Grant { duration_s: granted, renewal_invited, .. }] =
            negotiate(&mut port, &[requested], now)[..]
        else {
            panic!("{requested:?}")
        };
        assert_eq!((granted, renewal_invited), (duration_s, duration_s > 0), "{requested:?}");
    }
    assert_eq!((port.view(&GOOD).grants, port.view(&GOOD).granted_rate), (2, 36.0));
}

#[test]
fn only_whom_the_list_admits_is_granted_streams() {
    let (mut port, now) = master();
    let signaling_bytes =
        signaling_message(&[request(MessageType::Sync, 0, 60)], PortIdentity::ALL);
    let mut out = RecordingOutbox::default();
    port.receive(
        &ReceivedPtpMessage { admitted: false, ..arrival(&signaling_bytes) },
        &GOOD,
        now,
        &mut out,
    );
    assert!(!is_granted(negotiations(&out.0[0])[0]));
    assert_eq!(port.counts.refused(PtpRefusal::NotAdmitted), 1);
}

#[test]
fn only_the_target_port_responds() {
    let requests = [request(MessageType::Sync, 0, 60)];
    for (clock, number, count) in [
        (OWN, 1, 1),
        (u64::MAX, u16::MAX, 1),
        (OWN, u16::MAX, 1),
        (OWN, 2, 0),
        (CLIENT.clock, 1, 0),
        (CLIENT.clock, u16::MAX, 0),
    ] {
        let (mut port, now) = master();
        let mut out = RecordingOutbox::default();
        let target = PortIdentity { clock, port: number };
        port.receive(&arrival(&signaling_message(&requests, target)), &GOOD, now, &mut out);
        assert_eq!((out.0.len(), port.view(&GOOD).grants), (count, count), "{target:?}");
        assert_eq!(port.counts.refused(PtpRefusal::Target), 1 - count as u64);
    }
}

/// What was granted before and after it is told of.
#[test]
fn a_malformed_request_among_others_is_passed_over() {
    let (mut port, now) = master();
    let mut bytes = signaling_message(&[request(MessageType::Sync, 0, 60); 3], PortIdentity::ALL);
    let second = 44 + 10;
    // A reserved type of messages.
    bytes[second + 4] = 0x70;
    let mut out = RecordingOutbox::default();
    port.receive(&arrival(&bytes), &GOOD, now, &mut out);
    assert_eq!(
        negotiations(&out.0[0]).into_iter().filter(|&negotiation| is_granted(negotiation)).count(),
        2
    );
    assert_eq!(port.counts.refused(PtpRefusal::Length), 1);
}

#[test]
fn a_message_of_many_requests_is_answered_in_part() {
    let (mut port, now) = master();
    let requests = [request(MessageType::Sync, 0, 60); 30];
    assert_eq!(negotiate(&mut port, &requests, now).len(), 8);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Negotiate(u8, UnicastNegotiationTlv),
    Wait(u16),
    Unusable,
}

fn steps() -> impl Strategy<Value = Step> {
    let kind = (0..MessageType::ALL.len()).prop_map(|index| MessageType::ALL[index]);
    let kinds = prop_oneof![Just(MessageType::Sync), Just(MessageType::Announce), kind];
    let negotiation =
        (kinds, -9i8..12, 0u32..40, 0u8..8).prop_map(|(kind, log_interval, duration_s, which)| {
            if which == 0 {
                UnicastNegotiationTlv::Cancel(UnicastCancellation {
                    kind,
                    maintain_request: false,
                    maintain_grant: false,
                })
            } else {
                request(kind, log_interval, duration_s)
            }
        });
    prop_oneof![
        8 => (0u8..8, negotiation).prop_map(|(client, negotiation)| Step::Negotiate(client, negotiation)),
        3 => (0u16..3000).prop_map(Step::Wait),
        1 => Just(Step::Unusable),
    ]
}

proptest! {
    #[test]
    fn grants_never_exceed_their_bounds(all in proptest::collection::vec(steps(), 0..120)) {
        let unicast = UnicastGrantLimits { grants_max: 5, rate_max: 40, duration_max_s: 30, log_interval_min: -5 };
        let (mut port, mut now) = master_of(PortSettings { unicast, ..settings(PtpProfile::DefaultE2e) });
        for step in all {
            match step {
                Step::Negotiate(client, asked) => {
                    let bytes = signaling_message(&[asked], PortIdentity::ALL);
                    let from = super::client(client);
                    port.receive(&ReceivedPtpMessage { from, ..arrival(&bytes) }, &GOOD, now, &mut RecordingOutbox::default());
                }
                Step::Wait(ms) => now = now + Span::from_ms(ms.into()),
                Step::Unusable => port.process_due(&UNUSABLE, now, &mut RecordingOutbox::default()),
            }
            let view = port.view(&GOOD);
            prop_assert!(view.grants <= 5 && view.granted_rate <= 40.0, "{:?}", view);
            prop_assert!(port.grants.is_consistent());
            let mut out = RecordingOutbox::default();
            port.process_due(&GOOD, now, &mut out);
            // Two to the group, and no more than one for each grant.
            prop_assert!(out.0.len() <= 7);
            prop_assert!(port.next_due() > now);
        }
        port.process_due(&GOOD, now + seconds(40), &mut RecordingOutbox::default());
        let view = port.view(&GOOD);
        prop_assert_eq!((view.grants, view.granted_rate), (0, 0.0));
    }
}
