//! Allan deviations of several clocks, as a plot and as a table.

use horolog_record::AllanDeviation;

use super::data::{row, table};
use super::escape::each;
use super::plot::{Axis, Choice, Plot, Scale, Series, Unit};
use crate::table::query::{scientific, seconds};
use crate::units::full_count;

/// The deviations of each clock that is named, over the averaging time.
pub(super) fn allan_plot(hint: &'static str, clocks: &[(&str, &[AllanDeviation])]) -> Plot {
    let series = |(name, points): &(&str, &[AllanDeviation])| {
        let points = points.iter().map(|point| (point.tau_s, point.deviation));
        // A logarithmic axis has no place for what is not positive.
        let points = points.filter(|(tau, deviation)| *tau > 0.0 && *deviation > 0.0).collect();
        Series::new((*name).to_owned(), points)
    };
    Plot {
        id: "allan",
        title: "Allan deviation",
        hint,
        described_by: "allan",
        x: Axis { label: "averaging time", short: "τ", unit: Unit::Seconds, scale: Scale::Log },
        y: Axis {
            label: "Allan deviation",
            short: "deviation",
            unit: Unit::Scientific,
            scale: Scale::Log,
        },
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: Choice::one(clocks.iter().map(series)),
    }
}

/// The same figures.
pub(super) fn allan_table(clocks: &[(&str, &[AllanDeviation])]) -> String {
    let rows = each(clocks, |(name, points)| {
        each(*points, |point| {
            row(name, [seconds(point.tau_s), scientific(point.deviation), full_count(point.terms)])
        })
    });
    let titles = ["averaging time", "deviation", "second differences"];
    table("allan", "Allan deviation", &titles, &rows)
}
