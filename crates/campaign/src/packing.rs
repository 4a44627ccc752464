//! Serialisation of values as gzip-compressed JSON, and decompression with a limit of the size.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::Serialize;

/// Serialises a value as compressed JSON.
///
/// # Errors
///
/// The value has no representation in JSON.
pub(crate) fn pack(value: &impl Serialize) -> io::Result<Vec<u8>> {
    pack_within(value, u64::MAX).map(Option::unwrap_or_default)
}

/// Serialises a value as compressed JSON; `None` if the text exceeds `bytes_max` before
/// compression.
///
/// # Errors
///
/// The value has no representation in JSON.
pub(crate) fn pack_within(value: &impl Serialize, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let mut writer = BoundedGzipWriter { encoder, bytes: 0, bytes_max };
    match serde_json::to_writer(&mut writer, value) {
        Err(_) if writer.bytes > bytes_max => return Ok(None),
        written => written?,
    }
    writer.encoder.flush()?;
    writer.encoder.finish().map(Some)
}

/// Writer that compresses with gzip, and fails once more than `bytes_max` bytes were written to it.
struct BoundedGzipWriter {
    encoder: GzEncoder<Vec<u8>>,
    bytes: u64,
    bytes_max: u64,
}

impl Write for BoundedGzipWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.bytes > self.bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.encoder.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.encoder.flush()
    }
}

/// Decompresses a packed value to its JSON text; `None` if the text exceeds `bytes_max`.
///
/// # Errors
///
/// The bytes cannot be decompressed.
pub(crate) fn unpack(packed: &[u8], bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    GzDecoder::new(packed).take(bytes_max + 1).read_to_end(&mut text)?;
    Ok(Some(text).filter(|text| text.len() as u64 <= bytes_max))
}

/// Formats bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
