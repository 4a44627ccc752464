//! Counts of a lane with a server in memory: only authentic replies count.

use std::cell::RefCell;
use std::collections::BTreeMap;

use horolog_nts::{
    COOKIES_MAX, CookieKeys, CookieMasterSecret, ReplyError, open_request, seal_reply, write_nak,
};
use horolog_record::InvalidReplyReason;
use horolog_time::{Monotonic, NtpTimestamp, Span, Timestamp};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header};

use super::*;
use crate::clients::LaneClients;
use crate::offset::ReceiveTimestamps;
use crate::random::SplitMix64;
use crate::request::RequestTimestamps;
use crate::request_tracker::{
    ExpectedReplies, LaneCarryOver, RequestTracker, TrackerConfig, TrialCounts,
};
use crate::token::RequestTokenCodec;
use crate::trailer::RequestTrailer;
use crate::verify::{PAYLOAD_LEN, ReplyVerifier};

const START: Timestamp<Monotonic> = Timestamp::from_ns(7_000_000_000);
const REQUESTS: i64 = 400;

fn cookie_keys() -> CookieKeys {
    let secret = CookieMasterSecret::generate().unwrap();
    CookieKeys::new(&secret, Duration::from_hours(24), 1, Timestamp::from_ns(0))
}

/// Two sessions, of both algorithms.
fn sessions(server: &CookieKeys, share: u8) -> NtsSessions {
    let session = |(number, algorithm): (u8, AeadAlgorithm)| {
        let keys = vec![number; algorithm.key_len()];
        let keys = SessionKeys::new(algorithm, &keys, &keys).unwrap();
        let mut cookie = vec![0; 200];
        let len = server.seal(&keys, [number; 16], &mut cookie);
        cookie.truncate(len);
        (keys, vec![cookie])
    };
    let algorithms = [(1, AeadAlgorithm::AesSivCmac256), (2, AeadAlgorithm::Aes128GcmSiv)];
    NtsSessions::from_secrets(algorithms.map(session).into(), share, false)
}

fn reply_header(request: &[u8]) -> [u8; HEADER_LEN] {
    let (request, _) = Header::parse(request).unwrap();
    let receive = NtpTimestamp::from_bits(0xe000_0000_0000_0000);
    let reply = Header {
        mode: AssociationMode::Server,
        stratum: 1,
        origin: request.transmit,
        receive,
        transmit: receive.wrapping_add(Span::from_ns(900)),
        ..request
    };
    let mut bytes = [0; HEADER_LEN];
    reply.emit(&mut bytes);
    bytes
}

/// What an honest server answers.
fn answer(server: &CookieKeys, request: &[u8]) -> Vec<u8> {
    let header = reply_header(request);
    if request.len() == PAYLOAD_LEN {
        return header.to_vec();
    }
    let opened = open_request(server, request).unwrap();
    assert_eq!(opened.cookies_wanted, 1);
    let mut reply = vec![0; 1024];
    let len = seal_reply(server, &opened, &header, &mut |bytes| bytes.fill(9), &mut reply);
    reply.truncate(len);
    reply
}

/// Sends requests and lets `change` corrupt the replies.
fn run(share: u8, change: impl Fn(&[u8], &mut Vec<u8>)) -> TrialCounts {
    let server = cookie_keys();
    let plan = TrackerConfig {
        expected: ExpectedReplies::Ntp(ReplyVerifier {
            token: RequestTokenCodec::new(0x0bad_cafe_dead_beef, START),
            version: 4,
            interleaved: false,
            extended: true,
        }),
        clients: LaneClients::in_turn(7, 0, 1, 1),
        start: START,
        timeout: Span::from_ms(1_000),
        rate: 1_000.0,
        offset: None,
        interval: None,
        fairness: false,
    };
    let tail = Some(Box::new(RequestTrailer::Nts(
        sessions(&server, share).lane_sessions(4, (0, 1)).unwrap(),
    )));
    let mut account =
        RequestTracker::open(&plan, LaneCarryOver { trailer: tail, ..LaneCarryOver::default() })
            .unwrap();
    for number in 0..REQUESTS {
        let intended = START + Span::from_ns(number * 1_000_000);
        let next = account.next(intended);
        let request = account.payload(&next).unwrap().to_vec();
        account.register();
        assert_eq!(next.authenticated, request.len() > PAYLOAD_LEN);
        account.count_sent(intended, intended, next.authenticated);
        let mut reply = answer(&server, &request);
        change(&request, &mut reply);
        let now = intended + Span::from_ns(5_000);
        account.receive(&reply, Some(next.client), now, now, ReceiveTimestamps::default());
    }
    TrialCounts::sum_intervals(&account.close(REQUESTS as u64).0)
}

#[test]
fn the_share_is_exact_and_each_class_has_its_counts() {
    for share in [0, 10, 50, 100] {
        let counts = run(share, |_, _| ());
        let authenticated = u64::from(share) * REQUESTS as u64 / 100;
        assert_eq!((counts.sent, counts.received), (400, 400), "{share}");
        assert_eq!((counts.nts_sent, counts.nts_received), (authenticated, authenticated));
        assert_eq!(counts.invalid, [0; InvalidReplyReason::ALL.len()]);
    }
}

