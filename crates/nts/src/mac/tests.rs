//! The standards' vectors, key files, and MACs on whole packets.

use proptest::prelude::*;

use super::*;

fn table(text: &str) -> KeyTable {
    let file = KeyFile::parse(text.as_bytes());
    assert!(file.unused.is_empty(), "{}", file.unused);
    file.keys
}

/// Returns the message about the lines that cannot be used.
fn fault(text: &str) -> String {
    KeyFile::parse(text.as_bytes()).unused.to_string()
}

fn digest(key: &SymmetricKey, message: &[u8], len: usize) -> Vec<u8> {
    let mut buffer = [message, &[0; MAC_LEN_MAX]].concat();
    let end = key.append_mac(len, &mut buffer, message.len());
    assert_eq!(end, message.len() + KEY_ID_LEN + len);
    buffer[message.len() + KEY_ID_LEN..end].to_vec()
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect()
}

/// The message of RFC 4493, section 4, of which each example takes a part.
const RFC_4493_MESSAGE: u128 = 0x6bc1_bee2_2e40_9f96_e93d_7e11_7393_172a;
const RFC_4493_MORE: [u128; 3] = [
    0xae2d_8a57_1e03_ac9c_9eb7_6fac_45af_8e51,
    0x30c8_1c46_a35c_e411_e5fb_c119_1a0a_52ef,
    0xf69f_2445_df4f_9b17_ad2b_417b_e66c_3710,
];

#[test]
fn rfc_4493_section_4() {
    let table = table("1 AES128 HEX:2b7e151628aed2a6abf7158809cf4f3c");
    let key = table.get(1).unwrap();
    let message: Vec<u8> = core::iter::once(RFC_4493_MESSAGE)
        .chain(RFC_4493_MORE)
        .flat_map(u128::to_be_bytes)
        .collect();
    for (len, mac) in [
        (0, "bb1d6929e95937287fa37d129b756746"),
        (16, "070a16b46b4d4144f79bdd9dd04a287c"),
        (40, "dfa66747de9ae63030ca32611497c827"),
        (64, "51f0bebf7e3b9d92fc49741779363cfe"),
    ] {
        assert_eq!(hex(&digest(key, &message[..len], 16)), mac, "{len} bytes");
    }
}

#[test]
fn digests_are_those_of_key_and_packet() {
    // `printf abc | sha1sum` and so on: FIPS 180-4's example "abc", the key being "a".
    let table = table("1 SHA1 a\n2 SHA256 a\n3 SHA384 a\n4 SHA512 a");
    for (id, start) in [
        (1, "a9993e364706816a"),
        (2, "ba7816bf8f01cfea"),
        (3, "cb00753f45a35e8b"),
        (4, "ddaf35a193617aba"),
    ] {
        let key = table.get(id).unwrap();
        let whole = digest(key, b"bc", key.algorithm().digest_len());
        assert!(hex(&whole).starts_with(start));
        assert_eq!(digest(key, b"bc", 20), whole[..20]);
    }
}

proptest! {
    #[test]
    fn cmac_agrees_with_the_oracle(
        key: [u8; 32],
        message in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        use cmac::{Cmac, KeyInit as _, Mac as _};
        let short = SymmetricKey::new(1, MacAlgorithm::Aes128, &key[..16]).unwrap();
        let long = SymmetricKey::new(1, MacAlgorithm::Aes256, &key).unwrap();
        let mut oracle = Cmac::<aes::Aes128>::new_from_slice(&key[..16]).unwrap();
        oracle.update(&message);
        prop_assert_eq!(digest(&short, &message, 16), oracle.finalize().into_bytes().to_vec());
        let mut oracle = Cmac::<aes::Aes256>::new_from_slice(&key).unwrap();
        oracle.update(&message);
        prop_assert_eq!(digest(&long, &message, 16), oracle.finalize().into_bytes().to_vec());
    }

    #[test]
    fn a_file_s_text_never_panics(text in "([0-9]{1,3}|AES128|SHA1|HEX:|[#:a-f0-9]{1,45}| |\n){0,30}") {
        let _ = KeyFile::parse(text.as_bytes()).unused.to_string();
    }

    #[test]
    fn a_file_s_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = KeyFile::parse(&bytes).unused.to_string();
    }

    #[test]
    fn packets_verify_until_a_byte_changes(
        header: [u8; 32],
        which in 0..6usize,
        truncated: bool,
        at: prop::sample::Index,
        change in 1..=255u8,
    ) {
        let table = all_kinds();
        let key = &table.keys[which];
        let whole = key.algorithm().digest_len();
        let digest_len = if truncated { whole.min(20) } else { whole };
        let mut packet = [0; HEADER_LEN + MAC_LEN_MAX];
        packet[..32].copy_from_slice(&header);
        let len = key.append_mac(digest_len, &mut packet, HEADER_LEN);
        let packet = &mut packet[..len];
        let authentic = table.verify(packet).unwrap();
        prop_assert_eq!((authentic.key.id(), authentic.digest_len), (key.id(), digest_len));
        let mut reply = [0x24; HEADER_LEN + MAC_LEN_MAX];
        let reply_len = authentic.append_mac(&mut reply, HEADER_LEN);
        prop_assert_eq!(reply_len, packet.len());
        prop_assert!(table.verify(&reply[..reply_len]).is_ok());
        packet[at.index(len)] ^= change;
        prop_assert!(table.verify(packet).is_err());
    }
}

