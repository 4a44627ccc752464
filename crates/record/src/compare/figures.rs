//! The figures of several runs on either side, and what became of each.

use std::collections::BTreeMap;

use horolog_stats::Histogram;
use horolog_stats::bootstrap::{self, Interval};
use serde_json::Value;

use super::judge::{Change, judge, judge_loss, judge_offset};
use super::measured::{Measured, Single, is_of_measurer, measured};
use super::{CompareVerdict, ComparedFigure, ComparedFigureKind};

/// Sorts of single figures, and whether a place has one.
const SINGLE: [(ComparedFigureKind, fn(&Measured) -> Option<Single>); 2] =
    [(ComparedFigureKind::Rate, Measured::rate), (ComparedFigureKind::Time, Measured::time)];

const QUANTILES: [(ComparedFigureKind, f64); 3] = [
    (ComparedFigureKind::P50, 0.5),
    (ComparedFigureKind::P99, 0.99),
    (ComparedFigureKind::P999, 0.999),
];

type Compared = (Vec<ComparedFigure>, Vec<String>, Vec<String>);

/// What stands at each place in the runs of one side.
type Side = BTreeMap<String, Vec<Measured>>;

fn side(runs: &[&Value]) -> Side {
    let mut all = Side::new();
    for run in runs {
        for (place, found) in measured(run) {
            all.entry(place).or_default().push(found);
        }
    }
    all
}

/// Compares what all runs have. A place that some run of a side lacks counts as only on the other.
pub(super) fn compare(earlier: &[&Value], later: &[&Value], threshold: f64) -> Compared {
    let (mut before, after) = (side(earlier), side(later));
    let (mut figures, mut only_later) = (Vec::new(), Vec::new());
    for (place, after) in after {
        match before.get(&place) {
            Some(one) if one.len() == earlier.len() && after.len() == later.len() => {
                let before = before.remove(&place).unwrap_or_default();
                figures.extend(of_place(&place, &before, &after, threshold));
            }
            _ => only_later.push(place),
        }
    }
    (figures, before.into_keys().collect(), only_later)
}

fn of_place(
    place: &str,
    before: &[Measured],
    after: &[Measured],
    threshold: f64,
) -> Vec<ComparedFigure> {
    let both = [before, after];
    let figure = |kind, figures: [f64; 2], bounds: Option<Change>, verdict| {
        vec![figure(place, kind, figures, bounds, verdict)]
    };
    if let Some([before, after]) = all_of(both, Measured::times) {
        return times(place, &before, &after, threshold);
    }
    if let Some([before, after]) = all_of(both, Measured::share) {
        let bounds = bootstrap::difference_of_shares(&before, &after).map(difference);
        let figures = [&before, &after].map(|runs| mean(runs.iter().map(|one| share(*one))));
        let verdict = judge_loss(figures[0], bounds, threshold);
        return figure(ComparedFigureKind::Loss, figures, bounds, verdict);
    }
    for (kind, sort) in SINGLE {
        let Some([before, after]) = all_of(both, sort) else { continue };
        let figures = [&before, &after].map(|runs| mean(runs.iter().map(|one| one.figure)));
        let bounds = bounds_of_single(&before, &after);
        let is_sure = before.iter().chain(&after).all(|one| one.bounds.is_none());
        let change = figures[1] / figures[0] - 1.0;
        // Of one reading without bounds, the figure itself.
        let alone = (is_sure && change.is_finite()).then_some(Change { low: change, high: change });
        let change = bounds.or(alone);
        let is_rate = kind == ComparedFigureKind::Rate;
        let worse = if is_rate { change.map(Change::reversed) } else { change };
        return figure(kind, figures, bounds, judge(worse, threshold));
    }
    if let Some([before, after]) = all_of(both, Measured::offset) {
        let figures = [&before, &after].map(|runs| mean(runs.iter().map(|one| one.0)));
        let doubts = [&before, &after].map(|runs| mean(runs.iter().map(|one| one.1)));
        let (bounds, verdict) = judge_offset(figures, doubts, threshold);
        return figure(ComparedFigureKind::Offset, figures, Some(bounds), verdict);
    }
    Vec::new()
}

/// What all runs of both sides are, if they are of one sort.
fn all_of<'a, T>(
    both: [&'a [Measured]; 2],
    sort: impl Fn(&'a Measured) -> Option<T>,
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

fn difference(interval: Interval) -> Change {
    Change { low: interval.low, high: interval.high }
}

fn ratio(interval: Interval) -> Change {
    Change { low: interval.low - 1.0, high: interval.high - 1.0 }
}

/// Of one run on either side, from the bounds of its search; of several, from how these differ.
fn bounds_of_single(before: &[Single], after: &[Single]) -> Option<Change> {
    let search = |runs: &[Single]| if let [one] = runs { one.bounds } else { None };
    if let Some((before, after)) = search(before).zip(search(after)) {
        let change =
            |of: Option<f64>, to: Option<f64>| Some(of? / to.filter(|to| *to > 0.0)? - 1.0);
        let (low, high) = change(after[0], before[1]).zip(change(after[1], before[0]))?;
        return Some(Change { low, high });
    }
    let found = |runs: &[Single]| runs.iter().map(|one| one.figure).collect::<Vec<_>>();
    bootstrap::ratio_of_means(&found(before), &found(after)).map(ratio)
}

fn times(
    place: &str,
    before: &[&Histogram],
    after: &[&Histogram],
    threshold: f64,
) -> Vec<ComparedFigure> {
    let one = |(kind, quantile): (ComparedFigureKind, f64)| {
        let at = |of: &&Histogram| of.value_at_quantile(quantile).map(|value| value as f64);
        let of_side = |runs: &[&Histogram]| {
            let values: Option<Vec<f64>> = runs.iter().map(at).collect();
            Some(mean(values?.into_iter()))
        };
        let figures = [of_side(before)?, of_side(after)?];
        let bounds = bootstrap::ratio_of_quantiles(before, after, quantile).map(ratio);
        Some(figure(place, kind, figures, bounds, judge(bounds, threshold)))
    };
    QUANTILES.into_iter().filter_map(one).collect()
}

fn figure(
    place: &str,
    figure: ComparedFigureKind,
    [earlier, later]: [f64; 2],
    bounds: Option<Change>,
    verdict: CompareVerdict,
) -> ComparedFigure {
    let (low, high) = (bounds.map(|bounds| bounds.low), bounds.map(|bounds| bounds.high));
    let of_measurer = is_of_measurer(place);
    ComparedFigure {
        place: place.to_owned(),
        figure,
        earlier,
        later,
        low,
        high,
        verdict,
        of_measurer,
    }
}
