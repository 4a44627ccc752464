//! Arbitrary bytes as an NTP control message and as its variables. Parsing never panics, and a
//! parsed message is unchanged after it was written and parsed again.
#![no_main]

use horolog_wire::control::{DATA_MAX, HEADER_LEN, Header, SystemVariables};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = SystemVariables::parse(bytes);
    let Ok((header, data)) = Header::parse(bytes) else { return };
    let _ = (header.is_response_to(&header), SystemVariables::parse(data));
    if data.len() <= DATA_MAX {
        let mut written = [0; HEADER_LEN + DATA_MAX];
        let length = header.emit(data, &mut written);
        assert_eq!(Header::parse(&written[..length]), Ok((header, data)));
    }
});
