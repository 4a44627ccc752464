//! Verdicts on changes, from the bounds of each change.

use horolog_record::CompareVerdict;

/// Smallest threshold of a change of a loss ratio: a change up to it is insignificant even if the
/// ratio doubled.
const LOSS_INCREASE_MIN: f64 = 0.001;

/// Bounds of a change; a positive change is an increase.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct MetricChangeBounds {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl MetricChangeBounds {
    /// Returns the interval of a change that is known exactly.
    pub(super) const fn exact(change: f64) -> Self {
        Self { low: change, high: change }
    }

    /// Returns the interval between two bounds; an unknown bound is infinite.
    pub(super) fn from_bounds(low: Option<f64>, high: Option<f64>) -> Self {
        Self { low: low.unwrap_or(f64::NEG_INFINITY), high: high.unwrap_or(f64::INFINITY) }
    }

    /// Returns the interval with the sign reversed, for metrics of which larger values are better.
    pub(super) fn reversed(self) -> Self {
        Self { low: -self.high, high: -self.low }
    }
}

pub(super) fn judge_change(change: Option<MetricChangeBounds>, threshold: f64) -> CompareVerdict {
    match change {
        None => CompareVerdict::NotEnough,
        Some(MetricChangeBounds { low, .. }) if low > threshold => CompareVerdict::Worse,
        Some(MetricChangeBounds { high, .. }) if high < -threshold => CompareVerdict::Better,
        Some(MetricChangeBounds { low, high }) if low >= -threshold && high <= threshold => {
            CompareVerdict::Same
        }
        Some(_) => CompareVerdict::Unclear,
    }
}

/// Judges the change of an offset. `distance_increase` is the increase of its distance from 0 in
/// ns, `earlier` the earlier distance, and `error_bound` the sum of the error bounds of both
/// offsets. A change within the error bounds or the threshold counts as no change. Returns the
/// bounds of the change extended by the error bounds, and the verdict.
pub(super) fn judge_offset(
    distance_increase: MetricChangeBounds,
    earlier: f64,
    error_bound: f64,
    threshold: f64,
) -> (MetricChangeBounds, CompareVerdict) {
    let bounds = MetricChangeBounds {
        low: distance_increase.low - error_bound,
        high: distance_increase.high + error_bound,
    };
    (bounds, judge_change(Some(distance_increase), error_bound.max(earlier * threshold)))
}

/// Judges the difference of two loss ratios. The threshold is a share of the earlier ratio, and at
/// least [`LOSS_INCREASE_MIN`].
pub(super) fn judge_loss(
    earlier: f64,
    change: Option<MetricChangeBounds>,
    threshold: f64,
) -> CompareVerdict {
    judge_change(change, (earlier * threshold).max(LOSS_INCREASE_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_from_bounds() {
        let of = |low, high| judge_change(Some(MetricChangeBounds { low, high }), 0.1);
        assert_eq!(of(0.11, 0.5), CompareVerdict::Worse);
        assert_eq!(of(-0.5, -0.11), CompareVerdict::Better);
        assert_eq!(of(-0.1, 0.1), CompareVerdict::Same);
        assert_eq!(of(0.05, 0.2), CompareVerdict::Unclear);
        assert_eq!(of(-0.2, 0.2), CompareVerdict::Unclear);
        assert_eq!(judge_change(None, 0.1), CompareVerdict::NotEnough);
    }

    #[test]
    fn offsets_are_judged_beyond_their_error_bounds() {
        let judged = |[earlier, later]: [f64; 2], error_bounds: [f64; 2]| {
            let further = later.abs() - earlier.abs();
            let further = MetricChangeBounds { low: further, high: further };
            judge_offset(further, earlier.abs(), error_bounds.iter().sum(), 0.1)
        };
        let of = |figures, error_bounds| judged(figures, error_bounds).1;
        assert_eq!(of([-3e3, 5e6], [5e3, 5e3]), CompareVerdict::Worse);
        assert_eq!(of([5e6, -3e3], [5e3, 5e3]), CompareVerdict::Better);
        assert_eq!(of([-3e3, 8e3], [5e3, 5e3]), CompareVerdict::Same);
        // Five milliseconds of which a tenth may be more.
        assert_eq!(of([5e6, 5.4e6], [5e3, 5e3]), CompareVerdict::Same);
        assert_eq!(of([5e6, 5.6e6], [5e3, 5e3]), CompareVerdict::Worse);
        let (bounds, _) = judged([-3e3, 8e3], [5e3, 2e3]);
        assert_eq!(bounds, MetricChangeBounds { low: -2e3, high: 12e3 });
    }

    #[test]
    fn losses_too_small_to_matter_are_the_same() {
        let change = |low, high| Some(MetricChangeBounds { low, high });
        assert_eq!(judge_loss(0.0, change(0.0001, 0.0009), 0.1), CompareVerdict::Same);
        assert_eq!(judge_loss(0.0, change(0.002, 0.003), 0.1), CompareVerdict::Worse);
        assert_eq!(judge_loss(0.5, change(0.002, 0.003), 0.1), CompareVerdict::Same);
    }
}
