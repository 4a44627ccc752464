//! From single samples of a clock to what it says: outliers are passed over, the middle is taken,
//! and the rate at which the system clock runs away from it is fitted by the median of all slopes
//! (Theil and Sen), which a third of wrong samples does not move. Pure.
//!
//! Samples are kept against the monotonic clock, so that a step of the system clock does not spoil
//! them.

use std::collections::VecDeque;

use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp};

/// Samples that are kept.
const SAMPLES_MAX: usize = 32;
/// How old a sample may be that still counts.
const AGE_MAX: Span = Span::from_ns(64 * NS_PER_S);
/// What it takes to fit a rate: so many samples over so long a time.
const FIT_SAMPLES_MIN: usize = 8;
const FIT_TIME_MIN_S: f64 = 8.0;
/// No computer's clock is wrong by more, in parts per billion: what the kernel can correct.
const RATE_MAX_PPB: f64 = 500_000.0;
/// How much a rate that was fitted may change, in parts per billion: an oscillator that warms up.
const WANDER_MAX_PPB: f64 = 10_000.0;
/// So many samples in a row, all far from the middle, are a step of the clock and no outliers.
const STEP_SAMPLES: usize = 5;
/// How many standard deviations from the middle make an outlier, and how many medians of absolute
/// deviations one of them is.
const OUTLIER_DEVIATIONS: f64 = 3.0;
const DEVIATION_PER_MEDIAN: f64 = 1.482_6;

/// One reading of a clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sample {
    /// When it was taken.
    pub(crate) at: Timestamp<Monotonic>,
    /// True time minus `CLOCK_MONOTONIC`.
    pub(crate) ahead: Span,
    /// How far it may be wrong by measuring.
    pub(crate) uncertainty: Span,
}

/// What the samples come to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Estimate {
    /// True time minus `CLOCK_MONOTONIC` at the instant that was asked for.
    pub(crate) ahead: Span,
    /// How fast that grows, in parts per billion.
    pub(crate) rate_ppb: i64,
    /// How far it may be wrong by measuring.
    pub(crate) uncertainty: Span,
}

/// The last samples of one clock.
#[derive(Clone, Default, Debug)]
pub(crate) struct Filter {
    samples: VecDeque<Sample>,
    /// The latest in a row that are far from what those before them said.
    suspects: VecDeque<Sample>,
}

impl Filter {
    /// Takes a sample, which must be younger than those before it and near what they said; says
    /// whether it did. Of a row of samples that are far away the last is taken: the clock has been
    /// set, and those before do not count any more.
    pub(crate) fn take(&mut self, sample: Sample) -> bool {
        let last = self.suspects.back().or(self.samples.back());
        if last.is_some_and(|last| sample.at <= last.at) {
            return false;
        }
        self.samples.retain(|kept| sample.at - kept.at <= AGE_MAX);
        if self.expects(&sample) {
            self.suspects.clear();
        } else {
            self.suspects.push_back(sample);
            if self.suspects.len() < STEP_SAMPLES {
                return false;
            }
            self.samples = std::mem::take(&mut self.suspects);
            return true;
        }
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        true
    }

    /// Whether a sample is where those before it lead to.
    fn expects(&self, sample: &Sample) -> bool {
        let (Some(first), Some(last)) = (self.samples.front(), self.samples.back()) else {
            return true;
        };
        let fit = Fit::of(&self.samples, last.ahead, sample.at);
        let (since, rate_ppb) =
            if fit.is_fitted() { (last.at, WANDER_MAX_PPB) } else { (first.at, RATE_MAX_PPB) };
        let strayed_ns = (sample.at - since).as_seconds() * rate_ppb;
        let reach_ns = fit.reach_ns.max(sample.uncertainty.as_ns() as f64) + strayed_ns;
        ((sample.ahead - last.ahead).as_ns() as f64 - fit.middle_ns).abs() <= reach_ns
    }

