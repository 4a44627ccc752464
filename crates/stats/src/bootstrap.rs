//! Bootstrap confidence intervals for the change of quantiles, shares and means between two sides.
//! For one run on each side they reflect its number of values; for several, the differences between
//! runs too.
//!
//! No resample of `n` values is created. Its `r`-th smallest value is the original value at the
//! share `U`, which follows the beta distribution with parameters `r` and `n - r + 1` (Efron and
//! Tibshirani, "An introduction to the bootstrap", 1993, section 13.3). A replication therefore
//! costs one draw, whatever the number of values.
//!
//! Values are assumed to be independent. Values close in time, and runs of the same hour, often are
//! not; the interval of one run does not account for that. Several runs are taken as independent;
//! with fewer than five on a side, their interval is too narrow.

use horolog_time::SplitMix64;

use crate::Histogram;

/// Number of bootstrap replications.
const REPLICATIONS: usize = 2_000;
/// Number of values required on each side of a quantile, and of trials for a share.
const VALUES_MIN: f64 = 10.0;
/// Confidence level of the intervals.
pub const CONFIDENCE: f64 = 0.95;

/// Bootstrap confidence interval, with the level [`CONFIDENCE`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ConfidenceInterval {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// Returns true if a histogram has at least 10 values on each side of a quantile (0 to 1).
#[must_use]
pub fn has_enough_values(histogram: &Histogram, quantile: f64) -> bool {
    let share = quantile.min(1.0 - quantile);
    histogram.count() as f64 * share >= VALUES_MIN
}

/// Returns the confidence interval of the ratio of a quantile, later over earlier runs, each the
/// mean over its runs. `None` if a side has no run, a run has too few values, or the earlier
/// quantile is 0. If there are several runs on a side, they are resampled too.
#[must_use]
pub fn ratio_of_quantiles(
    earlier: &[&Histogram],
    later: &[&Histogram],
    quantile: f64,
) -> Option<ConfidenceInterval> {
    if !earlier.iter().chain(later).all(|histogram| has_enough_values(histogram, quantile)) {
        return None;
    }
    let draw = |random: &mut SplitMix64, histogram: &&Histogram| {
        let share = share_of_order_statistic(random, histogram.count(), quantile);
        histogram.value_at_quantile(share).map(|value| value as f64)
    };
    bootstrap_interval([earlier, later], draw, |before, after| {
        (before > 0.0).then(|| after / before)
    })
}

/// Returns the confidence interval of the difference of shares, later minus earlier, from `[events,
/// trials]` of each run. Half an event is added on either side (Jeffreys prior), so that shares of
/// 0 are not taken as certain. `None` if a side has no run, or a run has fewer than 10 trials.
#[must_use]
pub fn difference_of_shares(
    earlier: &[[u64; 2]],
    later: &[[u64; 2]],
) -> Option<ConfidenceInterval> {
    if earlier.iter().chain(later).any(|[_, trials]| (*trials as f64) < VALUES_MIN) {
        return None;
    }
    let draw = |random: &mut SplitMix64, [events, trials]: &[u64; 2]| {
        let (events, trials) = (*events.min(trials) as f64, *trials as f64);
        Some(draw_beta(random, events + 0.5, trials - events + 0.5))
    };
    bootstrap_interval([earlier, later], draw, |before, after| Some(after - before))
}

/// Returns the confidence interval of the ratio of means, later over earlier runs: infinite if only
/// the earlier mean is 0, and 1 if both are. `None` with fewer than two runs on a side, or a
/// negative value.
#[must_use]
pub fn ratio_of_means(earlier: &[f64], later: &[f64]) -> Option<ConfidenceInterval> {
    let is_sound = earlier.iter().chain(later).all(|value| *value >= 0.0);
    let ratio = |before: f64, after: f64| {
        if before <= 0.0 && after <= 0.0 { 1.0 } else { after / before }
    };
    if is_sound { interval_of_means(earlier, later, ratio) } else { None }
}

/// Returns the confidence interval of the difference of means, later minus earlier runs. `None`
/// with fewer than two runs on a side.
#[must_use]
pub fn difference_of_means(earlier: &[f64], later: &[f64]) -> Option<ConfidenceInterval> {
    interval_of_means(earlier, later, |before, after| after - before)
}

fn interval_of_means(
    earlier: &[f64],
    later: &[f64],
    change: fn(f64, f64) -> f64,
) -> Option<ConfidenceInterval> {
    if earlier.len() < 2 || later.len() < 2 {
        return None;
    }
    let draw = |_: &mut SplitMix64, value: &f64| Some(*value);
    bootstrap_interval([earlier, later], draw, |before, after| Some(change(before, after)))
}

