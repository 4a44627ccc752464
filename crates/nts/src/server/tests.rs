//! Whole exchanges: the client of this crate against its server.

use core::time::Duration;

use horolog_time::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::{AeadAlgorithm, CookieMasterSecret, UNIQUE_ID_LEN, request_len, seal_request};

const HEADER: [u8; HEADER_LEN] = [0x23; HEADER_LEN];
const ID: [u8; UNIQUE_ID_LEN] = [0x5a; UNIQUE_ID_LEN];

fn cookie_keys() -> CookieKeys {
    let secret = CookieMasterSecret::from_bytes([7; 32]);
    CookieKeys::new(
        &secret,
        Duration::from_hours(24),
        2,
        Timestamp::from_timespec(1_700_000_000, 0),
    )
}

fn session(algorithm: AeadAlgorithm) -> SessionKeys {
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
    let len = seal_request(session, &HEADER, &ID, &cookie, placeholders, &[3; 16], &mut packet);
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
    for algorithm in AeadAlgorithm::ALL {
        let session = session(algorithm);
        for placeholders in 0..10 {
            let packet = request(&keys, &session, placeholders);
            let opened = open_request(&keys, &packet).unwrap();
            assert_eq!(opened.unique_id, ID);
            assert_eq!(opened.cookies_wanted, (1 + placeholders).min(COOKIES_MAX));
            assert_eq!(opened.session.c2s(), session.c2s());
            let mut out = [0; REPLY_LEN_MAX];
            let len = seal_reply(&keys, &opened, &HEADER, &mut counting(), &mut out);
            assert_eq!(len, opened.reply_len(opened.cookies_wanted));
            assert!(len <= packet.len());
            let mut text = [0; 1024];
            let reply = crate::open_reply(&session, &out[..len], &ID, &mut text).unwrap();
            assert_eq!(reply.cookies().count(), opened.cookies_wanted);
            for cookie in reply.cookies() {
                let again = keys.open(cookie).unwrap();
                assert_eq!((again.c2s(), again.s2c()), (session.c2s(), session.s2c()));
            }
        }
    }
}

#[test]
fn refusals_show_whether_a_kiss_is_due() {
    let keys = cookie_keys();
    let session = session(AeadAlgorithm::AesSivCmac256);
    let packet = request(&keys, &session, 1);
    let other = keys.rotated(Timestamp::from_timespec(1_800_000_000, 0));
    let refusal = open_request(&other, &packet).unwrap_err();
    assert_eq!(refusal, NtsRefusal::UnknownCookie { unique_id: &ID });
    assert_eq!(refusal.unique_id(), Some(&ID[..]));
    let mut changed = packet.clone();
    changed[0] ^= 1;
    let refusal = open_request(&keys, &changed).unwrap_err();
    assert_eq!(refusal, NtsRefusal::Forged { unique_id: &ID });
    let mut without = packet.clone();
    // The cookie's field becomes one of an unknown type.
    without[HEADER_LEN + 36] = 0x7f;
    assert_eq!(open_request(&keys, &without).unwrap_err(), NtsRefusal::NoCookie);
    assert_eq!(open_request(&keys, &packet[..HEADER_LEN]).unwrap_err(), NtsRefusal::NoCookie);
    for len in (0..packet.len()).filter(|len| *len != HEADER_LEN) {
        let refusal = open_request(&keys, &packet[..len]).unwrap_err();
        assert_eq!(refusal.unique_id(), None, "{len} bytes");
    }
}

#[test]
fn a_kiss_is_shorter_than_any_request_and_carries_no_clock_data() {
    let mut out = [0; 200];
    let len = write_nak(&ID, &HEADER, &mut out);
    assert_eq!(len, HEADER_LEN + 36);
    assert_eq!((out[0], out[1], &out[12..16]), (0xe3, 0, &b"NTSN"[..]));
    assert_eq!((&out[4..12], &out[16..24]), (&[0; 8][..], &[0; 8][..]));
    assert_eq!(out[24..HEADER_LEN], HEADER[24..]);
    assert_eq!(out[HEADER_LEN..HEADER_LEN + 4], [0x01, 0x04, 0, 36]);
    assert_eq!(write_nak(&ID, &HEADER, &mut out[..len - 1]), 0);
}

