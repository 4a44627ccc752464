//! The standards' vectors, and the `aes-siv` crate as an oracle.

use aes_siv::KeyInit as _;
use aes_siv::siv::Aes128Siv;
use proptest::prelude::*;

use super::siv::SivKey;
use super::*;

fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |v, d| v << 4 | crate::secret::hex_value(*d)))
        .collect()
}

fn siv_seal(key: &[u8], parts: &[&[u8]], text: &[u8]) -> Vec<u8> {
    let (mut tag, mut text) = ([0; 16], text.to_vec());
    SivKey::new(key).seal(parts, &mut tag, &mut text);
    [&tag[..], &text].concat()
}

fn check_siv(key: &str, parts: &[&str], text: &str, sealed: &str) {
    let (key, text, sealed) = (hex(key), hex(text), hex(sealed));
    let parts: Vec<Vec<u8>> = parts.iter().map(|part| hex(part)).collect();
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    assert_eq!(siv_seal(&key, &parts, &text), sealed);
    let (tag, body) = sealed.split_first_chunk().unwrap();
    let mut opened = body.to_vec();
    assert!(SivKey::new(&key).open(&parts, tag, &mut opened));
    assert_eq!(opened, text);
}

#[test]
fn rfc_5297_a_1_deterministic() {
    check_siv(
        "fffefdfc fbfaf9f8 f7f6f5f4 f3f2f1f0 f0f1f2f3 f4f5f6f7 f8f9fafb fcfdfeff",
        &["10111213 14151617 18191a1b 1c1d1e1f 20212223 24252627"],
        "11223344 55667788 99aabbcc ddee",
        "85632d07 c6e8f37f 950acd32 0a2ecc93 40c02b96 90c4dc04 daef7f6a fe5c",
    );
}

#[test]
fn rfc_5297_a_2_several_parts_and_a_nonce() {
    check_siv(
        "7f7e7d7c 7b7a7978 77767574 73727170 40414243 44454647 48494a4b 4c4d4e4f",
        &[
            "00112233 44556677 8899aabb ccddeeff deaddada deaddada ffeeddcc bbaa9988 77665544 33221100",
            "10203040 50607080 90a0",
            "09f91102 9d74e35b d84156c5 635688c0",
        ],
        "74686973 20697320 736f6d65 20706c61 696e7465 78742074 6f20656e 63727970 74207573 696e6720 5349562d 414553",
        "7bdb6e3b 432667eb 06f4d14b ff2fbd0f cb900f2f ddbe4043 26601965 c889bf17 dba77ceb 094fa663 b7a3f748 ba8af829 ea64ad54 4a272e9c 485b62a3 fd5c0d",
    );
}

/// RFC 8452, appendix C.1: key, nonce, associated data, text, result.
const GCM_SIV: [[&str; 5]; 5] = [
    [
        "01000000000000000000000000000000",
        "030000000000000000000000",
        "",
        "",
        "dc20e2d83f25705bb49e439eca56de25",
    ],
    [
        "01000000000000000000000000000000",
        "030000000000000000000000",
        "",
        "0100000000000000",
        "b5d839330ac7b786578782fff6013b815b287c22493a364c",
    ],
    [
        "01000000000000000000000000000000",
        "030000000000000000000000",
        "",
        "01000000000000000000000000000000",
        "743f7c8077ab25f8624e2e948579cf77303aaf90f6fe21199c6068577437a0c4",
    ],
    [
        "01000000000000000000000000000000",
        "030000000000000000000000",
        "01",
        "0200000000000000",
        "1e6daba35669f4273b0a1a2560969cdf790d99759abd1508",
    ],
    [
        "01000000000000000000000000000000",
        "030000000000000000000000",
        "01",
        "02000000000000000000000000000000",
        "e2b0c5da79a901c1745f700525cb335b8f8936ec039e4e4bb97ebd8c4457441f",
    ],
];

#[test]
fn rfc_8452_c_1() {
    for [key, nonce, data, text, sealed] in GCM_SIV {
        let key = AeadKey::new(AeadAlgorithm::Aes128GcmSiv, &hex(key));
        let (nonce, data, text, sealed) = (hex(nonce), hex(data), hex(text), hex(sealed));
        let mut buffer = [&text[..], &[0; TAG_LEN]].concat();
        key.seal(&nonce, &data, &mut buffer).unwrap();
        assert_eq!(buffer, sealed);
        let mut opened = vec![0; text.len()];
        assert_eq!(key.open(&nonce, &data, &sealed, &mut opened), Some(text.len()));
        assert_eq!(opened, text);
    }
}

#[test]
fn a_nonce_of_the_wrong_length_is_no_panic() {
    let key = AeadKey::new(AeadAlgorithm::Aes128GcmSiv, &[1; 16]);
    assert_eq!(key.seal(&[0; 16], &[], &mut [0; 16]), None);
    assert_eq!(key.open(&[0; 11], &[], &[0; 16], &mut []), None);
    for algorithm in AeadAlgorithm::ALL {
        let key = AeadKey::new(algorithm, &[1; 32][..algorithm.key_len()]);
        assert_eq!(key.seal(&[0; 12], &[], &mut [0; 15]), None);
        assert_eq!(key.open(&[0; 12], &[], &[0; 15], &mut [0; 15]), None);
        assert_eq!(key.open(&[0; 12], &[], &[0; 20], &mut [0; 3]), None);
    }
}

#[test]
fn numbers_are_those_of_iana() {
    for algorithm in AeadAlgorithm::ALL {
        assert_eq!(AeadAlgorithm::from_number(algorithm.number()), Some(algorithm));
    }
    assert_eq!(AeadAlgorithm::AesSivCmac256.number(), 15);
    assert_eq!(AeadAlgorithm::Aes128GcmSiv.number(), 30);
    assert_eq!(AeadAlgorithm::from_number(16), None);
}

proptest! {
    #[test]
    fn siv_agrees_with_the_oracle(
        key: [u8; 32],
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..4),
        text in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let oracle = Aes128Siv::new(&key.into()).encrypt(&parts, &text).unwrap();
        prop_assert_eq!(siv_seal(&key, &parts, &text), oracle);
    }

    #[test]
    fn what_was_changed_does_not_open(
        number in prop::sample::select(&AeadAlgorithm::ALL[..]),
        key: [u8; 32],
        nonce: [u8; 16],
        data in prop::collection::vec(any::<u8>(), 1..80),
        text in prop::collection::vec(any::<u8>(), 0..80),
        at: prop::sample::Index,
        bit in 0..8u32,
    ) {
        let key = AeadKey::new(number, &key[..number.key_len()]);
        let nonce = &nonce[..number.nonce_len()];
        let mut sealed = vec![0; text.len() + TAG_LEN];
        sealed[number.text_offset()..][..text.len()].copy_from_slice(&text);
        key.seal(nonce, &data, &mut sealed).unwrap();
        let mut opened = vec![0; text.len()];
        prop_assert_eq!(key.open(nonce, &data, &sealed, &mut opened), Some(text.len()));
        prop_assert_eq!(&opened, &text);
        let (mut other, mut broken) = (data.clone(), sealed.clone());
        other[at.index(data.len())] ^= 1u8 << bit;
        prop_assert_eq!(key.open(nonce, &other, &sealed, &mut opened), None);
        broken[at.index(sealed.len())] ^= 1u8 << bit;
        prop_assert_eq!(key.open(nonce, &data, &broken, &mut opened), None);
    }
}
