//! Tests of the frame model: what is answered, what passes, and that a reply is whole.

use std::net::SocketAddr;

use horolog_sys::netlink::VlanId;
use horolog_wire::checksum::OnesComplementSum;
use horolog_wire::ethernet::{self, MacAddress, TYPE_SERVICE_VLAN, TYPE_VLAN, VlanTag};
use horolog_wire::ipv4;
use horolog_wire::ntp::{AssociationMode, Header};
use proptest::prelude::*;

use super::*;
use crate::config::LimitsConfig;
use crate::reply::address_hash::AddressHashKey;

const RECEIVED: NtpTimestamp = NtpTimestamp::from_bits(0xe000_0000_2000_0000);
const TRANSMIT: NtpTimestamp = NtpTimestamp::from_bits(0xe000_0000_2000_1235);
const TOKEN: NtpTimestamp = NtpTimestamp::from_bits(0x0102_0304_0506_0708);
const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
/// The VLAN that the server has interfaces in.
const VLAN: u16 = 0x123;

fn listen() -> ListenAddressSet {
    let addresses = ["10.0.0.1:123", "[fd00::1]:123"].map(|text| text.parse().unwrap());
    let network = "10.9.8.1/24".parse().unwrap();
    let vlans =
        [TYPE_VLAN, TYPE_SERVICE_VLAN].map(|protocol| VlanId { protocol, identifier: VLAN });
    let stations = [None, Some(vlans[0]), Some(vlans[1])].map(|vlan| (vlan, MAC));
    ListenAddressSet::resolve(&addresses, &addresses.map(|at| at.ip()))
        .with_networks(&[network])
        .with_stations(&stations)
}

fn judge(frame: &[u8]) -> FrameVerdict {
    let table = InterleavedTable::new(0, AddressHashKey([0; 2])).unwrap();
    judge_with(frame, None, FrameInterleavedHandling::Answer(&table))
}

fn judge_with(
    frame: &[u8],
    limiter: Option<&Limiter>,
    interleaved: FrameInterleavedHandling<'_>,
) -> FrameVerdict {
    let (listen, page) = (listen(), ClockPage::SAMPLE);
    let server = FrameDecisionInputs { listen: &listen, page: &page, limiter, interleaved };
    let now = Timestamp::from_ns(100_000_000_000);
    decide_frame(frame, &server, &FrameTimes { now, received: RECEIVED, transmit: TRANSMIT })
}

fn builder(source: &str, destination: &str) -> UdpFrameBuilder {
    UdpFrameBuilder {
        destination_mac: MAC,
        source_mac: MacAddress([2, 0, 0, 0, 0, 9]),
        vlan: None,
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
    }
}

fn ipv4_request() -> UdpFrameBuilder {
    builder("10.0.0.9:40000", "10.0.0.1:123")
}

fn ipv6_request() -> UdpFrameBuilder {
    builder("[fd00::9]:40000", "[fd00::1]:123")
}

fn build(builder: &UdpFrameBuilder, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; builder.headers_len() + payload.len()];
    builder.emit(payload, &mut frame);
    frame
}

fn ntp_request() -> [u8; HEADER_LEN] {
    let mut payload = [0; HEADER_LEN];
    Header::request(4, TOKEN).emit(&mut payload);
    payload
}

