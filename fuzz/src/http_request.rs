//! Any bytes as a request for a page: it is judged without a panic, and what is answered is a
//! header with an end and the body that it announces, or no body where none is wanted.
#![no_main]

use std::sync::LazyLock;

use horolog_http::{AccessPolicy, BearerToken, HttpRequest, HttpResponse, respond};
use libfuzzer_sys::fuzz_target;

/// With the token that the seeds show, and without one.
static GUARDS: LazyLock<[AccessPolicy; 2]> = LazyLock::new(|| {
    [AccessPolicy::new(BearerToken::parse("0123456789abcdef")), AccessPolicy::default()]
});

fuzz_target!(|bytes: &[u8]| {
    let page = |request: &HttpRequest<'_>| {
        assert!(!request.path.contains(['?', ' ', '\n']), "{request:?}");
        assert!(request.bearer.is_none_or(|token| !token.contains(&b'\n')));
        for guard in GUARDS.iter() {
            let refused = guard.refusal(request);
            assert!(refused.is_none_or(|answer| [401, 421].contains(&answer.code)));
        }
        assert!(request.host.is_none_or(|host| !host.contains(['\r', '\n'])), "{request:?}");
        HttpResponse::text(200, request.path)
    };
    let reply = String::from_utf8(respond(bytes, &page)).expect("a reply is text");
    let (header, body) = reply.split_once("\r\n\r\n").expect("a header has an end");
    assert!(["200", "400", "405"].contains(&&header["HTTP/1.0 ".len()..][..3]), "{header}");
    let announced = format!("Content-Length: {}\r\n", body.len());
    assert!(body.is_empty() || header.contains(&announced), "{header}");
});
