//! Offset of a server's transmit timestamps over the rate, as plot and table, for runs in which it
//! was measured.

use horolog_record::{LoadResult, SignedDistribution, TimestampOffsetMethod, Trial};

use crate::html::data::{self, row};
use crate::html::escape::each;
use crate::html::plot::{AxisScale, Plot, PlotAxis, PlotSeries, PlotUnit, PlotViews};
use crate::html::sections::paragraph;
use crate::html::series;
use crate::units::{ABSENT, amount, full_count, human_ns, human_rate, percent_of, signed_ns};

/// Column of the table: title, and function that returns its cell.
type OffsetColumn = (&'static str, fn(&SignedDistribution) -> String);

/// Line of the plot: name, and function that returns its value.
type OffsetPlotLine = (&'static str, fn(&SignedDistribution) -> f64);

/// Lines of the plot. Extremes are only in the table, since they would leave no room for the
/// others.
const LINES: [OffsetPlotLine; 3] =
    [("mean", |d| d.mean), ("p50", |d| d.p50 as f64), ("p99", |d| d.p99 as f64)];

/// Element `id` of the table.
const TABLE: &str = "offset-figures";

/// Returns the measuring method of offsets, in words.
fn method(method: TimestampOffsetMethod) -> String {
    let stamp = if method.hardware { "NIC" } else { "kernel" };
    let of = if method.mean_of_server {
        "the mean of the server's receive and transmit timestamps"
    } else {
        "the server's transmit timestamp"
    };
    let correction = signed_ns(method.correction_ns);
    format!("{stamp} receive timestamp minus {of}, minus {correction}")
}

/// Returns the plot of offsets over the rate.
pub(super) fn plot(run: &LoadResult) -> Plot {
    let series = LINES.map(|(label, figure)| {
        let point =
            |trial: &Trial| Some((trial.achieved_rate, figure(trial.tx_offset_ns.as_ref()?)));
        PlotSeries::new(label.to_owned(), run.trials.iter().filter_map(point).collect())
    });
    Plot {
        id: "offset",
        title: "Offset of transmit timestamps by rate",
        hint: "Positive if a timestamp was taken before its reply was sent, or if the server's \
               clock is behind this host's.",
        described_by: TABLE,
        x: series::rate_axis(&[("", run)]),
        y: PlotAxis {
            label: "offset",
            short: "offset",
            unit: PlotUnit::Ns,
            scale: AxisScale::Linear,
        },
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews::one(series),
    }
}

/// Returns the table of the offsets of all trials; nothing without any.
pub(super) fn table(run: &LoadResult) -> String {
    const FIGURES: [OffsetColumn; 10] = [
        ("offsets", |d| full_count(d.count)),
        ("min", |d| signed_ns(d.min)),
        ("mean", |d| signed_ns(d.mean.round() as i64)),
        ("max", |d| signed_ns(d.max)),
        ("deviation", |d| {
            amount(d.stddev).map_or_else(|| ABSENT.to_owned(), |ns| human_ns(ns.round() as u64))
        }),
        ("p50", |d| signed_ns(d.p50)),
        ("p90", |d| signed_ns(d.p90)),
        ("p99", |d| signed_ns(d.p99)),
        ("p99.9", |d| signed_ns(d.p99_9)),
        ("p99.99", |d| signed_ns(d.p99_99)),
    ];
    let Some(how) = run.offset else { return String::new() };
    let rows = each(&run.trials, |trial| {
        let figures = FIGURES.map(|(_, figure)| {
            trial.tx_offset_ns.as_ref().map_or_else(|| ABSENT.to_owned(), figure)
        });
        let timestamped = percent_of(trial.timestamped.unwrap_or_default(), trial.received);
        row(&human_rate(trial.achieved_rate), [timestamped].into_iter().chain(figures))
    });
    let titles = [&["timestamped"], &FIGURES.map(|(title, _)| title)[..]].concat();
    paragraph(&format!("{}.", method(how))) + &data::table(TABLE, "Offsets", &titles, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_run_without_offsets_shows_none() {
        let run = fixture::load();
        assert!(table(&run).is_empty() && plot(&run).is_empty());
    }

    #[test]
    fn every_trial_has_a_row_whether_or_not_it_has_offsets() {
        let method =
            TimestampOffsetMethod { correction_ns: 1_450, mean_of_server: false, hardware: true };
        let mut run = LoadResult { offset: Some(method), ..fixture::load() };
        run.trials.push(fixture::extreme_trial());
        let markup = table(&run);
        let rows: Vec<_> = markup.lines().filter(|line| line.contains("scope=\"row\"")).collect();
        assert_eq!(rows.len(), run.trials.len());
        assert!(rows.iter().all(|row| row.matches("<td").count() == 11));
        assert!(markup.contains("NIC receive") && markup.contains("+1.45 µs"), "{markup}");
        assert!(!markup.contains("NaN"));
    }
}
