//! Plots against what is declared of them: each series by its label, and its points.

use anyhow::{Context, Result, bail, ensure};
use horolog_record::Distribution;
use horolog_stats::Histogram;
use serde::Deserialize as _;

use super::expression::{Expression, Scope};
use super::notation::{PlotOf, SeriesOf, Shape, Source};
use crate::pages::{Plot, Series};

/// Points that every tail has, if so many were counted, and the quantiles that they are.
type Quantile = (f64, fn(&Distribution) -> u64);
const QUANTILES: [Quantile; 4] =
    [(10.0, |d| d.p90), (100.0, |d| d.p99), (1e3, |d| d.p99_9), (1e4, |d| d.p99_99)];
/// Bars of a histogram for each tenfold longer time.
const BARS_PER_DECADE: f64 = 20.0;

/// What a series has to be.
enum Wanted {
    Points(Vec<[f64; 2]>),
    Tail(Box<Distribution>),
}

impl Wanted {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Points(points) if points.is_empty())
    }
}

/// Everything that one declaration gives, each with the scope of its label.
fn all_wanted<'a>(series: &SeriesOf, scope: &Scope<'a>) -> Result<Vec<(Scope<'a>, Wanted)>> {
    let wanted = |row: Scope<'a>| {
        let nothing = Wanted::Points(Vec::new());
        let wanted = match &series.shape {
            Shape::Line(source, x, y) => Wanted::Points(line(source, x, y, &row)),
            Shape::Tail(of) => {
                distribution(of, &row)?.map_or(nothing, |one| Wanted::Tail(Box::new(one)))
            }
            Shape::Histogram(of) => {
                distribution(of, &row)?.map_or(nothing, |one| Wanted::Points(bars(&one)))
            }
        };
        Ok((row, wanted))
    };
    series.source.rows(scope).into_iter().map(wanted).collect()
}

/// Points by their place; of two in one place the higher.
fn line(source: &Source, x: &Expression, y: &Expression, scope: &Scope<'_>) -> Vec<[f64; 2]> {
    let point = |row: &Scope<'_>| Some([x.number(row)?, y.number(row)?]);
    let mut points: Vec<_> = source.rows(scope).iter().filter_map(point).collect();
    points.sort_by(|a, b| a[0].total_cmp(&b[0]).then(b[1].total_cmp(&a[1])));
    points.dedup_by(|later, earlier| later[0].total_cmp(&earlier[0]).is_eq());
    points
}

fn distribution(of: &Expression, scope: &Scope<'_>) -> Result<Option<Distribution>> {
    let found = of.one(scope).and_then(|item| item.json());
    found.map(Distribution::deserialize).transpose().context("no distribution")
}

/// The lower end of each bar with how many times lie in it.
fn bars(distribution: &Distribution) -> Vec<[f64; 2]> {
    let Ok(histogram) = Histogram::decode(&distribution.histogram) else { return Vec::new() };
    let mut bars: Vec<[f64; 2]> = Vec::new();
    for (ns, count) in histogram.non_empty_buckets() {
        let bar = ((ns.max(1) as f64).log10() * BARS_PER_DECADE).floor();
        let low = 10_f64.powf(bar / BARS_PER_DECADE).round();
        match bars.last_mut() {
            Some([last, sum]) if is_near(*last, low) => *sum += count as f64,
            _ => bars.push([low, count as f64]),
        }
    }
    bars
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

fn are_near(a: &[f64; 2], b: &[f64; 2]) -> bool {
    is_near(a[0], b[0]) && is_near(a[1], b[1])
}

/// A plot shows what is declared.
pub(super) fn check(declared: &PlotOf, plot: &Plot, scope: &Scope<'_>) -> Result<()> {
    let mut wanted = Vec::new();
    for series in &declared.series {
        let all = all_wanted(series, scope)?;
        wanted.extend(all.into_iter().map(|(row, wanted)| (series, row, wanted)));
    }
    for (label, shown) in plot.all_series() {
        let mut complaint = None;
        let is_it = |(series, row, wanted): &(&SeriesOf, Scope<'_>, Wanted)| {
            let is_right = series.label.check(&label, row).is_ok();
            let shown = is_right.then(|| shows(shown, wanted, declared.is_thinned));
            match shown {
                Some(Err(error)) => {
                    complaint.get_or_insert(format!("{error:#}"));
                    false
                }
                shown => shown.is_some(),
            }
        };
        let at = wanted.iter().position(is_it);
        let at = at.with_context(|| {
            let why = complaint.unwrap_or_default();
            format!("the series '{label}' is none that is declared: {why}")
        })?;
        wanted.remove(at);
    }
    let left = wanted.iter().filter(|(.., wanted)| !wanted.is_empty()).count();
    ensure!(declared.is_choice || left == 0, "{left} series are not drawn");
    Ok(())
}

/// Whether there is anything to draw.
pub(super) fn is_wanted(declared: &PlotOf, scope: &Scope<'_>) -> Result<bool> {
    for series in &declared.series {
        if all_wanted(series, scope)?.iter().any(|(_, wanted)| !wanted.is_empty()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn shows(series: &Series, wanted: &Wanted, is_thinned: bool) -> Result<()> {
    match wanted {
        Wanted::Tail(distribution) => tail(&series.points, distribution),
        Wanted::Points(points) if is_thinned && series.points.len() < points.len() => {
            thinned(&series.points, points)
        }
        Wanted::Points(points) => {
            let [shown, wanted] = [series.points.len(), points.len()];
            ensure!(shown == wanted, "'{}': {shown} points of {wanted}", series.label);
            for (shown, wanted) in series.points.iter().zip(points) {
                let label = &series.label;
                ensure!(are_near(shown, wanted), "'{label}': {shown:?} in place of {wanted:?}");
            }
            Ok(())
        }
    }
}

/// Of many points some are shown, the lowest and the highest among them.
fn thinned(shown: &[[f64; 2]], all: &[[f64; 2]]) -> Result<()> {
    let mut rest = all.iter();
    for point in shown {
        ensure!(rest.any(|one| are_near(point, one)), "{point:?} is no point of the result");
    }
    let by_height = |a: &&[f64; 2], b: &&[f64; 2]| a[1].total_cmp(&b[1]);
    for extreme in [all.iter().min_by(by_height), all.iter().max_by(by_height)] {
        let height = extreme.context("no points")?[1];
        ensure!(shown.iter().any(|point| is_near(point[1], height)), "{height} is left out");
    }
    Ok(())
}

/// From the shortest time to the longest, through the quantiles that the result tells.
fn tail(points: &[[f64; 2]], distribution: &Distribution) -> Result<()> {
    // A logarithmic axis has no place for 0.
    let height = |ns: u64| ns.max(1) as f64;
    let [Some(first), Some(last)] = [points.first(), points.last()] else { bail!("no curve") };
    let count = distribution.count as f64;
    let (begin, end) = ([1.0, height(distribution.min)], [count, height(distribution.max)]);
    ensure!(count <= 1.0 || are_near(first, &begin), "it begins at {first:?}, not at {begin:?}");
    ensure!(are_near(last, &end), "it ends at {last:?}, not at {end:?}");
    ensure!(points.is_sorted_by(|a, b| a[0] < b[0] && a[1] <= b[1]), "it does not rise");
    for (rarity, of) in QUANTILES.iter().filter(|(rarity, _)| *rarity < count) {
        let wanted = [*rarity, height(of(distribution))];
        ensure!(points.iter().any(|point| are_near(point, &wanted)), "it is not at {wanted:?}");
    }
    Ok(())
}
