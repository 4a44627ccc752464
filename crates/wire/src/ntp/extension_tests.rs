//! A field written by hand from its RFC, hostile trailers, and round trips.

use proptest::prelude::*;

use super::*;

/// UDP checksum complement (RFC 7821): 22 bytes of padding, and the complement.
const CHECKSUM_COMPLEMENT: [u8; 28] = [
    0x20, 0x05, 0x00, 0x1c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xbe,
    0xef,
];

fn field(field_type: u16, len: u16) -> Vec<u8> {
    let mut field = vec![0x55; usize::from(len)];
    field[..2].copy_from_slice(&field_type.to_be_bytes());
    field[2..4].copy_from_slice(&len.to_be_bytes());
    field
}

#[test]
fn rfc_7821_checksum_complement() {
    let mut fields = ExtensionFields::of_trailer(&CHECKSUM_COMPLEMENT);
    let field = fields.next().unwrap().unwrap();
    assert_eq!(field.field_type, ExtensionFieldType(0x2005));
    assert_eq!(field.value, &CHECKSUM_COMPLEMENT[PREFIX_LEN..]);
    assert_eq!((fields.next(), fields.rest()), (None, &[][..]));
    assert_eq!(classify_trailer(&CHECKSUM_COMPLEMENT), TrailerKind::OtherFields);
    let mut written = [0xff; 28];
    let mut writer = ExtensionFieldWriter::new(&mut written);
    writer.write_field(field.field_type, field.value, LAST_FIELD_LEN_MIN).unwrap();
    assert_eq!((writer.written_len(), written), (28, CHECKSUM_COMPLEMENT));
}

#[test]
fn rfc_8915_has_four_types() {
    for number in [0x0104, 0x0204, 0x0304, 0x0404] {
        assert!(ExtensionFieldType(number).is_nts());
        assert_eq!(classify_trailer(&field(number, 36)), TrailerKind::Nts);
        let after_another = [field(0x0009, 28), field(number, 104)].concat();
        assert_eq!(classify_trailer(&after_another), TrailerKind::Nts);
    }
    for number in [0, 0x0002, 0x0009, 0x0105, 0x2005, 0x8104, 0xf323] {
        assert!(!ExtensionFieldType(number).is_nts());
    }
}

#[test]
fn a_field_is_padded_to_what_is_allowed() {
    for (value_len, len_min, len) in [
        (0, FIELD_LEN_MIN, 16),
        (12, FIELD_LEN_MIN, 16),
        (13, FIELD_LEN_MIN, 20),
        (1, LAST_FIELD_LEN_MIN, 28),
        (24, LAST_FIELD_LEN_MIN, 28),
        (25, LAST_FIELD_LEN_MIN, 32),
        (0, ENCRYPTED_FIELD_LEN_MIN, 4),
        (1, ENCRYPTED_FIELD_LEN_MIN, 8),
    ] {
        assert_eq!(field_len(value_len, len_min), len, "{value_len} bytes, at least {len_min}");
        let mut out = [0xff; 40];
        let mut writer = ExtensionFieldWriter::new(&mut out);
        let value = vec![0xab; value_len];
        writer.write_field(ExtensionFieldType(7), &value, len_min).unwrap();
        assert_eq!(writer.written_len(), len);
        assert_eq!(out[..PREFIX_LEN], [0, 7, 0, len as u8]);
        assert_eq!(out[PREFIX_LEN..][..value_len], value);
        assert!(out[PREFIX_LEN + value_len..len].iter().all(|byte| *byte == 0));
        assert!(out[len..].iter().all(|byte| *byte == 0xff));
    }
}

#[test]
fn a_field_that_does_not_fit_is_not_written() {
    let mut short = [0; 20];
    let mut writer = ExtensionFieldWriter::new(&mut short);
    assert_eq!(writer.write_bytes(&[0; 5]), Some(()));
    assert_eq!(writer.write_field(ExtensionFieldType(1), &[], FIELD_LEN_MIN), None);
    assert_eq!(writer.written_len(), 5);
    let mut long = vec![0; 70_000];
    let mut writer = ExtensionFieldWriter::new(&mut long);
    assert_eq!(writer.write_field(ExtensionFieldType(1), &vec![0; 65_529], FIELD_LEN_MIN), None);
    assert_eq!(
        writer.write_field(ExtensionFieldType(1), &vec![0; 65_528], FIELD_LEN_MIN),
        Some(())
    );
}

/// Each malformed field with its error, alone and after a valid one.
#[test]
fn hostile_lengths_end_the_walk() {
    let cases: [(&str, &[u8], ParseError); 8] = [
        ("one byte", &[1], ParseError::Truncated),
        ("three bytes", &[1, 4, 0], ParseError::Truncated),
        ("length 0", &[1, 4, 0, 0, 5, 5, 5, 5, 5, 5, 5, 5], ParseError::Length),
        ("length 2", &[1, 4, 0, 2, 5, 5, 5, 5, 5, 5, 5, 5], ParseError::Length),
        ("less than 16", &field(0x0104, 12), ParseError::Length),
        ("no multiple of 4", &field(0x0104, 29), ParseError::Length),
        (
            "beyond the end",
            &[1, 4, 0, 20, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5],
            ParseError::Truncated,
        ),
        ("far beyond the end", &[1, 4, 0xff, 0xfc, 5, 5, 5, 5], ParseError::Truncated),
    ];
    for (name, bytes, error) in cases {
        let after_a_field = [&field(0x0009, 28)[..], bytes].concat();
        let mut fields = ExtensionFields::of_trailer(&after_a_field);
        assert!(fields.next().unwrap().is_ok());
        assert_eq!(fields.next(), Some(Err(error)), "{name}");
        assert_eq!((fields.next(), fields.rest()), (None, &[][..]), "{name}");
        for trailer in [bytes, &after_a_field] {
            assert_eq!(classify_trailer(trailer), TrailerKind::Mac, "{name}");
            assert_eq!(find_mac(trailer), None, "{name}");
        }
    }
}

