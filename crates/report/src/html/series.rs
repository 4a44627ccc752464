//! Points of the plots of a load: loss and latency over the achieved rate, and latency by
//! percentile from the histograms.

use horolog_record::{Distribution, FindingCode, LoadResult, LoadSeriesPoint, Percentiles, Trial};
use horolog_stats::Histogram;

use super::latency::time_axis;
use super::plot::{AxisScale, Plot, PlotAxis, PlotMark, PlotSeries, PlotUnit, PlotView, PlotViews};
use super::time_series::TimeSeriesDrawingLimits;
use crate::units::{human_rate, percent};
use crate::verdict::BestRate;

/// Loss ratio up to which the axis is linear; logarithmic beyond.
const LOSS_KNEE: f64 = 1e-4;
/// Ratio of the highest to the lowest rate up to which the axis of rates is linear; logarithmic for
/// more.
const LINEAR_SPAN_MAX: f64 = 5.0;
/// Points of a percentile curve per decade of the share of larger values.
const POINTS_PER_DECADE: u32 = 16;
/// Maximum number of decades of a percentile curve; a 64-bit count has fewer.
const DECADES_MAX: u32 = 20;

/// Function that returns one value of a distribution, such as a percentile.
type LatencyStatisticSelector = fn(&Distribution) -> u64;

/// Percentiles that are plotted over the rate.
const FIGURES: [(&str, LatencyStatisticSelector); 5] = [
    ("p50", |d| d.p50),
    ("p90", |d| d.p90),
    ("p99", |d| d.p99),
    ("p99.9", |d| d.p99_9),
    ("max", |d| d.max),
];
/// Index in [`FIGURES`] of the percentile that a comparison shows first: p99.
const FIRST_FIGURE: usize = 2;

/// Name of a run in a plot, and its result.
pub(crate) type NamedRun<'a> = (&'a str, &'a LoadResult);

/// Returns the plot of the loss ratio over the rate, one series per run.
pub(crate) fn loss(runs: &[NamedRun<'_>], described_by: &'static str) -> Plot {
    let series = |(label, run): &NamedRun<'_>| {
        let points = run.trials.iter().filter(|trial| trial.sent > 0);
        let points = points.map(|trial| (trial.achieved_rate, trial.loss_ratio())).collect();
        PlotSeries::new((*label).to_owned(), points)
    };
    Plot {
        id: "loss",
        title: "Loss by rate",
        hint: "Share of requests without a valid reply within the timeout. The scale is \
            logarithmic above 0.01%.",
        described_by,
        x: rate_axis(runs),
        y: loss_axis(),
        points: true,
        bars: false,
        marks: goal_mark(runs).into_iter().chain(rate_mark(runs)).collect(),
        shown: PlotViews::one(runs.iter().map(series)),
    }
}

