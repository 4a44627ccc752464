//! Comparison of the metrics of several runs on each side.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use horolog_record::{CompareVerdict, ComparedMetric, ComparedMetricKind};
use horolog_stats::Histogram;
use horolog_stats::bootstrap::{self, ConfidenceInterval};

use super::judge::{MetricChangeBounds, judge_change, judge_loss, judge_offset};
use super::{ComparedValue, ComparedValues};
use crate::metrics::{MetricValue, SingleValue, metric_name};

/// Function that returns the value of a metric if it is of one kind.
type SingleValueAccessor = fn(&MetricValue<'_>) -> Option<SingleValue>;

/// Kinds of metrics with a single value, and their extractors.
const SINGLE_METRICS: [(ComparedMetricKind, SingleValueAccessor); 2] =
    [(ComparedMetricKind::Rate, rate), (ComparedMetricKind::Time, time)];

/// Relative difference of two rates, each the highest that was tried, up to which they count as
/// equal: achieved rates vary by as much.
const HIGHEST_RATE_TOLERANCE: f64 = 0.01;

const QUANTILES: [(ComparedMetricKind, f64); 3] = [
    (ComparedMetricKind::P50, 0.5),
    (ComparedMetricKind::P99, 0.99),
    (ComparedMetricKind::P999, 0.999),
];

type ComparedMetrics = (Vec<ComparedMetric>, Vec<String>, Vec<String>);

/// Values of each metric and item in the runs of one side.
type ValuesByName<'a> = BTreeMap<&'a (String, String), Vec<&'a ComparedValue>>;

/// Change of a metric of an item.
struct MetricChange {
    kind: ComparedMetricKind,
    values: [Option<f64>; 2],
    bounds: Option<MetricChangeBounds>,
    verdict: CompareVerdict,
}

/// Compares the metrics that all runs have. Any other metric is listed for each side of which some
/// run has it.
pub(super) fn compare(
    [earlier, later]: &[Vec<&ComparedValues>; 2],
    threshold: f64,
) -> ComparedMetrics {
    let (mut before, after) = (collect_values(earlier), collect_values(later));
    let (mut metrics, mut only_later) = (Vec::new(), Vec::new());
    let listed = |(name, item): &(String, String)| metric_name(name, item);
    for (key, after) in after {
        match before.get(key) {
            Some(one) if one.len() == earlier.len() && after.len() == later.len() => {
                let before = before.remove(key).unwrap_or_default();
                let is_informational = after[0].is_informational;
                let changes = changes(&[values(&before), values(&after)], threshold);
                let of = |change| compared_metric(key, change, is_informational);
                metrics.extend(changes.iter().map(of));
            }
            _ => only_later.push(listed(key)),
        }
    }
    (metrics, before.into_keys().map(listed).collect(), only_later)
}

fn collect_values<'a>(runs: &[&'a ComparedValues]) -> ValuesByName<'a> {
    let mut all = ValuesByName::new();
    for (key, found) in runs.iter().copied().flatten() {
        all.entry(key).or_default().push(found);
    }
    all
}

fn values<'a>(all: &[&'a ComparedValue]) -> Vec<&'a MetricValue<'static>> {
    all.iter().map(|one| &one.value).collect()
}

