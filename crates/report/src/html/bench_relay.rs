//! HTML report of `bench relay`: for each size the totals over the number of children and the cost
//! of a copy, as tables and as plots.

use std::fmt::Write;

use horolog_record::{BenchRelayResult, RelayConfigurationResult, RelayEngine};

use super::PageTemplate;
use super::data::{row, table};
use super::escape::{each, text};
use super::plot::{AxisScale, Plot, PlotAxis, PlotMark, PlotSeries, PlotUnit, PlotView, PlotViews};
use super::sections::{
    columns, command_line, drawn_alone, facts, findings, host_facts, paragraph, section, verdict,
};
use crate::relay::{
    COST_COLUMNS, DEFINITION, EngineRatio, costs, direct, gain_rows, gains, sentences, size_name,
    total_columns, totals,
};
use crate::units::ABSENT;

/// Returns the page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn bench_relay(result: &BenchRelayResult) -> String {
    let (figures, plots) = drawn_alone(vec![
        plot(result, ("totals", "Copies per second"), "Of all children together.", RATE, |cell| {
            cell.copies_per_s()
        }),
        of_gains(result),
        plot(result, ("first-copy", "First copy"), "Median, at half the rate.", TIME, |cell| {
            Some(cell.first_copy_ns.as_ref()?.p50 as f64)
        }),
        plot(result, ("cpu", "CPU time per copy"), "Without that of the source.", TIME, |cell| {
            cell.cpu_ns_per_copy()
        }),
    ]);
    let main = [
        section("Findings", &findings(&result.findings)),
        section("Copies without loss", &of_sizes(result, "totals", totals_of)),
        section("Gain", &of_sizes(result, "gains", gains_of)),
        section("Cost of a copy at half that rate", &of_sizes(result, "costs", costs_of)),
        section("By number of children", &figures),
        section("Run and host", &machine(result)),
    ];
    PageTemplate {
        kind: "bench relay",
        failed: None,
        heading: "Copies by the number of children".to_owned(),
        lead: match result.sizes().len() {
            1 => format!("one size of packets, started {}", result.started),
            count => format!("{count} sizes of packets, started {}", result.started),
        },
        verdict: top(result),
        main: main.concat(),
        note: DEFINITION,
        schema: &result.schema,
        plots,
        result,
    }
    .render()
}

const RATE: PlotAxis = PlotAxis {
    label: "copies per second",
    short: "copies",
    unit: PlotUnit::Rate,
    scale: AxisScale::Zero,
};
const TIME: PlotAxis =
    PlotAxis { label: "time", short: "time", unit: PlotUnit::Ns, scale: AxisScale::Log };

const CHILDREN: PlotAxis =
    PlotAxis { label: "children", short: "children", unit: PlotUnit::Count, scale: AxisScale::Log };

/// Returns the headline: the largest ratio of the copy rates of the XDP engine and `send`.
fn top(result: &BenchRelayResult) -> String {
    let ratios = result.sizes().into_iter().flat_map(|size| {
        let of = move |children| Some((result.xdp_to_send_ratio(size, children)?, size, children));
        result.child_counts(size).into_iter().filter_map(of).collect::<Vec<_>>()
    });
    let best = ratios.max_by(|a, b| a.0.total_cmp(&b.0));
    let figure = best.map_or_else(|| ABSENT.to_owned(), |(ratio, ..)| format!("{ratio:.1}×"));
    let sentence = best.map_or_else(String::new, |(_, size, children)| {
        format!("{} to {children} children, xdp versus send", size_name(size))
    });
    verdict("Maximum gain", &figure, &sentence, &[])
}

/// Returns the markup of each size that has any.
fn of_sizes(
    result: &BenchRelayResult,
    id: &str,
    of: fn(&BenchRelayResult, usize, &str) -> String,
) -> String {
    let (mut all, mut number) = (String::new(), 0);
    for size in result.sizes() {
        // The plots refer to the first table by its `id`.
        let id = if number == 0 { id.to_owned() } else { format!("{id}-{number}") };
        let shown = of(result, size, &id);
        if !shown.is_empty() {
            // Writing to memory does not fail.
            let _ = write!(all, "<h3>{}</h3>\n{shown}", text(&size_name(size)));
            number += 1;
        }
    }
    all
}

fn totals_of(result: &BenchRelayResult, size: usize, id: &str) -> String {
    let titles: Vec<_> = total_columns(result).into_iter().map(|(title, _)| title).collect();
    let rows = each(totals(result, size), |(name, cells)| row(&name, cells));
    let without = result.direct.iter().filter(|direct| direct.size_bytes == size).map(direct);
    let paragraphs =
        each(sentences(result, size).into_iter().chain(without), |line| paragraph(&line));
    table(id, "Copies per second by the number of children", &titles, &rows) + &paragraphs
}

fn gains_of(result: &BenchRelayResult, size: usize, id: &str) -> String {
    let gains = gains(result, size);
    if gains.is_empty() {
        return String::new();
    }
    let (titles, rows) = gain_rows(&gains);
    let rows = each(rows, |(name, cells)| row(&name, cells));
    table(id, "Gain in copies per second", &titles, &rows)
}

fn costs_of(result: &BenchRelayResult, size: usize, id: &str) -> String {
    let rows = each(costs(result, size), |(name, cells)| row(&name, cells));
    table(id, "Cost of a copy", &COST_COLUMNS.map(|(title, _)| title), &rows)
}

