//! Comparison of the metrics of several runs on each side.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use horolog_stats::Histogram;
use horolog_stats::bootstrap::{self, ConfidenceInterval};
use serde_json::Value;

use super::judge::{MetricChangeBounds, judge_change, judge_loss, judge_offset};
use super::measured::{MeasuredValue, SingleValue, is_informational, metrics_by_path};
use super::{CompareVerdict, ComparedMetric, ComparedMetricKind};

/// Function that returns the value of a metric if it is of one kind.
type SingleValueAccessor = fn(&MeasuredValue) -> Option<SingleValue>;

/// Kinds of metrics with a single value, and their extractors.
const SINGLE_METRICS: [(ComparedMetricKind, SingleValueAccessor); 2] = [
    (ComparedMetricKind::Rate, MeasuredValue::rate),
    (ComparedMetricKind::Time, MeasuredValue::time),
];

/// Relative difference of two rates, each the highest that was tried, up to which they count as
/// equal: achieved rates vary by as much.
const HIGHEST_RATE_TOLERANCE: f64 = 0.01;

const QUANTILES: [(ComparedMetricKind, f64); 3] = [
    (ComparedMetricKind::P50, 0.5),
    (ComparedMetricKind::P99, 0.99),
    (ComparedMetricKind::P999, 0.999),
];

type ComparedMetrics = (Vec<ComparedMetric>, Vec<String>, Vec<String>);

/// Values at each path in the runs of one side.
type ValuesByPath = BTreeMap<String, Vec<MeasuredValue>>;

fn collect_values(runs: &[&Value]) -> ValuesByPath {
    let mut all = ValuesByPath::new();
    for run in runs {
        for (path, found) in metrics_by_path(run) {
            all.entry(path).or_default().push(found);
        }
    }
    all
}

/// Compares the paths that all runs have. Any other path is listed for each side of which some run
/// has it.
pub(super) fn compare(earlier: &[&Value], later: &[&Value], threshold: f64) -> ComparedMetrics {
    let (mut before, after) = (collect_values(earlier), collect_values(later));
    let (mut metrics, mut only_later) = (Vec::new(), Vec::new());
    for (path, after) in after {
        match before.get(&path) {
            Some(one) if one.len() == earlier.len() && after.len() == later.len() => {
                let before = before.remove(&path).unwrap_or_default();
                metrics.extend(compare_path(&path, &before, &after, threshold));
            }
            _ => only_later.push(path),
        }
    }
    (metrics, before.into_keys().collect(), only_later)
}

fn compare_path(
    path: &str,
    before: &[MeasuredValue],
    after: &[MeasuredValue],
    threshold: f64,
) -> Vec<ComparedMetric> {
    let both = [before, after];
    let one_metric = |kind, values: [f64; 2], bounds: Option<MetricChangeBounds>, verdict| {
        vec![compared_metric(path, kind, values.map(Some), bounds, verdict)]
    };
    if both.into_iter().flatten().any(MeasuredValue::is_failed) {
        return compare_attempts(path, both).into_iter().collect();
    }
    if let Some([before, after]) = all_values(both, MeasuredValue::times) {
        return compare_times(path, &before, &after, threshold);
    }
    if let Some([before, after]) = all_values(both, MeasuredValue::share) {
        let bounds = bootstrap::difference_of_shares(&before, &after).map(difference);
        let means = [&before, &after].map(|runs| mean(runs.iter().map(|one| share(*one))));
        let verdict = judge_loss(means[0], bounds, threshold);
        return one_metric(ComparedMetricKind::Loss, means, bounds, verdict);
    }
    for (kind, extract) in SINGLE_METRICS {
        let Some(sides) = all_values(both, extract) else { continue };
        let means = sides.each_ref().map(|runs| mean(runs.iter().map(|one| one.value)));
        let [before, after] = &sides;
        let bounds = single_value_bounds(before, after);
        let is_read = before.iter().chain(after).all(|one| one.bounds.is_none());
        // A single reading without bounds is the change itself.
        let change =
            bounds.or_else(|| is_read.then(|| MetricChangeBounds::exact(relative_change(means))));
        let is_rate = kind == ComparedMetricKind::Rate;
        let worse = if is_rate { change.map(MetricChangeBounds::reversed) } else { change };
        return one_metric(kind, means, bounds, judge_change(worse, threshold));
    }
    if let Some(sides) = all_values(both, MeasuredValue::offset) {
        let (values, bounds, verdict) = compare_offsets(&sides, threshold);
        return one_metric(ComparedMetricKind::Offset, values, Some(bounds), verdict);
    }
    Vec::new()
}

