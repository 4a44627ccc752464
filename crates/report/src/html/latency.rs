//! Plots of distributions of times that are no round trips: how often each time came, and how long
//! all but the slowest took.

use horolog_record::Distribution;
use horolog_stats::Histogram;

use super::plot::{Axis, Choice, Plot, Scale, Series, Unit};
use super::series::percentile_points;

/// Bars of a histogram for each tenfold longer time.
const BARS_PER_DECADE: f64 = 20.0;

/// What a plot is of: its element, its title, the table with the same figures.
pub(super) struct Place {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) described_by: &'static str,
}

/// How often each time came; one line for each distribution whose histogram can be read.
pub(super) fn histogram(place: &Place, distributions: &[(String, &Distribution)]) -> Plot {
    let series = distributions
        .iter()
        .map(|(label, distribution)| Series::new(label.clone(), bars(distribution)));
    Plot {
        id: place.id,
        title: place.title,
        hint: "How many came between each time and the next. Both scales are logarithmic.",
        described_by: place.described_by,
        x: time_axis(),
        y: Axis { label: "count", short: "count", unit: Unit::Count, scale: Scale::Log },
        points: true,
        marks: Vec::new(),
        shown: Choice::one(series),
    }
}

/// How long all but the slowest took.
pub(super) fn tail(place: &Place, distributions: &[(String, &Distribution)]) -> Plot {
    let series = distributions
        .iter()
        .map(|(label, distribution)| Series::new(label.clone(), percentile_points(distribution)));
    Plot {
        id: place.id,
        title: place.title,
        hint: "What all but the longest stayed below; each step to the right is ten times rarer.",
        described_by: place.described_by,
        x: Axis {
            label: "share that was shorter",
            short: "shorter",
            unit: Unit::Tail,
            scale: Scale::Log,
        },
        y: time_axis(),
        points: false,
        marks: Vec::new(),
        shown: Choice::one(series),
    }
}

pub(super) const fn time_axis() -> Axis {
    Axis { label: "time", short: "time", unit: Unit::Ns, scale: Scale::Log }
}

/// The lower end of each bar and what it holds.
fn bars(distribution: &Distribution) -> Vec<(f64, f64)> {
    let Ok(histogram) = Histogram::decode(&distribution.histogram) else { return Vec::new() };
    let mut bars: Vec<(f64, f64)> = Vec::new();
    for (value, count) in histogram.recorded() {
        // A logarithmic axis has no place for 0.
        let bar = ((value.max(1) as f64).log10() * BARS_PER_DECADE).floor();
        let at = 10_f64.powf(bar / BARS_PER_DECADE).round().max(1.0);
        match bars.last_mut() {
            Some((last, sum)) if last.total_cmp(&at).is_eq() => *sum += count as f64,
            _ => bars.push((at, count as f64)),
        }
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn the_bars_hold_all_values() {
        let result = fixture::host_timer();
        let distribution = result.cores[0].latency_ns.as_ref().unwrap();
        let bars = bars(distribution);
        let sum: f64 = bars.iter().map(|(_, count)| count).sum();
        assert!((sum - distribution.count as f64).abs() < 0.5, "{sum}");
        assert!(bars.is_sorted_by(|a, b| a.0 < b.0) && bars.len() > 3, "{bars:?}");
    }

    #[test]
    fn a_histogram_that_cannot_be_read_is_not_drawn() {
        let result = fixture::host_timer();
        let mut distribution = result.cores[0].latency_ns.clone().unwrap();
        distribution.histogram = "not base 64".to_owned();
        let place = Place { id: "h", title: "t", described_by: "t" };
        assert!(histogram(&place, &[(String::new(), &distribution)]).is_empty());
        assert!(!tail(&place, &[(String::new(), &distribution)]).is_empty());
    }
}
