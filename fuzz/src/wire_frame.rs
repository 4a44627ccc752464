//! Arbitrary bytes as an Ethernet frame. Parsing never panics, and a parsed UDP datagram is
//! unchanged in the frame that the builder makes of it.
#![no_main]

use horolog_wire::frame::{UdpFrame, UdpFrameBuilder};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(read) = UdpFrame::parse(bytes) else { return };
    let _ = read.has_valid_checksum();

    let builder = UdpFrameBuilder {
        destination_mac: read.ethernet.destination,
        source_mac: read.ethernet.source,
        vlan: read.ethernet.vlan,
        source: read.source,
        destination: read.destination,
    };
    let mut built = vec![0; builder.headers_len() + read.payload.len()];
    assert_eq!(builder.emit(read.payload, &mut built), built.len());

    let again = UdpFrame::parse(&built).expect("a built frame is readable");
    assert!(again.has_valid_checksum());
    assert_eq!(again.ethernet, read.ethernet);
    assert_eq!((again.source, again.destination), (read.source, read.destination));
    assert_eq!(again.payload, read.payload);
    assert_eq!((again.options_len, again.trailer_len), (0, 0));
});
