//! Text form of a histogram: the V2 encoding of `HdrHistogram`, compressed with zlib, in base64.
//!
//! The `hdrhistogram` crate writes it. Reading is implemented here, because histograms arrive in
//! files and messages from other hosts, and the crate's reader allocates the length that the header
//! claims and overflows on forged run lengths. This reader accepts only the layout of
//! [`crate::buckets`] and limits every step.
//!
//! | bytes | field (big-endian) |
//! |---|---|
//! | 0..4 | cookie of the compressed form |
//! | 4..8 | length of the compressed part |
//! | 8.. | zlib stream of the following |
//! | 0..4 | cookie |
//! | 4..8 | length of the counts |
//! | 8..12 | normalizing index offset: 0 |
//! | 12..16 | significant decimal digits: 2 |
//! | 16..24 | lowest discernible value: 1 |
//! | 24..32 | highest trackable value: 2^36 − 1 |
//! | 32..40 | integer to double conversion ratio: 1.0 |
//! | 40.. | counts from bucket 0 on, `ZigZag` LEB128 of at most 9 bytes; −n stands for n zeros |

use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::serialization::{Serializer as _, V2DeflateSerializer};
use thiserror::Error;

use super::SIGNIFICANT_DIGITS;
use crate::buckets::{self, COUNTS, MAX_VALUE};
use crate::recorder::{RawCountsError, Recorder};

const COMPRESSED_COOKIE: u32 = 0x1c84_9314;
const COOKIE: u32 = 0x1c84_9313;
const HEADER_LEN: usize = 40;
/// Longest encoding of one count, in bytes.
const COUNT_LEN_MAX: usize = 9;
/// Longest decompressed content of a valid histogram, in bytes.
const INFLATED_LEN_MAX: usize = HEADER_LEN + COUNTS * COUNT_LEN_MAX;
/// Longest accepted text, in bytes: base64 adds a third, and zlib expands incompressible data by
/// less than the rest.
const TEXT_LEN_MAX: usize = 2 * INFLATED_LEN_MAX;

/// Reason for which a text is not a histogram of this layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HistogramDecodeError {
    /// The text is not base64, or longer than any histogram.
    #[error("the histogram is not valid base64 text of at most {TEXT_LEN_MAX} characters")]
    Text,
    /// The bytes are cut short, or are not a V2 DEFLATE histogram.
    #[error("the histogram is truncated or not in HdrHistogram's V2 DEFLATE format")]
    Format,
    /// The histogram has other bounds or another precision, so its counts mean other values.
    #[error("the histogram has another layout than values 1 to {MAX_VALUE} and 2 digits")]
    Layout,
    /// The counts do not fit the layout, or add up to more than any measurement can.
    #[error("the histogram's counts are damaged")]
    Counts,
}

impl From<RawCountsError> for HistogramDecodeError {
    fn from(_: RawCountsError) -> Self {
        Self::Counts
    }
}

#[expect(clippy::expect_used, reason = "the comment below shows why it cannot fire")]
pub(super) fn encode(histogram: &hdrhistogram::Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    // Serialisation can fail in three ways: a write error, which a Vec does not have; more bytes
    // than a u32 counts, which 3840 buckets do not give; a count above 2^63, ruled out by
    // MAX_COUNT.
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .expect("a bounded histogram serialises into memory");
    STANDARD.encode(bytes)
}

pub(super) fn decode(text: &str) -> Result<Recorder, HistogramDecodeError> {
    if text.len() > TEXT_LEN_MAX {
        return Err(HistogramDecodeError::Text);
    }
    let bytes = STANDARD.decode(text).map_err(|_| HistogramDecodeError::Text)?;
    let inflated = inflate(&bytes)?;
    let mut input = inflated.as_slice();
    read_header(&mut input)?;
    let counts = read_counts(input)?;
    restore_recorder(&counts)
}

/// Reads the next `N` bytes.
fn take_bytes<const N: usize>(input: &mut &[u8]) -> Result<[u8; N], HistogramDecodeError> {
    let (head, rest) = input.split_first_chunk().ok_or(HistogramDecodeError::Format)?;
    *input = rest;
    Ok(*head)
}

fn take_u32(input: &mut &[u8]) -> Result<u32, HistogramDecodeError> {
    take_bytes(input).map(u32::from_be_bytes)
}