/// A field of zeros.
fn field(field_type: ExtensionFieldType, value_len: usize) -> Vec<u8> {
    field_of(field_type, &vec![0; value_len])
}

/// A field as it is, whether its length is valid or not.
fn field_of(field_type: ExtensionFieldType, value: &[u8]) -> Vec<u8> {
    let prefix = [field_type.0, (PREFIX_LEN + value.len()) as u16].map(u16::to_be_bytes);
    [&prefix.concat()[..], value].concat()
}

/// A request made by hand: fields before the authenticator, its nonce, and additional padding.
fn by_hand(session: &SessionKeys, fields: &[&[u8]], nonce: &[u8], padding: usize) -> Vec<u8> {
    let covered = [&HEADER[..], &fields.concat()].concat();
    let mut tag = [0; TAG_LEN];
    AeadKey::new(session.algorithm(), session.c2s()).seal(nonce, &covered, &mut tag).unwrap();
    let nonce_padding = vec![0; nonce.len().next_multiple_of(4) - nonce.len()];
    let lengths = [nonce.len() as u16, TAG_LEN as u16].map(u16::to_be_bytes).concat();
    let value = [&lengths[..], nonce, &nonce_padding, &tag, &vec![0; padding]].concat();
    [covered, field_of(ExtensionFieldType::AUTHENTICATOR, &value)].concat()
}

#[test]
fn fields_follow_rfc_8915() {
    let keys = cookie_keys();
    let session = session(AeadAlgorithm::AesSivCmac256);
    let cookie = field_of(ExtensionFieldType::COOKIE, &cookie(&keys, &session));
    let id = field_of(ExtensionFieldType::UNIQUE_IDENTIFIER, &ID);
    let open = |fields: &[&[u8]], nonce: &[u8], padding| {
        let packet = by_hand(&session, fields, nonce, padding);
        open_request(&keys, &packet).map(|opened| opened.cookies_wanted).map_err(|refusal| {
            assert_eq!(refusal, NtsRefusal::Malformed);
        })
    };
    let unknown = field(ExtensionFieldType(0x7abc), 12);
    assert_eq!(open(&[&id, &cookie], &[1; 16], 0), Ok(1));
    assert_eq!(open(&[&cookie, &unknown, &id], &[1; 16], 0), Ok(1), "any order, unknown fields");
    assert_eq!(open(&[&id, &id, &cookie], &[1; 16], 0), Err(()), "two identifiers");
    assert_eq!(open(&[&id, &cookie, &cookie], &[1; 16], 0), Err(()), "two cookies");
    assert_eq!(open(&[&cookie], &[1; 16], 0), Err(()), "no identifier");
    let short = field(ExtensionFieldType::UNIQUE_IDENTIFIER, 28);
    assert_eq!(open(&[&short, &cookie], &[1; 16], 0), Err(()), "a short one");
    // Section 5.6: a nonce of fewer than 16 bytes takes additional padding.
    assert_eq!(open(&[&id, &cookie], &[1; 7], 0), Err(()));
    assert_eq!(open(&[&id, &cookie], &[1; 7], 4), Err(()));
    assert_eq!(open(&[&id, &cookie], &[1; 7], 8), Ok(1));
    assert_eq!(open(&[&id, &cookie], &[1; 40], 0), Ok(1), "a long nonce");
    // Placeholders that are too short for a cookie lead to no longer reply.
    let short = field(ExtensionFieldType::COOKIE_PLACEHOLDER, 12);
    assert_eq!(open(&[&id, &cookie, &short, &short], &[1; 16], 0), Ok(1));
    let long = field(ExtensionFieldType::COOKIE_PLACEHOLDER, 250);
    assert_eq!(open(&[&id, &cookie, &long], &[1; 16], 0), Err(()), "no multiple of 4");
}

