//! Any bytes as a request for metrics: it is judged without a panic, and what is answered is a
//! header with an end and the body that it announces, or no body where none is wanted.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/server/src/metrics/http.rs"]
#[allow(dead_code, reason = "the server needs more of it")]
mod http;

use http::Answer;

fuzz_target!(|bytes: &[u8]| {
    let page = |path: &str| {
        assert!(!path.contains(['?', ' ', '\n']), "{path:?}");
        Answer { code: 200, kind: "text/plain", body: path.to_owned() }
    };
    let (answer, with_body) = http::judge(bytes, &page);
    assert!([200, 400, 405].contains(&answer.code));
    let reply = String::from_utf8(http::written(&answer, with_body)).expect("a reply is text");
    let (header, body) = reply.split_once("\r\n\r\n").expect("a header has an end");
    assert!(header.contains(&format!("Content-Length: {}", answer.body.len())));
    assert_eq!(body, if with_body { &answer.body } else { "" });
});