/// Decompresses the zlib stream, up to the longest content of a valid histogram.
fn inflate(mut bytes: &[u8]) -> Result<Vec<u8>, HistogramDecodeError> {
    let cookie = take_u32(&mut bytes)?;
    let length = take_u32(&mut bytes)? as usize;
    if cookie != COMPRESSED_COOKIE {
        return Err(HistogramDecodeError::Format);
    }
    let compressed = bytes.get(..length).ok_or(HistogramDecodeError::Format)?;
    let mut inflated = Vec::new();
    ZlibDecoder::new(compressed)
        .take(INFLATED_LEN_MAX as u64 + 1)
        .read_to_end(&mut inflated)
        .map_err(|_| HistogramDecodeError::Format)?;
    if inflated.len() > INFLATED_LEN_MAX {
        return Err(HistogramDecodeError::Counts);
    }
    Ok(inflated)
}

/// Checks the inner header; afterwards `input` is exactly the encoded counts.
fn read_header(input: &mut &[u8]) -> Result<(), HistogramDecodeError> {
    let cookie = take_u32(input)?;
    let length = take_u32(input)? as usize;
    if cookie != COOKIE {
        return Err(HistogramDecodeError::Format);
    }
    let offset = take_u32(input)?;
    let digits = take_u32(input)?;
    let low = u64::from_be_bytes(take_bytes(input)?);
    let high = u64::from_be_bytes(take_bytes(input)?);
    let ratio = f64::from_be_bytes(take_bytes(input)?);
    if (offset, digits, low, high, ratio.to_bits())
        != (0, u32::from(SIGNIFICANT_DIGITS), 1, MAX_VALUE, 1.0_f64.to_bits())
    {
        return Err(HistogramDecodeError::Layout);
    }
    *input = input.get(..length).ok_or(HistogramDecodeError::Format)?;
    Ok(())
}

fn read_counts(mut input: &[u8]) -> Result<Vec<u64>, HistogramDecodeError> {
    let mut counts = vec![0; COUNTS];
    let mut bucket = 0_usize;
    while !input.is_empty() {
        let number = read_signed(&mut input)?;
        if let Ok(count) = u64::try_from(number) {
            *counts.get_mut(bucket).ok_or(HistogramDecodeError::Counts)? = count;
            bucket += 1;
        } else {
            let zeros =
                usize::try_from(number.unsigned_abs()).map_err(|_| HistogramDecodeError::Counts)?;
            bucket = bucket.checked_add(zeros).ok_or(HistogramDecodeError::Counts)?;
        }
    }
    Ok(counts)
}

/// Reads a `ZigZag` LEB128 number of at most 9 bytes, the ninth of which has 8 value bits.
fn read_signed(input: &mut &[u8]) -> Result<i64, HistogramDecodeError> {
    let mut value = 0_u64;
    for index in 0..COUNT_LEN_MAX {
        let [byte] = take_bytes(input)?;
        let last = index == COUNT_LEN_MAX - 1;
        let bits = if last { byte } else { byte & 0x7f };
        value |= u64::from(bits) << (7 * index);
        if last || byte & 0x80 == 0 {
            break;
        }
    }
    Ok((value >> 1) as i64 ^ -((value & 1) as i64))
}

