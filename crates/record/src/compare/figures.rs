//! The figures of a result that can be held against another's: times with their histograms, losses
//! with their counts, rates with the bounds of their search.

use std::collections::BTreeMap;

use horolog_stats::{Histogram, bootstrap};
use serde_json::{Map, Value};

use super::judge::{Change, judge, judge_loss};
use super::places::{distribution, objects};
use super::{CompareVerdict, ComparedFigure, ComparedFigureKind};
use crate::Distribution;

const QUANTILES: [(ComparedFigureKind, f64); 3] = [
    (ComparedFigureKind::P50, 0.5),
    (ComparedFigureKind::P99, 0.99),
    (ComparedFigureKind::P999, 0.999),
];

/// What stands at a place.
enum Measured {
    Times(Box<Distribution>),
    /// Lost and sent.
    Loss([u64; 2]),
    /// Found, and its bounds.
    Rate {
        found: f64,
        lower: Option<f64>,
        upper: Option<f64>,
    },
}

fn measured(result: &Value) -> BTreeMap<String, Measured> {
    let mut all = BTreeMap::new();
    for place in objects(result) {
        let fields = place.fields;
        if let Some(times) = distribution(fields) {
            all.insert(place.name, Measured::Times(Box::new(times)));
        } else if let Some(loss) = loss(fields) {
            all.insert(format!("{}.lost", place.name), Measured::Loss(loss));
        } else if place.name == "search" {
            let of = |name: &str| fields.get(name).and_then(Value::as_f64);
            if let Some(found) = of("rate") {
                let (lower, upper) = (of("lower"), of("upper"));
                all.insert(place.name, Measured::Rate { found, lower, upper });
            }
        }
    }
    all
}

fn loss(fields: &Map<String, Value>) -> Option<[u64; 2]> {
    let of = |name| fields.get(name).and_then(Value::as_u64);
    let (lost, sent) = (of("lost")?, of("sent")?);
    (sent > 0 && lost <= sent).then_some([lost, sent])
}

type Compared = (Vec<ComparedFigure>, Vec<String>, Vec<String>);

pub(super) fn compare(earlier: &Value, later: &Value, threshold: f64) -> Compared {
    let (mut before, after) = (measured(earlier), measured(later));
    let (mut figures, mut only_later) = (Vec::new(), Vec::new());
    for (place, after) in after {
        match before.remove(&place) {
            Some(before) => figures.extend(of_place(&place, &before, &after, threshold)),
            None => only_later.push(place),
        }
    }
    (figures, before.into_keys().collect(), only_later)
}

fn of_place(
    place: &str,
    before: &Measured,
    after: &Measured,
    threshold: f64,
) -> Vec<ComparedFigure> {
    match (before, after) {
        (Measured::Times(before), Measured::Times(after)) => times(place, before, after, threshold),
        (Measured::Loss(before), Measured::Loss(after)) => {
            let share = |[lost, sent]: [u64; 2]| lost as f64 / sent as f64;
            let bounds = bootstrap::difference_of_shares(*before, *after);
            let bounds = bounds.map(|one| Change { low: one.low, high: one.high });
            let verdict = judge_loss(share(*before), bounds, threshold);
            let [earlier, later] = [share(*before), share(*after)];
            vec![figure(place, ComparedFigureKind::Loss, [earlier, later], bounds, verdict)]
        }
        (
            Measured::Rate { found: earlier, lower: old_lower, upper: old_upper },
            Measured::Rate { found: later, lower, upper },
        ) => {
            let change =
                |of: Option<f64>, to: Option<f64>| Some(of? / to.filter(|to| *to > 0.0)? - 1.0);
            let bounds = change(*lower, *old_upper).zip(change(*upper, *old_lower));
            let bounds = bounds.map(|(low, high)| Change { low, high });
            let verdict = judge(bounds.map(Change::reversed), threshold);
            vec![figure(place, ComparedFigureKind::Rate, [*earlier, *later], bounds, verdict)]
        }
        _ => Vec::new(),
    }
}

fn times(
    place: &str,
    before: &Distribution,
    after: &Distribution,
    threshold: f64,
) -> Vec<ComparedFigure> {
    let histograms = before.decode().ok().zip(after.decode().ok());
    let Some((before, after)) = histograms else { return Vec::new() };
    let one = |(kind, quantile): (ComparedFigureKind, f64)| {
        let at = |of: &Histogram| of.value_at_quantile(quantile).map(|value| value as f64);
        let figures = [at(&before)?, at(&after)?];
        let ratio = bootstrap::ratio_of_quantiles(&before, &after, quantile);
        let bounds = ratio.map(|one| Change { low: one.low - 1.0, high: one.high - 1.0 });
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
    ComparedFigure { place: place.to_owned(), figure, earlier, later, low, high, verdict }
}
