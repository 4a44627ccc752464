//! Any bytes as messages of NTS key establishment, and as a certificate whose dates are looked for.
//! Reading them never panics; what was understood is written to a message that is understood alike;
//! and a request is agreed upon only with what it offers.
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
    // What is no message as a whole must not be taken for one.
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