/// Writes the IPv4 header's checksum anew after a test has changed the header.
fn mend(frame: &mut [u8]) {
    let header_len = usize::from(frame[ethernet::HEADER_LEN] & 0xf) * 4;
    let header = &mut frame[ethernet::HEADER_LEN..][..header_len];
    header[10..12].fill(0);
    let sum = OnesComplementSum::default().add_bytes(header).finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// A request whose IPv4 header carries `words` words of options (no operation).
fn with_options(words: u8) -> Vec<u8> {
    let mut frame = build(&ipv4_request(), &ntp_request());
    let behind_header = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
    let options = vec![1; usize::from(words) * 4];
    frame.splice(behind_header..behind_header, options);
    frame[ethernet::HEADER_LEN] = 0x45 + words;
    let total_len = (frame.len() - ethernet::HEADER_LEN) as u16;
    frame[ethernet::HEADER_LEN + 2..][..2].copy_from_slice(&total_len.to_be_bytes());
    mend(&mut frame);
    frame
}

fn reply_to(frame: &[u8]) -> Vec<u8> {
    match judge(frame) {
        FrameVerdict::Transmit(reply) => reply,
        other => panic!("{other:?}: {frame:02x?}"),
    }
}

/// Checks everything of a reply that does not depend on the system variables.
fn check(request: &[u8], reply: &[u8]) {
    let (request_frame, reply_frame) =
        (UdpFrame::parse(request).unwrap(), UdpFrame::parse(reply).unwrap());
    assert!(reply_frame.has_valid_checksum(), "UDP checksum");
    assert!(reply.len() <= request.len(), "longer than the request");
    assert_eq!(reply_frame.ethernet.destination, request_frame.ethernet.source);
    assert_eq!(reply_frame.ethernet.source, request_frame.ethernet.destination);
    assert_eq!(reply_frame.ethernet.vlan, request_frame.ethernet.vlan);
    assert_eq!(
        (reply_frame.source, reply_frame.destination),
        (request_frame.destination, request_frame.source)
    );
    assert_eq!((reply_frame.options_len, reply_frame.trailer_len), (0, 0));
    let (header, rest) = Header::parse(reply_frame.payload).unwrap();
    assert!(rest.is_empty());
    let (question, _) = Header::parse(request_frame.payload).unwrap();
    let mode = match question.mode {
        AssociationMode::SymmetricActive => AssociationMode::SymmetricPassive,
        _ => AssociationMode::Server,
    };
    assert_eq!((header.mode, header.version), (mode, question.version));
    assert_eq!((header.origin, header.poll), (question.transmit, question.poll));
    assert_eq!((header.receive, header.transmit), (RECEIVED, TRANSMIT));
}

#[test]
fn ipv4_is_answered() {
    let request = build(&ipv4_request(), &ntp_request());
    let reply = reply_to(&request);
    check(&request, &reply);
    let network = &reply[ethernet::HEADER_LEN..];
    assert_eq!(network[..4], [0x45, 0, 0, 76]);
    assert_eq!(network[4..10], [0, 0, 0x40, 0, 64, 17], "id 0, don't fragment, 64 hops, UDP");
}

#[test]
fn ipv6_is_answered() {
    let request = build(&ipv6_request(), &ntp_request());
    let reply = reply_to(&request);
    check(&request, &reply);
    assert_eq!(reply[ethernet::HEADER_LEN..][..8], [0x60, 0, 0, 0, 0, 56, 17, 64]);
}

#[test]
fn one_vlan_tag_is_retained_and_two_pass() {
    for protocol in [TYPE_VLAN, TYPE_SERVICE_VLAN] {
        let tagged = |control| {
            let vlan = Some(VlanTag { protocol, control });
            build(&UdpFrameBuilder { vlan, ..ipv6_request() }, &ntp_request())
        };
        let priority = tagged(0x6000);
        check(&priority, &reply_to(&priority));
        assert_eq!(judge(&tagged(0x6000 | (VLAN + 1))), FrameVerdict::Pass, "another VLAN");
        let mut request = tagged(0x6000 | VLAN);
        check(&request, &reply_to(&request));
        request.splice(12..12, [0x81, 0, 0, 7]);
        assert_eq!(judge(&request), FrameVerdict::Pass);
    }
}

#[test]
fn ipv4_options_are_left_out_of_the_reply() {
    for words in 1..=10 {
        let request = with_options(words);
        let reply = reply_to(&request);
        check(&request, &reply);
        assert_eq!(reply.len(), request.len() - usize::from(words) * 4);
    }
}

#[test]
fn a_wrong_udp_checksum_passes_and_an_absent_one_does_not() {
    let mut request = build(&ipv4_request(), &ntp_request());
    let at = ethernet::HEADER_LEN + ipv4::HEADER_LEN + 6;
    request[at] ^= 0xff;
    assert_eq!(judge(&request), FrameVerdict::Pass);
    request[at..at + 2].fill(0);
    check(&request, &reply_to(&request));
}

#[test]
fn group_addresses_pass() {
    let request = ipv4_request();
    let group = MacAddress([0x01, 0, 0x5e, 0, 1, 1]);
    for odd in [
        UdpFrameBuilder { destination_mac: group, ..request },
        UdpFrameBuilder { source_mac: group, ..request },
    ] {
        assert_eq!(judge(&build(&odd, &ntp_request())), FrameVerdict::Pass);
    }
}

#[test]
fn sources_that_no_link_can_have_pass() {
    for source in [
        "0.1.2.3",
        "127.0.0.1",
        "224.0.1.1",
        "240.0.0.1",
        "255.255.255.255",
        "10.0.0.1",
        "10.9.8.255",
    ] {
        let request = builder(&format!("{source}:40000"), "10.0.0.1:123");
        assert_eq!(judge(&build(&request, &ntp_request())), FrameVerdict::Pass, "{source}");
    }
    for source in ["::", "::1", "ff02::1", "::ffff:10.0.0.9", "fd00::1"] {
        let request = builder(&format!("[{source}]:40000"), "[fd00::1]:123");
        assert_eq!(judge(&build(&request, &ntp_request())), FrameVerdict::Pass, "{source}");
    }
    let port_0 = builder("10.0.0.9:0", "10.0.0.1:123");
    assert_eq!(judge(&build(&port_0, &ntp_request())), FrameVerdict::Pass);
}

#[test]
fn other_destinations_pass() {
    for destination in ["10.0.0.2:123", "10.0.0.1:124"] {
        let request = builder("10.0.0.9:40000", destination);
        assert_eq!(judge(&build(&request, &ntp_request())), FrameVerdict::Pass, "{destination}");
    }
}

#[test]
fn other_lengths_pass() {
    let mut longer = ntp_request().to_vec();
    longer.extend_from_slice(&[0; 20]);
    for request in [ipv4_request(), ipv6_request()] {
        assert_eq!(judge(&build(&request, &longer)), FrameVerdict::Pass, "a request with a MAC");
        assert_eq!(judge(&build(&request, &longer[..44])), FrameVerdict::Pass, "a short request");
        let mut frame = build(&request, &ntp_request());
        frame.push(0);
        assert_eq!(judge(&frame), FrameVerdict::Pass, "a byte behind the packet");
        frame.truncate(frame.len() - 2);
        assert_eq!(judge(&frame), FrameVerdict::Pass, "a byte missing");
    }
}

#[test]
fn fragments_and_broken_headers_pass() {
    let request = build(&ipv4_request(), &ntp_request());
    for flags in [0x20, 0x01] {
        let mut fragment = request.clone();
        fragment[ethernet::HEADER_LEN + 6] |= flags;
        mend(&mut fragment);
        assert_eq!(judge(&fragment), FrameVerdict::Pass);
    }
    let mut broken = request;
    broken[ethernet::HEADER_LEN + 8] ^= 1;
    assert_eq!(judge(&broken), FrameVerdict::Pass, "a wrong header checksum");
}

#[test]
fn what_decide_ignores_passes() {
    let mut payload = ntp_request();
    for first_byte in [0x24, 0x03, 0x2b, 0x20, 0x16] {
        payload[0] = first_byte;
        let frame = build(&ipv4_request(), &payload);
        assert_eq!(judge(&frame), FrameVerdict::Pass, "{first_byte:#04x}");
    }
}

#[test]
fn version_1_without_a_mode_passes() {
    let mut payload = ntp_request();
    payload[0] = 1 << 3;
    assert_eq!(judge(&build(&ipv4_request(), &payload)), FrameVerdict::Pass);
    payload[0] |= AssociationMode::Client as u8;
    reply_to(&build(&ipv4_request(), &payload));
}

/// A request in interleaved mode that refers to this receive timestamp.
fn interleaved_request(origin: u64) -> Vec<u8> {
    let mut payload = [0; HEADER_LEN];
    let origin = NtpTimestamp::from_bits(origin);
    Header { origin, receive: NtpTimestamp::from_bits(5), ..Header::request(4, TOKEN) }
        .emit(&mut payload);
    build(&ipv6_request(), &payload)
}

#[test]
fn interleaved_requests_are_answered_from_the_table_or_pass() {
    let table = InterleavedTable::new(16, AddressHashKey([3, 4])).unwrap();
    let header =
        |frame: &[u8]| match judge_with(frame, None, FrameInterleavedHandling::Answer(&table)) {
            FrameVerdict::Transmit(reply) => {
                Header::parse(UdpFrame::parse(&reply).unwrap().payload).unwrap().0
            }
            other => panic!("{other:?}"),
        };
    header(&build(&ipv6_request(), &ntp_request()));
    let first = header(&interleaved_request(RECEIVED.to_bits()));
    assert_eq!((first.origin, first.transmit), (TOKEN, TRANSMIT), "basic mode remembers nothing");
    let second = header(&interleaved_request(RECEIVED.to_bits()));
    assert_eq!((second.origin.to_bits(), second.transmit), (5, TRANSMIT));
    let request = interleaved_request(RECEIVED.to_bits());
    assert_eq!(judge_with(&request, None, FrameInterleavedHandling::Pass), FrameVerdict::Pass);
}

#[test]
fn limits_hold_for_requests_of_any_length_and_for_nothing_else() {
    let config = LimitsConfig { rate: Some(1.0), burst: 1, kiss_rate: true, ..Default::default() };
    let limiter = Limiter::new(&config, AddressHashKey([3, 4])).unwrap();
    let judge = |frame: &[u8]| judge_with(frame, Some(&limiter), FrameInterleavedHandling::Pass);
    let mut other_mode = ntp_request();
    other_mode[0] ^= 7;
    for _ in 0..3 {
        assert_eq!(judge(&build(&ipv4_request(), &other_mode)), FrameVerdict::Pass);
    }
    let mut longer = ntp_request().to_vec();
    longer.extend_from_slice(&[0; 20]);
    let (plain, longer) = (build(&ipv4_request(), &ntp_request()), build(&ipv4_request(), &longer));
    assert!(matches!(judge(&plain), FrameVerdict::Transmit(_)));
    let FrameVerdict::Transmit(kiss) = judge(&plain) else { panic!("no kiss") };
    let (kiss, _) = Header::parse(UdpFrame::parse(&kiss).unwrap().payload).unwrap();
    assert_eq!((kiss.stratum, &kiss.reference_id, kiss.origin), (0, b"RATE", TOKEN));
    assert_eq!(judge(&plain), FrameVerdict::Drop);
    assert_eq!(judge(&longer), FrameVerdict::Pass);
    assert_eq!(judge(&longer), FrameVerdict::Drop);
}

fn any_request() -> impl Strategy<Value = Vec<u8>> {
    let payload = proptest::collection::vec(any::<u8>(), HEADER_LEN);
    let mode = prop_oneof![Just(AssociationMode::Client), Just(AssociationMode::SymmetricActive)];
    (any::<bool>(), any::<Option<u8>>(), any::<u16>(), 1u8..=4, mode, payload).prop_map(
        |(ipv4, priority, port, version, mode, mut payload)| {
            payload[0] = payload[0] & 0xc0 | version << 3 | mode as u8;
            let mut request = if ipv4 { ipv4_request() } else { ipv6_request() };
            request.source = SocketAddr::new(request.source.ip(), port.max(1));
            let control = |priority| u16::from(priority & 0xf0) << 8 | VLAN;
            let tag = |priority| VlanTag { protocol: TYPE_VLAN, control: control(priority) };
            request.vlan = priority.map(tag);
            build(&request, &payload)
        },
    )
}

proptest! {
    #[test]
    fn every_good_request_gets_a_whole_reply(request in any_request()) {
        check(&request, &reply_to(&request));
    }

    #[test]
    fn a_damaged_request_gets_a_whole_reply_or_none(mut request in any_request(), at: prop::sample::Index, change: u8) {
        let at = at.index(request.len());
        request[at] ^= change;
        if let FrameVerdict::Transmit(reply) = judge(&request) {
            check(&request, &reply);
        }
    }

    #[test]
    fn any_bytes_are_judged(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = judge(&bytes);
    }
}
