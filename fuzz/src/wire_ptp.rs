//! Any bytes as a PTP message with its TLVs. Reading them never panics, and what was read is read
//! again from what it is written as.
#![no_main]

use horolog_wire::ptp::Message;
use horolog_wire::ptp::monitor::Response;
use horolog_wire::ptp::tlv::{Tlv, UNICAST_LEN_MAX, Unicast};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok((message, trailer)) = Message::parse(bytes) else { return };
    assert_eq!(message.len() + trailer.len(), bytes.len());
    let mut buffer = vec![0; message.len()];
    assert_eq!(message.emit(&mut buffer), buffer.len());
    let (again, rest) = Message::parse(&buffer).expect("what was written is read");
    assert_eq!((again, rest.len()), (message, 0));
    for tlv in message.tlvs().flatten() {
        if let Some(Ok(unicast)) = Unicast::from_tlv(&tlv) {
            let mut buffer = [0; UNICAST_LEN_MAX];
            let length = unicast.emit(&mut buffer);
            let (back, _) = Tlv::parse(&buffer[..length]).expect("what was written is a TLV");
            assert_eq!(Unicast::from_tlv(&back), Some(Ok(unicast)));
        }
        if let Some(Ok(response)) = Response::from_tlv(&tlv) {
            let mut buffer = vec![0; Response::tlv_len(response.address.len())];
            response.emit(&mut buffer);
            // An address of an odd length fits into a value that is of an even one never.
            let (back, _) = Tlv::parse(&buffer).expect("what was written is a TLV");
            assert_eq!(Response::from_tlv(&back), Some(Ok(response)));
        }
    }
});
