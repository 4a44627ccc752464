//! Any text as a file of symmetric keys. Reading it never panics; each key that it gives appends a
//! MAC that verifies, whole and truncated, and no more once a byte of the packet has changed.
#![no_main]

use horolog_nts::mac::{KeyTable, MAC_LEN_MAX};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let keys = match KeyTable::parse(&text) {
        Ok(keys) => keys,
        Err(error) => {
            assert!((1..=text.lines().count()).contains(&error.line));
            return assert!(!error.to_string().is_empty());
        }
    };
    let words = text.lines().filter_map(|line| line.split_whitespace().next());
    let mut seen = 0;
    for key in words.filter_map(|word| keys.get(word.parse().ok()?)) {
        seen += 1;
        let whole = key.algorithm().digest_len();
        for digest_len in [whole, whole.min(20)] {
            let mut packet = [0x23; 48 + MAC_LEN_MAX];
            let len = key.append(digest_len, &mut packet, 48);
            let authentic = keys.verify(&packet[..len]).map(|found| found.key.id());
            assert_eq!(authentic, Ok(key.id()));
            packet[len % 48] ^= 1;
            assert!(keys.verify(&packet[..len]).is_err());
        }
    }
    assert!(seen >= keys.len(), "a key that no line gives");
});
