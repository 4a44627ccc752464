//! Arbitrary bytes as replies to the requests of a query. Classification never panics, an accepted
//! datagram is a reply to the pending request, and its offset and delay follow from its timestamps.
//!
//! An input is a datagram, which is classified unchanged and as a reply to requests in either mode.
#![no_main]

use horolog_probe::query::{
    DatagramClass, ExchangeTimestampPrecisions, NtpClient, PacketTimestamp, offset_and_delay,
};
use horolog_time::{NtpTimestamp, Span, Timestamp};
use horolog_wire::ntp::{HEADER_LEN, Header, ReplyStatus};
use libfuzzer_sys::fuzz_target;

/// Offset of the origin timestamp in a header (RFC 5905, figure 8).
const ORIGIN: std::ops::Range<usize> = 24..32;
const NOW_NS: i64 = 1_700_000_000_000_000_000;

fuzz_target!(|bytes: &[u8]| {
    let mut client = NtpClient::new(4, true, false);
    let _ = client.classify(bytes);
    for slot in 0..3 {
        let request = client.next_request(slot, [slot * 100 + 7, slot * 90 + 5]);
        check(&client, &request, bytes);
        for origin in [request.transmit, request.receive] {
            let mut answer = bytes.to_vec();
            let Some(slice) = answer.get_mut(ORIGIN) else { return };
            slice.copy_from_slice(&origin.to_bits().to_be_bytes());
            check(&client, &request, &answer);
        }
        let mut answer = bytes.to_vec();
        let Some(slice) = answer.get_mut(ORIGIN) else { return };
        slice.copy_from_slice(&request.transmit.to_bits().to_be_bytes());
        if let DatagramClass::Reply(reply) = client.classify(&answer) {
            let timestamp = |ns| PacketTimestamp::user(Timestamp::from_ns(NOW_NS + ns));
            let done = client.accept_reply(&reply, timestamp(0), timestamp(50_000));
            if let Some(exchange) = done {
                assert_eq!(exchange.slot + 1, slot, "it completes the previous exchange");
            }
            assert_eq!(client.classify(&answer), DatagramClass::Duplicate);
        }
    }
    let _ = client.take_pending();
});

fn check(client: &NtpClient, request: &Header, bytes: &[u8]) {
    let DatagramClass::Reply(reply) = client.classify(bytes) else { return };
    assert_eq!(bytes.len(), HEADER_LEN);
    let expected = if reply.interleaved { request.receive } else { request.transmit };
    assert_eq!(reply.header.origin, expected);
    match reply.header.reply_status() {
        Some(ReplyStatus::Synchronised) => assert!((1..16).contains(&reply.header.stratum)),
        Some(ReplyStatus::Unsynchronised) if !reply.has_server_timestamps() => return,
        Some(ReplyStatus::Unsynchronised) => {}
        other => panic!("{other:?} is not the status of a reply"),
    }
    assert_ne!(reply.header.transmit, NtpTimestamp::UNKNOWN);
    let now = Timestamp::from_ns(NOW_NS);
    let precision = ExchangeTimestampPrecisions {
        server: reply.header.precision,
        local: -25,
        conversion: Span::ZERO,
    };
    let server = [reply.header.receive, reply.header.transmit];
    let measured = offset_and_delay(now, server, now + Span::from_ns(50_000), &precision);
    assert_eq!(measured.delay, Span::from_ns(50_000) - (measured.t3 - measured.t2));
}
