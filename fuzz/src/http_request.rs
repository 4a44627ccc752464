//! Arbitrary bytes as an HTTP request: processing never panics; the response is a terminated header
//! and a body of the announced length, or no body.
#![no_main]

use std::sync::LazyLock;

use horolog_http::{AccessPolicy, BearerToken, HttpRequest, HttpResponse, respond};
use libfuzzer_sys::fuzz_target;

/// Access policies: with the token of the seeds, and without a token.
static POLICIES: LazyLock<[AccessPolicy; 2]> = LazyLock::new(|| {
    [AccessPolicy::new(BearerToken::parse("0123456789abcdef")), AccessPolicy::default()]
});

fuzz_target!(|bytes: &[u8]| {
    let handler = |request: &HttpRequest<'_>| {
        assert!(!request.path.contains(['?', ' ', '\n']), "{request:?}");
        assert!(request.bearer.is_none_or(|token| !token.contains(&b'\n')));
        for policy in POLICIES.iter() {
            let refused = policy.refusal(request);
            assert!(refused.is_none_or(|answer| [401, 421].contains(&answer.code)));
        }
        assert!(request.host.is_none_or(|host| !host.contains(['\r', '\n'])), "{request:?}");
        HttpResponse::text(200, request.path)
    };
    let reply = String::from_utf8(respond(bytes, &handler)).expect("a response is text");
    let (header, body) = reply.split_once("\r\n\r\n").expect("a header is terminated");
    assert!(["200", "400", "405"].contains(&&header["HTTP/1.0 ".len()..][..3]), "{header}");
    let announced = format!("Content-Length: {}\r\n", body.len());
    assert!(body.is_empty() || header.contains(&announced), "{header}");
});
