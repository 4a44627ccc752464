//! Any bytes as the control messages of a datagram (cmsg(3)). Reading them never panics, and every
//! value that was read is in the bytes.
#![no_main]

use std::net::IpAddr;

use horolog_sys::message::AncillaryData;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let control = AncillaryData::parse(bytes);
    match control.local {
        Some(IpAddr::V4(local)) => assert!(stands_in(bytes, &local.octets())),
        Some(IpAddr::V6(local)) => assert!(stands_in(bytes, &local.octets())),
        None => assert!(control.interface == 0 || control.destination.is_some()),
    }
    assert!(stands_in(bytes, &control.interface.to_ne_bytes()) || control.interface == 0);
});

fn stands_in(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}
