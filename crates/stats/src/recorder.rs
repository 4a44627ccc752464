//! Counting of values into the buckets of [`crate::buckets`] without allocation: the half of a
//! histogram used on a hot path.
//!
//! It only accumulates: quantiles and encodings belong to [`crate::histogram`].

use thiserror::Error;

use crate::buckets::{COUNTS, MAX_VALUE, index, lower, upper};
use crate::histogram::Histogram;

/// Largest number of values in a histogram built from external data: 2^53, so that every count is
/// exact as an `f64` and far from overflow. At ten million per second that is 28 years.
pub const MAX_COUNT: u64 = 1 << 53;

/// Reason for which external counts were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RawError {
    /// The slice does not have the layout's number of buckets.
    #[error("a histogram has {COUNTS} buckets, not {0}: the layouts differ")]
    Length(usize),
    /// The counts add up to more than [`MAX_COUNT`].
    #[error("the counts exceed {MAX_COUNT} values in total: the data are damaged")]
    TooMany,
}

/// Counter of values in the layout, with their exact number, sum, minimum and maximum.
///
/// It is designed for hot paths: [`record`](Self::record) neither allocates nor fails. Each thread
/// has its own, and the reader [`merge`](Self::merge)s them.
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
    /// The parts may have been read one after the other while they still changed, so the number of
    /// values is taken from the counts, and the extremes are moved into the outermost buckets in
    /// use. A writer may therefore leave `min` and `max` at zero until it has a value.
    pub fn from_raw(counts: &[u64], sum: u128, min: u64, max: u64) -> Result<Self, RawError> {
        let mut raw = Self::new();
        if counts.len() != COUNTS {
            return Err(RawError::Length(counts.len()));
        }
        raw.counts.copy_from_slice(counts);
        let total = counts.iter().try_fold(0_u64, |total, &n| total.checked_add(n));
        raw.count = total.filter(|&total| total <= MAX_COUNT).ok_or(RawError::TooMany)?;
        let used = |n: &u64| *n > 0;
        if let (Some(first), Some(last)) =
            (counts.iter().position(used), counts.iter().rposition(used))
        {
            raw.sum = sum;
            raw.min = min.clamp(lower(first), upper(first));
            raw.max = max.clamp(lower(last), upper(last));
        }
        Ok(raw)
    }

    /// Counts one value, clamped to [`MAX_VALUE`].
    #[inline]
    pub fn record(&mut self, value: u64) {
        let value = value.min(MAX_VALUE);
        self.counts[index(value)] += 1;
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

    /// Returns the values recorded since `earlier`, a previous copy of this recorder. Its extremes
    /// are those of its outermost buckets.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let gained = self.counts.iter().zip(earlier.counts.iter());
        let counts: Vec<u64> = gained.map(|(now, then)| now.saturating_sub(*then)).collect();
        let sum = self.sum.saturating_sub(earlier.sum);
        // The layout is this one, and there are no more values than here.
        Self::from_raw(&counts, sum, 0, u64::MAX).unwrap_or_default()
    }

    /// Clears all counts and retains the memory.
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

    /// Returns the smallest value recorded.
    #[must_use]
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// Returns the largest value recorded.
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
    use crate::buckets::index;

    fn recorded<'a>(values: impl IntoIterator<Item = &'a u64>) -> Recorder {
        let mut recorder = Recorder::new();
        for &value in values {
            recorder.record(value);
        }
        recorder
    }

    #[test]
    fn raw_parts_are_checked() {
        assert_eq!(Recorder::from_raw(&[0; 10], 0, 0, 0), Err(RawError::Length(10)));
        let mut counts = vec![0; COUNTS];
        counts[index(1_000)] = u64::MAX;
        assert_eq!(Recorder::from_raw(&counts, 0, 0, 0), Err(RawError::TooMany));
        counts[index(2_000)] = 1;
        assert_eq!(Recorder::from_raw(&counts, 0, 0, 0), Err(RawError::TooMany));
    }

    #[test]
    fn torn_extremes_are_pulled_into_the_buckets_in_use() {
        let mut counts = vec![0; COUNTS];
        counts[index(1_000)] = 2;
        let raw = Recorder::from_raw(&counts, 2_001, 0, u64::MAX).unwrap();
        assert_eq!(raw.count(), 2);
        assert_eq!(raw.min(), Some(lower(index(1_000))));
        assert_eq!(raw.max(), Some(upper(index(1_000))));
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
