//! A tap's program over frames that belong to a conversation, and over others.

use proptest::prelude::*;

use super::super::KEEP;
use super::super::interpreter::run_for;
use super::*;
use horolog_wire::frame::UdpFrameBuilder;

const EVENT: u16 = 319;
const GENERAL: u16 = 320;
const PTP: u16 = 0x88f7;
const THIS_HOST: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const MASTER: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const GROUP: MacAddress = MacAddress([1, 0x1b, 0x19, 0, 0, 0]);
/// Packets that came in for this host (`PACKET_HOST`).
const INCOMING: u32 = 0;
const SAMPLE: PacketSamplingRule =
    PacketSamplingRule { sent_offset: 4, received_offset: 8, mask: 6, extra: None };

fn udp(source: &str, destination: &str, payload: &[u8]) -> Vec<u8> {
    let builder = UdpFrameBuilder {
        destination_mac: MASTER,
        source_mac: THIS_HOST,
        vlan: None,
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
    };
    let mut frame = vec![0; 200];
    let len = builder.emit(payload, &mut frame);
    frame.truncate(len);
    frame
}

fn ethernet(source: MacAddress, destination: MacAddress, ether_type: u16) -> Vec<u8> {
    let mut frame = vec![0; 60];
    Header { destination, source, vlan: None, ether_type }.emit(&mut frame);
    frame
}

/// Whether a frame of this type is kept, where each has to have zeros only in its sampled words.
fn keeps(conversation: &RemoteEndSelection, packet_type: u32, frame: &[u8]) -> bool {
    run_for(&conversation.program(&SAMPLE, true), frame, packet_type) == KEEP
}

#[test]
fn both_directions_of_one_port_pass() {
    for (host, server, other) in [
        ("10.0.0.1:5000", "192.0.2.1:123", "192.0.2.3:123"),
        ("[fd00::1]:5000", "[2001:db8::1]:123", "[2001:db8::3]:123"),
    ] {
        let conversation = RemoteEndSelection::with_udp_remote(server.parse().unwrap());
        let (request, reply) = (udp(host, server, &[0; 48]), udp(server, host, &[0; 48]));
        assert!(keeps(&conversation, PACKET_OUTGOING, &request));
        assert!(!keeps(&conversation, INCOMING, &request), "another host's");
        assert!(keeps(&conversation, INCOMING, &reply));
        assert_eq!(
            [&request, &reply].map(|frame| conversation.is_from_remote(frame)),
            [false, true]
        );
        assert!(!keeps(&conversation, PACKET_OUTGOING, &udp(host, other, &[0; 48])));
        assert!(!keeps(&conversation, INCOMING, &udp(other, host, &[0; 48])));
        // On a loopback interface what is sent comes in.
        let program = conversation.program(&SAMPLE, false);
        assert_eq!(run_for(&program, &request, INCOMING), KEEP);
    }
}

#[test]
fn ports_and_groups_may_differ_by_way() {
    let master = |port| RemoteEnd::Udp(format!("192.0.2.1:{port}").parse().unwrap());
    let conversation = RemoteEndSelection {
        from: vec![master(EVENT), master(GENERAL)],
        to: vec![RemoteEnd::Udp("224.0.1.129:319".parse().unwrap())],
    };
    let group = "224.0.1.129:319";
    for (port, expected) in [(EVENT, true), (GENERAL, true), (321, false)] {
        let answer = udp(&format!("192.0.2.1:{port}"), "10.0.0.1:320", &[0; 48]);
        assert_eq!(keeps(&conversation, INCOMING, &answer), expected, "{port}");
        assert_eq!(conversation.is_from_remote(&answer), expected, "{port}");
    }
    let request = udp("10.0.0.1:319", group, &[0; 48]);
    assert!(
        keeps(&conversation, PACKET_OUTGOING, &request)
            && !keeps(&conversation, INCOMING, &request)
    );
    let to_master = udp("10.0.0.1:319", "192.0.2.1:319", &[0; 48]);
    assert!(!keeps(&conversation, PACKET_OUTGOING, &to_master));
}

#[test]
fn frames_without_ip_are_identified_by_their_addresses() {
    let conversation = RemoteEndSelection {
        from: vec![RemoteEnd::Ethernet(PTP, MASTER)],
        to: vec![RemoteEnd::Ethernet(PTP, GROUP)],
    };
    let answer = ethernet(MASTER, GROUP, PTP);
    assert!(keeps(&conversation, INCOMING, &answer) && conversation.is_from_remote(&answer));
    let request = ethernet(THIS_HOST, GROUP, PTP);
    assert!(
        keeps(&conversation, PACKET_OUTGOING, &request) && !conversation.is_from_remote(&request)
    );
    assert!(!keeps(&conversation, INCOMING, &request), "another host's");
    for address in 0..6 {
        let mut other = MASTER;
        other.0[address] ^= 1;
        assert!(!keeps(&conversation, INCOMING, &ethernet(other, THIS_HOST, PTP)), "{address}");
    }
    assert!(!keeps(&conversation, INCOMING, &ethernet(MASTER, GROUP, PTP + 1)));
}

#[test]
fn what_is_no_answer_has_a_sample_of_its_own() {
    let extra = Some(NonReplySamplingRule { reply_kind: 0xc, offset: 4, mask: 8 });
    let udp_end = |text: &str| RemoteEnd::Udp(text.parse().unwrap());
    for (host, master) in [("10.0.0.1:320", "192.0.2.1:320"), ("[fd00::1]:320", "[fd00::2]:320")] {
        let conversation =
            RemoteEndSelection { from: vec![udp_end(master)], to: vec![udp_end(master)] };
        let keeps = |sample: &PacketSamplingRule, kind: u8, words: [u32; 2]| {
            let words = words.map(u32::to_be_bytes).concat();
            let payload = [&[0x10 | kind, 0, 0, 0][..], &words].concat();
            let program = conversation.program(sample, true);
            run_for(&program, &udp(master, host, &payload), INCOMING) == KEEP
        };
        let sample = PacketSamplingRule { extra, ..SAMPLE };
        for kind in 0..16 {
            let is_answer = kind == 0xc;
            assert!(keeps(&sample, kind, [0, 0]), "{kind}");
            assert_eq!(keeps(&sample, kind, [8, 0]), is_answer, "{kind}");
            assert_eq!(keeps(&sample, kind, [0, 6]), !is_answer, "{kind}");
            assert!(keeps(&PacketSamplingRule { mask: 0, ..sample }, kind, [8, 6]), "all is kept");
        }
    }
}

proptest! {
    #[test]
    fn a_sample_has_none_of_the_bits_set(sent: u32, received: u32, ipv4: bool) {
        let (host, server) =
            if ipv4 { ("10.0.0.1:5", "192.0.2.1:9") } else { ("[fd00::1]:5", "[fd00::2]:9") };
        let conversation = RemoteEndSelection::with_udp_remote(server.parse().unwrap());
        let mut payload = [0xff; 12];
        payload[4..8].copy_from_slice(&sent.to_be_bytes());
        payload[8..].copy_from_slice(&received.to_be_bytes());
        let request = keeps(&conversation, PACKET_OUTGOING, &udp(host, server, &payload));
        prop_assert_eq!(request, sent & SAMPLE.mask == 0);
        let reply = keeps(&conversation, INCOMING, &udp(server, host, &payload));
        prop_assert_eq!(reply, received & SAMPLE.mask == 0);
    }
}
