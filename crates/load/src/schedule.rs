//! Intended send times of requests. A schedule reads no clock and does not adapt to a late sender,
//! so the plan does not depend on the sender (no coordinated omission).
//!
//! Instants are fixed-point numbers of 2^-16 ns after the start of the trial; the in-kernel engine
//! uses the same numbers.

use std::sync::LazyLock;
use std::time::Duration;

use horolog_record::RequestSpacing;
use horolog_time::{Monotonic, Span, Timestamp};

use crate::load_profile::{LoadProfile, LoadProfileSendTimes};
use crate::random::SplitMix64;

/// Number of fraction bits of intervals in nanoseconds, and of quantiles.
pub const FRACTION_BITS: u32 = 16;

/// Number of entries in [`exponential_quantiles`], indexed by a 16-bit random number.
pub const QUANTILES: usize = 1 << 16;

/// Returns the interval between two requests of one lane, in 2^-16 ns: `lanes` × 10^9 / `rate`,
/// rounded up so that a trial never has more requests than intended. `None` if the rate is not
/// positive, or the interval is below 2^-16 ns or above 19 hours.
#[must_use]
pub fn interval(rate: f64, lanes: usize) -> Option<u64> {
    let exact = 1e9 * f64::from(1 << FRACTION_BITS) * lanes as f64 / rate;
    let fits = exact.is_finite() && (1.0..(1_u64 << 62) as f64).contains(&exact);
    fits.then(|| exact.ceil() as u64)
}

/// Returns 65,536 equally likely quantiles of the exponential distribution in 2^-16, in rising
/// order. Their mean is exactly 1, so a Poisson trial has exactly its rate on average.
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
    // The midpoints underestimate the tail, and rounding adds an error: the largest quantile is
    // increased so that the mean is exact.
    let wanted = (QUANTILES as u64) << FRACTION_BITS;
    table[QUANTILES - 1] += (wanted - sum) as u32;
    table
}

/// Returns `interval` × `quantile`, both in 2^-16, without a product wider than 64 bits.
#[must_use]
pub const fn scale_interval(interval: u64, quantile: u32) -> u64 {
    let low = interval & ((1 << FRACTION_BITS) - 1);
    (interval >> FRACTION_BITS) * quantile as u64 + ((low * quantile as u64) >> FRACTION_BITS)
}

/// Returns the random number generator of a lane, and the quantiles.
fn lane_random(seed: u64, lane: usize) -> (SplitMix64, &'static [u32]) {
    (SplitMix64::new(seed.wrapping_add(lane as u64)), exponential_quantiles())
}

/// Intended send times of one lane.
#[derive(Clone, Debug)]
pub struct LaneSchedule {
    start: Timestamp<Monotonic>,
    interval: u64,
    random: Option<(SplitMix64, &'static [u32])>,
    /// Next intended send time after `start`, in 2^-16 ns.
    next: u64,
    /// Offset from `start` at which the schedule ends, in 2^-16 ns.
    end: u64,
    planned: u64,
    /// Send times of a load profile; `None` at a constant rate.
    profile: Option<LoadProfileSendTimes>,
}

impl LaneSchedule {
    /// Returns the schedule of lane `lane` of `lanes`, which together send `rate` requests per
    /// second for `duration` from `start`. With constant spacing the lanes interleave evenly; with
    /// exponential spacing `seed` determines the intervals. `None` if [`interval`] returns `None`
    /// or the duration does not fit into 64 bits.
    #[must_use]
    pub fn new(
        start: Timestamp<Monotonic>,
        rate: f64,
        duration: Duration,
        spacing: RequestSpacing,
        (lane, lanes): (usize, usize),
        seed: u64,
    ) -> Option<Self> {
        let interval = interval(rate, lanes)?;
        let end = u64::try_from(duration.as_nanos()).ok()?.checked_mul(1 << FRACTION_BITS)?;
        let mut schedule =
            Self { start, interval, random: None, next: 0, end, planned: 0, profile: None };
        match spacing {
            RequestSpacing::Constant => schedule.next = interval / lanes as u64 * lane as u64,
            RequestSpacing::Exponential => {
                schedule.random = Some(lane_random(seed, lane));
                schedule.next = schedule.next_interval();
            }
        }
        Some(schedule)
    }

