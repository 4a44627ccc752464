//! Arbitrary bytes as a STAMP packet, in both directions. Parsing never panics; a parsed packet is
//! unchanged after it was written and parsed again; a reflector's reply has the length of the
//! request, including padding.
#![no_main]

use horolog_probe::path::serve::stamp::{ReflectedPacketContext, reflect};
use horolog_probe::path::udp::ProbeCodec;
use horolog_time::{Span, Timestamp};
use horolog_wire::stamp::{ErrorEstimate, PACKET_LEN, ReflectorPacket, SenderPacket};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let near = Timestamp::from_ns(1_700_000_000_000_000_000);
    let mut written = [0; PACKET_LEN];
    if let Ok((packet, padding)) = SenderPacket::parse(bytes) {
        assert_eq!(padding.len(), bytes.len() - PACKET_LEN);
        packet.emit(&mut written);
        assert_eq!(SenderPacket::parse(&written).expect("a valid packet").0, packet);
        let _ =
            (packet.timestamp.to_utc(packet.error_estimate, near), packet.error_estimate.error());
    }
    if let Ok((packet, _)) = ReflectorPacket::parse(bytes) {
        packet.emit(&mut written);
        assert_eq!(ReflectorPacket::parse(&written).expect("a valid packet").0, packet);
    }
    let error_estimate = ErrorEstimate::new(Span::from_ns(500), true);
    let codec = ProbeCodec::Stamp { session: 9, error_estimate };
    let _ = codec.parse_reply(bytes, near);
    let mut reply = bytes.to_vec();
    let at = ReflectedPacketContext { received: near, now: near, error_estimate, hop_limit: 255 };
    let is_packet = reflect(&mut reply, &at);
    assert_eq!(is_packet, bytes.len() >= PACKET_LEN);
    if is_packet {
        assert_eq!(reply[PACKET_LEN..], bytes[PACKET_LEN..]);
        let (reflected, _) = ReflectorPacket::parse(&reply).expect("a valid packet");
        assert_eq!(reflected.sender, SenderPacket::parse(bytes).expect("a sender packet").0);
    }
});
