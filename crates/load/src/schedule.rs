//! When requests are meant to leave. A schedule gives intended instants and nothing else:
//! it never looks at a clock and never makes up for a late sender, so what it plans is
//! kept whatever happens.
//!
//! Instants are fixed-point numbers of 2^-16 ns behind the start of the trial; the in-kernel engine
//! steps by the same numbers.

use std::sync::LazyLock;
use std::time::Duration;

use horolog_record::Spacing;
use horolog_time::{Monotonic, Span, Timestamp};

use crate::random::SplitMix64;

/// Binary places behind the point of an interval in nanoseconds, and of a quantile.
pub const FRACTION_BITS: u32 = 16;

/// Entries in [`exponential_quantiles`]; a 16-bit random number picks one.
pub const QUANTILES: usize = 1 << 16;

/// The interval between one lane's requests, in 2^-16 ns: `lanes` × 10^9 / `rate`, rounded up so
/// that no request more than asked for fits into a trial. `None` for a rate that is not positive,
/// or so low that the interval exceeds 18 hours.
#[must_use]
pub fn interval(rate: f64, lanes: usize) -> Option<u64> {
    let exact = 1e9 * f64::from(1 << FRACTION_BITS) * lanes as f64 / rate;
    let fits = exact.is_finite() && (1.0..(1_u64 << 62) as f64).contains(&exact);
    fits.then(|| exact.ceil() as u64)
}

/// 65,536 equally likely quantiles of the exponential distribution in 2^-16, in rising order. Their
/// mean is exactly 1, so a Poisson trial offers exactly its rate on average.
#[must_use]
pub fn exponential_quantiles() -> &'static [u32] {
    static TABLE: LazyLock<Box<[u32]>> = LazyLock::new(build_quantiles);
    &TABLE
}

fn build_quantiles() -> Box<[u32]> {
    let mut table = vec![0; QUANTILES].into_boxed_slice();
    let mut sum = 0;
    for (index, entry) in table.iter_mut().enumerate() {
        let probability = (index as f64 + 0.5) / QUANTILES as f64;
        *entry = (-(-probability).ln_1p() * f64::from(1 << FRACTION_BITS)).round() as u32;
        sum += u64::from(*entry);
    }
    // Midpoints fall short of the tail's mean, and rounding adds its own: the largest quantile
    // takes up the difference, which is a small part of it.
    let wanted = (QUANTILES as u64) << FRACTION_BITS;
    table[QUANTILES - 1] += (wanted - sum) as u32;
    table
}

/// `interval` × `quantile`, both in 2^-16, without a product wider than 64 bits.
#[must_use]
pub const fn scale(interval: u64, quantile: u32) -> u64 {
    let low = interval & ((1 << FRACTION_BITS) - 1);
    (interval >> FRACTION_BITS) * quantile as u64 + ((low * quantile as u64) >> FRACTION_BITS)
}

/// One lane's intended instants.
#[derive(Clone, Debug)]
pub struct Schedule {
    start: Timestamp<Monotonic>,
    interval: u64,
    random: Option<(SplitMix64, &'static [u32])>,
    /// The next intended instant behind `start`, in 2^-16 ns.
    next: u64,
    /// The offset behind `start` at which the schedule ends, in 2^-16 ns.
    end: u64,
    planned: u64,
}

impl Schedule {
    /// The schedule of lane `lane` of `lanes` that together offer `rate` requests per second for
    /// `duration` from `start`; `seed` sets the order of exponential intervals. Lanes of constant
    /// spacing interleave evenly. `None` where [`interval`] is.
    #[must_use]
    pub fn new(
        start: Timestamp<Monotonic>,
        rate: f64,
        duration: Duration,
        spacing: Spacing,
        (lane, lanes): (usize, usize),
        seed: u64,
    ) -> Option<Self> {
        let interval = interval(rate, lanes)?;
        let end = u64::try_from(duration.as_nanos()).ok()?.checked_mul(1 << FRACTION_BITS)?;
        let mut schedule = Self { start, interval, random: None, next: 0, end, planned: 0 };
        match spacing {
            Spacing::Constant => schedule.next = interval / lanes as u64 * lane as u64,
            Spacing::Exponential => {
                schedule.random = Some((
                    SplitMix64::new(seed.wrapping_add(lane as u64)),
                    exponential_quantiles(),
                ));
                schedule.next = schedule.step();
            }
        }
        Some(schedule)
    }

