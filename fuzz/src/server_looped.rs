//! Any bytes as a reply that came back with its transmit timestamp: reading it never panics, and
//! what is read is what a reply in a frame of ours says.
#![no_main]

use horolog_wire::frame::UdpFrame;
use horolog_wire::ntp::{Header, Mode};
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/server/src/transmit.rs"]
mod transmit;

use transmit::Looped;

fuzz_target!(|bytes: &[u8]| {
    let Some(looped) = Looped::parse(bytes) else { return };
    if let Ok(frame) = UdpFrame::parse(bytes) {
        let (header, _) = Header::parse(frame.payload).expect("it was read");
        assert_eq!(header.mode, Mode::Server);
        assert_eq!((frame.destination.ip(), header.receive), (looped.client, looped.receive));
    }
});
