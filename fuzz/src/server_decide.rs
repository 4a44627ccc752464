//! Arbitrary bytes as a datagram from any source. The decision never panics; a reply is 48 bytes,
//! never longer than its request, has the request's transmit timestamp as its origin, or the
//! receive timestamp if it is an interleaved reply to a request in that mode, goes to a single
//! host, and would itself get no reply.
//!
//! An input is the source (a byte whose lowest bit selects IPv6 instead of IPv4, 16 bytes of
//! address, two bytes of port) and the datagram.
#![no_main]

use std::net::{IpAddr, SocketAddr};

use horolog_fuzz::{RECEIVED, TRANSMIT};
use horolog_server::{IgnoreReason, ReplyTimestampMode, RequestVerdict, decide};
use horolog_source::ClockPage;
use horolog_time::NtpTimestamp;
use horolog_wire::ntp::HEADER_LEN;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((head, request)) = bytes.split_first_chunk() else { return };
    let source = source(*head);
    // The table knows every origin whose highest bit is set.
    let known = |origin: NtpTimestamp| (origin.to_bits() >> 63 == 1).then_some(TRANSMIT);
    let verdict = decide(request, source, &ClockPage::SAMPLE, RECEIVED, known);
    let RequestVerdict::Reply(decided) = verdict else { return };
    let header = decided.header_at(TRANSMIT);

    let mut reply = [0; HEADER_LEN];
    assert_eq!(header.emit(&mut reply), HEADER_LEN);
    assert!(reply.len() <= request.len(), "the reply is longer than its request");
    let interleaved = decided.kind == ReplyTimestampMode::Interleaved;
    let origin = if interleaved { &request[32..40] } else { &request[40..48] };
    assert_eq!(&reply[24..32], origin, "the origin is not a timestamp of the request");
    if interleaved {
        assert!(request[24] >> 7 == 1 && request[31] & 1 == 0, "reply to an unknown origin");
        assert_ne!(request[32..40], request[40..48], "interleaved reply in basic mode");
    }
    assert!(reply[39] & 1 == 0 && reply[47] & 1 == 1, "parity of the timestamps");
    assert_eq!(reply[0] & 7, if request[0] & 7 == 1 { 2 } else { 4 }, "mode");
    assert_eq!(reply[0] >> 3 & 7, request[0] >> 3 & 7, "version");
    assert_ne!(source.port(), 0);
    assert!(!source.ip().is_multicast(), "reply to a group");
    assert!(!source.ip().is_unspecified(), "reply to the unspecified address");
    let again = decide(&reply, source, &ClockPage::SAMPLE, RECEIVED, known);
    let expected =
        if reply[0] & 7 == 2 { IgnoreReason::ModePassive } else { IgnoreReason::ModeServer };
    assert_eq!(again, RequestVerdict::Ignore(expected));
});

fn source(head: [u8; 19]) -> SocketAddr {
    let [family, address @ .., port_high, port_low] = head;
    let ip: IpAddr = match (family & 1, address) {
        (0, [a, b, c, d, ..]) => [a, b, c, d].into(),
        (_, address) => address.into(),
    };
    SocketAddr::new(ip, u16::from_be_bytes([port_high, port_low]))
}
