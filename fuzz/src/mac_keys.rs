//! Any bytes as a file of symmetric keys. Reading it never panics; each key that it gives appends a
//! MAC that verifies, whole and truncated, and no longer once a byte of the packet has changed. The
//! notice of the other lines is one line.
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
    assert!(checked >= keys.len(), "a key that no line gives");
});