    /// The next intended instant, or `None` once the trial's duration is full.
    #[must_use]
    pub fn peek(&self) -> Option<Timestamp<Monotonic>> {
        let offset = Span::from_ns((self.next >> FRACTION_BITS).cast_signed());
        (self.next < self.end).then(|| self.start + offset)
    }

    /// Takes the instant that [`Self::peek`] shows.
    pub fn advance(&mut self) {
        self.next = self.next.saturating_add(self.step());
        self.planned += 1;
    }

    /// The number of instants taken so far.
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.planned
    }

    /// Takes all that is left and returns the number of instants that the whole schedule had.
    pub fn exhaust(&mut self) -> u64 {
        if self.random.is_none() && self.next < self.end {
            let left = (self.end - self.next).div_ceil(self.interval);
            self.planned += left;
            self.next = self.end;
        }
        while self.peek().is_some() {
            self.advance();
        }
        self.planned
    }

    fn step(&mut self) -> u64 {
        match &mut self.random {
            None => self.interval,
            Some((random, quantiles)) => {
                scale(self.interval, quantiles[usize::from(random.next_u16())])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Timestamp<Monotonic> = Timestamp::from_ns(77_000_000_000);

    fn all(mut schedule: Schedule) -> Vec<i64> {
        let mut instants = Vec::new();
        while let Some(instant) = schedule.peek() {
            instants.push((instant - START).as_ns());
            schedule.advance();
        }
        instants
    }

    fn schedule(rate: f64, ms: u64, spacing: Spacing, lane: (usize, usize)) -> Schedule {
        Schedule::new(START, rate, Duration::from_millis(ms), spacing, lane, 1).unwrap()
    }

    #[test]
    fn two_lanes_interleave_evenly() {
        let first = all(schedule(1e6, 1, Spacing::Constant, (0, 2)));
        let second = all(schedule(1e6, 1, Spacing::Constant, (1, 2)));
        assert_eq!(first[..3], [0, 2000, 4000]);
        assert_eq!(second[..3], [1000, 3000, 5000]);
        assert_eq!(first.len() + second.len(), 1000);
    }

    #[test]
    fn a_rate_that_does_not_divide_a_second_does_not_drift() {
        let instants = all(schedule(3.0, 100_000, Spacing::Constant, (0, 1)));
        assert_eq!(instants.len(), 300);
        assert_eq!(instants[299], 99_666_666_666);
    }

    #[test]
    fn quantiles_have_mean_one_and_the_exponential_shape() {
        let table = exponential_quantiles();
        let sum: u64 = table.iter().map(|&quantile| u64::from(quantile)).sum();
        assert_eq!(sum, 1 << 32);
        assert!(table.is_sorted());
        // The median of the exponential distribution is ln 2, its 90th percentile ln 10.
        let at = |share: f64| f64::from(table[(share * 65536.0) as usize]) / 65536.0;
        assert!((at(0.5) - 2_f64.ln()).abs() < 1e-3);
        assert!((at(0.9) - 10_f64.ln()).abs() < 1e-3);
    }

    #[test]
    fn exponential_intervals_offer_the_rate() {
        let count = all(schedule(1e6, 2000, Spacing::Exponential, (0, 1))).len();
        assert!((1_990_000..2_010_000).contains(&count), "{count}");
    }

    #[test]
    fn rates_that_cannot_be_are_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9] {
            assert_eq!(interval(rate, 1), None, "{rate}");
        }
    }

    proptest! {
        #[test]
        fn exhausting_counts_what_stepping_counts(
            rate in 1e3..1e6f64, taken in 0usize..50, exponential: bool,
        ) {
            let spacing = if exponential { Spacing::Exponential } else { Spacing::Constant };
            let whole = all(schedule(rate, 50, spacing, (0, 1))).len();
            let mut part = schedule(rate, 50, spacing, (0, 1));
            (0..taken.min(whole)).for_each(|_| part.advance());
            prop_assert_eq!(part.exhaust(), whole as u64);
        }

        #[test]
        fn scaling_is_the_wide_product(interval in 0u64..1 << 42, quantile in 0u32..1 << 21) {
            let wide = (u128::from(interval) * u128::from(quantile)) >> FRACTION_BITS;
            prop_assert_eq!(u128::from(scale(interval, quantile)), wide);
        }
    }
}
