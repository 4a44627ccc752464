//! Whole exchanges: the client of this crate against its server.

use core::time::Duration;

use horolog_time::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::{Algorithm, MasterSecret, UNIQUE_ID_LEN, request_len, seal_request};

const HEADER: [u8; HEADER_LEN] = [0x23; HEADER_LEN];
const UNIQUE_ID: [u8; UNIQUE_ID_LEN] = [0x5a; UNIQUE_ID_LEN];

fn cookie_keys() -> CookieKeys {
    let secret = MasterSecret::from_bytes([7; 32]);
    CookieKeys::new(
        &secret,
        Duration::from_hours(24),
        2,
        Timestamp::from_timespec(1_700_000_000, 0),
    )
}

fn session(algorithm: Algorithm) -> SessionKeys {
    let len = algorithm.key_len();
    SessionKeys::new(algorithm, &[1; 32][..len], &[2; 32][..len]).unwrap()
}

fn cookie(keys: &CookieKeys, session: &SessionKeys) -> Vec<u8> {
    let mut cookie = vec![0; crate::COOKIE_LEN_MAX];
    let len = keys.seal(session, [9; 16], &mut cookie);
    cookie.truncate(len);
    cookie
}

fn request(keys: &CookieKeys, session: &SessionKeys, placeholders: usize) -> Vec<u8> {
    let cookie = cookie(keys, session);
    let mut packet = vec![0; request_len(session.algorithm(), cookie.len(), placeholders)];
    let len =
        seal_request(session, &HEADER, &UNIQUE_ID, &cookie, placeholders, &[3; 16], &mut packet);
    assert_eq!(len, packet.len());
    packet
}

fn counting() -> impl FnMut(&mut [u8]) {
    let mut next = 0u8;
    move |bytes| {
        for byte in bytes {
            next = next.wrapping_add(1);
            *byte = next;
        }
    }
}

#[test]
fn a_request_opens_and_its_reply_is_as_long() {
    let keys = cookie_keys();
    for algorithm in Algorithm::ALL {
        let session = session(algorithm);
        for placeholders in 0..10 {
            let packet = request(&keys, &session, placeholders);
            let opened = open_request(&keys, &packet).unwrap();
            assert_eq!(opened.unique_id, UNIQUE_ID);
            assert_eq!(opened.cookies_wanted, (1 + placeholders).min(COOKIES_MAX));
            assert_eq!(opened.session.c2s(), session.c2s());
            let mut out = [0; REPLY_LEN_MAX];
            let len = seal_reply(&keys, &opened, &HEADER, &mut counting(), &mut out);
            assert_eq!(len, opened.reply_len(opened.cookies_wanted));
            assert!(len <= packet.len());
            let mut text = [0; 1024];
            let reply = crate::open_reply(&session, &out[..len], &UNIQUE_ID, &mut text).unwrap();
            assert_eq!(reply.cookies().count(), opened.cookies_wanted);
            for cookie in reply.cookies() {
                let again = keys.open(cookie).unwrap();
                assert_eq!((again.c2s(), again.s2c()), (session.c2s(), session.s2c()));
            }
        }
    }
}
