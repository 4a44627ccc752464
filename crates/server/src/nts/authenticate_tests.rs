//! Tests of credentials: what a request shows, what its reply bears, and what is not answered.

use std::time::Duration;

use horolog_nts::mac::{MacAlgorithm, SymmetricKey};
use horolog_nts::{
    AeadAlgorithm, CookieMasterSecret, ReplyError, SessionKeys, open_reply, seal_request,
};
use horolog_time::{NtpTimestamp, Timestamp};
use proptest::prelude::*;

use super::*;

const UNIQUE_ID: [u8; 32] = [9; 32];
const CAPACITY: usize = 1_472;

fn header() -> Header {
    Header::request(4, NtpTimestamp::from_bits(42))
}

fn key(id: u32, byte: u8) -> SymmetricKey {
    SymmetricKey::new(id, MacAlgorithm::Aes128, &[byte; 16]).unwrap()
}

fn cookie_keys(byte: u8) -> CookieKeys {
    let now = Timestamp::from_timespec(1_700_000_000, 0);
    CookieKeys::new(&CookieMasterSecret::from_bytes([byte; 32]), Duration::from_hours(24), 1, now)
}

fn secrets() -> Secrets {
    Secrets {
        keys: Some(Arc::new(ArcSwap::from_pointee(KeyTable::new(vec![key(7, 1)])))),
        cookies: Some(Arc::new(ArcSwap::from_pointee(cookie_keys(1)))),
    }
}

fn session() -> SessionKeys {
    SessionKeys::new(AeadAlgorithm::AesSivCmac256, &[3; 32], &[4; 32]).unwrap()
}

/// A request with a cookie that `keys` sealed, and with placeholders for so many more.
fn nts_request(keys: &CookieKeys, placeholders: usize) -> Vec<u8> {
    let mut cookie = vec![0; 100];
    assert_eq!(keys.seal(&session(), [5; 16], &mut cookie), 100);
    let mut out = vec![0; CAPACITY];
    let header = header_bytes(&header());
    let len =
        seal_request(&session(), &header, &UNIQUE_ID, &cookie, placeholders, &[6; 16], &mut out);
    out.truncate(len);
    out
}

/// The reply to a request that is answered, with what was counted.
type Answer = Result<(Vec<u8>, SocketEngineCounts), IgnoreReason>;

fn reply(secrets: &Secrets, request: &[u8]) -> Answer {
    let [answer, ..] = replies(secrets, &[request]);
    answer.expect("an answer to each request")
}

/// The same for several requests at once.
fn replies(secrets: &Secrets, requests: &[&[u8]]) -> [Option<Answer>; BATCH] {
    let (present, header) = (secrets.snapshot(), header());
    let mut room = BatchKeyBuffer::default();
    let requests_of = core::array::from_fn(|index| requests.get(index).copied());
    let credentials = present.check(&requests_of, &mut room);
    let mut outs = requests.iter().map(|request| vec![0; request.len()]).collect::<Vec<_>>();
    for (out, credential) in outs.iter_mut().zip(&credentials) {
        if let Some(Ok(credential)) = credential {
            let len = credential.write(&header, out);
            out.truncate(len);
        }
    }
    let sealing = outs.iter_mut().zip(&credentials).map(|(out, credential)| match credential {
        Some(Ok(RequestAuthentication::Nts(opened))) => Some((opened, &header, &mut out[..])),
        _ => None,
    });
    let lens = present.seal(sealing, &mut room, &mut NonceStream::new().unwrap());
    let mut outs = outs.into_iter();
    core::array::from_fn(|index| {
        let (credential, mut out) = (credentials[index].as_ref()?, outs.next()?);
        Some(credential.as_ref().map_err(|reason| *reason).map(|credential| {
            out.truncate(lens[index].unwrap_or(out.len()));
            let mut turn = SocketEngineCounts::default();
            credential.count(&mut turn);
            (out, turn)
        }))
    })
}

