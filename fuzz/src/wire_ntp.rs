//! Arbitrary bytes as an NTP packet. Parsing and computation with the values never panic; header,
//! extension fields and authenticator are written as they were parsed; fields, MAC and kind of the
//! trailer agree.
#![no_main]

use horolog_wire::ntp::extension::{
    ExtensionFieldWriter, ExtensionFields, FIELD_LEN_MIN, TrailerKind, classify_trailer, find_mac,
};
use horolog_wire::ntp::nts::{Authenticator, NtsFields};
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

    check_trailer(rest);
    check_authenticator(bytes);
});

fn check_trailer(trailer: &[u8]) {
    let mut copy = vec![0; trailer.len()];
    let mut writer = ExtensionFieldWriter::new(&mut copy);
    let mut has_nts = false;
    for field in ExtensionFields::of_trailer(trailer).map_while(Result::ok) {
        has_nts |= field.field_type.is_nts();
        let written = writer.write_field(field.field_type, field.value, FIELD_LEN_MIN);
        assert!(written.is_some(), "longer than it was parsed");
    }
    let fields_len = writer.written_len();
    assert_eq!(copy[..fields_len], trailer[..fields_len]);
    match (classify_trailer(trailer), find_mac(trailer)) {
        (TrailerKind::Empty, None) => assert!(trailer.is_empty()),
        (TrailerKind::Nts, _) => assert!(has_nts),
        (TrailerKind::OtherFields, None) => assert!(fields_len == trailer.len() && !has_nts),
        (TrailerKind::Mac, Some(mac)) => assert!(trailer.ends_with(mac)),
        (TrailerKind::Mac, None) => assert!(fields_len < trailer.len()),
        (kind, mac) => panic!("{kind:?} with {mac:?}"),
    }
}

fn check_authenticator(packet: &[u8]) {
    let Ok(NtsFields { authenticator: Some(parsed), .. }) = NtsFields::parse(packet) else {
        return;
    };
    let mut copy = vec![0; packet.len()];
    let mut writer = ExtensionFieldWriter::new(&mut copy);
    assert!(writer.write_bytes(parsed.covered).is_some());
    let written = Authenticator::reserve(&mut writer, parsed.nonce, parsed.ciphertext.len());
    let Some((covered, ciphertext)) = written else { panic!("longer than it was parsed") };
    assert_eq!(covered, parsed.covered);
    ciphertext.copy_from_slice(parsed.ciphertext);
    let written_len = writer.written_len();
    match NtsFields::parse(&copy[..written_len]) {
        Ok(NtsFields { authenticator: Some(again), .. }) => {
            assert_eq!((again.covered, again.nonce), (parsed.covered, parsed.nonce));
            assert_eq!(again.ciphertext, parsed.ciphertext);
        }
        other => panic!("{other:?}"),
    }
}
