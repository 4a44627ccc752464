//! Stored form of a result's text: its length, then the text compressed with DEFLATE. The length
//! limits the output of decompression and reveals damage.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

/// Largest length of a result, in bytes; a damaged length never allocates more memory.
const LENGTH_MAX: u64 = 1 << 30;
const LENGTH_BYTES: usize = 8;

pub(crate) fn pack(text: &str) -> Vec<u8> {
    let mut packed = (text.len() as u64).to_le_bytes().to_vec();
    let mut encoder = DeflateEncoder::new(&mut packed, Compression::fast());
    // Compression in memory cannot fail.
    let written = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish().map(drop));
    debug_assert!(written.is_ok());
    packed
}

/// Returns the text of a stored result; `None` if it is damaged.
pub(crate) fn unpack(packed: &[u8]) -> Option<String> {
    let (length, deflated) = packed.split_first_chunk::<LENGTH_BYTES>()?;
    let length = u64::from_le_bytes(*length);
    if length > LENGTH_MAX {
        return None;
    }
    let mut text = String::new();
    // Reading one byte more than the stated length reveals excess data.
    DeflateDecoder::new(deflated).take(length + 1).read_to_string(&mut text).ok()?;
    (text.len() as u64 == length).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_packed_comes_out(text in any::<String>()) {
            prop_assert_eq!(unpack(&pack(&text)), Some(text));
        }

        #[test]
        fn what_is_damaged_never_panics(bytes in any::<Vec<u8>>()) {
            let _ = unpack(&bytes);
        }
    }

    #[test]
    fn truncation_is_detected() {
        let packed = pack("a result that is long enough to be cut off somewhere in its middle");
        for length in 0..packed.len() {
            assert_eq!(unpack(&packed[..length]), None, "{length}");
        }
    }
}
