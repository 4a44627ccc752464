//! Any bytes as a frame for the server. Judging it never panics; a frame that goes back is read
//! again as a whole reply with right checksums, to whoever asked, not longer than the request, and
//! is not answered in turn.
#![no_main]

use horolog_fuzz::{RECEIVED, TRANSMIT, page};
use horolog_server::{FrameVerdict, ListenSet, decide_frame};
use horolog_wire::checksum::Sum;
use horolog_wire::ntp::Header;
use horolog_wire::{ethernet, frame::UdpFrame};
use libfuzzer_sys::fuzz_target;

/// Where the checksum stands in an IPv4 header (RFC 791, section 3.1).
const IPV4_CHECKSUM: std::ops::Range<usize> = 10..12;

fuzz_target!(|bytes: &[u8]| {
    judge(bytes);
    // Chance does not find checksums.
    let mut frame = bytes.to_vec();
    if mend(&mut frame).is_some() {
        judge(&frame);
    }
});

fn judge(frame: &[u8]) {
    let Some(reply) = answer(frame) else { return };
    assert!(reply.len() <= frame.len(), "a reply longer than its request");
    assert_eq!(answer(&reply), None, "a reply that is answered in turn");

    let request = UdpFrame::parse(frame).expect("what was answered can be read");
    let reply = UdpFrame::parse(&reply).expect("a reply can be read");
    assert!(reply.checksum_fits());
    assert_eq!((reply.options_len, reply.trailer_len), (0, 0));
    assert_eq!((reply.source, reply.destination), (request.destination, request.source));
    let (there, back) = (request.ethernet, reply.ethernet);
    assert_eq!((back.source, back.destination), (there.destination, there.source));
    assert_eq!((back.vlan, back.ether_type), (there.vlan, there.ether_type));

    let (header, rest) = Header::parse(reply.payload).expect("a reply has a header");
    assert!(rest.is_empty());
    assert_eq!(header.origin.to_bits().to_be_bytes(), request.payload[40..48]);
    assert_eq!((header.receive, header.transmit), (RECEIVED, TRANSMIT));
}

fn answer(frame: &[u8]) -> Option<Vec<u8>> {
    let addresses = ["10.0.0.1:123", "[fd00::1]:123"].map(|text| text.parse().expect("addresses"));
    let listen = ListenSet::resolve(&addresses, &addresses.each_ref().map(|at| at.ip()));
    match decide_frame(frame, &listen, &page(), RECEIVED, TRANSMIT) {
        FrameVerdict::Transmit(reply) => Some(reply),
        FrameVerdict::Pass => None,
    }
}

/// Puts the checksum of an IPv4 header right; `None` where there is none.
fn mend(frame: &mut [u8]) -> Option<()> {
    let (header, _) = ethernet::Header::parse(frame).ok()?;
    let packet = frame.get_mut(header.len()..)?;
    let header_len = usize::from(packet.first()? & 0xf) * 4;
    let ipv4 = packet.get_mut(..header_len).filter(|_| header.ether_type == ethernet::TYPE_IPV4)?;
    ipv4.get_mut(IPV4_CHECKSUM)?.fill(0);
    let checksum = Sum::default().bytes(ipv4).finish();
    ipv4[IPV4_CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    Some(())
}
