//! Arbitrary bytes as a transmitted reply that the kernel returns with its transmit timestamp:
//! parsing never panics, and the result agrees with the reply in the frame.
#![no_main]

use horolog_wire::frame::UdpFrame;
use horolog_wire::ntp::{AssociationMode, Header};
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/server/src/reply/transmitted_reply.rs"]
mod transmitted_reply;

use transmitted_reply::TransmittedReplyKey;

fuzz_target!(|bytes: &[u8]| {
    let Some(reply) = TransmittedReplyKey::parse(bytes) else { return };
    if let Ok(frame) = UdpFrame::parse(bytes) {
        let (header, _) = Header::parse(frame.payload).expect("a transmitted reply has a header");
        assert_eq!(header.mode, AssociationMode::Server);
        assert_eq!((frame.destination.ip(), header.receive), (reply.client, reply.receive));
    }
});