/// Returns the confidence interval of `change` applied to the means of both sides. `draw` draws a
/// value of one run; several runs on a side are resampled. `None` if a side has no run, or `draw`
/// or `change` returns `None`.
fn bootstrap_interval<Run>(
    [earlier, later]: [&[Run]; 2],
    draw: impl Fn(&mut SplitMix64, &Run) -> Option<f64>,
    change: impl Fn(f64, f64) -> Option<f64>,
) -> Option<ConfidenceInterval> {
    if earlier.is_empty() || later.is_empty() {
        return None;
    }
    // Constant seed: the same runs give the same interval.
    let mut random = SplitMix64::new(1);
    let mut mean = |runs: &[Run]| {
        let mut sum = 0.0;
        for run in runs {
            let run = match runs.len() {
                1 => run,
                several => &runs[((random.next_f64() * several as f64) as usize).min(several - 1)],
            };
            sum += draw(&mut random, run)?;
        }
        Some(sum / runs.len() as f64)
    };
    let mut replications = Vec::with_capacity(REPLICATIONS);
    for _ in 0..REPLICATIONS {
        replications.push(change(mean(earlier)?, mean(later)?)?);
    }
    Some(central_interval(&mut replications))
}

/// Returns the central interval that contains the share [`CONFIDENCE`] of the replications.
fn central_interval(replications: &mut [f64]) -> ConfidenceInterval {
    replications.sort_by(f64::total_cmp);
    let last = replications.len().saturating_sub(1);
    let at = |share: f64| replications[(share * last as f64).round() as usize];
    let outside = (1.0 - CONFIDENCE) / 2.0;
    ConfidenceInterval { low: at(outside), high: at(1.0 - outside) }
}

/// Draws the share of values that do not exceed a resample's quantile.
fn share_of_order_statistic(random: &mut SplitMix64, count: u64, quantile: f64) -> f64 {
    let count = count as f64;
    let rank = (quantile * count).ceil().clamp(1.0, count);
    draw_beta(random, rank, count - rank + 1.0)
}

fn draw_beta(random: &mut SplitMix64, a: f64, b: f64) -> f64 {
    let (x, y) = (draw_gamma(random, a), draw_gamma(random, b));
    x / (x + y)
}

/// Draws from the gamma distribution with scale 1 (Marsaglia and Tsang, "A simple method for
/// generating gamma variables", 2000; shapes below 1 by section 6).
fn draw_gamma(random: &mut SplitMix64, shape: f64) -> f64 {
    if shape < 1.0 {
        let power = (1.0_f64 - random.next_f64()).powf(1.0 / shape);
        return draw_gamma(random, shape + 1.0) * power;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = draw_normal(random);
        let v = (1.0 + c * x).powi(3);
        let accepted = v > 0.0
            && (1.0_f64 - random.next_f64()).ln() < x.powi(2).mul_add(0.5, d * (1.0 - v + v.ln()));
        if accepted {
            return d * v;
        }
    }
}