#[test]
fn what_follows_the_authenticator_is_ignored() {
    let keys = cookie_keys();
    let session = session(AeadAlgorithm::AesSivCmac256);
    let mut packet = request(&keys, &session, 0);
    packet.extend_from_slice(&field(ExtensionFieldType::COOKIE_PLACEHOLDER, 100));
    packet.extend_from_slice(&[0xff; 5]);
    assert_eq!(open_request(&keys, &packet).unwrap().cookies_wanted, 1);
}

#[test]
fn a_reply_drops_cookies_that_the_buffer_has_no_room_for() {
    let keys = cookie_keys();
    let session = session(AeadAlgorithm::AesSivCmac256);
    let packet = request(&keys, &session, 3);
    let opened = open_request(&keys, &packet).unwrap();
    let mut out = [0; REPLY_LEN_MAX];
    let mut seal =
        |room: usize| seal_reply(&keys, &opened, &HEADER, &mut counting(), &mut out[..room]);
    assert_eq!(seal(opened.reply_len(2) + 50), opened.reply_len(2));
    assert_eq!(seal(opened.reply_len(0)), opened.reply_len(0));
    assert_eq!(seal(opened.reply_len(0) - 1), 0);
}

#[test]
fn encrypted_fields_of_a_request_are_verified_and_pass() {
    let keys = cookie_keys();
    for algorithm in AeadAlgorithm::ALL {
        let session = session(algorithm);
        let plain = request(&keys, &session, 0);
        let covered = plain.len() - Authenticator::field_len(algorithm.nonce_len(), TAG_LEN);
        for text_len in [16, REQUEST_TEXT_MAX, REQUEST_TEXT_MAX + 16] {
            let nonce = &[4; 16][..algorithm.nonce_len()];
            let mut sealed = vec![0; text_len + TAG_LEN];
            AeadKey::new(algorithm, session.c2s())
                .seal(nonce, &plain[..covered], &mut sealed)
                .unwrap();
            let lengths = [nonce.len() as u16, sealed.len() as u16].map(u16::to_be_bytes);
            let value = [&lengths.concat()[..], nonce, &sealed].concat();
            let field = field_of(ExtensionFieldType::AUTHENTICATOR, &value);
            let mut packet = [&plain[..covered], &field].concat();
            assert_eq!(open_request(&keys, &packet).is_ok(), text_len <= REQUEST_TEXT_MAX);
            *packet.last_mut().unwrap() ^= 1;
            assert!(open_request(&keys, &packet).is_err());
        }
    }
}

proptest! {
    #[test]
    fn every_sealed_request_opens_until_a_byte_changes(
        c2s: [u8; 32],
        s2c: [u8; 32],
        nonce: [u8; 16],
        id: [u8; 32],
        siv: bool,
        placeholders in 0..9usize,
        at: prop::sample::Index,
        change in 1..=255u8,
    ) {
        let algorithm = if siv { AeadAlgorithm::AesSivCmac256 } else { AeadAlgorithm::Aes128GcmSiv };
        let len = algorithm.key_len();
        let keys = cookie_keys();
        let session = SessionKeys::new(algorithm, &c2s[..len], &s2c[..len]).unwrap();
        let cookie = cookie(&keys, &session);
        let mut packet = vec![0; request_len(algorithm, cookie.len(), placeholders)];
        seal_request(&session, &HEADER, &id, &cookie, placeholders, &nonce, &mut packet);
        {
            let opened = open_request(&keys, &packet).unwrap();
            prop_assert_eq!(opened.unique_id, id);
            let mut out = [0; REPLY_LEN_MAX];
            let len = seal_reply(&keys, &opened, &HEADER, &mut counting(), &mut out);
            prop_assert!((1..=packet.len()).contains(&len));
        }
        // All of it counts: these requests have no padding.
        let at = at.index(packet.len());
        packet[at] ^= change;
        prop_assert!(open_request(&keys, &packet).is_err(), "byte {}", at);
    }

    #[test]
    fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(open_request(&cookie_keys(), &bytes).is_err());
    }
}
