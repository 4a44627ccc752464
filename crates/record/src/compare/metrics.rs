//! Comparison of the metrics of several runs on each side.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use horolog_stats::Histogram;
use horolog_stats::bootstrap::{self, ConfidenceInterval};
use serde_json::Value;

use super::judge::{ChangeInterval, judge, judge_loss, judge_offset};
use super::measured::{MeasuredValue, SingleValue, is_informational, measured};
use super::{CompareVerdict, ComparedMetric, ComparedMetricKind};

/// Extractor of a path's single metric of one sort.
type Sort = fn(&MeasuredValue) -> Option<SingleValue>;

/// Sorts of single metrics.
const SINGLE: [(ComparedMetricKind, Sort); 2] = [
    (ComparedMetricKind::Rate, MeasuredValue::rate),
    (ComparedMetricKind::Time, MeasuredValue::time),
];

/// Largest relative difference of two rates that are both the highest tried: each is the achieved
/// rate.
const TOP_WIDTH: f64 = 0.01;

const QUANTILES: [(ComparedMetricKind, f64); 3] = [
    (ComparedMetricKind::P50, 0.5),
    (ComparedMetricKind::P99, 0.99),
    (ComparedMetricKind::P999, 0.999),
];

type ComparedMetrics = (Vec<ComparedMetric>, Vec<String>, Vec<String>);

/// Values at each path in the runs of one side.
type SideValues = BTreeMap<String, Vec<MeasuredValue>>;

fn side(runs: &[&Value]) -> SideValues {
    let mut all = SideValues::new();
    for run in runs {
        for (path, found) in measured(run) {
            all.entry(path).or_default().push(found);
        }
    }
    all
}

/// Compares the paths that all runs have. A path missing in some run of a side counts as present
/// only on the other side.
pub(super) fn compare(earlier: &[&Value], later: &[&Value], threshold: f64) -> ComparedMetrics {
    let (mut before, after) = (side(earlier), side(later));
    let (mut figures, mut only_later) = (Vec::new(), Vec::new());
    for (path, after) in after {
        match before.get(&path) {
            Some(one) if one.len() == earlier.len() && after.len() == later.len() => {
                let before = before.remove(&path).unwrap_or_default();
                figures.extend(compare_path(&path, &before, &after, threshold));
            }
            _ => only_later.push(path),
        }
    }
    (figures, before.into_keys().collect(), only_later)
}

fn compare_path(
    path: &str,
    before: &[MeasuredValue],
    after: &[MeasuredValue],
    threshold: f64,
) -> Vec<ComparedMetric> {
    let both = [before, after];
    let figure = |kind, figures: [f64; 2], bounds: Option<ChangeInterval>, verdict| {
        vec![figure(path, kind, figures.map(Some), bounds, verdict)]
    };
    if both.into_iter().flatten().any(MeasuredValue::is_failed) {
        return failed(path, both).into_iter().collect();
    }
    if let Some([before, after]) = all_of(both, MeasuredValue::times) {
        return times(path, &before, &after, threshold);
    }
    if let Some([before, after]) = all_of(both, MeasuredValue::share) {
        let bounds = bootstrap::difference_of_shares(&before, &after).map(difference);
        let figures = [&before, &after].map(|runs| mean(runs.iter().map(|one| share(*one))));
        let verdict = judge_loss(figures[0], bounds, threshold);
        return figure(ComparedMetricKind::Loss, figures, bounds, verdict);
    }
    for (kind, sort) in SINGLE {
        let Some(sides) = all_of(both, sort) else { continue };
        let figures = sides.each_ref().map(|runs| mean(runs.iter().map(|one| one.figure)));
        let [before, after] = &sides;
        let bounds = bounds_of_single(before, after);
        let is_read = before.iter().chain(after).all(|one| one.bounds.is_none());
        // A single reading without bounds is the change itself.
        let change = bounds.or_else(|| is_read.then(|| ChangeInterval::of(change(figures))));
        let is_rate = kind == ComparedMetricKind::Rate;
        let worse = if is_rate { change.map(ChangeInterval::reversed) } else { change };
        return figure(kind, figures, bounds, judge(worse, threshold));
    }
    if let Some(sides) = all_of(both, MeasuredValue::offset) {
        let (figures, bounds, verdict) = offsets(&sides, threshold);
        return figure(ComparedMetricKind::Offset, figures, Some(bounds), verdict);
    }
    Vec::new()
}

