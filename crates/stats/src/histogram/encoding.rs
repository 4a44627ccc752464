//! Text form of a histogram: the V2 encoding of `HdrHistogram`, compressed with zlib, in base64.
//!
//! Histograms arrive in files and messages from other hosts, so the reader accepts only the layout
//! of [`crate::buckets`] and limits every step. The tests compare both directions with the
//! `hdrhistogram` crate, whose reader allocates the length that the header claims and overflows on
//! forged run lengths.
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

use std::io::{Read, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use thiserror::Error;

use super::{Histogram, TooManyValues};
use crate::buckets::{COUNTS, MAX_VALUE, lower_edge, upper_edge};

const COMPRESSED_COOKIE: u32 = 0x1c84_9314;
const COOKIE: u32 = 0x1c84_9313;
const HEADER_LEN: usize = 40;
/// Significant decimal digits of the layout.
const SIGNIFICANT_DIGITS: u32 = 2;
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

impl From<TooManyValues> for HistogramDecodeError {
    fn from(_: TooManyValues) -> Self {
        Self::Counts
    }
}

pub(super) fn encode(counts: &[u64; COUNTS]) -> String {
    let counts = write_counts(counts);
    let head = [COOKIE, counts.len() as u32, 0, SIGNIFICANT_DIGITS].map(u32::to_be_bytes);
    let layout = [1, MAX_VALUE, 1.0_f64.to_bits()].map(u64::to_be_bytes);
    STANDARD.encode(deflate(&[head.as_flattened(), layout.as_flattened(), &counts].concat()))
}

#[expect(clippy::expect_used, reason = "writing to a Vec does not fail")]
fn deflate(inflated: &[u8]) -> Vec<u8> {
    let head = [COMPRESSED_COOKIE, 0].map(u32::to_be_bytes);
    let mut encoder = ZlibEncoder::new(head.as_flattened().to_vec(), Compression::default());
    let bytes = encoder.write_all(inflated).and_then(|()| encoder.finish());
    let mut bytes = bytes.expect("memory takes every byte");
    let length = (bytes.len() - head.as_flattened().len()) as u32;
    bytes[4..8].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// Encodes the counts up to the last non-zero one, at least one count. A single zero is written as
/// the count that it is, as the reference implementation does.
fn write_counts(counts: &[u64; COUNTS]) -> Vec<u8> {
    let len = counts.iter().rposition(|&n| n > 0).unwrap_or(0) + 1;
    let mut bytes = Vec::new();
    for run in counts[..len].chunk_by(|a, b| (*a, *b) == (0, 0)) {
        let number = if run.len() > 1 { -(run.len() as i64) } else { run[0].cast_signed() };
        write_signed(number, &mut bytes);
    }
    bytes
}

/// Appends a `ZigZag` LEB128 number of at most 9 bytes, the ninth of which has 8 value bits.
fn write_signed(number: i64, bytes: &mut Vec<u8>) {
    let mut value = ((number << 1) ^ (number >> 63)).cast_unsigned();
    for _ in 1..COUNT_LEN_MAX {
        if value < 0x80 {
            break;
        }
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

pub(super) fn decode(text: &str) -> Result<Histogram, HistogramDecodeError> {
    if text.len() > TEXT_LEN_MAX {
        return Err(HistogramDecodeError::Text);
    }
    let bytes = STANDARD.decode(text).map_err(|_| HistogramDecodeError::Text)?;
    let inflated = inflate(&bytes)?;
    let mut input = inflated.as_slice();
    read_header(&mut input)?;
    let counts = read_counts(input)?;
    restore(&counts)
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
        != (0, SIGNIFICANT_DIGITS, 1, MAX_VALUE, 1.0_f64.to_bits())
    {
        return Err(HistogramDecodeError::Layout);
    }
    *input = input.get(..length).ok_or(HistogramDecodeError::Format)?;
    Ok(())
}

fn read_counts(mut input: &[u8]) -> Result<Box<[u64; COUNTS]>, HistogramDecodeError> {
    let mut counts = Histogram::new().counts;
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

/// Creates a histogram from the counts. Sum and extremes have the precision of the buckets.
fn restore(counts: &[u64; COUNTS]) -> Result<Histogram, HistogramDecodeError> {
    let sum = (0..)
        .zip(counts)
        .map(|(bucket, &n)| {
            let middle = lower_edge(bucket).midpoint(upper_edge(bucket));
            u128::from(n) * u128::from(middle)
        })
        .sum();
    Ok(Histogram::from_raw(counts, sum, 0, u64::MAX)?)
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};
    use proptest::prelude::*;

    use super::super::MAX_COUNT;
    use super::super::tests::{recorded, reference, values};
    use super::*;

    fn reference_text(histogram: &hdrhistogram::Histogram<u64>) -> String {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(histogram, &mut bytes).unwrap();
        STANDARD.encode(bytes)
    }

    fn reference_reading(text: &str) -> hdrhistogram::Histogram<u64> {
        let bytes = STANDARD.decode(text).unwrap();
        Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap()
    }

    fn wrap(payload: &[u8]) -> String {
        STANDARD.encode(deflate(payload))
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
        fn decoding_restores_every_bucket(values in values()) {
            let histogram = recorded(&values);
            let decoded = Histogram::decode(&histogram.encode()).unwrap();
            prop_assert_eq!(decoded.counts(), histogram.counts());
            if let (Some(before), Some(after)) = (histogram.mean(), decoded.mean()) {
                prop_assert!((before - after).abs() <= before / 128.0);
            }
        }

        #[test]
        fn the_reference_writes_the_same_text_and_reads_it(values in values()) {
            let (histogram, reference) = (recorded(&values), reference(&values));
            let text = histogram.encode();
            prop_assert_eq!(&text, &reference_text(&reference));
            prop_assert_eq!(reference_reading(&text), reference);
        }

        /// Runs of zeros and counts of every length, up to 9 bytes as damaged data may have them.
        #[test]
        fn the_reference_writes_the_same_text_for_any_counts(
            runs in prop::collection::vec((0_usize..400, any::<u64>(), 8_u32..64), 0..40),
        ) {
            let mut counts = Histogram::new().counts;
            let mut reference = reference(&[]);
            let mut bucket = 0;
            for (zeros, count, shift) in runs {
                bucket += zeros;
                let Some(slot) = counts.get_mut(bucket) else { break };
                *slot = (count >> shift).max(1);
                reference.record_n(lower_edge(bucket), *slot).unwrap();
                bucket += 1;
            }
            prop_assert_eq!(encode(&counts), reference_text(&reference));
            let total = counts.iter().map(|&n| u128::from(n)).sum::<u128>();
            let decoded = decode(&encode(&counts));
            prop_assert_eq!(decoded.is_ok(), total <= u128::from(MAX_COUNT));
            if let Ok(decoded) = decoded {
                prop_assert_eq!(decoded.counts, counts);
            }
        }

        #[test]
        fn random_counts_never_panic(counts in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Histogram::decode(&wrap(&payload(MAX_VALUE, &counts)));
        }

        #[test]
        fn damaged_text_never_panics(values in values(), at: usize, byte: u8) {
            let mut bytes = STANDARD.decode(recorded(&values).encode()).unwrap();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = Histogram::decode(&STANDARD.encode(bytes));
        }
    }
}
