//! Filter from offset samples of a clock to an estimate: outliers are skipped, the offset is the
//! median, and the drift of the system clock is the median of all slopes (Theil-Sen estimator),
//! which tolerates up to 29 % of wrong samples. Pure.
//!
//! Samples are stored against the monotonic clock, so that a step of the system clock does not
//! affect them.

use std::collections::VecDeque;

use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp};

/// Number of samples stored.
const SAMPLES_MAX: usize = 32;
/// Maximum age of a sample that still counts.
const AGE_MAX: Span = Span::from_ns(64 * NS_PER_S);
/// Least number of samples for a rate, and their least span in time.
const FIT_SAMPLES_MIN: usize = 8;
const FIT_TIME_MIN_S: f64 = 8.0;
/// Largest rate error in parts per billion: the limit of the kernel's frequency correction.
const RATE_MAX_PPB: f64 = 500_000.0;
/// Largest change of a fitted rate in parts per billion, as of an oscillator that warms up.
const WANDER_MAX_PPB: f64 = 10_000.0;
/// Consecutive samples far from the median that count as a step of the clock instead of outliers.
const STEP_SAMPLES: usize = 5;
/// Distance from the median that makes an outlier, in standard deviations, and the ratio of the
/// standard deviation to the median absolute deviation of a normal distribution.
const OUTLIER_DEVIATIONS: f64 = 3.0;
const DEVIATION_PER_MEDIAN: f64 = 1.482_6;

/// Single measurement of a clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OffsetSample {
    /// Instant of the measurement.
    pub(crate) at: Timestamp<Monotonic>,
    /// True time minus `CLOCK_MONOTONIC`.
    pub(crate) utc_minus_monotonic: Span,
    /// Maximum measurement error.
    pub(crate) uncertainty: Span,
}

/// Estimate of a clock from its recent samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ClockEstimate {
    /// True time minus `CLOCK_MONOTONIC` at the requested instant.
    pub(crate) utc_minus_monotonic: Span,
    /// Growth of `utc_minus_monotonic`, in parts per billion.
    pub(crate) rate_ppb: i64,
    /// Error bound of `utc_minus_monotonic`.
    pub(crate) uncertainty: Span,
}

/// Last samples of one clock.
#[derive(Clone, Default, Debug)]
pub(crate) struct ClockFilter {
    samples: VecDeque<OffsetSample>,
    /// Latest consecutive samples far from the prediction of the earlier ones.
    suspects: VecDeque<OffsetSample>,
}