fn mac_request(key: &SymmetricKey) -> Vec<u8> {
    let mut out = vec![0; 68];
    out[..HEADER_LEN].copy_from_slice(&header_bytes(&header()));
    assert_eq!(key.append_mac(16, &mut out, HEADER_LEN), 68);
    out
}

#[test]
fn a_mac_of_a_known_key_is_answered_with_one() {
    let (answer, turn) = reply(&secrets(), &mac_request(&key(7, 1))).unwrap();
    assert_eq!((answer.len(), turn.mac), (68, 1));
    let table = KeyTable::new(vec![key(7, 1)]);
    assert!(table.verify(&answer).is_ok());
}

#[test]
fn a_mac_of_another_key_is_not_answered() {
    for other in [key(8, 1), key(7, 2)] {
        assert_eq!(reply(&secrets(), &mac_request(&other)).unwrap_err(), IgnoreReason::Mac);
    }
    let mut changed = mac_request(&key(7, 1));
    changed[10] ^= 1;
    assert_eq!(reply(&secrets(), &changed).unwrap_err(), IgnoreReason::Mac);
}

/// Trailers of clients that no key here verifies: MS-SNTP's authenticators, of which
/// the client wants the server to make the digests; MACs of other keys; a crypto-NAK; the
/// authenticator of version 2; and what is neither that nor an extension field.
fn authenticators_of_others() -> Vec<Vec<u8>> {
    vec![
        [&[0xe8, 3, 0, 0][..], &[0; 16]].concat(),
        [&[0xe8, 3, 0, 0, 0, 1, 0, 0][..], &[0; 64]].concat(),
        [&[0, 0, 0, 42][..], &[7; 16]].concat(),
        [&[0, 0, 0, 1][..], &[7; 20]].concat(),
        [&[0, 0, 0, 7][..], &[7; 64]].concat(),
        vec![0; 4],
        [&[0, 0, 0, 1][..], &[7; 8]].concat(),
        [&[1, 4, 0, 0][..], &[0; 24]].concat(),
        [&[1, 4, 0xff, 0xfc][..], &[0; 24]].concat(),
    ]
}

