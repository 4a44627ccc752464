//! Histogram of the response times of the socket threads: transmit timestamp of a reply minus
//! receive timestamp of its request. Counts only increase, so that the difference of two readings
//! is the histogram of the replies in between.

use horolog_time::Span;
use serde::ser::{SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};

/// Upper bounds of all buckets but the last, in nanoseconds. A request that has waited longer than
/// the life of a clock page, by default 1 s, is not answered.
pub(crate) const BOUNDS_NS: [u64; BUCKETS - 1] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
];
/// Number of buckets, including the last one without an upper bound.
pub(crate) const BUCKETS: usize = 20;

/// Histogram of response times; in JSON the bounds accompany the counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
pub struct ResponseTimeHistogram {
    /// Count of each bucket (not cumulative).
    pub(crate) counts: [u64; BUCKETS],
    /// Sum of all response times, in nanoseconds.
    pub(crate) sum_ns: u64,
}

impl ResponseTimeHistogram {
    /// Counts one response time. A negative one, after a step of the served time in between, counts
    /// as zero.
    pub(crate) fn count(&mut self, time: Span) {
        let ns = u64::try_from(time.as_ns()).unwrap_or(0);
        self.counts[BOUNDS_NS.partition_point(|bound| *bound < ns)] += 1;
        self.sum_ns += ns;
    }

    /// Returns the number of response times.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the increase since an earlier reading.
    pub(crate) fn since(mut self, earlier: &Self) -> Self {
        for (count, before) in self.counts.iter_mut().zip(earlier.counts) {
            *count = count.saturating_sub(before);
        }
        self.sum_ns = self.sum_ns.saturating_sub(earlier.sum_ns);
        self
    }

    /// Returns the quantile at `share` (0 to 1), in nanoseconds, interpolated linearly within its
    /// bucket; the last bound if it lies above all bounds. `None` without response times.
    pub(crate) fn quantile_ns(&self, share: f64) -> Option<f64> {
        let wanted = share * self.total() as f64;
        let (mut below, mut lower) = (0.0, 0.0);
        for (count, upper) in self.counts.iter().zip(BOUNDS_NS) {
            let (count, upper) = (*count as f64, upper as f64);
            if count > 0.0 && below + count >= wanted {
                return Some(lower + (upper - lower) * (wanted - below) / count);
            }
            (below, lower) = (below + count, upper);
        }
        (self.total() > 0).then_some(lower)
    }
}

impl std::ops::AddAssign for ResponseTimeHistogram {
    fn add_assign(&mut self, other: Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
        self.sum_ns += other.sum_ns;
    }
}

impl Serialize for ResponseTimeHistogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("ResponseTimeHistogram", 3)?;
        object.serialize_field("bounds_ns", &BOUNDS_NS)?;
        object.serialize_field("counts", &self.counts)?;
        object.serialize_field("sum_ns", &self.sum_ns)?;
        object.end()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(times_ns: &[i64]) -> ResponseTimeHistogram {
        let mut times = ResponseTimeHistogram::default();
        for ns in times_ns {
            times.count(Span::from_ns(*ns));
        }
        times
    }

    #[test]
    fn bounds_belong_to_the_bucket_below_them() {
        for (index, bound) in BOUNDS_NS.into_iter().enumerate() {
            let times = of(&[bound.cast_signed(), bound.cast_signed() + 1]);
            let mut counts = [0; BUCKETS];
            (counts[index], counts[index + 1]) = (1, 1);
            assert_eq!((times.counts, times.sum_ns), (counts, 2 * bound + 1), "{bound}");
        }
    }

    #[test]
    fn negative_times_count_as_zero_and_the_longest_have_a_bucket() {
        let times = of(&[-1, i64::MIN, 0, i64::MAX]);
        assert_eq!((times.counts[0], times.counts[BUCKETS - 1], times.total()), (3, 1, 4));
        assert_eq!(times.sum_ns, i64::MAX.cast_unsigned());
    }

    #[test]
    fn quantiles_are_of_the_replies_in_between() {
        let earlier = of(&[900_000_000; 1_000]);
        let mut later = earlier;
        // 98 between 10 and 20 µs, and 2 between 2 and 5 ms.
        later += of(&[15_000; 98]);
        later += of(&[3_000_000; 2]);
        let between = later.since(&earlier);
        assert_eq!((between.total(), between.sum_ns), (100, 98 * 15_000 + 2 * 3_000_000));
        assert_eq!(between.quantile_ns(0.49), Some(15_000.0));
        assert_eq!(between.quantile_ns(0.98), Some(20_000.0));
        assert_eq!(between.quantile_ns(0.99), Some(3_500_000.0));
        assert_eq!(later.since(&later).quantile_ns(0.5), None);
    }

    #[test]
    fn above_all_bounds_the_last_one_is_returned() {
        assert_eq!(of(&[2_000_000_000]).quantile_ns(0.5), Some(1e9));
    }

    #[test]
    fn json_has_the_bounds_and_is_read_again() {
        let times = of(&[1, 3_000, 2_000_000_000]);
        let json = serde_json::to_value(times).unwrap();
        let lengths = ["bounds_ns", "counts"].map(|name| json[name].as_array().unwrap().len());
        assert_eq!(lengths, [BUCKETS - 1, BUCKETS]);
        assert_eq!(serde_json::from_value::<ResponseTimeHistogram>(json).unwrap(), times);
    }

    proptest! {
        #[test]
        fn a_quantile_lies_in_the_bucket_of_the_time_that_it_is_of(
            mut times_ns in proptest::collection::vec(0..1_000_000_000_i64, 1..50),
            share in 0.0..=1.0,
        ) {
            let quantile = of(&times_ns).quantile_ns(share).unwrap();
            times_ns.sort_unstable();
            let rank = (share * times_ns.len() as f64).ceil().max(1.0) as usize;
            let time = times_ns[rank - 1].cast_unsigned();
            let bucket = BOUNDS_NS.partition_point(|bound| *bound < time);
            let lower = if bucket == 0 { 0 } else { BOUNDS_NS[bucket - 1] };
            prop_assert!(quantile >= lower as f64 && quantile <= BOUNDS_NS[bucket] as f64);
        }
    }
}
