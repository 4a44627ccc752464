//! Arbitrary bytes as a frame for the server. The decision never panics; a transmitted frame is a
//! complete reply with valid checksums, to the client, not longer than the request, and would
//! itself get no reply.
#![no_main]

use horolog_fuzz::{RECEIVED, TRANSMIT};
use horolog_server::{
    AddressHashKey, Admission, FrameDecisionInputs, FrameInterleavedHandling, FrameTimes,
    FrameVerdict, InterleavedTable, Limiter, LimitsConfig, ListenAddressSet, RequestLengthClass,
    as_transmit, decide_frame, may_be_interleaved,
};
use horolog_source::ClockPage;
use horolog_sys::netlink::VlanId;
use horolog_time::{Monotonic, Timestamp};
use horolog_wire::checksum::OnesComplementSum;
use horolog_wire::ethernet::{self, VlanTag};
use horolog_wire::frame::UdpFrame;
use horolog_wire::ntp::Header;
use libfuzzer_sys::fuzz_target;

/// Receive time of all frames, on the monotonic clock.
const NOW: Timestamp<Monotonic> = Timestamp::from_ns(100_500_000_000);

/// Offset of the checksum in an IPv4 header (RFC 791, section 3.1).
const IPV4_CHECKSUM: std::ops::Range<usize> = 10..12;

fuzz_target!(|bytes: &[u8]| {
    check_frame(bytes);
    // Random bytes practically never have a valid checksum.
    let mut frame = bytes.to_vec();
    if repair_checksum(&mut frame).is_some() {
        check_frame(&frame);
    }
});

fn check_frame(frame: &[u8]) {
    let FrameVerdict::Transmit(reply) = answer(frame, None) else { return };
    assert!(reply.len() <= frame.len(), "the reply is longer than its request");
    assert_eq!(answer(&reply, None), FrameVerdict::Pass, "a reply is answered");

    let request = UdpFrame::parse(frame).expect("an answered frame is valid");
    let reply = UdpFrame::parse(&reply).expect("a reply is valid");
    assert!(reply.has_valid_checksum());
    assert_eq!((reply.options_len, reply.trailer_len), (0, 0));
    assert_eq!((reply.source, reply.destination), (request.destination, request.source));
    let (request_link, reply_link) = (request.ethernet, reply.ethernet);
    assert_eq!(reply_link.source, request_link.destination);
    assert_eq!(reply_link.destination, request_link.source);
    assert_eq!(reply_link.vlan, request_link.vlan);
    assert_eq!(reply_link.ether_type, request_link.ether_type);

    let (header, rest) = Header::parse(reply.payload).expect("a reply has a header");
    let (request_header, _) = Header::parse(request.payload).expect("a request has a header");
    assert!(rest.is_empty());
    assert_eq!(header.receive, RECEIVED);
    // The single slot of the table has a reply at `RECEIVED` for any client.
    let interleaved = may_be_interleaved(&request_header) && request_header.origin == RECEIVED;
    let origin = if interleaved { request_header.receive } else { request_header.transmit };
    assert_eq!((header.origin, header.transmit), (origin, as_transmit(TRANSMIT)));
    // Longer requests of a client are counted separately. The tags of both counts are equal under
    // one key in 65,536, but not under both keys.
    let keys = [AddressHashKey([1, 2]), AddressHashKey([3, 4])];
    let admissions = keys.map(|key| long_request_admission(frame, request.source.ip(), key));
    assert!(admissions.contains(&Admission::Admit));
}

/// Checks that the second of two simultaneous requests gets a kiss and the third is dropped, and
/// returns the admission of a longer request of the client after them.
fn long_request_admission(
    frame: &[u8],
    source: std::net::IpAddr,
    key: AddressHashKey,
) -> Admission {
    let config = LimitsConfig {
        rate: Some(1.0),
        burst: 1,
        clients: 4,
        kiss_rate: true,
        ..LimitsConfig::default()
    };
    let limiter = Limiter::new(&config, key).expect("a small table");
    assert!(matches!(answer(frame, Some(&limiter)), FrameVerdict::Transmit(_)));
    let FrameVerdict::Transmit(kiss) = answer(frame, Some(&limiter)) else { panic!("no kiss") };
    let kiss = UdpFrame::parse(&kiss).expect("a kiss is valid");
    assert!(kiss.has_valid_checksum());
    let (header, _) = Header::parse(kiss.payload).expect("a kiss has a header");
    assert_eq!((header.stratum, &header.reference_id), (0, b"RATE"));
    assert_eq!(answer(frame, Some(&limiter)), FrameVerdict::Drop);
    limiter.judge(source, RequestLengthClass::Long, NOW)
}

fn answer(frame: &[u8], limiter: Option<&Limiter>) -> FrameVerdict {
    let addresses = ["10.0.0.1:123", "[fd00::1]:123"].map(|text| text.parse().expect("addresses"));
    // Every unicast destination of the frame is an address of this host.
    let link = ethernet::Header::parse(frame).ok().map(|(header, _)| header);
    let station = link.filter(|link| !link.destination.is_group()).map(|link| {
        let vlan = link
            .vlan
            .map(|VlanTag { protocol, control }| VlanId { protocol, identifier: control & 0x0fff });
        (vlan.filter(|vlan| vlan.identifier != 0), link.destination)
    });
    let listen = ListenAddressSet::resolve(&addresses, &addresses.each_ref().map(|at| at.ip()))
        .with_stations(station.as_slice());
    let table = InterleavedTable::new(1, AddressHashKey([1, 2])).expect("a small table");
    table.store_timestamps([10, 0, 0, 9].into(), RECEIVED, TRANSMIT);
    let interleaved = FrameInterleavedHandling::Answer(&table);
    let server =
        FrameDecisionInputs { listen: &listen, page: &ClockPage::SAMPLE, limiter, interleaved };
    let arrival = FrameTimes { now: NOW, received: RECEIVED, transmit: TRANSMIT };
    decide_frame(frame, &server, &arrival)
}

/// Sets the checksum of an IPv4 header; returns `None` if the frame has none.
fn repair_checksum(frame: &mut [u8]) -> Option<()> {
    let (header, _) = ethernet::Header::parse(frame).ok()?;
    let packet = frame.get_mut(header.len()..)?;
    let header_len = usize::from(packet.first()? & 0xf) * 4;
    let ipv4 = packet.get_mut(..header_len).filter(|_| header.ether_type == ethernet::TYPE_IPV4)?;
    ipv4.get_mut(IPV4_CHECKSUM)?.fill(0);
    let checksum = OnesComplementSum::default().add_bytes(ipv4).finish();
    ipv4[IPV4_CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    Some(())
}
