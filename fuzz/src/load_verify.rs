//! Any bytes as a datagram from the target of a load run. Judging it never panics, and an
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
/// The longest run, in nanoseconds: 18 minutes, many times the reach of a token.
const AGE_MAX: u64 = 1 << (TIME_BITS + 4);
/// Requests are this far apart, in nanoseconds.
const INTERVAL: i64 = 1_000;
/// Where the origin timestamp stands in a header (RFC 5905, figure 8).
const ORIGIN: std::ops::Range<usize> = 24..32;

fuzz_target!(|bytes: &[u8]| {
    let Some((age, datagram)) = bytes.split_first_chunk() else { return };
    let age = (u64::from_be_bytes(*age) % AGE_MAX).cast_signed();
    let now = START + Span::from_ns(age);
    check(datagram, now, verify(datagram, now, true));

    // Chance does not find tokens: the same datagram as an answer to the latest question.
    let mut answer = datagram.to_vec();
    let latest = request_id(age / INTERVAL);
    let transmit = TOKEN.encode(latest);
    for (token, is_interleaved) in
        [(transmit, false), (RequestTokenCodec::interleaved_receive(transmit), true)]
    {
        let Some(origin) = answer.get_mut(ORIGIN) else { return };
        origin.copy_from_slice(&token.to_be_bytes());
        let verdict = verify(&answer, now, true);
        check(&answer, now, verdict);
        assert!(!matches!(verdict, Err(InvalidReplyReason::Origin | InvalidReplyReason::Client)));
        if let Ok(reply) = verdict {
            assert_eq!(reply.request, latest);
            assert_eq!(reply.mode == ReplyMode::Interleaved, is_interleaved);
        }
        // Who did not ask in interleaved mode takes no such answer.
        let basic = verify(&answer, now, false);
        assert!(if is_interleaved { basic.is_err() } else { basic == verdict });
    }
});

/// The `n`-th question of the run.
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
    assert!(is_unsynchronised || datagram[1] < 16, "a reserved stratum");
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
    assert_eq!(datagram[ORIGIN], token.to_be_bytes(), "no token of ours");
    assert!(was_sent(reply.request) && reply.request.intended <= now, "never sent");
}