    /// Returns the schedule of lane `lane` of `lanes` on a load profile from `start`. `None` if
    /// [`LaneSchedule::new`] has no schedule for the highest rate and the duration.
    #[must_use]
    pub fn with_profile(
        start: Timestamp<Monotonic>,
        profile: &LoadProfile,
        spacing: RequestSpacing,
        (lane, lanes): (usize, usize),
        seed: u64,
    ) -> Option<Self> {
        let (rate, duration) = (profile.rate_max(), profile.duration());
        let steady =
            Self::new(start, rate, duration, RequestSpacing::Constant, (lane, lanes), seed)?;
        let instants = Some(LoadProfileSendTimes::new(profile, lanes));
        let mut schedule = Self { next: 0, profile: instants, ..steady };
        schedule.next = match spacing {
            RequestSpacing::Constant => schedule.profile_instant(lane as f64 / lanes as f64),
            RequestSpacing::Exponential => {
                schedule.random = Some(lane_random(seed, lane));
                schedule.next_instant()
            }
        };
        Some(schedule)
    }

    /// Returns the next intended send time; `None` at the end of the schedule.
    #[must_use]
    pub fn peek(&self) -> Option<Timestamp<Monotonic>> {
        let offset = Span::from_ns((self.next >> FRACTION_BITS).cast_signed());
        (self.next < self.end).then(|| self.start + offset)
    }

    /// Advances to the intended send time after that of [`Self::peek`].
    pub fn advance(&mut self) {
        self.next = self.next_instant();
        self.planned += 1;
    }

    /// If the phase of the next send time ended before `now`, skips to the end of that phase and
    /// returns the number of skipped requests. A sender that fell behind in one phase must not
    /// catch up in the next.
    pub fn skip_phase(&mut self, now: Timestamp<Monotonic>) -> u64 {
        let Some(instants) = &self.profile else { return 0 };
        let Some(end) = instants.phase_end(self.next) else { return 0 };
        if now < self.start + Span::from_ns((end >> FRACTION_BITS).cast_signed()) {
            return 0;
        }
        let skipped = instants.requests_after(self.next) - instants.requests_after(end);
        self.next = end;
        skipped
    }

    /// Returns the number of send times passed so far, without skipped ones.
    #[must_use]
    pub const fn advanced_count(&self) -> u64 {
        self.planned
    }

    /// Advances to the end and returns the number of requests of the whole schedule, without
    /// skipped ones. On a load profile, those not yet reached count as the integral of the rate.
    pub fn advance_to_end(&mut self) -> u64 {
        if let Some(instants) = self.profile.take() {
            self.planned +=
                if self.next < self.end { instants.requests_after(self.next) } else { 0 };
            self.next = self.end;
        }
        if self.random.is_none() && self.next < self.end {
            let remaining = (self.end - self.next).div_ceil(self.interval);
            self.planned += remaining;
            self.next = self.end;
        }
        while self.peek().is_some() {
            self.advance();
        }
        self.planned
    }

    /// Returns the instant after the next one.
    fn next_instant(&mut self) -> u64 {
        match (&self.profile, &mut self.random) {
            (None, _) => self.next.saturating_add(self.next_interval()),
            (Some(_), None) => self.profile_instant(1.0),
            (Some(_), Some((random, quantiles))) => {
                let quantile = quantiles[usize::from(random.next_u16())];
                self.profile_instant(f64::from(quantile) / f64::from(1 << FRACTION_BITS))
            }
        }
    }

    /// Returns the instant `requests` after the next one, on a load profile.
    fn profile_instant(&mut self, requests: f64) -> u64 {
        let next = self.next;
        self.profile.as_mut().map_or(next, |instants| instants.instant_after(next, requests))
    }

