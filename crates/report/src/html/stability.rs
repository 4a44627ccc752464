//! Allan deviations of several clocks, as a plot and as a table.

use horolog_record::AllanDeviation;

use super::data::{row, table};
use super::escape::each;
use super::plot::{AxisScale, Plot, PlotAxis, PlotSeries, PlotUnit, PlotViews};
use crate::units::{full_count, scientific, seconds};

/// Returns the plot of the Allan deviation over the averaging time, one line per clock.
pub(crate) fn allan_plot(hint: &'static str, clocks: &[(&str, &[AllanDeviation])]) -> Plot {
    let series = |(name, points): &(&str, &[AllanDeviation])| {
        let points = points.iter().map(|point| (point.tau_s, point.deviation));
        // A logarithmic axis has no position for values that are not positive.
        let points = points.filter(|(tau, deviation)| *tau > 0.0 && *deviation > 0.0).collect();
        PlotSeries::new((*name).to_owned(), points)
    };
    Plot {
        id: "allan",
        title: "Allan deviation",
        hint,
        described_by: "allan",
        x: PlotAxis {
            label: "averaging time",
            short: "τ",
            unit: PlotUnit::Seconds,
            scale: AxisScale::Log,
        },
        y: PlotAxis {
            label: "Allan deviation",
            short: "deviation",
            unit: PlotUnit::Scientific,
            scale: AxisScale::Log,
        },
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews::one(clocks.iter().map(series)),
    }
}

/// Returns deviations with their averaging times in words; `None` if there are none.
pub(crate) fn allan_text(points: &[AllanDeviation]) -> Option<String> {
    let point = |point: &AllanDeviation| {
        format!("{} at {}", scientific(point.deviation), seconds(point.tau_s))
    };
    let points: Vec<_> = points.iter().map(point).collect();
    (!points.is_empty()).then(|| points.join(", "))
}

/// Returns the table of the deviations.
pub(crate) fn allan_table(clocks: &[(&str, &[AllanDeviation])]) -> String {
    let rows = each(clocks, |(name, points)| {
        each(*points, |point| {
            row(name, [seconds(point.tau_s), scientific(point.deviation), full_count(point.terms)])
        })
    });
    let titles = ["averaging time", "deviation", "second differences"];
    table("allan", "Allan deviation", &titles, &rows)
}
