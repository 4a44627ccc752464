//! The figures of several runs on either side, and what became of each.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use horolog_stats::Histogram;
use horolog_stats::bootstrap::{self, Interval};
use serde_json::Value;

use super::judge::{Change, judge, judge_loss, judge_offset};
use super::measured::{Measured, Single, is_of_measurer, measured};
use super::{CompareVerdict, ComparedFigure, ComparedFigureKind};

/// The single figure of a place, where it has one of some sort.
type Sort = fn(&Measured) -> Option<Single>;

/// Sorts of single figures.
const SINGLE: [(ComparedFigureKind, Sort); 2] =
    [(ComparedFigureKind::Rate, Measured::rate), (ComparedFigureKind::Time, Measured::time)];

/// How much two rates that are the highest that was tried differ at most: each is what was really
/// sent.
const TOP_WIDTH: f64 = 0.01;

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
        vec![figure(place, kind, figures.map(Some), bounds, verdict)]
    };
    if both.into_iter().flatten().any(Measured::is_failed) {
        return failed(place, both).into_iter().collect();
    }
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
        let Some(sides) = all_of(both, sort) else { continue };
        let figures = sides.each_ref().map(|runs| mean(runs.iter().map(|one| one.figure)));
        let [before, after] = &sides;
        let bounds = bounds_of_single(before, after);
        let is_read = before.iter().chain(after).all(|one| one.bounds.is_none());
        // Of one reading without bounds, the figure itself.
        let change = bounds.or_else(|| is_read.then(|| Change::of(change(figures))));
        let is_rate = kind == ComparedFigureKind::Rate;
        let worse = if is_rate { change.map(Change::reversed) } else { change };
        return figure(kind, figures, bounds, judge(worse, threshold));
    }
    if let Some(sides) = all_of(both, Measured::offset) {
        let (figures, bounds, verdict) = offsets(&sides, threshold);
        return figure(ComparedFigureKind::Offset, figures, Some(bounds), verdict);
    }
    Vec::new()
}

/// What was tried by all runs and did not come to pass in some: worse where that is more often so
/// than it was. Nothing where it never did.
fn failed(place: &str, both: [&[Measured]; 2]) -> Option<ComparedFigure> {
    let share = |runs: &[Measured]| {
        runs.iter().filter(|one| one.is_failed()).count() as f64 / runs.len() as f64
    };
    let of = |runs: &[Measured]| -> Option<f64> {
        let all = runs.iter().map(|one| {
            one.time().map(|time| time.figure).or_else(|| one.offset().map(|(offset, _)| offset))
        });
        Some(mean(all.collect::<Option<Vec<_>>>()?.into_iter()))
    };
    let [before, after] = both.map(share);
    let is_offset = both.into_iter().flatten().any(|one| one.offset().is_some());
    let kind = if is_offset { ComparedFigureKind::Offset } else { ComparedFigureKind::Time };
    let verdict = match after.total_cmp(&before) {
        _ if before + after >= 2.0 => return None,
        Ordering::Greater => CompareVerdict::Worse,
        Ordering::Less => CompareVerdict::Better,
        Ordering::Equal => CompareVerdict::Unclear,
    };
    Some(figure(place, kind, both.map(of), None, verdict))
}

/// A change as a share of what it was; of nothing, anything is infinitely more.
fn change([before, after]: [f64; 2]) -> f64 {
    if before <= 0.0 && after <= 0.0 { 0.0 } else { after / before - 1.0 }
}

/// Offsets of one run on either side as they are; of several, how far they are from 0 in the mean,
/// whichever way.
fn offsets(sides: &[Vec<(f64, f64)>; 2], threshold: f64) -> ([f64; 2], Change, CompareVerdict) {
    let sizes = sides.each_ref().map(|runs| runs.iter().map(|one| one.0.abs()).collect::<Vec<_>>());
    let doubts = sides.each_ref().map(|runs| mean(runs.iter().map(|one| one.1)));
    let [before, after] = sizes.each_ref().map(|sizes| mean(sizes.iter().copied()));
    let further = bootstrap::difference_of_means(&sizes[0], &sizes[1])
        .map_or_else(|| Change::of(after - before), difference);
    let (bounds, verdict) = judge_offset(further, before, doubts.iter().sum(), threshold);
    let figures = match sides {
        [one, other] if one.len() == 1 && other.len() == 1 => [one[0].0, other[0].0],
        _ => [before, after],
    };
    (figures, bounds, verdict)
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

/// Of one run on either side, from the bounds of its search; of several, from how these differ, and
/// open where the search of one of them ended open.
fn bounds_of_single(before: &[Single], after: &[Single]) -> Option<Change> {
    let search = |runs: &[Single]| if let [one] = runs { one.bounds } else { None };
    if let Some((earlier, later)) = search(before).zip(search(after)) {
        let top = change([before[0].figure, after[0].figure]).abs() <= TOP_WIDTH;
        let held = earlier[0] > 0.0 && later[0] > 0.0;
        // Both held all that was tried.
        if top && held && earlier[1].is_infinite() && later[1].is_infinite() {
            return Some(Change::of(0.0));
        }
        // What is not known of either leaves the change open on that side.
        let low = if earlier[1].is_finite() { Some(change([earlier[1], later[0]])) } else { None };
        let high = (earlier[0] > 0.0).then(|| change([earlier[0], later[1]]));
        return Some(Change::within(low, high));
    }
    let found = |runs: &[Single]| runs.iter().map(|one| one.figure).collect::<Vec<_>>();
    let spread = bootstrap::ratio_of_means(&found(before), &found(after)).map(ratio)?;
    let is_open = |runs: &[Single], is: fn([f64; 2]) -> bool| {
        runs.iter().filter_map(|one| one.bounds).any(is)
    };
    let no_lower = |runs: &[Single]| is_open(runs, |bounds| bounds[0] <= 0.0);
    let no_upper = |runs: &[Single]| is_open(runs, |bounds| bounds[1].is_infinite());
    let low = (!no_upper(before) && !no_lower(after)).then_some(spread.low);
    let high = (!no_lower(before) && !no_upper(after)).then_some(spread.high);
    Some(Change::within(low, high))
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
        Some(figure(place, kind, figures.map(Some), bounds, judge(bounds, threshold)))
    };
    QUANTILES.into_iter().filter_map(one).collect()
}

fn figure(
    place: &str,
    figure: ComparedFigureKind,
    [earlier, later]: [Option<f64>; 2],
    bounds: Option<Change>,
    verdict: CompareVerdict,
) -> ComparedFigure {
    let known = |bound: f64| Some(bound).filter(|bound| bound.is_finite());
    let (low, high) = (bounds.map(|bounds| bounds.low), bounds.map(|bounds| bounds.high));
    let (low, high) = (low.and_then(known), high.and_then(known));
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
