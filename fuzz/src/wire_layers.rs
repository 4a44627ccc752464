//! Arbitrary bytes as each layer by itself, so that the inner ones are reached without valid outer
//! ones. Parsing never panics, and a parsed header is unchanged after it was written and parsed
//! again.
#![no_main]

use horolog_wire::checksum::OnesComplementSum;
use horolog_wire::ethernet::MacAddress;
use horolog_wire::{ethernet, ipv4, ipv6, udp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    ethernet(bytes);
    ipv4(bytes);
    ipv6(bytes);
    udp(bytes);
    mac_address(bytes);
});

fn ethernet(bytes: &[u8]) {
    let Ok((header, rest)) = ethernet::Header::parse(bytes) else { return };
    let mut written = vec![0; header.len()];
    assert_eq!(header.emit(&mut written), bytes.len() - rest.len());
    assert_eq!(written, bytes[..header.len()]);
}

fn ipv4(bytes: &[u8]) {
    let Ok(read) = ipv4::Header::parse(bytes) else { return };
    let packet_len = ipv4::HEADER_LEN + read.options.len() + read.payload.len();
    assert_eq!(packet_len + read.trailer.len(), bytes.len());

    let mut written = [&[0; ipv4::HEADER_LEN], read.payload].concat();
    read.header.emit(&mut written);
    let again = ipv4::Header::parse(&written).expect("a written header is readable");
    assert_eq!((again.header, again.payload), (read.header, read.payload));
    assert!(!again.is_fragment && again.options.is_empty() && again.trailer.is_empty());
}

fn ipv6(bytes: &[u8]) {
    let Ok(read) = ipv6::Header::parse(bytes) else { return };
    assert_eq!(ipv6::HEADER_LEN + read.payload.len() + read.trailer.len(), bytes.len());

    let mut written = vec![0; ipv6::HEADER_LEN];
    read.header.emit(&mut written);
    assert_eq!(written, bytes[..ipv6::HEADER_LEN]);
}

fn udp(bytes: &[u8]) {
    let Ok(read) = udp::Header::parse(bytes) else { return };
    assert_eq!(udp::HEADER_LEN + read.payload.len() + read.trailer.len(), bytes.len());

    let mut written = [&[0; udp::HEADER_LEN], read.payload].concat();
    read.header.emit(&mut written, read.payload.len(), OnesComplementSum::default());
    let again = udp::Header::parse(&written).expect("a written header is readable");
    assert_eq!((again.header, again.payload), (read.header, read.payload));
    assert!(udp::Header::verify(&written, OnesComplementSum::default()));
}

fn mac_address(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Ok(address) = text.parse::<MacAddress>() else { return };
    assert_eq!(address.to_string().parse(), Ok(address));
}
