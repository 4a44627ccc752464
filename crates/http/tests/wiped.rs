//! Test that neither client nor server leaves a copy of the token in memory that it freed. By
//! itself in a program, whose memory it searches.

#![expect(clippy::unwrap_used, reason = "clippy allows it in tests, but not in what they share")]

use std::fs::{self, File};
use std::hint::black_box;
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use horolog_http::{GetRequest, HttpResponder, HttpResponse, get};
use zeroize::{Zeroize, Zeroizing};

/// The token with every bit turned over, so that this text is not what is found.
const TURNED: [u8; 32] = *b"\x9e\x8f\x97\x90\x8d\x96\x8c\x92\xcf\xce\xcd\xcc\xcb\xca\xc9\xc8\
                            \x8c\x9a\x9c\x8d\x9a\x8b\x8c\xc7\xc6\x99\x8d\x90\x92\x9e\x93\x93";

fn token() -> Zeroizing<String> {
    let bytes = black_box(TURNED).into_iter();
    let mut text = Zeroizing::new(String::with_capacity(TURNED.len()));
    text.extend(bytes.map(|byte| char::from(!byte)));
    text
}

/// How often the token stands in the memory that this program may write.
fn copies() -> usize {
    let memory = File::open("/proc/self/mem").unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut content = vec![0; 1 << 20];
    let mut found = 0;
    for map in maps.lines().filter(|map| map.contains(" rw")) {
        let (first, end) = map.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [mut at, end] = [first, end].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        while at + TURNED.len() as u64 <= end {
            let wanted = content.len().min((end - at) as usize);
            let Ok(length) = memory.read_at(&mut content[..wanted], at) else { break };
            let is_token =
                |window: &&[u8]| window.iter().zip(TURNED).all(|(byte, turned)| !byte == turned);
            found += content[..length].windows(TURNED.len()).filter(is_token).count();
            // A match across the end of this piece is found with the next.
            at += (length - TURNED.len() + 1) as u64;
        }
    }
    content.zeroize();
    found
}

#[test]
fn no_copy_of_the_token_is_left() {
    let token = token();
    assert!(copies() > 0, "the search finds what is there");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let responder = HttpResponder::start("pages", listener, |request| {
        HttpResponse::text(200, request.bearer.map_or(0, <[u8]>::len).to_string())
    });
    let within = Duration::from_secs(10);
    let response = get(&GetRequest {
        address,
        target: "/",
        bearer: Some(&token),
        timeout: within,
        body_max: 100,
    });
    assert_eq!(response.unwrap().body, b"32");
    drop((responder, token));
    assert_eq!(copies(), 0);
}
