//! Arbitrary bytes as an NTS request to a server, and genuine requests with one byte changed.
//! Opening never panics; a genuine request is authentic and a changed one is not; no reply and no
//! kiss is longer than its request.
//!
//! An input is a byte for the algorithm and the number of placeholders, the position (two bytes)
//! and the change of a byte of the genuine request (one byte, 0 for no change), and a packet.
#![no_main]

use horolog_nts::{
    AuthenticRequest, REPLY_LEN_MAX, UNIQUE_ID_LEN, open_request, request_len, seal_reply,
    seal_request, write_nak,
};
use libfuzzer_sys::fuzz_target;

use horolog_fuzz::{cookie, cookie_keys, session};

const HEADER: [u8; 48] = [0x23; 48];

fuzz_target!(|bytes: &[u8]| {
    let Some((&[kind, a, b, change], packet)) = bytes.split_first_chunk() else { return };
    let keys = cookie_keys();
    match open_request(keys, packet) {
        Ok(opened) => reply(&opened, packet.len()),
        Err(refusal) => {
            let mut kiss = [0; 2048];
            let unique_id = refusal.unique_id().unwrap_or_default();
            assert!(
                unique_id.is_empty() || write_nak(unique_id, &HEADER, &mut kiss) < packet.len()
            );
        }
    }

    let session = session(kind);
    let cookie = cookie(&session);
    let placeholders = usize::from(kind >> 1) % 10;
    let mut request = vec![0; request_len(session.algorithm(), cookie.len(), placeholders)];
    let unique_id = [kind; UNIQUE_ID_LEN];
    let len =
        seal_request(&session, &HEADER, &unique_id, &cookie, placeholders, &[b; 16], &mut request);
    assert_eq!(len, request.len());
    let at = usize::from(u16::from_be_bytes([a, b])) % len;
    request[at] ^= change;
    match open_request(keys, &request) {
        Ok(opened) => {
            assert_eq!(change, 0, "authentic despite a change at byte {at}");
            reply(&opened, len);
        }
        Err(refusal) => assert_ne!(change, 0, "{refusal}"),
    }
});

fn reply(opened: &AuthenticRequest<'_>, request_len: usize) {
    let mut out = [0; REPLY_LEN_MAX + 2048];
    let mut random = |bytes: &mut [u8]| bytes.fill(7);
    let len = seal_reply(cookie_keys(), opened, &HEADER, &mut random, &mut out);
    assert!((48..=request_len).contains(&len), "{len} bytes for {request_len}");
}
