//! Plots of distributions of times that are no round trips: a histogram, and the tail.

use horolog_record::Distribution;
use horolog_stats::Histogram;

use super::plot::{AxisScale, Plot, PlotAxis, PlotSeries, PlotUnit, PlotViews};
use super::series::percentile_points;

/// Bars of a histogram per decade of time.
const BARS_PER_DECADE: f64 = 20.0;

/// Element `id` and title of a plot, and `id` of the table with the same values.
pub(crate) struct PlotIdsAndTitle {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) described_by: &'static str,
}

/// Returns the histogram, one series of bars per distribution; a series is empty if its histogram
/// cannot be read.
pub(crate) fn histogram(
    target: &PlotIdsAndTitle,
    distributions: &[(String, &Distribution)],
) -> Plot {
    let series =
        distributions.iter().map(|(label, distribution)| histogram_series(label, distribution));
    Plot {
        id: target.id,
        title: target.title,
        hint: "Samples in each bucket. Both scales are logarithmic.",
        described_by: target.described_by,
        x: time_axis(),
        y: PlotAxis {
            label: "count",
            short: "count",
            unit: PlotUnit::Count,
            scale: AxisScale::Log,
        },
        points: false,
        bars: true,
        marks: Vec::new(),
        shown: PlotViews::one(series),
    }
}

/// Returns the tail: time over the share of values that exceed it.
pub(crate) fn tail(target: &PlotIdsAndTitle, distributions: &[(String, &Distribution)]) -> Plot {
    let series = distributions.iter().map(|(label, distribution)| {
        PlotSeries::new(label.clone(), percentile_points(distribution))
    });
    Plot {
        id: target.id,
        title: target.title,
        hint: "Upper percentiles: each step to the right is ten times rarer.",
        described_by: target.described_by,
        x: PlotAxis {
            label: "share of shorter times",
            short: "shorter",
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

pub(crate) const fn time_axis() -> PlotAxis {
    PlotAxis { label: "time", short: "time", unit: PlotUnit::Ns, scale: AxisScale::Log }
}

fn histogram_series(label: &str, distribution: &Distribution) -> PlotSeries {
    let bars = bars(distribution);
    let next_to = |bar: &HistogramBar| bars.iter().any(|other| is_same(other.from, bar.to));
    let gaps = bars.iter().filter(|bar| !next_to(bar)).map(|bar| bar.to).collect();
    let points = bars.iter().map(|bar| (bar.from, bar.count)).collect();
    PlotSeries { gaps, ..PlotSeries::new(label.to_owned(), points) }
}

/// Bar of a histogram: lower and upper bound, and the number of values between them.
#[derive(Debug)]
struct HistogramBar {
    from: f64,
    to: f64,
    count: f64,
}

fn is_same(a: f64, b: f64) -> bool {
    a.total_cmp(&b).is_eq()
}

/// Returns the bars that are not empty. Near 1 ns the scale is finer than the resolution of 1 ns.
fn bars(distribution: &Distribution) -> Vec<HistogramBar> {
    let Ok(histogram) = Histogram::decode(&distribution.histogram) else { return Vec::new() };
    let edge = |bar: f64| 10_f64.powf(bar / BARS_PER_DECADE).round().max(1.0);
    let mut bars: Vec<HistogramBar> = Vec::new();
    for (value, count) in histogram.non_empty_buckets() {
        // A logarithmic axis has no position for 0.
        let bar = ((value.max(1) as f64).log10() * BARS_PER_DECADE).floor();
        let (from, count) = (edge(bar), count as f64);
        match bars.last_mut() {
            Some(last) if is_same(last.from, from) => last.count += count,
            _ => {
                let beyond = (1..).map(|next| edge(bar + f64::from(next)));
                let to = beyond.into_iter().find(|to| *to > from).unwrap_or(from * 2.0);
                bars.push(HistogramBar { from, to, count });
            }
        }
    }
    bars
}

#[cfg(test)]
mod tests {
    use horolog_record::HostTimerResult;

    use super::*;
    use crate::fixture;

    #[test]
    fn the_bars_hold_all_values() {
        let result: HostTimerResult = fixture::sample("host_timer");
        let distribution = result.cores[0].latency_ns.as_ref().unwrap();
        let bars = bars(distribution);
        let sum: f64 = bars.iter().map(|bar| bar.count).sum();
        assert!((sum - distribution.count as f64).abs() < 0.5, "{sum}");
        assert!(bars.is_sorted_by(|a, b| a.to <= b.from) && bars.len() > 3, "{bars:?}");
    }

    #[test]
    fn no_line_goes_over_empty_bars() {
        let mut histogram = horolog_stats::Histogram::new();
        for ns in [1, 2, 1_000, 1_100, 1_200, 900_000] {
            histogram.record(ns);
        }
        let distribution = Distribution::from_histogram(&histogram).unwrap();
        let series = histogram_series("", &distribution);
        let edges: Vec<_> = series.points.iter().map(|(from, _)| *from).collect();
        assert_eq!(edges, [1.0, 2.0, 1_000.0, 1_122.0, 891_251.0]);
        assert_eq!(series.gaps, [3.0, 1_259.0, 1_000_000.0]);
    }

    #[test]
    fn a_histogram_that_cannot_be_read_is_not_drawn() {
        let result: HostTimerResult = fixture::sample("host_timer");
        let mut distribution = result.cores[0].latency_ns.clone().unwrap();
        distribution.histogram = "not base 64".to_owned();
        let target = PlotIdsAndTitle { id: "h", title: "t", described_by: "t" };
        assert!(histogram(&target, &[(String::new(), &distribution)]).is_empty());
        assert!(!tail(&target, &[(String::new(), &distribution)]).is_empty());
    }
}