/// Draws from the standard normal distribution (Box and Muller).
fn draw_normal(random: &mut SplitMix64) -> f64 {
    let radius = (-2.0 * (1.0_f64 - random.next_f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.next_f64()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of a normal distribution, as a run might have measured them.
    fn run(seed: u64, count: usize, scale: f64) -> Histogram {
        let mut random = SplitMix64::new(seed);
        let mut histogram = Histogram::new();
        for _ in 0..count {
            let value = (1e6 + 1e5 * draw_normal(&mut random)) * scale;
            histogram.record(value as u64);
        }
        histogram
    }

    #[test]
    fn gamma_has_its_mean_and_variance() {
        for shape in [0.5, 1.0, 3.0, 1e6] {
            let mut random = SplitMix64::new(7);
            let draws: Vec<_> = (0..20_000).map(|_| draw_gamma(&mut random, shape)).collect();
            let mean = draws.iter().sum::<f64>() / draws.len() as f64;
            let square = |draw: &f64| (draw - mean).powi(2);
            let variance = draws.iter().map(square).sum::<f64>() / draws.len() as f64;
            let tolerance = 5.0 * (shape / draws.len() as f64).sqrt();
            assert!((mean - shape).abs() < tolerance, "{shape}: {mean}");
            assert!((variance / shape - 1.0).abs() < 0.1, "{shape}: {variance}");
        }
    }

    /// Intervals of equal runs contain 1 about as often as their coverage states; buckets of
    /// 1 % make it wider rather than narrower.
    #[test]
    fn intervals_have_their_stated_coverage() {
        for quantile in [0.5, 0.99] {
            let held = (0..200).filter(|seed| {
                let (one, other) = (run(*seed, 2_000, 1.0), run(seed + 1_000, 2_000, 1.0));
                let found = ratio_of_quantiles(&[&one], &[&other], quantile).unwrap();
                found.low <= 1.0 && found.high >= 1.0
            });
            let held = held.count();
            assert!(held >= 180, "{quantile}: {held} of 200");
        }
    }

    /// Likewise for losses, rare and frequent: intervals of equal runs contain 0.
    #[test]
    fn loss_intervals_have_their_stated_coverage() {
        let lost = |seed: u64, share: f64| {
            let mut random = SplitMix64::new(seed);
            (0..2_000).filter(|_| random.next_f64() < share).count() as u64
        };
        for share in [0.001, 0.2] {
            let held = (0..200).filter(|seed| {
                let [one, other] = [lost(*seed, share), lost(seed + 1_000, share)];
                let found = difference_of_shares(&[[one, 2_000]], &[[other, 2_000]]).unwrap();
                found.low <= 0.0 && found.high >= 0.0
            });
            let held = held.count();
            assert!(held >= 180, "{share}: {held} of 200");
        }
    }

    fn refs(runs: &[Histogram]) -> Vec<&Histogram> {
        runs.iter().collect()
    }

    /// Runs that vary by a fifth among themselves: one on each side differs significantly, five do
    /// not, unless their values differ by more.
    #[test]
    fn several_runs_show_the_variation_between_runs() {
        let scales = [1.0, 1.2, 0.9, 1.1, 0.95];
        let runs = |seed: u64, times: f64| -> Vec<Histogram> {
            let scaled = scales.iter().zip(seed..);
            scaled.map(|(scale, seed)| run(seed, 2_000, scale * times)).collect()
        };
        let [one, other, slower] = [runs(1, 1.0), runs(10, 1.0), runs(20, 1.5)];
        let single = ratio_of_quantiles(&[&one[2]], &[&other[1]], 0.5).unwrap();
        assert!(single.low > 1.25, "{single:?}");
        let found = ratio_of_quantiles(&refs(&one), &refs(&other), 0.5).unwrap();
        assert!(found.low < 1.0 && found.high > 1.0, "{found:?}");
        let found = ratio_of_quantiles(&refs(&one), &refs(&slower), 0.5).unwrap();
        assert!(found.low > 1.2 && found.high < 1.9, "{found:?}");
        let rates = |times: f64| scales.map(|scale| scale * times);
        let found = ratio_of_means(&rates(1.0), &rates(0.5)).unwrap();
        assert!(found.low < 0.5 && found.high > 0.5 && found.high < 0.7, "{found:?}");
        assert_eq!(ratio_of_means(&[1.0], &[2.0]), None);
        assert_eq!(ratio_of_means(&[1.0, -1.0], &[2.0, 2.0]), None);
        let from_nothing = ratio_of_means(&[0.0, 0.0], &[2.0, 2.0]).unwrap();
        assert!(from_nothing.low.is_infinite() && from_nothing.high.is_infinite());
        let still_nothing = ratio_of_means(&[0.0, 0.0], &[0.0, 0.0]).unwrap();
        assert_eq!(still_nothing, ConfidenceInterval { low: 1.0, high: 1.0 });
        let nothing = ratio_of_means(&[1.0, 2.0], &[0.0, 0.0]).unwrap();
        assert_eq!(nothing, ConfidenceInterval { low: 0.0, high: 0.0 });
        let found = difference_of_means(&rates(0.0), &rates(1.0)).unwrap();
        assert!(found.low > 0.9 && found.high < 1.2, "{found:?}");
        assert_eq!(difference_of_means(&[1.0], &[2.0]), None);
        assert_eq!(ratio_of_quantiles(&[], &[], 0.5), None);
    }

    #[test]
    fn a_true_difference_is_detected() {
        let found =
            ratio_of_quantiles(&[&run(1, 5_000, 1.0)], &[&run(2, 5_000, 1.2)], 0.5).unwrap();
        assert!(found.low > 1.15 && found.high < 1.25, "{found:?}");
    }

    #[test]
    fn few_values_are_not_enough() {
        let few = run(1, 1_000, 1.0);
        assert!(ratio_of_quantiles(&[&few], &[&few], 0.99).is_some());
        assert_eq!(ratio_of_quantiles(&[&few], &[&few], 0.999), None);
        assert_eq!(ratio_of_quantiles(&[&few], &[&Histogram::new()], 0.5), None);
        let mut zeros = Histogram::new();
        (0..100).for_each(|_| zeros.record(0));
        assert!(ratio_of_quantiles(&[&zeros], &[&few], 0.5).is_none() || zeros.min() != Some(0));
    }

    #[test]
    fn shares_differ_or_not() {
        let found = difference_of_shares(&[[0, 10_000]], &[[0, 10_000]]).unwrap();
        assert!(found.low < 0.0 && found.high > 0.0, "{found:?}");
        let found = difference_of_shares(&[[10, 10_000]], &[[300, 10_000]]).unwrap();
        assert!(found.low > 0.02 && found.high < 0.04, "{found:?}");
        assert_eq!(difference_of_shares(&[[0, 5]], &[[0, 10_000]]), None);
    }
}