fn all_kinds() -> KeyTable {
    table(
        "# what chrony and ntpd write\n\
         1 SHA1 HEX:933F62BE1D604E68A81B557F18CFA200483F5B70\n\
         \n\
         2 SHA256 ASCII:secret # of the lab\n\
         3 SHA384 secret\n\
         4 sha512 secret\n\
         % another comment\n\
         5 AES128 6D0C3D4AF3B94F1CA3BD5EF33D7F8D25\n\
         4294967295 AES256 ASCII:0123456789abcdef0123456789abcdef\n",
    )
}

#[test]
fn a_key_without_prefix_is_what_both_daemons_take_it_for() {
    let same = |a: &str, b: &str| {
        let (a, b) = (table(&format!("1 {a}")), table(&format!("1 {b}")));
        let (a, b) = (a.get(1).unwrap(), b.get(1).unwrap());
        assert_eq!(a.algorithm(), b.algorithm());
        let len = a.algorithm().digest_len();
        assert_eq!(digest(a, b"x", len), digest(b, b"x", len));
    };
    same("SHA1 abcdef", "SHA1 ASCII:abcdef");
    same("SHA1 #secret # comment", "SHA1 ASCII:#secret");
    same("SHA1 00112233445566778899", "SHA1 ASCII:00112233445566778899");
    same("SHA1 0011223344556677889900", "SHA1 HEX:0011223344556677889900");
    same("SHA1 not-hexadecimal-but-long", "SHA1 ASCII:not-hexadecimal-but-long");
    same("AES128 0123456789abcdef", "AES128 ASCII:0123456789abcdef");
    same("AES-128 000102030405060708090a0b0c0d0e0f", "aes128 HEX:000102030405060708090a0b0c0d0e0f");
}

#[test]
fn an_invalid_key_file_is_refused_with_line_and_remedy() {
    assert_eq!(fault("\n1 SHA1"), "line 2: 2 words; write an identifier, a type and a key");
    assert!(fault("1 plainpassword").contains("MD5 is not supported"));
    assert!(fault("1 MD5 secret").contains("create a key of type AES128 or SHA256"));
    assert!(fault("0 SHA1 secret").contains("a number from 1 to 4294967295"));
    assert!(fault("x SHA1 secret").contains("a number from 1 to 4294967295"));
    assert!(fault("1 ROT13 secret").contains("unknown type"));
    assert!(fault("1 SHA1 HEX:12345").contains("pairs of hexadecimal digits"));
    assert!(fault("1 SHA1 HEX:").contains("a key has 1 to"));
    assert_eq!(
        fault("1 AES128 secret"),
        "line 1: AES128 requires a key of 16 bytes, this one has 6"
    );
    assert!(fault("1 SHA1 a b").contains("4 words"));
    assert_eq!(
        fault("7 SHA1 a\n\n7 SHA1 b"),
        "line 3: key 7 is already defined in line 1; remove one of the two"
    );
}