/// Returns the plot of a metric over the number of children, one line per engine and one view per
/// packet size.
fn plot(
    result: &BenchRelayResult,
    (id, title): (&'static str, &'static str),
    hint: &'static str,
    y: PlotAxis,
    figure: fn(&RelayConfigurationResult) -> Option<f64>,
) -> Plot {
    let series = |size: usize, engine: RelayEngine| {
        let point = |children: usize| {
            let value = figure(result.cell(size, children, engine)?)?;
            // A logarithmic axis has no position for values that are not positive.
            (value > 0.0 && children > 0).then_some((children as f64, value))
        };
        let points = result.child_counts(size).into_iter().filter_map(point).collect();
        PlotSeries::new(engine.name().to_owned(), points)
    };
    let view = |size| PlotView {
        label: size_name(size).into(),
        series: result.engines().into_iter().map(|engine| series(size, engine)).collect(),
    };
    Plot {
        id,
        title,
        hint,
        described_by: if id == "totals" { "totals" } else { "costs" },
        x: CHILDREN,
        y,
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews {
            chooser: "size",
            view: 0,
            views: result.sizes().into_iter().map(view).collect(),
        },
    }
}

/// Returns the plot of the gain over the number of children, a view for each size that has
/// something to compare.
fn of_gains(result: &BenchRelayResult) -> Plot {
    let series = |gain: EngineRatio| {
        let positive = gain.ratios.into_iter().filter(|(of, ratio)| *of > 0 && *ratio > 0.0);
        PlotSeries::new(gain.name, positive.map(|(of, ratio)| (of as f64, ratio)).collect())
    };
    let view = |size| PlotView {
        label: size_name(size).into(),
        series: gains(result, size).into_iter().map(series).collect(),
    };
    let views = result.sizes().into_iter().map(view);
    let views: Vec<_> = views.filter(|view| !view.series.is_empty()).collect();
    Plot {
        id: "gains",
        title: "Gain in copies per second",
        hint: "Ratio of copies per second: each engine to the first one, and each to the packet \
               rate of the source without a relay.",
        described_by: "gains",
        x: CHILDREN,
        y: PlotAxis {
            label: "gain factor",
            short: "gain",
            unit: PlotUnit::Times,
            scale: AxisScale::Log,
        },
        points: true,
        bars: false,
        marks: as_many(&views).into_iter().collect(),
        shown: PlotViews { chooser: "size", view: 0, views },
    }
}

/// Returns a mark at a ratio of 1 (no gain); `None` if that is outside the plotted range, where
/// only the text alternative would contain it.
fn as_many(views: &[PlotView]) -> Option<PlotMark> {
    let points = || views.iter().flat_map(|view| &view.series).flat_map(|line| &line.points);
    let is_within = points().any(|point| point.1 <= 1.0) && points().any(|point| point.1 >= 1.0);
    is_within.then(|| PlotMark { axis: "y", at: 1.0, label: "no gain".to_owned() })
}

fn machine(result: &BenchRelayResult) -> String {
    let run = facts(&[
        ("Command", Some(command_line(&result.command))),
        ("Started", Some(result.started.clone())),
        ("Repetitions", Some(result.repetitions.to_string())),
        ("Receiver hosts", Some(result.receivers.to_string())),
    ]);
    columns(&[run, host_facts(&result.host)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::html::main_of;

    #[test]
    fn all_sizes_are_shown_and_no_fact_becomes_markup() {
        let mut result = fixture::bench_relay();
        result.host.cpu = Some("<img src=x>".to_owned());
        result.findings[0].message = "<img src=y>".to_owned();
        let page = bench_relay(&result);
        let main = main_of(&page);
        for sign in ["id=\"totals\"", "id=\"costs-1\"", "1,400 B", "plot-totals", "published"] {
            assert!(main.contains(sign), "no {sign}");
        }
        assert!(!main.contains("<img"));
    }

    #[test]
    fn gains_are_a_plot_with_a_table_and_absent_where_nothing_is_compared() {
        let mut result = fixture::bench_relay();
        let plot = of_gains(&result);
        let view = &plot.shown.views[1];
        let names: Vec<_> = view.series.iter().map(|one| one.label.as_str()).collect();
        assert_eq!(&*view.label, "1,400 B");
        assert_eq!(names, ["xdp over send", "send over no relay", "xdp over no relay"]);
        let ratio =
            |children: usize| (children as f64, result.xdp_to_send_ratio(1_400, children).unwrap());
        assert_eq!(view.series[0].points, [1, 4, 16].map(ratio));
        assert_eq!(plot.marks.len(), 1, "some are above and some below");
        // What the first size lacks leaves the first table to the second.
        result.direct.remove(0);
        result.cells.retain(|cell| cell.size_bytes != 64 || cell.engine == RelayEngine::Xdp);
        let page = bench_relay(&result);
        assert_eq!(main_of(&page).matches("id=\"gains").count(), 1);
        assert!(main_of(&page).contains("id=\"gains\"") && page.contains("plot-gains"));
        assert_eq!(of_gains(&result).shown.views.len(), 1);
        result.direct.clear();
        result.cells.retain(|cell| cell.engine == RelayEngine::Xdp);
        assert!(!bench_relay(&result).contains("gains"), "nothing to gain over");
    }

    #[test]
    fn an_experiment_that_was_ended_at_once_still_makes_a_page() {
        let mut result = fixture::bench_relay();
        (result.cells, result.direct) = (Vec::new(), Vec::new());
        let page = bench_relay(&result);
        assert!(main_of(&page).contains("Run and host"));
    }
}