/// Cookies that are sealed here open at a server with the same secret, and at no other.
#[test]
fn sessions_can_be_sealed_by_the_master_secret() {
    let text = "5a".repeat(32);
    for algorithm in [AeadAlgorithm::AesSivCmac256, AeadAlgorithm::Aes128GcmSiv] {
        let secret = CookieMasterSecret::parse(&text).unwrap();
        let sessions = NtsSessions::from_master_secret(&secret, algorithm, 3, 100).unwrap();
        let server =
            CookieKeys::new(&secret, ROTATION_DEFAULT, PAST_PERIODS_DEFAULT, ClockRealtime.now());
        let (other, now) = (CookieMasterSecret::generate().unwrap(), ClockRealtime.now());
        let stranger = CookieKeys::new(&other, ROTATION_DEFAULT, PAST_PERIODS_DEFAULT, now);
        assert_eq!(sessions.sessions.len(), 3);
        for (keys, cookies) in &sessions.sessions {
            let opened = server.open(&cookies[0]).unwrap();
            assert_eq!((opened.c2s(), opened.s2c()), (keys.c2s(), keys.s2c()));
            assert_ne!(keys.c2s(), keys.s2c());
            assert!(stranger.open(&cookies[0]).is_none());
        }
    }
    let refused = |count, share| {
        let secret = CookieMasterSecret::parse(&text).unwrap();
        NtsSessions::from_master_secret(&secret, AeadAlgorithm::AesSivCmac256, count, share)
            .unwrap_err()
    };
    assert!(matches!(refused(0, 0), NtsError::Sessions(0)));
    assert!(matches!(refused(1, 101), NtsError::Share(101)));
}

#[test]
fn a_reply_that_is_not_authentic_does_not_count() {
    let reason = |counts: &TrialCounts, reason: InvalidReplyReason| counts.invalid[reason as usize];
    // The lowest bit of the root delay, which no check but the cipher's looks at.
    let forged = run(50, |_, reply| reply[7] ^= 1);
    assert_eq!((forged.received, forged.nts_received), (200, 0), "plain ones have no proof");
    assert_eq!(reason(&forged, InvalidReplyReason::Nts), 200);
    let bare = run(100, |_, reply| reply.truncate(HEADER_LEN));
    assert_eq!(reason(&bare, InvalidReplyReason::Nts), 400);
    let refused = run(100, |request, reply| {
        let len = write_nak(&request[52..84], &reply_header(request), reply);
        reply.truncate(len);
    });
    assert_eq!(reason(&refused, InvalidReplyReason::KissNtsn), 400);
}

#[test]
fn a_reply_is_no_longer_than_its_request() {
    let counts = run(50, |request, reply| reply.resize(request.len() + 4, 0));
    assert_eq!(counts.invalid[InvalidReplyReason::Length as usize], 400);
}

#[test]
fn the_answer_to_another_request_does_not_count() {
    // The header of one's own reply before the rest of another's.
    let previous = RefCell::new(BTreeMap::new());
    let counts = run(100, |_, reply| {
        // Of the same session, so that its key is the right one.
        let other = previous.borrow_mut().insert(reply.len(), reply.clone());
        if let Some(other) = other {
            reply[HEADER_LEN..].copy_from_slice(&other[HEADER_LEN..]);
        }
    });
    assert_eq!(
        counts.invalid[InvalidReplyReason::Nts as usize],
        398,
        "all but each session's first"
    );
}

/// Requests of a client with its own session, with and without replies.
#[test]
fn a_client_of_its_own_session_uses_each_cookie_once() {
    let server = cookie_keys();
    let algorithm = AeadAlgorithm::AesSivCmac256;
    let keys = SessionKeys::new(algorithm, &[1; 32], &[2; 32]).unwrap();
    let cookies: Vec<_> = (0..COOKIES_MAX as u8)
        .map(|number| {
            let mut cookie = vec![0; 200];
            let len = server.seal(&keys, [number; 16], &mut cookie);
            cookie.truncate(len);
            cookie
        })
        .collect();
    let mut sent_cookies: std::collections::BTreeSet<Vec<u8>> = std::collections::BTreeSet::new();
    let mut lane = NtsSessions::from_secrets(vec![(keys, cookies)], 100, true)
        .lane_sessions(4, (0, 1))
        .unwrap();
    let mut random = SplitMix64::new(5);
    let mut reused = Some(0);
    let mut exchange = |lane: &mut LaneSessions, transmit: u64, answered: bool| {
        let before = reused;
        let request = lane.seal(3, RequestTimestamps::basic(transmit), &mut reused).to_vec();
        let again = reused != before;
        let fresh = sent_cookies.insert(request[88..188].to_vec());
        let opened = open_request(&server, &request).unwrap();
        let wanted = opened.cookies_wanted;
        if answered {
            let mut reply = vec![0; 2048];
            let header = reply_header(&request);
            let mut fill = |bytes: &mut [u8]| {
                for byte in bytes {
                    *byte = random.next_u64() as u8;
                }
            };
            let len = seal_reply(&server, &opened, &header, &mut fill, &mut reply);
            assert!(len <= request.len());
            lane.open(3, transmit, &reply[..len]).unwrap();
        }
        assert_eq!(again, !fresh);
        (wanted, fresh)
    };
    for transmit in 0..20 {
        assert_eq!(exchange(&mut lane, transmit, true), (1, true));
    }
    // Each lost reply leaves one more cookie missing.
    for transmit in 0..COOKIES_MAX {
        assert_eq!(exchange(&mut lane, 100 + transmit as u64, false), (transmit + 1, true));
    }
    assert_eq!(exchange(&mut lane, 200, true), (COOKIES_MAX, false), "none is left");
    assert_eq!(exchange(&mut lane, 201, true), (1, true), "and now all are back");
    assert_eq!((lane.counts_reused(), reused), (true, Some(1)));
}

