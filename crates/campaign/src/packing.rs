//! Values as compressed JSON, for messages and for what lies at a broker; and back, within bounds.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::Serialize;

/// Packs a value.
///
/// # Errors
///
/// It has no form in JSON.
pub(crate) fn pack(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    serde_json::to_writer(&mut encoder, value)?;
    encoder.flush()?;
    encoder.finish()
}

/// The JSON text of a packed value; `None` where it is longer than that.
///
/// # Errors
///
/// It cannot be unpacked.
pub(crate) fn unpack(packed: &[u8], bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    GzDecoder::new(packed).take(bytes_max + 1).read_to_end(&mut text)?;
    Ok(Some(text).filter(|text| text.len() as u64 <= bytes_max))
}
