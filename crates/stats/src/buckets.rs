//! Bucket layout of every latency histogram of this project, in the kernel and in user space.
//!
//! The layout is `HdrHistogram`'s for two significant decimal digits, lowest value 1 and highest
//! value 2^36 − 1 (68.7 s in nanoseconds): values below 256 have a bucket each; above, every octave
//! is divided into 128 equal buckets, so a bucket is never wider than 1/128 (0.78%) of its lower
//! edge. Larger values are clamped into the last bucket.
//!
//! This module maps values to buckets and stores nothing: [`crate::Recorder`] counts,
//! [`crate::Histogram`] evaluates.

/// Largest value that is not clamped: 2^36 − 1. Larger ones are recorded as this one.
pub const MAX_VALUE: u64 = (1 << 36) - 1;

/// Number of buckets: 30 runs of 128, for 256 single values and 28 octaves above them.
pub const COUNTS: usize = (36 - 8 + 2) * SUB_BUCKETS as usize;

/// Buckets in one octave, and the base-2 logarithm of that number.
const SUB_BUCKETS: u64 = 1 << SUB_BUCKET_BITS;
const SUB_BUCKET_BITS: u32 = 7;

/// Returns the bucket of `value`, below [`COUNTS`].
///
/// With `v = min(value, 2^36 - 1)` and `clz` the number of leading zeros of a 64-bit word:
///
/// ```text
/// s     = 56 - clz(v | 128)      /* 0 for v < 256, else floor(log2(v)) - 7 */
/// index = s * 128 + (v >> s)
/// ```
///
/// There is no branch besides the clamp. In-kernel code implements these two lines in C and is
/// checked against [`VECTORS`].
#[inline]
#[must_use]
pub const fn index(value: u64) -> usize {
    let v = if value > MAX_VALUE { MAX_VALUE } else { value };
    let shift = (63 - SUB_BUCKET_BITS) - (v | SUB_BUCKETS).leading_zeros();
    ((shift as u64) * SUB_BUCKETS + (v >> shift)) as usize
}

/// Returns the smallest value of bucket `index`.
///
/// # Panics
///
/// Panics if `index` is not below [`COUNTS`].
#[must_use]
pub const fn lower(index: usize) -> u64 {
    assert!(index < COUNTS, "bucket index past the end of the layout");
    let shift = octave_shift(index);
    (index as u64 - shift as u64 * SUB_BUCKETS) << shift
}

/// Returns the largest value of bucket `index`, inclusive.
///
/// # Panics
///
/// Panics if `index` is not below [`COUNTS`].
#[must_use]
pub const fn upper(index: usize) -> u64 {
    lower(index) + ((1 << octave_shift(index)) - 1)
}

/// Returns the right shift of this bucket's values that gives the position in the octave.
const fn octave_shift(index: usize) -> u32 {
    ((index as u64 >> SUB_BUCKET_BITS) as u32).saturating_sub(1)
}

/// Pairs of value and bucket index: every kind of edge that an implementation can get wrong.
pub const VECTORS: &[(u64, usize)] = &[
    (0, 0),
    (1, 1),
    (127, 127),
    (128, 128),
    (255, 255),
    (256, 256),
    (257, 256),
    (258, 257),
    (511, 383),
    (512, 384),
    (515, 384),
    (516, 385),
    (1_000, 506),
    (1_000_000, 1_780),
    (1_000_000_000, 3_054),
    ((1 << 35) - 1, 3_711),
    (1 << 35, 3_712),
    (MAX_VALUE - 1, 3_839),
    (MAX_VALUE, 3_839),
    (MAX_VALUE + 1, 3_839),
    (u64::MAX, 3_839),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reference() -> hdrhistogram::Histogram<u64> {
        hdrhistogram::Histogram::new_with_bounds(1, MAX_VALUE, 2).unwrap()
    }

    #[test]
    fn vectors_hold() {
        for &(value, expected) in VECTORS {
            assert_eq!(index(value), expected, "value {value}");
        }
    }

    #[test]
    fn layout_is_that_of_hdrhistogram() {
        let reference = reference();
        assert_eq!(reference.distinct_values(), COUNTS);
        for bucket in 0..COUNTS {
            let low = lower(bucket);
            assert_eq!(reference.lowest_equivalent(low), low);
            assert_eq!(reference.highest_equivalent(low), upper(bucket));
            assert_eq!(index(low), bucket);
            assert_eq!(index(upper(bucket)), bucket);
        }
        assert_eq!(upper(COUNTS - 1), MAX_VALUE);
    }

    #[test]
    fn buckets_touch_and_stay_narrow() {
        for bucket in 1..COUNTS {
            assert_eq!(lower(bucket), upper(bucket - 1) + 1);
            let width = upper(bucket) - lower(bucket);
            assert!(width * 128 <= lower(bucket), "bucket {bucket}");
        }
    }

    proptest! {
        #[test]
        fn index_agrees_with_hdrhistogram(value in 0..=MAX_VALUE, shift in 0_u32..36) {
            let value = value >> shift;
            prop_assert_eq!(lower(index(value)), reference().lowest_equivalent(value));
        }
    }
}