/// Compares attempts made by all runs that failed in some: worse if they fail more often than
/// before. Returns nothing if none ever failed.
fn failed(path: &str, both: [&[MeasuredValue]; 2]) -> Option<ComparedMetric> {
    let share = |runs: &[MeasuredValue]| {
        runs.iter().filter(|one| one.is_failed()).count() as f64 / runs.len() as f64
    };
    let of = |runs: &[MeasuredValue]| -> Option<f64> {
        let all = runs.iter().map(|one| {
            one.time().map(|time| time.figure).or_else(|| one.offset().map(|(offset, _)| offset))
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
    Some(figure(path, kind, both.map(of), None, verdict))
}

/// Returns a change as a share of the earlier value; relative to 0 any change is infinite.
fn change([before, after]: [f64; 2]) -> f64 {
    if before <= 0.0 && after <= 0.0 { 0.0 } else { after / before - 1.0 }
}

/// Returns the offsets of a single run on each side unchanged; for several runs, their mean
/// distance from 0, regardless of sign.
fn offsets(
    sides: &[Vec<(f64, f64)>; 2],
    threshold: f64,
) -> ([f64; 2], ChangeInterval, CompareVerdict) {
    let sizes = sides.each_ref().map(|runs| runs.iter().map(|one| one.0.abs()).collect::<Vec<_>>());
    let error_bounds = sides.each_ref().map(|runs| mean(runs.iter().map(|one| one.1)));
    let [before, after] = sizes.each_ref().map(|sizes| mean(sizes.iter().copied()));
    let further = bootstrap::difference_of_means(&sizes[0], &sizes[1])
        .map_or_else(|| ChangeInterval::of(after - before), difference);
    let (bounds, verdict) = judge_offset(further, before, error_bounds.iter().sum(), threshold);
    let figures = match sides {
        [one, other] if one.len() == 1 && other.len() == 1 => [one[0].0, other[0].0],
        _ => [before, after],
    };
    (figures, bounds, verdict)
}

/// Returns the values of all runs of both sides, if they are of one sort.
fn all_of<'a, T>(
    both: [&'a [MeasuredValue]; 2],
    sort: impl Fn(&'a MeasuredValue) -> Option<T>,
) -> Option<[Vec<T>; 2]> {
    let [before, after] = both.map(|side| side.iter().map(&sort).collect::<Option<Vec<T>>>());
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

fn difference(interval: ConfidenceInterval) -> ChangeInterval {
    ChangeInterval { low: interval.low, high: interval.high }
}

fn ratio(interval: ConfidenceInterval) -> ChangeInterval {
    ChangeInterval { low: interval.low - 1.0, high: interval.high - 1.0 }
}

/// Returns the change interval: for one run on each side, from the bounds of its search; for
/// several, from their differences, and open if the search of one of them ended open.
fn bounds_of_single(before: &[SingleValue], after: &[SingleValue]) -> Option<ChangeInterval> {
    let search = |runs: &[SingleValue]| if let [one] = runs { one.bounds } else { None };
    if let Some((earlier, later)) = search(before).zip(search(after)) {
        let top = change([before[0].figure, after[0].figure]).abs() <= TOP_WIDTH;
        let held = earlier[0] > 0.0 && later[0] > 0.0;
        // Both held at every rate tried.
        if top && held && earlier[1].is_infinite() && later[1].is_infinite() {
            return Some(ChangeInterval::of(0.0));
        }
        // An unknown bound leaves the change open on that side.
        let low = if earlier[1].is_finite() { Some(change([earlier[1], later[0]])) } else { None };
        let high = (earlier[0] > 0.0).then(|| change([earlier[0], later[1]]));
        return Some(ChangeInterval::within(low, high));
    }
    let found = |runs: &[SingleValue]| runs.iter().map(|one| one.figure).collect::<Vec<_>>();
    let spread = bootstrap::ratio_of_means(&found(before), &found(after)).map(ratio)?;
    let is_open = |runs: &[SingleValue], is: fn([f64; 2]) -> bool| {
        runs.iter().filter_map(|one| one.bounds).any(is)
    };
    let no_lower = |runs: &[SingleValue]| is_open(runs, |bounds| bounds[0] <= 0.0);
    let no_upper = |runs: &[SingleValue]| is_open(runs, |bounds| bounds[1].is_infinite());
    let low = (!no_upper(before) && !no_lower(after)).then_some(spread.low);
    let high = (!no_lower(before) && !no_upper(after)).then_some(spread.high);
    Some(ChangeInterval::within(low, high))
}

fn times(
    path: &str,
    before: &[&Histogram],
    after: &[&Histogram],
    threshold: f64,
) -> Vec<ComparedMetric> {
    let one = |(kind, quantile): (ComparedMetricKind, f64)| {
        let at = |of: &&Histogram| of.value_at_quantile(quantile).map(|value| value as f64);
        let of_side = |runs: &[&Histogram]| {
            let values: Option<Vec<f64>> = runs.iter().map(at).collect();
            Some(mean(values?.into_iter()))
        };
        let figures = [of_side(before)?, of_side(after)?];
        let bounds = bootstrap::ratio_of_quantiles(before, after, quantile).map(ratio);
        Some(figure(path, kind, figures.map(Some), bounds, judge(bounds, threshold)))
    };
    QUANTILES.into_iter().filter_map(one).collect()
}

fn figure(
    path: &str,
    figure: ComparedMetricKind,
    [earlier, later]: [Option<f64>; 2],
    bounds: Option<ChangeInterval>,
    verdict: CompareVerdict,
) -> ComparedMetric {
    let known = |bound: f64| Some(bound).filter(|bound| bound.is_finite());
    let (low, high) = (bounds.map(|bounds| bounds.low), bounds.map(|bounds| bounds.high));
    let (low, high) = (low.and_then(known), high.and_then(known));
    let of_measurer = is_informational(path);
    ComparedMetric {
        path: path.to_owned(),
        metric: figure,
        earlier,
        later,
        low,
        high,
        verdict,
        informational: of_measurer,
    }
}
