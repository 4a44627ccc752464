//! Bucket layout of every latency histogram of this project, in the kernel and in user space.
//!
//! The layout is `HdrHistogram`'s for two significant decimal digits, lowest value 1 and highest
//! value 2^36 − 1 (68.7 s in nanoseconds): values below 256 have a bucket each; above, every octave
//! is divided into 128 equal buckets, so a bucket is never wider than 1/128 (0.78%) of its lower
//! edge. Larger values are clamped into the last bucket.
//!
//! This module maps values to buckets and stores nothing: [`crate::Histogram`] counts.

/// Largest value of the layout, 2^36 − 1. Larger values are recorded as this one.
pub const MAX_VALUE: u64 = (1 << 36) - 1;

/// Number of buckets: 30 runs of 128, for 256 single values and 28 octaves above them.
pub const COUNTS: usize = (36 - 8 + 2) * SUB_BUCKETS as usize;

/// Number of buckets per octave, and its base-2 logarithm.
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
/// The clamp is the only branch. BPF programs implement these two lines in C and are checked
/// against [`TEST_VECTORS`].
#[inline]
#[must_use]
pub const fn bucket_index(value: u64) -> usize {
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
pub const fn lower_edge(index: usize) -> u64 {
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
pub const fn upper_edge(index: usize) -> u64 {
    lower_edge(index) + ((1 << octave_shift(index)) - 1)
}

/// Returns the right shift that maps a value of this bucket to its position in the octave.
const fn octave_shift(index: usize) -> u32 {
    ((index as u64 >> SUB_BUCKET_BITS) as u32).saturating_sub(1)
}

/// Pairs of value and bucket index at all kinds of bucket edges, to test other implementations.
pub const TEST_VECTORS: &[(u64, usize)] = &[
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
        for &(value, expected) in TEST_VECTORS {
            assert_eq!(bucket_index(value), expected, "value {value}");
        }
    }

    #[test]
    fn layout_is_that_of_hdrhistogram() {
        let reference = reference();
        assert_eq!(reference.distinct_values(), COUNTS);
        for bucket in 0..COUNTS {
            let low = lower_edge(bucket);
            assert_eq!(reference.lowest_equivalent(low), low);
            assert_eq!(reference.highest_equivalent(low), upper_edge(bucket));
            assert_eq!(bucket_index(low), bucket);
            assert_eq!(bucket_index(upper_edge(bucket)), bucket);
        }
        assert_eq!(upper_edge(COUNTS - 1), MAX_VALUE);
    }

    #[test]
    fn buckets_touch_and_stay_narrow() {
        for bucket in 1..COUNTS {
            assert_eq!(lower_edge(bucket), upper_edge(bucket - 1) + 1);
            let width = upper_edge(bucket) - lower_edge(bucket);
            assert!(width * 128 <= lower_edge(bucket), "bucket {bucket}");
        }
    }

    proptest! {
        #[test]
        fn index_agrees_with_hdrhistogram(value in 0..=MAX_VALUE, shift in 0_u32..36) {
            let value = value >> shift;
            prop_assert_eq!(lower_edge(bucket_index(value)), reference().lowest_equivalent(value));
        }
    }
}