/// Creates a recorder from the counts. Sum and extremes have the precision of the buckets.
fn restore_recorder(counts: &[u64]) -> Result<Recorder, HistogramDecodeError> {
    let used = |n: &u64| *n > 0;
    let first = counts.iter().position(used).unwrap_or(0);
    let last = counts.iter().rposition(used).unwrap_or(0);
    let sum = (0..)
        .zip(counts)
        .map(|(bucket, &n)| {
            let middle = buckets::lower_edge(bucket).midpoint(buckets::upper_edge(bucket));
            u128::from(n) * u128::from(middle)
        })
        .sum();
    Ok(Recorder::from_raw(counts, sum, buckets::lower_edge(first), buckets::upper_edge(last))?)
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::Deserializer;
    use proptest::prelude::*;

    use super::super::Histogram;
    use super::*;

    fn histogram() -> impl Strategy<Value = Histogram> {
        let value = (0..=MAX_VALUE, 0_u32..36).prop_map(|(value, shift)| value >> shift);
        prop::collection::vec(value, 0..200).prop_map(|values| {
            let mut histogram = Histogram::new();
            for value in values {
                histogram.record(value);
            }
            histogram
        })
    }

    fn wrap(payload: &[u8]) -> String {
        let mut encoder =
            flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut encoder, payload).unwrap();
        let compressed = encoder.finish().unwrap();
        let mut bytes = COMPRESSED_COOKIE.to_be_bytes().to_vec();
        bytes.extend((compressed.len() as u32).to_be_bytes());
        bytes.extend(compressed);
        STANDARD.encode(bytes)
    }

    fn payload(high: u64, counts: &[u8]) -> Vec<u8> {
        let mut bytes = COOKIE.to_be_bytes().to_vec();
        bytes.extend((counts.len() as u32).to_be_bytes());
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 2]);
        bytes.extend(1_u64.to_be_bytes());
        bytes.extend(high.to_be_bytes());
        bytes.extend(1.0_f64.to_be_bytes());
        bytes.extend(counts);
        bytes
    }

    #[test]
    fn a_small_histogram_is_read_byte_by_byte() {
        // Three zeros (-3 as ZigZag 5), then a count of 2 (4): two values of 3.
        let decoded = Histogram::decode(&wrap(&payload(MAX_VALUE, &[5, 4]))).unwrap();
        assert_eq!((decoded.count(), decoded.min(), decoded.max()), (2, Some(3), Some(3)));
        assert!((decoded.mean().unwrap() - 3.0).abs() < 1e-9);
    }

    #[test]
    fn foreign_and_forged_texts_are_refused() {
        let refused = |text: &str| Histogram::decode(text).unwrap_err();
        assert_eq!(refused("no base64!"), HistogramDecodeError::Text);
        assert_eq!(refused(&"A".repeat(TEXT_LEN_MAX + 4)), HistogramDecodeError::Text);
        assert_eq!(refused(""), HistogramDecodeError::Format);
        assert_eq!(refused("AAAAAAAAAAAA"), HistogramDecodeError::Format);
        assert_eq!(refused(&wrap(&payload(1_000_000, &[]))), HistogramDecodeError::Layout);
        // The most negative number: a run of 2^63 zeros.
        assert_eq!(
            refused(&wrap(&payload(MAX_VALUE, &[[0xff; 9], [0xff; 9]].concat()))),
            HistogramDecodeError::Counts
        );
        assert_eq!(refused(&wrap(&payload(MAX_VALUE, &[0x80]))), HistogramDecodeError::Format);
        // One count past the last bucket: 3840 zeros first.
        assert_eq!(
            refused(&wrap(&payload(MAX_VALUE, &[0xff, 0x3b, 2]))),
            HistogramDecodeError::Counts
        );
        // A zlib stream of a megabyte of zeros.
        assert_eq!(refused(&wrap(&vec![0; 1 << 20])), HistogramDecodeError::Counts);
        let mut long = payload(MAX_VALUE, &[2]);
        long[4] = 0xff;
        assert_eq!(refused(&wrap(&long)), HistogramDecodeError::Format);
    }

    proptest! {
        #[test]
        fn decoding_restores_every_bucket(histogram in histogram()) {
            let decoded = Histogram::decode(&histogram.encode()).unwrap();
            prop_assert_eq!(&decoded.inner, &histogram.inner);
            if let (Some(before), Some(after)) = (histogram.mean(), decoded.mean()) {
                prop_assert!((before - after).abs() <= before / 128.0);
            }
        }

        #[test]
        fn the_reference_reader_reads_it_too(histogram in histogram()) {
            let bytes = STANDARD.decode(histogram.encode()).unwrap();
            let read = Deserializer::new().deserialize::<u64, _>(&mut bytes.as_slice()).unwrap();
            prop_assert_eq!(read, histogram.inner);
        }

        #[test]
        fn random_counts_never_panic(counts in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Histogram::decode(&wrap(&payload(MAX_VALUE, &counts)));
        }

        #[test]
        fn damaged_text_never_panics(histogram in histogram(), at: usize, byte: u8) {
            let mut bytes = STANDARD.decode(histogram.encode()).unwrap();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = Histogram::decode(&STANDARD.encode(bytes));
        }
    }
}