/// The duplicate of a reply adds no cookies.
#[test]
fn a_duplicate_reply_adds_no_cookies() {
    let server = cookie_keys();
    let keys = SessionKeys::new(AeadAlgorithm::AesSivCmac256, &[1; 32], &[2; 32]).unwrap();
    let mut cookie = vec![0; 200];
    let len = server.seal(&keys, [1; 16], &mut cookie);
    cookie.truncate(len);
    let mut lane = NtsSessions::from_secrets(vec![(keys, vec![cookie])], 100, true)
        .lane_sessions(4, (0, 1))
        .unwrap();
    let request = lane.seal(0, RequestTimestamps::basic(7), &mut None).to_vec();
    let opened = open_request(&server, &request).unwrap();
    // One cookie of the eight requested.
    let opened = horolog_nts::AuthenticRequest { cookies_wanted: 1, ..opened };
    let mut reply = vec![0; 1024];
    let mut fill = |bytes: &mut [u8]| bytes.fill(9);
    let len = seal_reply(&server, &opened, &reply_header(&request), &mut fill, &mut reply);
    for _ in 0..2 {
        lane.open(0, 7, &reply[..len]).unwrap();
    }
    lane.discard_stored_cookies(0);
    lane.discard_stored_cookies(0);
    let mut reused = Some(0);
    lane.seal(0, RequestTimestamps::basic(8), &mut reused);
    assert_eq!(reused, Some(0), "the first reply's cookie is there");
    lane.seal(0, RequestTimestamps::basic(9), &mut reused);
    assert_eq!(reused, Some(1), "and the second's is not");
}

#[test]
fn lanes_share_the_sessions_of_each_client_among_them() {
    let one =
        || (SessionKeys::generate(AeadAlgorithm::AesSivCmac256).unwrap(), vec![vec![0; 100]; 2]);
    let sessions = NtsSessions::from_secrets((0..7).map(|_| one()).collect(), 100, true);
    assert_eq!(sessions.per_client_sessions(), Some(7));
    let lens: Vec<_> =
        (0..3).map(|lane| sessions.lane_sessions(4, (lane, 3)).unwrap().sessions.len()).collect();
    let blocks: Vec<_> =
        (0..3).map(|lane| LaneClients::in_turn(7, lane, 3, 1).client_count() as usize).collect();
    assert_eq!(lens, blocks);
    let shared = NtsSessions::from_secrets((0..7).map(|_| one()).collect(), 100, false);
    assert_eq!(shared.lane_sessions(4, (1, 3)).unwrap().sessions.len(), 7);
}

/// Only the server-to-client key distinguishes forged replies from authentic ones.
#[test]
fn an_imported_session_opens_what_it_has_the_key_for() {
    let server = cookie_keys();
    let keys = SessionKeys::generate(AeadAlgorithm::AesSivCmac256).unwrap();
    let mut cookie = vec![0; 200];
    let len = server.seal(&keys, [3; 16], &mut cookie);
    let digits = |text: String, byte: &u8| text + &format!("{byte:02x}");
    let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), digits);
    let blind = format!("{},{}", hex(keys.c2s()), hex(&cookie[..len]));
    let seeing = format!("{blind},{}", hex(keys.s2c()));
    for (text, forged) in
        [(blind, Ok(())), (seeing, Err(NtsReplyError::Invalid(ReplyError::Forged)))]
    {
        let imported = ImportedSession::parse(&text).unwrap();
        let sessions = NtsSessions::from_imported(&imported);
        assert_eq!(sessions.can_open(), imported.can_open_replies());
        let mut lane = sessions.lane_sessions(4, (0, 1)).unwrap();
        let timestamps = RequestTimestamps::basic(0x0123_4567_89ab_cdef);
        let mut reply = answer(&server, lane.seal(5, timestamps, &mut None));
        assert_eq!(lane.open(5, timestamps.transmit, &reply), Ok(()));
        assert!(lane.open(5, timestamps.transmit ^ 2, &reply).is_err());
        *reply.last_mut().unwrap() ^= 1;
        assert_eq!(lane.open(5, timestamps.transmit, &reply), forged);
    }
}