/// Returns the plot of round-trip percentiles over the rate: all percentiles for one run, one at a
/// time for several.
pub(crate) fn latency(runs: &[NamedRun<'_>], described_by: &'static str) -> Plot {
    let views = match runs {
        [(_, run)] => {
            let series = FIGURES.map(|(name, figure)| figure_series(name, run, figure));
            vec![PlotView { label: "".into(), series: series.into() }]
        }
        _ => FIGURES
            .map(|(name, figure)| PlotView {
                label: name.into(),
                series: runs.iter().map(|(label, run)| figure_series(label, run, figure)).collect(),
            })
            .into(),
    };
    let view = if views.len() > 1 { FIRST_FIGURE } else { 0 };
    Plot {
        id: "latency",
        title: "Round trip by rate",
        hint: "From the intended send time, so that queueing at the sender is included (no \
               coordinated omission). Wide ranges have logarithmic scales.",
        described_by,
        x: rate_axis(runs),
        y: time_axis(),
        points: true,
        bars: false,
        marks: rate_mark(runs).into_iter().collect(),
        shown: PlotViews { chooser: "Percentile", view, views },
    }
}

/// Function that returns one percentile of an interval.
type IntervalPercentileSelector = fn(&Percentiles) -> u64;

/// Returns the plot of the loss ratio over time.
pub(crate) fn loss_over_time(result: &LoadResult, described_by: &'static str) -> Plot {
    let points = points(result).iter().filter(|point| point.sent > 0);
    let points = points.map(|point| (point.at_s, point.loss_ratio())).collect();
    Plot {
        id: "loss-over-time",
        title: "Loss over time",
        hint: "Share of the requests of each interval without a valid reply within the timeout. \
               The scale is logarithmic above 0.01%. Many intervals are thinned to the minimum \
               and maximum of each group.",
        described_by,
        x: seconds_axis(),
        y: loss_axis(),
        points: false,
        bars: false,
        marks: phase_marks(result),
        shown: PlotViews::one([load_time_series(result).line("lost".to_owned(), points)]),
    }
}

/// Returns the plot of round-trip percentiles over time, one line per percentile.
pub(crate) fn latency_over_time(result: &LoadResult, described_by: &'static str) -> Plot {
    const FIGURES: [(&str, IntervalPercentileSelector); 5] = [
        ("p50", |rtt| rtt.p50),
        ("p90", |rtt| rtt.p90),
        ("p99", |rtt| rtt.p99),
        ("p99.9", |rtt| rtt.p99_9),
        ("max", |rtt| rtt.max),
    ];
    let series = FIGURES.map(|(name, figure)| {
        let points = points(result).iter();
        let points =
            points.filter_map(|point| Some((point.at_s, plottable_ns(figure(&point.rtt_ns?)))));
        load_time_series(result).line(name.to_owned(), points.collect())
    });
    Plot {
        id: "latency-over-time",
        title: "Round trip over time",
        hint: "Percentiles of each interval, from the intended send time. Intervals without \
               replies leave a gap.",
        described_by,
        x: seconds_axis(),
        y: time_axis(),
        points: false,
        bars: false,
        marks: phase_marks(result),
        shown: PlotViews::one(series),
    }
}

/// Returns the plot of the requests sent and answered per second over time, without the last
/// interval of an interrupted run.
pub(crate) fn rate_over_time(result: &LoadResult, described_by: &'static str) -> Plot {
    let interval_s = result.series.as_ref().map_or(f64::NAN, |series| series.interval_s);
    let series = |label: &str, count: fn(&LoadSeriesPoint) -> u64| {
        // The last interval of an interrupted run is shorter than the others and is omitted.
        let whole = match points(result).split_last() {
            Some((_, whole)) if was_ended(result) => whole,
            _ => points(result),
        };
        let points = whole.iter().map(|point| (point.at_s, count(point) as f64 / interval_s));
        load_time_series(result).line(label.to_owned(), points.collect())
    };
    let series = vec![series("sent", |point| point.sent), series("answered", |one| one.received)];
    Plot {
        id: "rate-over-time",
        title: "Requests and replies over time",
        hint: "Requests sent in each interval, and those of them that were answered.",
        described_by,
        x: seconds_axis(),
        y: PlotAxis {
            label: "per second",
            short: "rate",
            unit: PlotUnit::Rate,
            scale: AxisScale::Zero,
        },
        points: false,
        bars: false,
        marks: phase_marks(result),
        shown: PlotViews::one(series),
    }
}

/// Maximum number of points of one line. It is lower than for other plots, because one plot may
/// draw five lines over one another.
const POINTS_MAX: usize = 600;

fn load_time_series(result: &LoadResult) -> TimeSeriesDrawingLimits {
    let interval_s = result.series.as_ref().map(|series| series.interval_s);
    TimeSeriesDrawingLimits { interval_s, points_max: POINTS_MAX, ..TimeSeriesDrawingLimits::EVEN }
}

/// Returns true if the run was interrupted.
fn was_ended(result: &LoadResult) -> bool {
    result.findings.iter().any(|finding| finding.code == FindingCode::Interrupted)
}

fn points(result: &LoadResult) -> &[LoadSeriesPoint] {
    result.series.as_ref().map_or(&[], |series| &series.points)
}

/// Returns the marks of the beginnings of phases, except the first.
fn phase_marks(result: &LoadResult) -> Vec<PlotMark> {
    let begins = points(result).windows(2).filter(|pair| pair[0].trial != pair[1].trial);
    let mark = |pair: &[LoadSeriesPoint]| {
        let name = result.trials.get(pair[1].trial)?.phase.clone()?;
        Some(PlotMark { axis: "x", at: pair[1].at_s, label: name })
    };
    begins.filter_map(mark).filter(|mark| mark.at.is_finite()).collect()
}

const fn seconds_axis() -> PlotAxis {
    PlotAxis { label: "time", short: "at", unit: PlotUnit::Seconds, scale: AxisScale::Linear }
}

pub(crate) const fn loss_axis() -> PlotAxis {
    PlotAxis {
        label: "lost",
        short: "lost",
        unit: PlotUnit::Share,
        scale: AxisScale::Knee { knee: LOSS_KNEE },
    }
}

/// Returns the plot of times by percentile, one curve per distribution.
pub(crate) fn percentiles(
    id: &'static str,
    title: &'static str,
    distributions: &[(String, &Distribution)],
    described_by: &'static str,
) -> Plot {
    let series = distributions.iter().map(|(label, distribution)| {
        PlotSeries::new(label.clone(), percentile_points(distribution))
    });
    Plot {
        id,
        title,
        hint: "Upper percentiles: each step to the right is ten times rarer.",
        described_by,
        x: PlotAxis {
            label: "share of faster replies",
            short: "faster",
            unit: PlotUnit::Tail,
            scale: AxisScale::Log,
        },
        y: time_axis(),
        points: false,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews::one(series),
    }
}

/// Returns points (n, time), where one in n values exceeds the time. If the histogram cannot be
/// read, the points come from the percentiles of the distribution.
pub(crate) fn percentile_points(distribution: &Distribution) -> Vec<(f64, f64)> {
    let slowest = (distribution.count as f64, plottable_ns(distribution.max));
    let Ok(histogram) = Histogram::decode(&distribution.histogram) else {
        let known = [
            (1.0, distribution.min),
            (2.0, distribution.p50),
            (10.0, distribution.p90),
            (100.0, distribution.p99),
            (1000.0, distribution.p99_9),
            (10_000.0, distribution.p99_99),
        ];
        let inside = known.into_iter().filter(|(rarity, _)| *rarity < slowest.0);
        return inside.map(|(rarity, ns)| (rarity, plottable_ns(ns))).chain([slowest]).collect();
    };
    (0..POINTS_PER_DECADE * DECADES_MAX)
        .map(|step| 10_f64.powf(f64::from(step) / f64::from(POINTS_PER_DECADE)))
        .take_while(|rarity| *rarity < slowest.0)
        .filter_map(|rarity| {
            let ns = histogram.value_at_quantile(1.0 - 1.0 / rarity)?;
            // The outer buckets of a histogram extend beyond the smallest and largest value.
            let ns = ns.max(distribution.min).min(distribution.max);
            Some((rarity, plottable_ns(ns)))
        })
        .chain([slowest])
        .collect()
}

fn figure_series(label: &str, run: &LoadResult, figure: LatencyStatisticSelector) -> PlotSeries {
    let point = |trial: &Trial| {
        let rtt = trial.rtt_ns.as_ref()?;
        Some((trial.achieved_rate, plottable_ns(figure(rtt))))
    };
    PlotSeries::new(label.to_owned(), run.trials.iter().filter_map(point).collect())
}

/// Returns a time for a logarithmic axis, which has no position for 0; less than 1 ns is below the
/// resolution of the clocks.
fn plottable_ns(ns: u64) -> f64 {
    ns.max(1) as f64
}

pub(crate) fn rate_axis(runs: &[NamedRun<'_>]) -> PlotAxis {
    let rates = || {
        let trials = runs.iter().flat_map(|(_, run)| &run.trials);
        trials.map(|trial| trial.achieved_rate).filter(|rate| rate.is_finite())
    };
    let lowest = rates().reduce(f64::min).unwrap_or_default();
    let highest = rates().reduce(f64::max).unwrap_or_default();
    let wide = lowest > 0.0 && highest / lowest > LINEAR_SPAN_MAX;
    PlotAxis {
        label: "requests sent per second",
        short: "rate",
        unit: PlotUnit::Rate,
        scale: if wide { AxisScale::Log } else { AxisScale::Linear },
    }
}

/// Returns a mark at the best rate of a single run; `None` for several runs or without such a rate.
fn rate_mark(runs: &[NamedRun<'_>]) -> Option<PlotMark> {
    let [(_, run)] = runs else { return None };
    let at = BestRate::of(run).held().filter(|rate| rate.is_finite() && *rate > 0.0)?;
    Some(PlotMark { axis: "x", at, label: format!("best: {}", human_rate(at)) })
}

/// Returns a mark at the allowed loss ratio; `None` if the goals differ, one run is no search, or
/// the goal allows no loss.
fn goal_mark(runs: &[NamedRun<'_>]) -> Option<PlotMark> {
    let mut goals = runs.iter().map(|(_, run)| run.search.as_ref().map(|s| s.goal_loss_ratio));
    let first = goals.next()??;
    let same = goals.all(|goal| goal.is_some_and(|goal| goal.total_cmp(&first).is_eq()));
    (same && first > 0.0 && first < 1.0).then(|| PlotMark {
        axis: "y",
        at: first,
        label: format!("goal: {}", percent(first)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn percentile_curves_rise_to_the_maximum() {
        let result = fixture::load();
        let distribution = result.trials[3].rtt_ns.as_ref().unwrap();
        let points = percentile_points(distribution);
        assert!(points.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
        assert_eq!(*points.last().unwrap(), (20_000.0, distribution.max as f64));
        let median = points.iter().find(|(rarity, _)| *rarity >= 2.0).unwrap();
        assert!((median.1 / distribution.p50 as f64 - 1.0).abs() < 0.1);
    }

    #[test]
    fn a_percentile_curve_begins_at_the_minimum() {
        let mut histogram = horolog_stats::Histogram::new();
        for ns in [1_501, 1_502, 90_001] {
            histogram.record(ns);
        }
        let distribution = Distribution::from_histogram(&histogram).unwrap();
        let points = percentile_points(&distribution);
        assert_eq!((points[0], *points.last().unwrap()), ((1.0, 1_501.0), (3.0, 90_001.0)));
    }

    #[test]
    fn a_histogram_that_cannot_be_read_leaves_the_figures() {
        let result = fixture::load();
        let mut distribution = result.trials[3].rtt_ns.clone().unwrap();
        distribution.histogram = "not base 64".to_owned();
        let points = percentile_points(&distribution);
        assert_eq!(points.len(), 7);
        assert_eq!(points[1], (2.0, distribution.p50 as f64));
    }

    #[test]
    fn one_run_shows_all_percentiles_and_several_one_at_a_time() {
        let result = fixture::load();
        assert_eq!(latency(&[("a", &result)], "t").shown.views[0].series.len(), FIGURES.len());
        let plot = latency(&[("a", &result), ("b", &result)], "t");
        assert_eq!(plot.shown.views.len(), FIGURES.len());
        assert_eq!(plot.shown.views[plot.shown.view].label, "p99");
        assert!(plot.marks.is_empty());
    }

    #[test]
    fn a_series_is_drawn_over_time() {
        let mut result = fixture::load();
        assert!(loss_over_time(&result, "t").is_empty());
        result.series = Some(fixture::series());
        result.trials[1].phase = Some("spike".to_owned());
        let mut unanswered = result.clone();
        unanswered.series.as_mut().unwrap().points[1].rtt_ns = None;
        unanswered.series.as_mut().unwrap().points[2].rtt_ns =
            result.series.as_ref().unwrap().points[0].rtt_ns;
        let latency = latency_over_time(&unanswered, "t");
        let median = &latency.shown.views[0].series[0];
        assert_eq!((median.points.len(), &*median.gaps), (2, &[0.5][..]), "nothing was answered");
        let loss = loss_over_time(&result, "t");
        assert_eq!(loss.shown.views[0].series[0].points, [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)]);
        assert_eq!((loss.marks.len(), &*loss.marks[0].label), (1, "spike"));
        let latency = latency_over_time(&result, "t");
        assert_eq!(latency.shown.views[0].series[2].points, [(0.0, 9000.0), (0.5, 9000.0)]);
        let rate = rate_over_time(&result, "t");
        assert_eq!(rate.shown.views[0].series[1].points[1], (0.5, 100.0));
    }

    #[test]
    fn an_empty_run_is_an_empty_plot() {
        let empty = fixture::empty();
        assert!(loss(&[("a", &empty)], "t").is_empty());
        assert!(latency(&[("a", &empty)], "t").is_empty());
        assert!(percentiles("p", "", &[], "t").is_empty());
    }
}