#[test]
fn authenticators_of_others_are_not_answered_where_there_are_keys_and_passed_over_elsewhere() {
    let without_keys = Secrets { keys: None, ..secrets() };
    for authenticator in authenticators_of_others() {
        for field in [&[][..], &[0xf3, 0x23, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
            let request = [&header_bytes(&header())[..], field, &authenticator].concat();
            let refusal = reply(&secrets(), &request).unwrap_err();
            assert_eq!(refusal, IgnoreReason::Mac, "{field:02x?} {authenticator:02x?}");
            for secrets in [&without_keys, &Secrets::default()] {
                let (answer, turn) = reply(secrets, &request).unwrap();
                assert_eq!(
                    (answer, turn),
                    (header_bytes(&header()).to_vec(), SocketEngineCounts::default())
                );
            }
        }
    }
}

#[test]
fn an_nts_request_gets_cookies_and_no_more_bytes_than_it_has() {
    for placeholders in 0..8 {
        let request = nts_request(&cookie_keys(1), placeholders);
        let (answer, turn) = reply(&secrets(), &request).unwrap();
        assert!(answer.len() <= request.len() && turn.nts == 1);
        let mut text = [0; CAPACITY];
        let opened = open_reply(&session(), &answer, &UNIQUE_ID, &mut text).unwrap();
        assert_eq!(opened.cookies().count(), placeholders + 1);
        for cookie in opened.cookies() {
            let session_of = cookie_keys(1).open(cookie).expect("a cookie of ours");
            assert_eq!(session_of.c2s(), session().c2s());
        }
    }
}

#[test]
fn a_cookie_of_others_and_a_forgery_get_a_kiss() {
    let mut forged = nts_request(&cookie_keys(1), 0);
    forged[12] ^= 1;
    for request in [nts_request(&cookie_keys(2), 0), forged] {
        let (answer, turn) = reply(&secrets(), &request).unwrap();
        assert_eq!((turn.nts, turn.nts_kisses), (0, 1));
        assert!(answer.len() < request.len());
        assert_eq!((answer[1], &answer[12..16]), (0, &b"NTSN"[..]));
        let opened = open_reply(&session(), &answer, &UNIQUE_ID, &mut []);
        assert_eq!(opened.unwrap_err(), ReplyError::CookieRefused);
    }
}

#[test]
fn broken_fields_get_nothing() {
    let whole = nts_request(&cookie_keys(1), 0);
    // Without its authenticator, and without anything but the unique identifier.
    for cut in [whole.len() - 40, HEADER_LEN + 36] {
        assert_eq!(reply(&secrets(), &whole[..cut]).unwrap_err(), IgnoreReason::Nts, "{cut} bytes");
    }
}

#[test]
fn each_of_a_batch_gets_what_it_would_get_alone() {
    let (keys, plain) = (cookie_keys(1), header_bytes(&header()));
    let mut forged = nts_request(&keys, 0);
    forged[12] ^= 1;
    let requests = [
        nts_request(&keys, 0),
        forged,
        mac_request(&key(7, 1)),
        nts_request(&keys, 7),
        plain.to_vec(),
        nts_request(&keys, 0)[..HEADER_LEN + 36].to_vec(),
        nts_request(&cookie_keys(2), 0),
        nts_request(&keys, 2),
    ];
    let together = replies(&secrets(), &requests.each_ref().map(Vec::as_slice));
    for (request, together) in requests.iter().zip(together) {
        match (together.expect("an answer to each"), reply(&secrets(), request)) {
            (Ok((bytes, turn)), Ok((alone, turn_alone))) => {
                assert_eq!((bytes.len(), turn), (alone.len(), turn_alone));
                let cookies = turn.nts == 0 || {
                    let mut text = [0; CAPACITY];
                    let opened = open_reply(&session(), &bytes, &UNIQUE_ID, &mut text).unwrap();
                    opened.cookies().all(|cookie| keys.open(cookie).is_some())
                };
                assert!(cookies && (turn.nts == 1 || bytes == alone));
            }
            (together, alone) => assert_eq!(together.err(), alone.err()),
        }
    }
}

#[test]
fn unchecked_requests_get_a_plain_header() {
    let nothing = Secrets::default();
    assert!(!nothing.is_configured());
    let unknown_field = [&header_bytes(&header())[..], &[0xf3, 0x23, 0, 28], &[0; 24]].concat();
    let plain = header_bytes(&header()).to_vec();
    for (secrets, request) in [
        (&nothing, mac_request(&key(7, 2))),
        (&nothing, nts_request(&cookie_keys(2), 1)),
        (&secrets(), unknown_field),
        (&secrets(), plain),
    ] {
        let (answer, turn) = reply(secrets, &request).unwrap();
        assert_eq!(
            (answer, turn),
            (header_bytes(&header()).to_vec(), SocketEngineCounts::default())
        );
    }
}

proptest! {
    #[test]
    fn no_reply_is_longer_than_its_request(
        mut request in (0usize..8).prop_map(|n| nts_request(&cookie_keys(1), n)),
        at: proptest::sample::Index, value: u8, cut: proptest::sample::Index,
    ) {
        let index = HEADER_LEN + at.index(request.len() - HEADER_LEN);
        request[index] = value;
        request.truncate(request.len() - cut.index(2) * 4);
        if let Ok((answer, _)) = reply(&secrets(), &request) {
            prop_assert!(answer.len() >= HEADER_LEN && answer.len() <= request.len());
        }
    }

    #[test]
    fn any_bytes_are_checked(rest in proptest::collection::vec(any::<u8>(), 0..300)) {
        let request = [&header_bytes(&header())[..], &rest].concat();
        if let Ok((answer, turn)) = reply(&secrets(), &request) {
            prop_assert!(answer.len() <= request.len());
            prop_assert_eq!((turn.mac, turn.nts), (0, 0), "nobody guesses a key");
        }
    }
}
