//! Recorder: counts values in the buckets of [`crate::buckets`] without allocation, for hot paths.
//!
//! It only accumulates; for quantiles and encodings see [`crate::histogram`].

use thiserror::Error;

use crate::buckets::{COUNTS, MAX_VALUE, bucket_index, lower_edge, upper_edge};
use crate::histogram::Histogram;

/// Largest number of values in a histogram from external data: 2^53, so that counts are exact as
/// `f64` and cannot overflow. At 10^7 values per second it is reached after 28 years.
pub const MAX_COUNT: u64 = 1 << 53;

/// Reason for which external counts were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RawCountsError {
    /// The slice does not have the layout's number of buckets.
    #[error("a histogram has {COUNTS} buckets, not {0}: the layouts differ")]
    Length(usize),
    /// The counts add up to more than [`MAX_COUNT`].
    #[error("the counts exceed {MAX_COUNT} values in total: the data are damaged")]
    TooMany,
}

/// Counter of values in the layout, with their exact number, sum, minimum and maximum.
///
/// For hot paths: [`record`](Self::record) neither allocates nor fails. Each thread has its own
/// recorder, which the reader combines by [`merge`](Self::merge).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorder {
    counts: Box<[u64; COUNTS]>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// Creates an empty recorder: one allocation of 30 KiB.
    #[must_use]
    #[expect(clippy::large_stack_arrays, reason = "30 KiB, moved to the heap at once")]
    pub fn new() -> Self {
        Self { counts: Box::new([0; COUNTS]), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    /// Creates a recorder from external counts in this layout, such as those of one core in a
    /// kernel map, with the sum and the extremes of the clamped values.
    ///
    /// The arguments may have been read at different instants while they changed. Therefore the
    /// number of values is the sum of the counts, and the extremes are clamped to the outermost
    /// non-empty buckets; `min` and `max` may be 0 as long as there is no value.
    pub fn from_raw(counts: &[u64], sum: u128, min: u64, max: u64) -> Result<Self, RawCountsError> {
        let mut raw = Self::new();
        if counts.len() != COUNTS {
            return Err(RawCountsError::Length(counts.len()));
        }
        raw.counts.copy_from_slice(counts);
        let total = counts.iter().try_fold(0_u64, |total, &n| total.checked_add(n));
        raw.count = total.filter(|&total| total <= MAX_COUNT).ok_or(RawCountsError::TooMany)?;
        let used = |n: &u64| *n > 0;
        if let (Some(first), Some(last)) =
            (counts.iter().position(used), counts.iter().rposition(used))
        {
            raw.sum = sum;
            raw.min = min.clamp(lower_edge(first), upper_edge(first));
            raw.max = max.clamp(lower_edge(last), upper_edge(last));
        }
        Ok(raw)
    }

    /// Counts one value, clamped to [`MAX_VALUE`].
    #[inline]
    pub fn record(&mut self, value: u64) {
        let value = value.min(MAX_VALUE);
        self.counts[bucket_index(value)] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts.iter()) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Returns the values recorded since `earlier`, a previous copy of this recorder. Minimum and
    /// maximum are the edges of the outermost buckets.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let gained = self.counts.iter().zip(earlier.counts.iter());
        let counts: Vec<u64> = gained.map(|(now, then)| now.saturating_sub(*then)).collect();
        let sum = self.sum.saturating_sub(earlier.sum);
        // Cannot fail: the layout is the same, and there are no more values than in `self`.
        Self::from_raw(&counts, sum, 0, u64::MAX).unwrap_or_default()
    }

    /// Sets all counts to 0 and keeps the memory.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.count, self.sum, self.min, self.max) = (0, 0, u64::MAX, 0);
    }

    /// Returns the number of values recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the exact sum of the values recorded, after clamping.
    #[must_use]
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// Returns the smallest value recorded; `None` without values.
    #[must_use]
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// Returns the largest value recorded; `None` without values.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// Returns the number of values in each bucket.
    #[must_use]
    pub fn counts(&self) -> &[u64; COUNTS] {
        &self.counts
    }

    /// Returns the values as a histogram, the form for evaluation.
    #[must_use]
    pub fn to_histogram(&self) -> Histogram {
        Histogram::from_recorder(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::buckets::bucket_index;

    fn recorded<'a>(values: impl IntoIterator<Item = &'a u64>) -> Recorder {
        let mut recorder = Recorder::new();
        for &value in values {
            recorder.record(value);
        }
        recorder
    }

    #[test]
    fn raw_parts_are_checked() {
        assert_eq!(Recorder::from_raw(&[0; 10], 0, 0, 0), Err(RawCountsError::Length(10)));
        let mut counts = vec![0; COUNTS];
        counts[bucket_index(1_000)] = u64::MAX;
        assert_eq!(Recorder::from_raw(&counts, 0, 0, 0), Err(RawCountsError::TooMany));
        counts[bucket_index(2_000)] = 1;
        assert_eq!(Recorder::from_raw(&counts, 0, 0, 0), Err(RawCountsError::TooMany));
    }

    #[test]
    fn torn_extremes_are_pulled_into_the_buckets_in_use() {
        let mut counts = vec![0; COUNTS];
        counts[bucket_index(1_000)] = 2;
        let raw = Recorder::from_raw(&counts, 2_001, 0, u64::MAX).unwrap();
        assert_eq!(raw.count(), 2);
        assert_eq!(raw.min(), Some(lower_edge(bucket_index(1_000))));
        assert_eq!(raw.max(), Some(upper_edge(bucket_index(1_000))));
    }

    #[test]
    fn empty_raw_parts_are_an_empty_recorder() {
        assert_eq!(Recorder::from_raw(&vec![0; COUNTS], 7, 0, 0), Ok(Recorder::new()));
    }

    proptest! {
        #[test]
        fn merging_is_recording_together(
            a in prop::collection::vec(any::<u64>(), 0..50),
            b in prop::collection::vec(0_u64..100_000, 0..50),
        ) {
            let mut merged = recorded(&a);
            merged.merge(&recorded(&b));
            prop_assert_eq!(&merged, &recorded(a.iter().chain(&b)));
            merged.clear();
            prop_assert_eq!(merged, Recorder::new());
        }

        #[test]
        fn what_was_recorded_since_is_the_rest(
            a in prop::collection::vec(any::<u64>(), 0..50),
            b in prop::collection::vec(0_u64..100_000, 0..50),
        ) {
            let since = recorded(a.iter().chain(&b)).since(&recorded(&a));
            let rest = recorded(&b);
            prop_assert_eq!(since.counts(), rest.counts());
            prop_assert_eq!((since.count(), since.sum()), (rest.count(), rest.sum()));
            prop_assert!(since.min() <= rest.min() && since.max() >= rest.max());
        }

        #[test]
        fn raw_parts_round_trip(values in prop::collection::vec(any::<u64>(), 1..50)) {
            let recorder = recorded(&values);
            let (min, max) = (recorder.min().unwrap(), recorder.max().unwrap());
            let raw = Recorder::from_raw(recorder.counts(), recorder.sum(), min, max);
            prop_assert_eq!(raw, Ok(recorder));
        }
    }
}
