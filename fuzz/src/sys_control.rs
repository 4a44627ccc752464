//! Arbitrary bytes as the control messages of a datagram (cmsg(3)). Parsing never panics, and every
//! parsed value occurs in the bytes.
#![no_main]

use std::net::IpAddr;

use horolog_sys::message::AncillaryData;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let control = AncillaryData::parse(bytes);
    match control.local {
        Some(IpAddr::V4(local)) => assert!(contains(bytes, &local.octets())),
        Some(IpAddr::V6(local)) => assert!(contains(bytes, &local.octets())),
        None => assert!(control.interface == 0 || control.destination.is_some()),
    }
    assert!(contains(bytes, &control.interface.to_ne_bytes()) || control.interface == 0);
});

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}
