//! The client against what a server may send, right and wrong.

use core::time::Duration;

use horolog_time::Timestamp;

use super::*;
use crate::{CookieKeys, CookieMasterSecret, REPLY_LEN_MAX, open_request, seal_reply, write_nak};

const HEADER: [u8; HEADER_LEN] = [0x23; HEADER_LEN];
const ID: [u8; UNIQUE_ID_LEN] = [0x77; UNIQUE_ID_LEN];

struct Fixture {
    server: CookieKeys,
    keys: SessionKeys,
    cookie: Vec<u8>,
}

fn fixture(algorithm: AeadAlgorithm) -> Fixture {
    let secret = CookieMasterSecret::from_bytes([3; 32]);
    let now = Timestamp::from_timespec(1_700_000_000, 0);
    let server = CookieKeys::new(&secret, Duration::from_hours(24), 2, now);
    let len = algorithm.key_len();
    let keys = SessionKeys::new(algorithm, &[8; 32][..len], &[9; 32][..len]).unwrap();
    let mut cookie = vec![0; crate::cookie_len(algorithm)];
    server.seal(&keys, [1; 16], &mut cookie);
    Fixture { server, keys, cookie }
}

fn answer(fixture: &Fixture, request: &[u8]) -> Vec<u8> {
    let opened = open_request(&fixture.server, request).unwrap();
    let mut out = [0; REPLY_LEN_MAX];
    let mut byte = 0;
    let mut random = |bytes: &mut [u8]| {
        byte += 1;
        bytes.fill(byte);
    };
    let len = seal_reply(&fixture.server, &opened, &HEADER, &mut random, &mut out);
    assert!(len <= request.len());
    out[..len].to_vec()
}

#[test]
fn a_session_fills_its_store_and_keeps_it_full() {
    for algorithm in AeadAlgorithm::ALL {
        let fixture = fixture(algorithm);
        let mut session = ClientSession::new(&fixture.keys, [&fixture.cookie[..]]);
        let mut out = [0; 1400];
        for expected in [8, 1, 1] {
            let len = session.seal_request(&HEADER, &ID, &[4; 16], &mut out);
            assert_eq!(len, request_len(algorithm, fixture.cookie.len(), expected - 1));
            let reply = answer(&fixture, &out[..len]);
            assert_eq!(session.open_reply(&reply, &ID), Ok(expected));
            assert_eq!(session.cookie_count(), COOKIES_MAX);
        }
    }
}

#[test]
fn a_short_buffer_takes_fewer_placeholders() {
    let fixture = fixture(AeadAlgorithm::AesSivCmac256);
    let mut session = ClientSession::new(&fixture.keys, [&fixture.cookie[..]; 2]);
    let mut out = [0; 500];
    let len = session.seal_request(&HEADER, &ID, &[4; 16], &mut out);
    assert_eq!(len, request_len(AeadAlgorithm::AesSivCmac256, 100, 2));
    assert_eq!(session.seal_request(&HEADER, &ID, &[4; 16], &mut out[..200]), 0);
    assert_eq!(session.cookie_count(), 0);
    assert_eq!(session.seal_request(&HEADER, &ID, &[4; 16], &mut out), 0);
}

#[test]
fn the_store_holds_eight() {
    let fixture = fixture(AeadAlgorithm::Aes128GcmSiv);
    let many = [&fixture.cookie[..]; 20];
    assert_eq!(ClientSession::new(&fixture.keys, many).cookie_count(), COOKIES_MAX);
    let unusable = [&[][..], &[0; FOREIGN_COOKIE_LEN_MAX + 1]];
    assert_eq!(ClientSession::new(&fixture.keys, unusable).cookie_count(), 0);
}

#[test]
fn a_template_gives_what_sealing_gives() {
    for algorithm in AeadAlgorithm::ALL {
        let Fixture { server, keys, cookie } = fixture(algorithm);
        let mut template = RequestTemplate::new(&keys, &vec![0; cookie.len()], 3);
        assert!(template.replace_cookie(&cookie) && !template.replace_cookie(&cookie[1..]));
        for placeholders in [0, 3] {
            let (mut a, mut b) = ([0; 1400], [0; 1400]);
            let len = template.seal(&HEADER, &ID, &[6; 16], placeholders, &mut a);
            assert_eq!(len, template.request_len(placeholders));
            let slow = seal_request(&keys, &HEADER, &ID, &cookie, placeholders, &[6; 16], &mut b);
            assert_eq!(a[..len], b[..slow]);
            assert!(open_request(&server, &a[..len]).is_ok());
            assert_eq!(template.seal(&HEADER, &ID, &[6; 16], placeholders, &mut a[..len - 1]), 0);
        }
        assert_eq!(template.seal(&HEADER, &ID, &[6; 16], 4, &mut [0; 1400]), 0);
    }
}

#[test]
fn invalid_replies_are_distinguished() {
    let fixture = fixture(AeadAlgorithm::AesSivCmac256);
    let mut session = ClientSession::new(&fixture.keys, [&fixture.cookie[..]]);
    let mut out = [0; 1400];
    let len = session.seal_request(&HEADER, &ID, &[4; 16], &mut out);
    let reply = answer(&fixture, &out[..len]);
    assert_eq!(session.open_reply(&reply, &[0; 32]), Err(ReplyError::OtherRequest));
    assert_eq!(session.open_reply(&HEADER, &ID), Err(ReplyError::OtherRequest));
    assert_eq!(session.open_reply(&reply[..reply.len() - 4], &ID), Err(ReplyError::Malformed));
    assert_eq!(session.open_reply(&[], &ID), Err(ReplyError::Malformed));
    let mut kiss = [0; 200];
    let kiss_len = write_nak(&ID, &HEADER, &mut kiss);
    assert_eq!(kiss_len, HEADER_LEN + field_len(UNIQUE_ID_LEN, FIELD_LEN_MIN));
    assert_eq!(session.open_reply(&kiss[..kiss_len], &ID), Err(ReplyError::CookieRefused));
    kiss[12..16].copy_from_slice(b"RATE");
    assert_eq!(session.open_reply(&kiss[..kiss_len], &ID), Err(ReplyError::KissOfDeath));
    kiss[1] = 1;
    assert_eq!(session.open_reply(&kiss[..kiss_len], &ID), Err(ReplyError::Malformed));
    for at in 0..reply.len() {
        let mut broken = reply.clone();
        broken[at] ^= 0x10;
        assert!(session.open_reply(&broken, &ID).is_err(), "byte {at}");
        assert_eq!(session.cookie_count(), 0);
    }
    assert_eq!(session.open_reply(&reply, &ID), Ok(8));
}

/// The plaintext fields are checked, the sealed ones are not.
#[test]
fn a_reply_is_examined_without_a_key() {
    let fixture = fixture(AeadAlgorithm::AesSivCmac256);
    let mut request = [0; 500];
    let len = seal_request(&fixture.keys, &HEADER, &ID, &fixture.cookie, 0, &[4; 16], &mut request);
    let reply = answer(&fixture, &request[..len]);
    assert_eq!(examine_reply(&reply, &ID), Ok(()));
    assert_eq!(examine_reply(&reply, &[0x78; UNIQUE_ID_LEN]), Err(ReplyError::OtherRequest));
    assert_eq!(examine_reply(&reply[..HEADER_LEN], &ID), Err(ReplyError::OtherRequest));
    let mut forged = reply.clone();
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(examine_reply(&forged, &ID), Ok(()));
    let mut text = [0; 1024];
    let opened = open_reply(&fixture.keys, &forged, &ID, &mut text);
    assert_eq!(opened.err(), Some(ReplyError::Forged));
}