/// Compares a metric whose attempt failed in some runs: worse if it failed in a larger share of the
/// later runs, better if in a smaller one, otherwise unclear. Returns `None` if it failed in all
/// runs.
fn compare_attempts(path: &str, both: [&[MeasuredValue]; 2]) -> Option<ComparedMetric> {
    let share = |runs: &[MeasuredValue]| {
        runs.iter().filter(|one| one.is_failed()).count() as f64 / runs.len() as f64
    };
    let of = |runs: &[MeasuredValue]| -> Option<f64> {
        let all = runs.iter().map(|one| {
            one.time().map(|time| time.value).or_else(|| one.offset().map(|(offset, _)| offset))
        });
        Some(mean(all.collect::<Option<Vec<_>>>()?.into_iter()))
    };
    let [before, after] = both.map(share);
    let is_offset = both.into_iter().flatten().any(|one| one.offset().is_some());
    let kind = if is_offset { ComparedMetricKind::Offset } else { ComparedMetricKind::Time };
    let verdict = match after.total_cmp(&before) {
        _ if before + after >= 2.0 => return None,
        Ordering::Greater => CompareVerdict::Worse,
        Ordering::Less => CompareVerdict::Better,
        Ordering::Equal => CompareVerdict::Unclear,
    };
    Some(compared_metric(path, kind, both.map(of), None, verdict))
}

/// Returns the change as a share of the earlier value: 0 if both are 0, infinite if only the
/// earlier one is.
fn relative_change([before, after]: [f64; 2]) -> f64 {
    if before <= 0.0 && after <= 0.0 { 0.0 } else { after / before - 1.0 }
}

/// Compares offsets. For a single run on each side the values are the offsets themselves, for
/// several runs the mean distances from 0.
fn compare_offsets(
    sides: &[Vec<(f64, f64)>; 2],
    threshold: f64,
) -> ([f64; 2], MetricChangeBounds, CompareVerdict) {
    let sizes = sides.each_ref().map(|runs| runs.iter().map(|one| one.0.abs()).collect::<Vec<_>>());
    let error_bounds = sides.each_ref().map(|runs| mean(runs.iter().map(|one| one.1)));
    let [before, after] = sizes.each_ref().map(|sizes| mean(sizes.iter().copied()));
    let further = bootstrap::difference_of_means(&sizes[0], &sizes[1])
        .map_or_else(|| MetricChangeBounds::exact(after - before), difference);
    let (bounds, verdict) = judge_offset(further, before, error_bounds.iter().sum(), threshold);
    let values = match sides {
        [one, other] if one.len() == 1 && other.len() == 1 => [one[0].0, other[0].0],
        _ => [before, after],
    };
    (values, bounds, verdict)
}

/// Returns the values of all runs of both sides; `None` if one of them is not of this kind.
fn all_values<'a, T>(
    both: [&'a [MeasuredValue]; 2],
    extract: impl Fn(&'a MeasuredValue) -> Option<T>,
) -> Option<[Vec<T>; 2]> {
    let [before, after] = both.map(|side| side.iter().map(&extract).collect::<Option<Vec<T>>>());
    Some([before?, after?])
}

fn share([events, trials]: [u64; 2]) -> f64 {
    events as f64 / trials as f64
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut count, mut sum) = (0.0, 0.0);
    for value in values {
        count += 1.0;
        sum += value;
    }
    sum / f64::max(count, 1.0)
}

