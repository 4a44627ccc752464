//! Arbitrary bytes as a file of symmetric keys. Parsing never panics; each parsed key appends a MAC
//! that verifies, whole and truncated, but not after a byte of the packet has changed. The notice
//! on unused lines is one line.
#![no_main]

use horolog_nts::mac::{KeyFile, MAC_LEN_MAX};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let KeyFile { keys, unused } = KeyFile::parse(bytes);
    assert_eq!(unused.to_string().lines().count(), usize::from(!unused.is_empty()));
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let words = text.lines().filter_map(|line| line.split_ascii_whitespace().next());
    let mut checked = 0;
    for key in words.filter_map(|word| keys.get(word.parse().ok()?)) {
        checked += 1;
        let whole = key.algorithm().digest_len();
        for digest_len in [whole, whole.min(20)] {
            let mut packet = [0x23; 48 + MAC_LEN_MAX];
            let len = key.append_mac(digest_len, &mut packet, 48);
            let authentic = keys.verify(&packet[..len]).map(|found| found.key.id());
            assert_eq!(authentic, Ok(key.id()));
            packet[len % 48] ^= 1;
            assert!(keys.verify(&packet[..len]).is_err());
        }
    }
    assert!(checked >= keys.len(), "a key without a line in the file");
});
