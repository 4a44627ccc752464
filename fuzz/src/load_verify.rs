//! Arbitrary bytes as a datagram from the target of a load run. Verification never panics, and an
//! accepted datagram is a reply to a request that was sent.
//!
//! An input is the age of the run in nanoseconds (8 bytes) and the datagram.
#![no_main]

use horolog_load::token::{RequestId, RequestTokenCodec, SEQUENCE_BITS, TIME_BITS};
use horolog_load::verify::{ReplyMode, ReplyVerifier, VerifiedReply};
use horolog_record::InvalidReplyReason;
use horolog_time::{Monotonic, Span, Timestamp};
use horolog_wire::ntp::HEADER_LEN;
use libfuzzer_sys::fuzz_target;

const START: Timestamp<Monotonic> = Timestamp::from_ns(5_000_000_000_000);
const TOKEN: RequestTokenCodec = RequestTokenCodec::new(0xdead_beef_1234_5678, START);
/// Age of the longest run, in nanoseconds: about 18 minutes, 16 times the range of a token.
const AGE_MAX: u64 = 1 << (TIME_BITS + 4);
/// Interval of the requests, in nanoseconds.
const INTERVAL: i64 = 1_000;
/// Offset of the origin timestamp in a header (RFC 5905, figure 8).
const ORIGIN: std::ops::Range<usize> = 24..32;

fuzz_target!(|bytes: &[u8]| {
    let Some((age, datagram)) = bytes.split_first_chunk() else { return };
    let age = (u64::from_be_bytes(*age) % AGE_MAX).cast_signed();
    let now = START + Span::from_ns(age);
    check(datagram, now, verify(datagram, now, true));

    // Random bytes practically never contain a token: makes the datagram a reply to the latest
    // request.
    let mut reply = datagram.to_vec();
    let latest = request_id(age / INTERVAL);
    let transmit = TOKEN.encode(latest);
    for (token, is_interleaved) in
        [(transmit, false), (RequestTokenCodec::interleaved_receive(transmit), true)]
    {
        let Some(origin) = reply.get_mut(ORIGIN) else { return };
        origin.copy_from_slice(&token.to_be_bytes());
        let verdict = verify(&reply, now, true);
        check(&reply, now, verdict);
        assert!(!matches!(verdict, Err(InvalidReplyReason::Origin | InvalidReplyReason::Client)));
        if let Ok(verified) = verdict {
            assert_eq!(verified.request, latest);
            assert_eq!(verified.mode == ReplyMode::Interleaved, is_interleaved);
        }
        // A client in basic mode must reject an interleaved reply.
        let basic = verify(&reply, now, false);
        assert!(if is_interleaved { basic.is_err() } else { basic == verdict });
    }
});

/// Returns the `n`-th request of the run.
fn request_id(n: i64) -> RequestId {
    let sequence = (n.cast_unsigned() % (1 << SEQUENCE_BITS)) as u32;
    RequestId { intended: START + Span::from_ns(n * INTERVAL), sequence }
}

fn verify(
    datagram: &[u8],
    now: Timestamp<Monotonic>,
    interleaved: bool,
) -> Result<VerifiedReply, InvalidReplyReason> {
    let expected = ReplyVerifier { token: TOKEN, version: 4, interleaved, extended: false };
    expected.verify(datagram, now, |request_id| {
        if was_sent(request_id) { Ok(()) } else { Err(InvalidReplyReason::Client) }
    })
}

fn was_sent(sent: RequestId) -> bool {
    let age = (sent.intended - START).as_ns();
    age >= 0 && request_id(age / INTERVAL) == sent
}

/// Checks an accepted reply against its bytes.
fn check(
    datagram: &[u8],
    now: Timestamp<Monotonic>,
    verdict: Result<VerifiedReply, InvalidReplyReason>,
) {
    let Ok(reply) = verdict else { return };
    assert_eq!(datagram.len(), HEADER_LEN);
    assert_eq!((datagram[0] >> 3 & 7, datagram[0] & 7), (4, 4), "version and mode");
    let is_unsynchronised = datagram[0] >> 6 == 3 || matches!(datagram[1], 0 | 16);
    assert!(is_unsynchronised || datagram[1] < 16, "reserved stratum");
    assert_eq!(is_unsynchronised, reply.unsynchronised);
    assert!(is_unsynchronised || datagram[40..48] != [0; 8], "no transmit timestamp");

    let transmit = TOKEN.encode(reply.request);
    let token = match reply.mode {
        ReplyMode::Basic { response_ns } => {
            assert!(is_unsynchronised || response_ns.is_some());
            assert!(response_ns.is_none_or(|ns| ns < 1 << TIME_BITS));
            transmit
        }
        ReplyMode::Interleaved => RequestTokenCodec::interleaved_receive(transmit),
    };
    assert_eq!(datagram[ORIGIN], token.to_be_bytes(), "token of no request");
    assert!(was_sent(reply.request) && reply.request.intended <= now, "request never sent");
}