/// The minimum of RFC 7822 holds for fields of a packet, but not for encrypted ones; that of a last
/// field binds its sender only.
#[test]
fn the_shortest_field_is_shorter_if_encrypted() {
    let shortest = field(0xf323, 16);
    assert_eq!(classify_trailer(&shortest), TrailerKind::OtherFields);
    assert_eq!(ExtensionFields::of_trailer(&shortest).flatten().count(), 1);
    let encrypted = [field(0x0204, 4), field(0x0204, 8)].concat();
    let read = ExtensionFields::of_plaintext(&encrypted).map_while(Result::ok).collect::<Vec<_>>();
    let cookie = |value| ExtensionField { field_type: ExtensionFieldType::COOKIE, value };
    assert_eq!(read, [cookie(&[]), cookie(&[0x55; 4])]);
    let hostile = [[2, 4, 0, 0], [2, 4, 0, 3], [2, 4, 0, 5], [2, 4, 0, 8]];
    for bytes in &hostile {
        assert!(ExtensionFields::of_plaintext(bytes).all(|field| field.is_err()));
    }
}

#[test]
fn bytes_that_are_neither_a_field_nor_a_mac_are_counted_with_macs() {
    assert_eq!((classify_trailer(&[]), find_mac(&[])), (TrailerKind::Empty, None));
    for other in [&[0; 4][..], &[7; 11], &[0, 0, 0, 1, 5, 5, 5, 5, 5, 5, 5, 5]] {
        assert_eq!((classify_trailer(other), find_mac(other)), (TrailerKind::Mac, None));
        let with_field = [&field(0x0009, 28), other].concat();
        assert_eq!(
            (classify_trailer(&with_field), find_mac(&with_field)),
            (TrailerKind::Mac, None)
        );
    }
}

#[test]
fn rfc_7822_section_3_distinguishes_macs_from_fields() {
    for len in MAC_LENGTHS {
        // Key 36 with SHA-256 has the very form of a field of type 0 and length 36.
        for id in [1u32, 36, 0xffff] {
            let mac = [&id.to_be_bytes()[..], &vec![0xab; len - 4]].concat();
            assert_eq!(classify_trailer(&mac), TrailerKind::Mac, "key {id}, {len} bytes");
            assert_eq!(find_mac(&mac), Some(&mac[..]));
            let with_field = [field(0x0009, 28), mac.clone()].concat();
            assert_eq!(
                (classify_trailer(&with_field), find_mac(&with_field)),
                (TrailerKind::Mac, Some(&mac[..]))
            );
        }
        // A field of up to 24 bytes is a MAC if it is the last one; a longer one never is.
        let last = field(0x0104, len as u16);
        let is_mac = len <= 24;
        assert_eq!(find_mac(&last).is_some(), is_mac, "{len} bytes");
        let kind = if is_mac { TrailerKind::Mac } else { TrailerKind::Nts };
        assert_eq!(classify_trailer(&last), kind, "{len} bytes");
    }
}

fn any_field() -> impl Strategy<Value = (u16, Vec<u8>)> {
    (any::<u16>(), proptest::collection::vec(any::<u8>(), 0..200))
}

proptest! {
    #[test]
    fn written_fields_are_read(
        written in proptest::collection::vec(any_field(), 0..6),
        len_min in prop_oneof![Just(FIELD_LEN_MIN), Just(LAST_FIELD_LEN_MIN)],
    ) {
        let len = written.iter().map(|(_, value)| field_len(value.len(), len_min)).sum::<usize>();
        let mut trailer = vec![0xff; len];
        let mut writer = ExtensionFieldWriter::new(&mut trailer);
        for (number, value) in &written {
            writer.write_field(ExtensionFieldType(*number), value, len_min).unwrap();
        }
        prop_assert_eq!(writer.written_len(), len);
        let read = ExtensionFields::of_trailer(&trailer).collect::<Result<Vec<_>, _>>().unwrap();
        prop_assert_eq!(read.len(), written.len());
        for (field, (number, value)) in read.iter().zip(&written) {
            let (front, padding) = field.value.split_at(value.len());
            prop_assert_eq!((field.field_type.0, front), (*number, &value[..]));
            prop_assert!(padding.iter().all(|byte| *byte == 0));
        }
    }

    /// Fields of any bytes are written as they were read, and the walk covers them completely.
    #[test]
    fn read_fields_are_written(
        fields in proptest::collection::vec(any_field(), 0..4),
        end in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut trailer = Vec::new();
        for (number, value) in fields {
            trailer.extend(field(number, field_len(value.len(), FIELD_LEN_MIN) as u16));
        }
        trailer.extend(end);
        let mut copy = vec![0; trailer.len()];
        let mut writer = ExtensionFieldWriter::new(&mut copy);
        for field in ExtensionFields::of_trailer(&trailer).map_while(Result::ok) {
            writer.write_field(field.field_type, field.value, FIELD_LEN_MIN).unwrap();
        }
        let len = writer.written_len();
        prop_assert_eq!(&copy[..len], &trailer[..len]);
        if let Some(mac) = find_mac(&trailer) {
            prop_assert!(MAC_LENGTHS.contains(&mac.len()) && trailer.ends_with(mac));
        }
        prop_assert_eq!(classify_trailer(&trailer) == TrailerKind::Empty, trailer.is_empty());
    }
}