    fn next_interval(&mut self) -> u64 {
        match &mut self.random {
            None => self.interval,
            Some((random, quantiles)) => {
                scale_interval(self.interval, quantiles[usize::from(random.next_u16())])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_profile::LoadPhase;
    use proptest::prelude::*;

    const START: Timestamp<Monotonic> = Timestamp::from_ns(77_000_000_000);

    fn all(mut schedule: LaneSchedule) -> Vec<i64> {
        let mut instants = Vec::new();
        while let Some(instant) = schedule.peek() {
            instants.push((instant - START).as_ns());
            schedule.advance();
        }
        instants
    }

    fn schedule(rate: f64, ms: u64, spacing: RequestSpacing, lane: (usize, usize)) -> LaneSchedule {
        LaneSchedule::new(START, rate, Duration::from_millis(ms), spacing, lane, 1).unwrap()
    }

    #[test]
    fn two_lanes_interleave_evenly() {
        let first = all(schedule(1e6, 1, RequestSpacing::Constant, (0, 2)));
        let second = all(schedule(1e6, 1, RequestSpacing::Constant, (1, 2)));
        assert_eq!(first[..3], [0, 2000, 4000]);
        assert_eq!(second[..3], [1000, 3000, 5000]);
        assert_eq!(first.len() + second.len(), 1000);
    }

    #[test]
    fn a_rate_that_does_not_divide_a_second_does_not_drift() {
        let instants = all(schedule(3.0, 100_000, RequestSpacing::Constant, (0, 1)));
        assert_eq!(instants.len(), 300);
        assert_eq!(instants[299], 99_666_666_666);
    }

    #[test]
    fn what_is_left_of_a_phase_that_is_over_is_left_out() {
        let second = Duration::from_secs(1);
        let phases =
            vec![LoadPhase::constant("a", 100.0, second), LoadPhase::constant("b", 10.0, second)];
        let profile = LoadProfile::new(second, phases).unwrap();
        let mut schedule =
            LaneSchedule::with_profile(START, &profile, RequestSpacing::Constant, (0, 1), 1)
                .unwrap();
        (0..30).for_each(|_| schedule.advance());
        assert_eq!(schedule.skip_phase(START + Span::from_ms(999)), 0);
        assert_eq!(schedule.skip_phase(START + Span::from_ms(1000)), 70);
        assert_eq!(schedule.peek(), Some(START + Span::from_ms(1000)));
        assert_eq!(schedule.skip_phase(START + Span::from_ms(9000)), 0, "the last phase");
        assert_eq!((schedule.advanced_count(), schedule.advance_to_end()), (30, 40));
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
        let count = all(schedule(1e6, 2000, RequestSpacing::Exponential, (0, 1))).len();
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
            let spacing = if exponential { RequestSpacing::Exponential } else { RequestSpacing::Constant };
            let whole = all(schedule(rate, 50, spacing, (0, 1))).len();
            let mut part = schedule(rate, 50, spacing, (0, 1));
            (0..taken.min(whole)).for_each(|_| part.advance());
            prop_assert_eq!(part.advance_to_end(), whole as u64);
        }

        #[test]
        fn a_course_of_one_rate_is_as_a_steady_schedule(
            rate in 1e2..1e5f64, lane in 0usize..3, exponential: bool,
        ) {
            let spacing = if exponential { RequestSpacing::Exponential } else { RequestSpacing::Constant };
            let second = Duration::from_secs(1);
            let phases = vec![LoadPhase::constant("all", rate, second)];
            let course = LoadProfile::new(second, phases).unwrap();
            let on_course = LaneSchedule::with_profile(START, &course, spacing, (lane, 3), 1).unwrap();
            let left = on_course.clone().advance_to_end();
            let steady = LaneSchedule::new(START, rate, second, spacing, (lane, 3), 1).unwrap();
            let (one, other) = (all(on_course), all(steady));
            prop_assert!(one.len().abs_diff(other.len()) <= 1);
            prop_assert!(one.iter().zip(&other).all(|(a, b)| a.abs_diff(*b) <= 1000));
            prop_assert!(exponential || left.abs_diff(one.len() as u64) <= 1);
        }

        #[test]
        fn scaling_is_the_wide_product(interval in 0u64..1 << 42, quantile in 0u32..1 << 21) {
            let wide = (u128::from(interval) * u128::from(quantile)) >> FRACTION_BITS;
            prop_assert_eq!(u128::from(scale_interval(interval, quantile)), wide);
        }
    }
}
