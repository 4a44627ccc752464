//! Arbitrary bytes as an NTP header. Parsing and computation with the values never panic, and a
//! written header has the bytes from which it was parsed.
#![no_main]

use horolog_wire::ntp::{HEADER_LEN, Header};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok((header, rest)) = Header::parse(bytes) else {
        assert!(bytes.len() < HEADER_LEN);
        return;
    };
    assert_eq!(rest.len(), bytes.len() - HEADER_LEN);
    let _ = (header.root_delay.to_span(), header.root_dispersion.to_span());
    let _ = (header.transmit.since(header.receive), header.receive.since(header.origin));

    let mut written = [0; HEADER_LEN];
    assert_eq!(header.emit(&mut written), HEADER_LEN);
    assert_eq!(written, bytes[..HEADER_LEN]);
});
