//! Arbitrary bytes as an HTTP response, and arbitrary text as a URL: parsing never panics, a body
//! is no longer than the limit, and a parsed URL is unchanged after it was written and parsed
//! again.
#![no_main]

use horolog_http::{ReceivedHttpResponse, Url};
use libfuzzer_sys::fuzz_target;

const BODY_MAX: usize = 256;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(response) = ReceivedHttpResponse::parse(bytes, BODY_MAX) {
        assert!(response.body.len() <= BODY_MAX && response.code <= 999);
    }
    if let Some(url) = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<Url>().ok()) {
        assert_eq!(url.to_string().parse(), Ok(url));
    }
});