    /// What the samples say of `now`; `None` without any that is young enough.
    pub(crate) fn estimate(&mut self, now: Timestamp<Monotonic>) -> Option<Estimate> {
        self.samples.retain(|sample| now - sample.at <= AGE_MAX);
        let last = *self.samples.back()?;
        Some(Fit::of(&self.samples, last.ahead, now).estimate(last.ahead))
    }
}

/// A sample seen from the instant that is asked for, in seconds and nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Point {
    time_s: f64,
    ahead_ns: f64,
    uncertainty_ns: f64,
}

/// A line through samples.
struct Fit {
    points: Vec<Point>,
    rate_ppb: f64,
    middle_ns: f64,
    reach_ns: f64,
}

impl Fit {
    /// Fits samples, of which there is one at least, as differences to `base`.
    fn of(samples: &VecDeque<Sample>, base: Span, now: Timestamp<Monotonic>) -> Self {
        let point = |sample: &Sample| Point {
            time_s: (sample.at - now).as_seconds(),
            ahead_ns: (sample.ahead - base).as_ns() as f64,
            uncertainty_ns: sample.uncertainty.as_ns() as f64,
        };
        let points: Vec<_> = samples.iter().map(point).collect();
        let rate_ppb = rate(&points);
        let mut fit = Self { points, rate_ppb, middle_ns: 0.0, reach_ns: 0.0 };
        fit.middle_ns = fit.median(|point| fit.residual(point));
        let deviation = fit.median(|point| (fit.residual(point) - fit.middle_ns).abs());
        let reach = OUTLIER_DEVIATIONS * DEVIATION_PER_MEDIAN * deviation;
        fit.reach_ns = reach.max(fit.median(|point| point.uncertainty_ns)).max(1.0);
        fit
    }

    /// Whether there are enough samples to tell the rate.
    fn is_fitted(&self) -> bool {
        is_long_enough(&self.points)
    }

    fn residual(&self, point: &Point) -> f64 {
        point.ahead_ns - self.rate_ppb * point.time_s
    }

    fn holds(&self, point: &Point) -> bool {
        (self.residual(point) - self.middle_ns).abs() <= self.reach_ns
    }

    fn median(&self, of: impl Fn(&Point) -> f64) -> f64 {
        median(self.points.iter().map(of).collect())
    }

    fn estimate(&self, base: Span) -> Estimate {
        let kept = || self.points.iter().filter(|point| self.holds(point));
        let middle = median(kept().map(|point| self.residual(point)).collect());
        let deviation = median(kept().map(|point| (self.residual(point) - middle).abs()).collect());
        let uncertainty = median(kept().map(|point| point.uncertainty_ns).collect());
        Estimate {
            ahead: base + Span::from_ns(middle.round() as i64),
            rate_ppb: self.rate_ppb.round() as i64,
            uncertainty: Span::from_ns(
                (uncertainty + DEVIATION_PER_MEDIAN * deviation).ceil() as i64
            ),
        }
    }
}

fn is_long_enough(points: &[Point]) -> bool {
    let time_s = points.last().map_or(0.0, |last| last.time_s - points[0].time_s);
    points.len() >= FIT_SAMPLES_MIN && time_s >= FIT_TIME_MIN_S
}

/// The median of the slopes between all pairs, in nanoseconds per second.
fn rate(points: &[Point]) -> f64 {
    if !is_long_enough(points) {
        return 0.0;
    }
    let pairs = points.iter().enumerate().flat_map(|(index, first)| {
        let slope = move |second: &Point| {
            (second.ahead_ns - first.ahead_ns) / (second.time_s - first.time_s)
        };
        points[index + 1..].iter().map(slope)
    });
    median(pairs.filter(|slope| slope.is_finite()).collect()).clamp(-RATE_MAX_PPB, RATE_MAX_PPB)
}

