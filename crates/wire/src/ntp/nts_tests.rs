//! A request written by hand from RFC 8915, sections 5.3 to 5.6, hostile fields, and round trips.

use proptest::prelude::*;

use super::*;

const HEADER: [u8; HEADER_LEN] = [0x23; HEADER_LEN];

/// A field as it is, whether its length is valid or not.
fn field(field_type: ExtensionFieldType, value: &[u8]) -> Vec<u8> {
    let prefix = [field_type.0, (PREFIX_LEN + value.len()) as u16].map(u16::to_be_bytes);
    [&prefix.concat()[..], value].concat()
}

fn packet(fields: &[Vec<u8>]) -> Vec<u8> {
    [&HEADER[..], &fields.concat()].concat()
}

/// Unique identifier, cookie and placeholder of valid lengths.
fn usual_fields() -> Vec<Vec<u8>> {
    vec![
        field(ExtensionFieldType::UNIQUE_IDENTIFIER, &[1; 32]),
        field(ExtensionFieldType::COOKIE, &[2; 100]),
        field(ExtensionFieldType::COOKIE_PLACEHOLDER, &[0; 100]),
    ]
}

/// Value of an authenticator with these lengths, and this many bytes after them.
fn authenticator(nonce_len: u16, ciphertext_len: u16, rest: usize) -> Vec<u8> {
    let lengths = [nonce_len, ciphertext_len].map(u16::to_be_bytes).concat();
    field(ExtensionFieldType::AUTHENTICATOR, &[lengths, vec![9; rest]].concat())
}

#[test]
fn rfc_8915_sections_5_3_to_5_6() {
    let covered = packet(&usual_fields());
    #[rustfmt::skip]
    let sealed = [
        0x04, 0x04, 0x00, 0x24, // type, length
        0x00, 0x05, 0x00, 0x11, // lengths of nonce and ciphertext
        1, 2, 3, 4, 5, 0, 0, 0, // nonce and padding
        6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 7, 0, 0, 0, // ciphertext and padding
    ];
    let whole = [&covered[..], &sealed].concat();
    let authenticator = Authenticator {
        covered: &covered,
        nonce: &[1, 2, 3, 4, 5],
        ciphertext: &[&[6; 16][..], &[7]].concat(),
        nonce_space: 8,
    };
    let found = NtsFields::parse(&whole).unwrap();
    assert_eq!((found.unique_id, found.cookie), (Some(&[1; 32][..]), Some(&[2; 100][..])));
    assert_eq!((found.placeholders, found.authenticator), (1, Some(authenticator)));

    let mut written = [0xff; 400];
    let mut writer = ExtensionFieldWriter::new(&mut written);
    writer.write_bytes(&covered).unwrap();
    let (before, ciphertext) = Authenticator::reserve(&mut writer, &[1, 2, 3, 4, 5], 17).unwrap();
    assert_eq!(before, covered);
    ciphertext.copy_from_slice(authenticator.ciphertext);
    let len = writer.written_len();
    assert_eq!((&written[..len], Authenticator::field_len(5, 17)), (&whole[..], sealed.len()));
}

#[test]
fn fields_of_nts_occur_once_and_have_their_lengths() {
    let [id, cookie, placeholder] = usual_fields().try_into().unwrap();
    let other = field(ExtensionFieldType(0x7abc), &[0; 12]);
    let sealed = authenticator(16, 16, 32);
    let is_valid = |fields: &[Vec<u8>]| NtsFields::parse(&packet(fields)).is_ok();
    assert!(is_valid(&[]));
    assert!(is_valid(&[cookie.clone(), other, id.clone(), sealed.clone()]), "in any order");
    assert!(is_valid(&[placeholder.clone(), placeholder]));
    assert!(!is_valid(&[id.clone(), id.clone()]), "two identifiers");
    assert!(!is_valid(&[cookie.clone(), cookie]), "two cookies");
    let short = field(ExtensionFieldType::UNIQUE_IDENTIFIER, &[0; 28]);
    assert!(!is_valid(&[short]), "a short identifier");
    assert!(is_valid(&[sealed, id.clone(), id, vec![0xff; 5]]), "after the authenticator");
    assert_eq!(NtsFields::parse(&HEADER[1..]), Err(ParseError::Truncated));
}

#[test]
fn hostile_lengths_of_an_authenticator_are_refused() {
    for (nonce_len, ciphertext_len, rest) in
        [(16, 16, 28), (0xffff, 16, 32), (16, 0xffff, 32), (17, 16, 32), (16, 15, 32), (16, 0, 16)]
    {
        let packet = packet(&[authenticator(nonce_len, ciphertext_len, rest)]);
        assert_eq!(
            NtsFields::parse(&packet),
            Err(ParseError::Length),
            "{nonce_len} {ciphertext_len}"
        );
    }
    let additional = packet(&[authenticator(0, 16, 40)]);
    let found = NtsFields::parse(&additional).unwrap().authenticator.unwrap();
    assert_eq!((found.nonce, found.nonce_space), (&[][..], 24), "additional padding");
}

proptest! {
    #[test]
    fn a_written_authenticator_is_read(
        nonce in proptest::collection::vec(any::<u8>(), 0..40),
        ciphertext in proptest::collection::vec(any::<u8>(), TAG_LEN..300),
    ) {
        let len = HEADER_LEN + Authenticator::field_len(nonce.len(), ciphertext.len());
        let mut packet = vec![0xff; len];
        let mut writer = ExtensionFieldWriter::new(&mut packet);
        writer.write_bytes(&HEADER).unwrap();
        let (_, room) = Authenticator::reserve(&mut writer, &nonce, ciphertext.len()).unwrap();
        room.copy_from_slice(&ciphertext);
        prop_assert_eq!(writer.written_len(), len);
        let found = NtsFields::parse(&packet).unwrap().authenticator.unwrap();
        prop_assert_eq!((found.covered, found.nonce), (&HEADER[..], &nonce[..]));
        prop_assert_eq!(found.ciphertext, &ciphertext[..]);
        prop_assert_eq!(found.nonce_space, nonce.len().next_multiple_of(4));
    }

    #[test]
    fn any_trailer_is_judged(trailer in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = NtsFields::parse(&[&HEADER[..], &trailer].concat());
    }
}
