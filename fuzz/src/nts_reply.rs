//! Arbitrary bytes as the reply of an NTS server, and genuine replies with one byte changed.
//! Opening never panics; a genuine reply adds its cookies to the session and a changed one adds
//! none.
//!
//! An input is a byte for the algorithm and the number of stored cookies, the position (two bytes)
//! and the change of a byte of the genuine reply (one byte, 0 for no change), and a packet.
#![no_main]

use horolog_nts::{ClientSession, open_request, seal_reply};
use libfuzzer_sys::fuzz_target;

use horolog_fuzz::{cookie, cookie_keys, session};

const HEADER: [u8; 48] = [0x24; 48];
const UNIQUE_ID: [u8; 32] = [0x55; 32];

fuzz_target!(|bytes: &[u8]| {
    let Some((&[kind, a, b, change], packet)) = bytes.split_first_chunk() else { return };
    let session = session(kind);
    let stored = 1 + usize::from(kind >> 1) % 8;
    let cookie = cookie(&session);
    let mut client = ClientSession::new(&session, vec![cookie.as_slice(); stored]);
    assert!(client.open_reply(packet, &UNIQUE_ID).is_err(), "forged without the key");
    assert_eq!(client.cookie_count(), stored);

    let mut request = [0; 1400];
    let len = client.seal_request(&HEADER, &UNIQUE_ID, &[b; 16], &mut request);
    let Ok(opened) = open_request(cookie_keys(), &request[..len]) else {
        panic!("a genuine request is not authentic")
    };
    let mut reply = [0; 1400];
    let mut random = |bytes: &mut [u8]| bytes.fill(a);
    let len = seal_reply(cookie_keys(), &opened, &HEADER, &mut random, &mut reply);
    let at = usize::from(u16::from_be_bytes([a, b])) % len;
    reply[at] ^= change;
    match client.open_reply(&reply[..len], &UNIQUE_ID) {
        Ok(cookies) => {
            assert_eq!(change, 0, "authentic despite a change at byte {at}");
            assert_eq!((cookies, client.cookie_count()), (9 - stored, 8));
        }
        Err(error) => {
            assert_ne!(change, 0, "{error}");
            assert_eq!(client.cookie_count(), stored - 1);
        }
    }
});