/// The middle value, of two the lower one; 0 of nothing. Never their mean, which between two groups
/// of samples would be what no sample says.
fn median(mut values: Vec<f64>) -> f64 {
    let Some(middle) = values.len().checked_sub(1).map(|last| last / 2) else { return 0.0 };
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BASE_NS: i64 = 1_700_000_000 * NS_PER_S;

    fn sample(second: i64, ahead_ns: i64) -> Sample {
        Sample {
            at: Timestamp::from_timespec(second, 0),
            ahead: Span::from_ns(BASE_NS + ahead_ns),
            uncertainty: Span::from_ns(100),
        }
    }

    fn estimate(ahead: impl Fn(i64) -> i64, seconds: i64) -> Estimate {
        let mut filter = Filter::default();
        for second in 0..seconds {
            filter.take(sample(second, ahead(second)));
        }
        filter.estimate(Timestamp::from_timespec(seconds - 1, 0)).unwrap()
    }

    fn error_ns(estimate: Estimate, ahead_ns: i64) -> i64 {
        estimate.ahead.as_ns() - BASE_NS - ahead_ns
    }

    #[test]
    fn medians() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(vec![4.0, 1.0, 3.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!(median(vec![]).abs() < f64::EPSILON);
    }

    #[test]
    fn one_sample_speaks_for_itself() {
        let one = estimate(|_| 70, 1);
        assert_eq!((error_ns(one, 70), one.rate_ppb), (0, 0));
        assert_eq!(one.uncertainty, Span::from_ns(100));
        assert_eq!(Filter::default().estimate(Timestamp::from_ns(0)), None);
    }

    #[test]
    fn a_clock_that_runs_away_is_followed_through_outliers() {
        let drifting = |second| {
            let outlier = if second % 5 == 2 { 9_000_000 } else { 0 };
            second * -50_000 + (second * 37 % 11 - 5) * 20 + outlier
        };
        let fitted = estimate(drifting, 30);
        assert!((fitted.rate_ppb + 50_000).abs() < 50, "{fitted:?}");
        assert!(error_ns(fitted, 29 * -50_000).abs() < 200, "{fitted:?}");
        assert!(fitted.uncertainty < Span::from_ns(1_000), "{fitted:?}");
    }

    #[test]
    fn a_step_is_believed_after_some_samples() {
        let stepped = |second| if second < 20 { 0 } else { 5_000_000 };
        assert_eq!(error_ns(estimate(stepped, 22), 0), 0, "two samples may be wrong");
        assert_eq!(error_ns(estimate(stepped, 26), 5_000_000), 0);
    }

    #[test]
    fn between_two_groups_of_samples_the_mean_is_nobody_s() {
        for far in [5_000_000_000, -5_000_000_000] {
            for seconds in 1..16 {
                let of = |second| if second < 6 { 0 } else { far };
                let error = error_ns(estimate(of, seconds), 0);
                assert!(error == 0 || error == far, "{error} after {seconds}");
            }
        }
    }

    #[test]
    fn old_and_late_samples_do_not_count() {
        let mut filter = Filter::default();
        assert!(filter.take(sample(10, 0)));
        assert!(!filter.take(sample(10, 5)) && !filter.take(sample(9, 5)));
        assert!(filter.estimate(Timestamp::from_timespec(74, 0)).is_some());
        assert!(filter.estimate(Timestamp::from_timespec(75, 0)).is_none());
    }

    proptest! {
        #[test]
        fn any_samples_give_a_finite_estimate(of in proptest::collection::vec((any::<i64>(), any::<i64>(), 0i64..), 1..40), now: i64) {
            let mut filter = Filter::default();
            for (at, ahead, uncertainty) in of {
                filter.take(Sample { at: Timestamp::from_ns(at), ahead: Span::from_ns(ahead), uncertainty: Span::from_ns(uncertainty) });
            }
            if let Some(estimate) = filter.estimate(Timestamp::from_ns(now)) {
                prop_assert!(estimate.rate_ppb.abs() <= 500_000);
            }
        }
    }
}
