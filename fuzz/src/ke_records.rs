//! Arbitrary bytes as NTS-KE messages, and as a certificate with validity dates. Parsing never
//! panics; a parsed message is unchanged after it was written and parsed again; and negotiation
//! selects only algorithms that the request offers.
#![no_main]

use horolog_ke::message::{NtsKeRequest, NtsKeResponse};
use horolog_ke::records::{NtsKeRecord, message_len};
use horolog_ke::validity::CertificateValidity;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    record(bytes);
    if let Some(length) = message_len(bytes) {
        request(&bytes[..length]);
        response(&bytes[..length]);
    }
    // Bytes that are not exactly one message must not be parsed as one.
    if message_len(bytes) != Some(bytes.len()) {
        assert!(NtsKeRequest::parse(bytes).is_err() && NtsKeResponse::parse(bytes).is_err());
    }
    let _ = CertificateValidity::parse(bytes);
});

fn record(bytes: &[u8]) {
    if let Some((record, rest)) = NtsKeRecord::parse(bytes) {
        let mut written = Vec::new();
        record.append_to(&mut written);
        assert_eq!(written, bytes[..bytes.len() - rest.len()]);
    }
}

fn request(message: &[u8]) {
    let Ok(request) = NtsKeRequest::parse(message) else { return };
    if request.ntpv4 {
        assert_eq!(NtsKeRequest::parse(&request.to_bytes()).as_ref(), Ok(&request));
    }
    if let Ok(agreed) = request.negotiate(&[30, 15]) {
        assert!(request.ntpv4 && request.algorithms.contains(&agreed.algorithm));
    }
}

fn response(message: &[u8]) {
    if let Ok(response) = NtsKeResponse::parse(message) {
        let written = response.to_bytes();
        assert_eq!(message_len(&written), Some(written.len()));
        assert_eq!(NtsKeResponse::parse(&written), Ok(response));
    }
}