#[test]
fn lines_that_cannot_be_used_are_named_and_the_others_are_used() {
    let text = "1 MD5 secret\n2 AES128 HEX:000102030405060708090a0b0c0d0e0f\n3 secret\n4 M secret\n\
                5 N 29233E0461ECD6AE\n6 sha3-256 secret\n7 secret sha1\n0 SHA1 secret\n\
                2 SHA1 secret\n1 SHA1 secret\n";
    let KeyFile { keys, unused } = KeyFile::parse(text.as_bytes());
    assert_eq!(keys.keys.iter().map(SymmetricKey::id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(keys.get(1).unwrap().algorithm(), MacAlgorithm::Sha1);
    assert_eq!(
        unused.to_string(),
        "lines 1, 3, 4: MD5 is not supported (RFC 8573): create a key of type AES128 or SHA256; \
         line 5: DES is not supported: create a key of type AES128 or SHA256; \
         line 6: SHA3-256 is not supported: create a key of type AES128 or SHA256; \
         line 7: unknown type; write AES128, AES256, SHA1, SHA256, SHA384 or SHA512; \
         line 8: the identifier is not a number from 1 to 4294967295; \
         line 9: key 2 is already defined in line 2; remove one of the two"
    );
    let many = KeyFile::parse("1 MD5 secret\n".repeat(100).as_bytes()).unused.to_string();
    assert!(many.ends_with("SHA256; and 80 more lines") && many.len() < 200, "{many}");
}

#[test]
fn a_file_may_come_from_other_systems_and_programs() {
    let file = KeyFile::parse(
        b"\xef\xbb\xbf1 SHA1 s\xe9cret\r\n\
          # caf\xe9\r\n\r\n\t65536\tAES128CMAC\t000102030405060708090a0b0c0d0e0f\t# ntp-keygen\r\n\
          3 sha256 secret 192.0.2.1,192.0.2.0/24,2001:db8::/32\r\n",
    );
    assert!(file.unused.is_empty(), "{}", file.unused);
    assert_eq!(file.keys.keys.iter().map(SymmetricKey::id).collect::<Vec<_>>(), [1, 3, 65_536]);
    let latin = SymmetricKey::new(1, MacAlgorithm::Sha1, b"s\xe9cret").unwrap();
    assert_eq!(digest(file.keys.get(1).unwrap(), b"x", 20), digest(&latin, b"x", 20));
    let secret = SymmetricKey::new(3, MacAlgorithm::Sha256, b"secret").unwrap();
    assert_eq!(digest(file.keys.get(3).unwrap(), b"x", 32), digest(&secret, b"x", 32));
    for odd in ["192.0.2.1,", "192.0.2.300", "192.0.2.1/x", "host", "192.0.2.1 192.0.2.2"] {
        assert!(fault(&format!("1 SHA1 secret {odd}")).contains("words"), "{odd}");
    }
}

#[test]
fn no_message_and_no_debug_text_shows_a_key() {
    for text in ["1 SHA1 HEX:secretx", "1 AES128 secret", "1 SHA1 secret secret", "1 MD5 secret"] {
        assert!(!fault(text).contains("secret"), "{text}");
    }
    let text = format!("{:?}", all_kinds());
    assert!(!text.contains("secret") && !text.contains("933"), "{text}");
}

#[test]
fn refusals_are_distinguished() {
    let table = all_kinds();
    let mut packet = [0; HEADER_LEN + MAC_LEN_MAX];
    assert_eq!(table.verify(&packet[..HEADER_LEN]).unwrap_err(), MacRefusal::NoMac);
    assert_eq!(table.verify(&packet[..3]).unwrap_err(), MacRefusal::NoMac);
    let stranger = SymmetricKey::new(99, MacAlgorithm::Sha1, b"secret").unwrap();
    let len = stranger.append_mac(20, &mut packet, HEADER_LEN);
    assert_eq!(table.verify(&packet[..len]).unwrap_err(), MacRefusal::UnknownKey(99));
    let liar = SymmetricKey::new(2, MacAlgorithm::Sha256, b"guess").unwrap();
    let len = liar.append_mac(32, &mut packet, HEADER_LEN);
    assert_eq!(table.verify(&packet[..len]).unwrap_err(), MacRefusal::Forged(2));
    // The right digest of a key whose algorithm gives another length.
    assert_eq!(liar.append_mac(16, &mut packet, HEADER_LEN), 0);
    assert_eq!(liar.append_mac(32, &mut packet[..HEADER_LEN + 20], HEADER_LEN), 0);
}