fn difference(interval: ConfidenceInterval) -> MetricChangeBounds {
    MetricChangeBounds { low: interval.low, high: interval.high }
}

fn ratio(interval: ConfidenceInterval) -> MetricChangeBounds {
    MetricChangeBounds { low: interval.low - 1.0, high: interval.high - 1.0 }
}

/// Returns the bounds of a relative change. For one run on each side they follow from the bounds of
/// the searches; for several runs from the spread of the values, and a bound is unknown if a search
/// has no bound on that side. `None` if there are too few values.
fn single_value_bounds(
    before: &[SingleValue],
    after: &[SingleValue],
) -> Option<MetricChangeBounds> {
    let search = |runs: &[SingleValue]| if let [one] = runs { one.bounds } else { None };
    if let Some((earlier, later)) = search(before).zip(search(after)) {
        let top =
            relative_change([before[0].value, after[0].value]).abs() <= HIGHEST_RATE_TOLERANCE;
        let held = earlier[0] > 0.0 && later[0] > 0.0;
        // Both passed at the highest rate that was tried.
        if top && held && earlier[1].is_infinite() && later[1].is_infinite() {
            return Some(MetricChangeBounds::exact(0.0));
        }
        // An unknown bound of a search makes the bound of the change on that side unknown.
        let low = if earlier[1].is_finite() {
            Some(relative_change([earlier[1], later[0]]))
        } else {
            None
        };
        let high = (earlier[0] > 0.0).then(|| relative_change([earlier[0], later[1]]));
        return Some(MetricChangeBounds::from_bounds(low, high));
    }
    let found = |runs: &[SingleValue]| runs.iter().map(|one| one.value).collect::<Vec<_>>();
    let spread = bootstrap::ratio_of_means(&found(before), &found(after)).map(ratio)?;
    let is_open = |runs: &[SingleValue], is: fn([f64; 2]) -> bool| {
        runs.iter().filter_map(|one| one.bounds).any(is)
    };
    let no_lower = |runs: &[SingleValue]| is_open(runs, |bounds| bounds[0] <= 0.0);
    let no_upper = |runs: &[SingleValue]| is_open(runs, |bounds| bounds[1].is_infinite());
    let low = (!no_upper(before) && !no_lower(after)).then_some(spread.low);
    let high = (!no_lower(before) && !no_upper(after)).then_some(spread.high);
    Some(MetricChangeBounds::from_bounds(low, high))
}

fn compare_times(
    path: &str,
    before: &[&Histogram],
    after: &[&Histogram],
    threshold: f64,
) -> Vec<ComparedMetric> {
    let compare_quantile = |(kind, quantile): (ComparedMetricKind, f64)| {
        let at = |of: &&Histogram| of.value_at_quantile(quantile).map(|value| value as f64);
        let of_side = |runs: &[&Histogram]| {
            let values: Option<Vec<f64>> = runs.iter().map(at).collect();
            Some(mean(values?.into_iter()))
        };
        let means = [of_side(before)?, of_side(after)?];
        let bounds = bootstrap::ratio_of_quantiles(before, after, quantile).map(ratio);
        Some(compared_metric(path, kind, means.map(Some), bounds, judge_change(bounds, threshold)))
    };
    QUANTILES.into_iter().filter_map(compare_quantile).collect()
}

fn compared_metric(
    path: &str,
    kind: ComparedMetricKind,
    [earlier, later]: [Option<f64>; 2],
    bounds: Option<MetricChangeBounds>,
    verdict: CompareVerdict,
) -> ComparedMetric {
    let known = |bound: f64| Some(bound).filter(|bound| bound.is_finite());
    let (low, high) = (bounds.map(|bounds| bounds.low), bounds.map(|bounds| bounds.high));
    let (low, high) = (low.and_then(known), high.and_then(known));
    let of_measurer = is_informational(path);
    ComparedMetric {
        path: path.to_owned(),
        metric: kind,
        earlier,
        later,
        low,
        high,
        verdict,
        informational: of_measurer,
    }
}