/// Compares the values of a metric of an item in the runs of both sides: one change for times of
/// each quantile, one for other values, none for values of different kinds.
fn changes(both: &[Vec<&MetricValue<'_>>; 2], threshold: f64) -> Vec<MetricChange> {
    if both.iter().flatten().any(|one| matches!(one, MetricValue::Failed)) {
        return compare_attempts(both).into_iter().collect();
    }
    if let Some([before, after]) = all_values(both, histogram) {
        return compare_times(&before, &after, threshold);
    }
    if let Some(sides) = all_values(both, ratio_counts) {
        return vec![compare_ratios(&sides, threshold)];
    }
    for (kind, extract) in SINGLE_METRICS {
        if let Some(sides) = all_values(both, extract) {
            return vec![compare_single_values(kind, &sides, threshold)];
        }
    }
    all_values(both, offset).map(|sides| compare_offsets(&sides, threshold)).into_iter().collect()
}

fn histogram<'a>(value: &'a MetricValue<'_>) -> Option<&'a Histogram> {
    if let MetricValue::Histogram(times) = value { Some(times) } else { None }
}

fn ratio_counts(value: &MetricValue<'_>) -> Option<[u64; 2]> {
    if let MetricValue::Ratio(counts) = value { Some(*counts) } else { None }
}

fn rate(value: &MetricValue<'_>) -> Option<SingleValue> {
    if let MetricValue::Rate(rate) = value { Some(*rate) } else { None }
}

fn time(value: &MetricValue<'_>) -> Option<SingleValue> {
    if let MetricValue::Time(time) = value { Some(*time) } else { None }
}

fn offset(value: &MetricValue<'_>) -> Option<[f64; 2]> {
    if let MetricValue::Offset(offset, bound) = value { Some([*offset, *bound]) } else { None }
}

fn compare_ratios(sides: &[Vec<[u64; 2]>; 2], threshold: f64) -> MetricChange {
    let share = |[events, trials]: &[u64; 2]| *events as f64 / *trials as f64;
    let bounds = bootstrap::difference_of_shares(&sides[0], &sides[1]).map(difference);
    let means = sides.each_ref().map(|runs| mean(runs.iter().map(share)));
    let verdict = judge_loss(means[0], bounds, threshold);
    MetricChange { kind: ComparedMetricKind::Loss, values: means.map(Some), bounds, verdict }
}

fn compare_single_values(
    kind: ComparedMetricKind,
    sides: &[Vec<SingleValue>; 2],
    threshold: f64,
) -> MetricChange {
    let means = sides.each_ref().map(|runs| mean(runs.iter().map(|one| one.value)));
    let bounds = single_value_bounds(&sides[0], &sides[1]);
    let is_read = sides.iter().flatten().all(|one| one.bounds.is_none());
    // A single reading without bounds is the change itself.
    let change =
        bounds.or_else(|| is_read.then(|| MetricChangeBounds::exact(relative_change(means))));
    let is_rate = kind == ComparedMetricKind::Rate;
    let worse = if is_rate { change.map(MetricChangeBounds::reversed) } else { change };
    let verdict = judge_change(worse, threshold);
    MetricChange { kind, values: means.map(Some), bounds, verdict }
}

/// Compares a metric whose attempt failed in some runs: worse if it failed in a larger share of the
/// later runs, better if in a smaller one, otherwise unclear. Returns `None` if it failed in all
/// runs.
fn compare_attempts(both: &[Vec<&MetricValue<'_>>; 2]) -> Option<MetricChange> {
    let value = |one: &&MetricValue<'_>| {
        time(one).map(|time| time.value).or_else(|| offset(one).map(|[offset, _]| offset))
    };
    let values = both
        .each_ref()
        .map(|runs| Some(mean(runs.iter().map(value).collect::<Option<Vec<_>>>()?.into_iter())));
    let [before, after] = both.each_ref().map(|runs| {
        runs.iter().filter(|one| matches!(one, MetricValue::Failed)).count() as f64
            / runs.len() as f64
    });
    let is_offset = both.iter().flatten().any(|one| offset(one).is_some());
    let kind = if is_offset { ComparedMetricKind::Offset } else { ComparedMetricKind::Time };
    let verdict = match after.total_cmp(&before) {
        _ if before + after >= 2.0 => return None,
        Ordering::Greater => CompareVerdict::Worse,
        Ordering::Less => CompareVerdict::Better,
        Ordering::Equal => CompareVerdict::Unclear,
    };
    Some(MetricChange { kind, values, bounds: None, verdict })
}

/// Returns the change as a share of the earlier value: 0 if both are 0, infinite if only the
/// earlier one is.
fn relative_change([before, after]: [f64; 2]) -> f64 {
    if before <= 0.0 && after <= 0.0 { 0.0 } else { after / before - 1.0 }
}

/// Compares offsets. For a single run on each side the values are the offsets themselves, for
/// several runs the mean distances from 0.
fn compare_offsets(sides: &[Vec<[f64; 2]>; 2], threshold: f64) -> MetricChange {
    let sizes =
        sides.each_ref().map(|runs| runs.iter().map(|one| one[0].abs()).collect::<Vec<_>>());
    let error_bounds = sides.each_ref().map(|runs| mean(runs.iter().map(|one| one[1])));
    let [before, after] = sizes.each_ref().map(|sizes| mean(sizes.iter().copied()));
    let further = bootstrap::difference_of_means(&sizes[0], &sizes[1])
        .map_or_else(|| MetricChangeBounds::exact(after - before), difference);
    let (bounds, verdict) = judge_offset(further, before, error_bounds.iter().sum(), threshold);
    let values = match sides {
        [one, other] if one.len() == 1 && other.len() == 1 => [one[0][0], other[0][0]],
        _ => [before, after],
    };
    let values = values.map(Some);
    MetricChange { kind: ComparedMetricKind::Offset, values, bounds: Some(bounds), verdict }
}

/// Returns the values of all runs of both sides; `None` if one of them is not of this kind.
fn all_values<'a, T>(
    both: &[Vec<&'a MetricValue<'_>>; 2],
    extract: impl Fn(&'a MetricValue<'_>) -> Option<T>,
) -> Option<[Vec<T>; 2]> {
    let [before, after] =
        both.each_ref().map(|side| side.iter().map(|one| extract(one)).collect::<Option<_>>());
    Some([before?, after?])
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

fn compare_times(before: &[&Histogram], after: &[&Histogram], threshold: f64) -> Vec<MetricChange> {
    let compare_quantile = |(kind, quantile): (ComparedMetricKind, f64)| {
        let at = |of: &&Histogram| of.value_at_quantile(quantile).map(|value| value as f64);
        let of_side = |runs: &[&Histogram]| {
            let values: Option<Vec<f64>> = runs.iter().map(at).collect();
            Some(mean(values?.into_iter()))
        };
        let values = [Some(of_side(before)?), Some(of_side(after)?)];
        let bounds = bootstrap::ratio_of_quantiles(before, after, quantile).map(ratio);
        Some(MetricChange { kind, values, bounds, verdict: judge_change(bounds, threshold) })
    };
    QUANTILES.into_iter().filter_map(compare_quantile).collect()
}

fn compared_metric(
    (name, item): &(String, String),
    change: &MetricChange,
    informational: bool,
) -> ComparedMetric {
    let &MetricChange { kind, values: [earlier, later], bounds, verdict } = change;
    let bound = |of: fn(MetricChangeBounds) -> f64| bounds.map(of).filter(|one| one.is_finite());
    ComparedMetric {
        name: name.clone(),
        item: Some(item.clone()).filter(|item| !item.is_empty()),
        metric: kind,
        earlier,
        later,
        low: bound(|bounds| bounds.low),
        high: bound(|bounds| bounds.high),
        verdict,
        informational,
    }
}