impl ClockFilter {
    /// Adds a sample; returns true if it is used. It must be newer than the earlier ones and near
    /// their prediction. After several consecutive samples far from it, the clock has been set:
    /// these replace the earlier ones.
    pub(crate) fn push_sample(&mut self, sample: OffsetSample) -> bool {
        let last = self.suspects.back().or(self.samples.back());
        if last.is_some_and(|last| sample.at <= last.at) {
            return false;
        }
        self.samples.retain(|earlier| sample.at - earlier.at <= AGE_MAX);
        if self.is_expected(&sample) {
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

    /// Returns true if the earlier samples predict this one.
    fn is_expected(&self, sample: &OffsetSample) -> bool {
        let (Some(first), Some(last)) = (self.samples.front(), self.samples.back()) else {
            return true;
        };
        let fit = LineFit::from_samples(&self.samples, last.utc_minus_monotonic, sample.at);
        let (since, rate_ppb) =
            if fit.is_fitted() { (last.at, WANDER_MAX_PPB) } else { (first.at, RATE_MAX_PPB) };
        let drift_ns = (sample.at - since).as_seconds() * rate_ppb;
        let limit_ns = fit.inlier_limit_ns.max(sample.uncertainty.as_ns() as f64) + drift_ns;
        ((sample.utc_minus_monotonic - last.utc_minus_monotonic).as_ns() as f64 - fit.median_ns)
            .abs()
            <= limit_ns
    }

    /// Returns the estimate at `now`; `None` without a recent sample.
    pub(crate) fn estimate(&mut self, now: Timestamp<Monotonic>) -> Option<ClockEstimate> {
        self.samples.retain(|sample| now - sample.at <= AGE_MAX);
        let last = *self.samples.back()?;
        Some(
            LineFit::from_samples(&self.samples, last.utc_minus_monotonic, now)
                .estimate(last.utc_minus_monotonic),
        )
    }
}

/// Sample relative to the instant of the estimate.
#[derive(Clone, Copy, Debug)]
struct RelativeSample {
    time_s: f64,
    offset_ns: f64,
    uncertainty_ns: f64,
}

/// Line fitted through samples, with the limits of its inliers.
struct LineFit {
    points: Vec<RelativeSample>,
    rate_ppb: f64,
    median_ns: f64,
    inlier_limit_ns: f64,
}

impl LineFit {
    /// Fits at least one sample, with offsets relative to `base` and times relative to `now`.
    fn from_samples(
        samples: &VecDeque<OffsetSample>,
        base: Span,
        now: Timestamp<Monotonic>,
    ) -> Self {
        let point = |sample: &OffsetSample| RelativeSample {
            time_s: (sample.at - now).as_seconds(),
            offset_ns: (sample.utc_minus_monotonic - base).as_ns() as f64,
            uncertainty_ns: sample.uncertainty.as_ns() as f64,
        };
        let points: Vec<_> = samples.iter().map(point).collect();
        let rate_ppb = median_slope(&points);
        let mut fit = Self { points, rate_ppb, median_ns: 0.0, inlier_limit_ns: 0.0 };
        fit.median_ns = fit.median(|point| fit.residual(point));
        let deviation = fit.median(|point| (fit.residual(point) - fit.median_ns).abs());
        let limit = OUTLIER_DEVIATIONS * DEVIATION_PER_MEDIAN * deviation;
        fit.inlier_limit_ns = limit.max(fit.median(|point| point.uncertainty_ns)).max(1.0);
        fit
    }

    /// Returns true if there are enough samples for a rate.
    fn is_fitted(&self) -> bool {
        is_long_enough(&self.points)
    }

    fn residual(&self, point: &RelativeSample) -> f64 {
        point.offset_ns - self.rate_ppb * point.time_s
    }

    fn is_inlier(&self, point: &RelativeSample) -> bool {
        (self.residual(point) - self.median_ns).abs() <= self.inlier_limit_ns
    }

    fn median(&self, value: impl Fn(&RelativeSample) -> f64) -> f64 {
        median(self.points.iter().map(value).collect())
    }

    fn estimate(&self, base: Span) -> ClockEstimate {
        let inliers = || self.points.iter().filter(|point| self.is_inlier(point));
        let median_ns = median(inliers().map(|point| self.residual(point)).collect());
        let deviation =
            median(inliers().map(|point| (self.residual(point) - median_ns).abs()).collect());
        let uncertainty = median(inliers().map(|point| point.uncertainty_ns).collect());
        ClockEstimate {
            utc_minus_monotonic: base + Span::from_ns(median_ns.round() as i64),
            rate_ppb: self.rate_ppb.round() as i64,
            uncertainty: Span::from_ns(
                (uncertainty + DEVIATION_PER_MEDIAN * deviation).ceil() as i64
            ),
        }
    }
}

fn is_long_enough(points: &[RelativeSample]) -> bool {
    let time_s = points.last().map_or(0.0, |last| last.time_s - points[0].time_s);
    points.len() >= FIT_SAMPLES_MIN && time_s >= FIT_TIME_MIN_S
}

/// Returns the median of the slopes between all pairs, in parts per billion; 0 for too few samples.
fn median_slope(points: &[RelativeSample]) -> f64 {
    if !is_long_enough(points) {
        return 0.0;
    }
    let pairs = points.iter().enumerate().flat_map(|(index, first)| {
        let slope = move |second: &RelativeSample| {
            (second.offset_ns - first.offset_ns) / (second.time_s - first.time_s)
        };
        points[index + 1..].iter().map(slope)
    });
    median(pairs.filter(|slope| slope.is_finite()).collect()).clamp(-RATE_MAX_PPB, RATE_MAX_PPB)
}

/// Returns the median, the lower of two middle values, 0 without values. Their mean could lie
/// between two groups of samples and match none.
fn median(mut values: Vec<f64>) -> f64 {
    let Some(middle_index) = values.len().checked_sub(1).map(|last| last / 2) else { return 0.0 };
    *values.select_nth_unstable_by(middle_index, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BASE_NS: i64 = 1_700_000_000 * NS_PER_S;

    fn sample(second: i64, ahead_ns: i64) -> OffsetSample {
        OffsetSample {
            at: Timestamp::from_timespec(second, 0),
            utc_minus_monotonic: Span::from_ns(BASE_NS + ahead_ns),
            uncertainty: Span::from_ns(100),
        }
    }

    fn estimate(ahead: impl Fn(i64) -> i64, seconds: i64) -> ClockEstimate {
        let mut filter = ClockFilter::default();
        for second in 0..seconds {
            filter.push_sample(sample(second, ahead(second)));
        }
        filter.estimate(Timestamp::from_timespec(seconds - 1, 0)).unwrap()
    }

    fn error_ns(estimate: ClockEstimate, ahead_ns: i64) -> i64 {
        estimate.utc_minus_monotonic.as_ns() - BASE_NS - ahead_ns
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
        assert_eq!(ClockFilter::default().estimate(Timestamp::from_ns(0)), None);
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
    fn of_two_groups_of_samples_one_is_followed_and_never_their_mean() {
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
        let mut filter = ClockFilter::default();
        assert!(filter.push_sample(sample(10, 0)));
        assert!(!filter.push_sample(sample(10, 5)) && !filter.push_sample(sample(9, 5)));
        assert!(filter.estimate(Timestamp::from_timespec(74, 0)).is_some());
        assert!(filter.estimate(Timestamp::from_timespec(75, 0)).is_none());
    }

    proptest! {
        #[test]
        fn any_samples_give_a_finite_estimate(of in proptest::collection::vec((any::<i64>(), any::<i64>(), 0i64..), 1..40), now: i64) {
            let mut filter = ClockFilter::default();
            for (at, ahead, uncertainty) in of {
                filter.push_sample(OffsetSample { at: Timestamp::from_ns(at), utc_minus_monotonic: Span::from_ns(ahead), uncertainty: Span::from_ns(uncertainty) });
            }
            if let Some(estimate) = filter.estimate(Timestamp::from_ns(now)) {
                prop_assert!(estimate.rate_ppb.abs() <= 500_000);
            }
        }
    }
}
