//! Arbitrary bytes as a datagram of a path measurement, at both ends. Parsing never panics; a
//! parsed header is unchanged when written; the far end changes only the header, and replies only
//! to a hello or within a session.
#![no_main]

use horolog_probe::path::serve::udp::{UdpArrival, UdpReflector, UdpVerdict};
use horolog_probe::path::udp::ProbeCodec;
use horolog_time::Timestamp;
use horolog_wire::path_probe::{HEADER_LEN, Header, PathDatagramKind};
use libfuzzer_sys::fuzz_target;

const SESSION: u64 = 0x0102_0304_0506_0708;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((header, padding)) = Header::parse(bytes) {
        assert_eq!(padding.len(), bytes.len() - HEADER_LEN);
        let mut written = [0; HEADER_LEN];
        assert_eq!(header.emit(&mut written), HEADER_LEN);
        assert_eq!(written, bytes[..HEADER_LEN]);
    }
    let near = Timestamp::from_ns(1_700_000_000_000_000_000);
    if let Some(reply) = (ProbeCodec::Horolog { session: SESSION }).parse_reply(bytes, near) {
        let (is_short, at) =
            (bytes.len() < HEADER_LEN, if bytes.len() < HEADER_LEN { 1 } else { 5 });
        assert!(
            reply.counts.is_none() == is_short && bytes[at] & 127 == PathDatagramKind::Echo as u8
        );
    }
    let mut far = UdpReflector::new(1_000, "boot".to_owned());
    let arrival = UdpArrival {
        remote: ([192, 0, 2, 1], 4_000).into(),
        now: Timestamp::from_ns(7_000_000_000),
        received_ns: 5,
        traffic_class: 0xb8,
    };
    let mut reply = bytes.to_vec();
    match far.handle(&mut reply, &arrival) {
        UdpVerdict::Reply(kind, _) => {
            assert_eq!(
                kind,
                PathDatagramKind::Welcome,
                "without a session only a hello is answered"
            );
            assert_eq!(reply[HEADER_LEN..], bytes[HEADER_LEN..]);
        }
        UdpVerdict::Drop(_) => assert_eq!(reply, bytes),
    }
});
