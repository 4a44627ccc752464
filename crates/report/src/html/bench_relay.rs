//! The page of `bench relay`: for each size the totals over the number of children and what a copy
//! costs, as tables and as plots.

use std::fmt::Write;

use horolog_record::{BenchRelayResult, RelayCell, RelayEngine};

use super::Page;
use super::data::{row, table};
use super::escape::{each, text};
use super::plot::{Axis, Choice, Mark, Plot, Scale, Series, Unit, View};
use super::sections::{
    columns, command_line, drawn_alone, facts, findings, host_facts, paragraph, section, verdict,
};
use crate::relay::{
    COST_COLUMNS, DEFINITION, Gain, costs, direct, gain_rows, gains, sentences, size_name,
    total_columns, totals,
};
use crate::units::ABSENT;

/// The page as HTML. It holds the whole result as JSON in the element `result`.
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
        plot(result, ("cpu", "Processor time of a copy"), "Without the source's.", TIME, |cell| {
            cell.cpu_ns_per_copy()
        }),
    ]);
    let main = [
        section("Findings", &findings(&result.findings)),
        section("Copies without loss", &of_sizes(result, "totals", totals_of)),
        section("Gain", &of_sizes(result, "gains", gains_of)),
        section("A copy at half of that rate", &of_sizes(result, "costs", costs_of)),
        section("By number of children", &figures),
        section("Run and machine", &machine(result)),
    ];
    Page {
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

const RATE: Axis =
    Axis { label: "copies per second", short: "copies", unit: Unit::Rate, scale: Scale::Zero };
const TIME: Axis = Axis { label: "time", short: "time", unit: Unit::Ns, scale: Scale::Log };

const CHILDREN: Axis =
    Axis { label: "children", short: "children", unit: Unit::Count, scale: Scale::Log };

/// The largest of what is asked of the engines: how many times sending the kernel gives.
fn top(result: &BenchRelayResult) -> String {
    let ratios = result.sizes().into_iter().flat_map(|size| {
        let of = move |children| Some((result.ratio(size, children)?, size, children));
        result.children(size).into_iter().filter_map(of).collect::<Vec<_>>()
    });
    let best = ratios.max_by(|a, b| a.0.total_cmp(&b.0));
    let figure = best.map_or_else(|| ABSENT.to_owned(), |(ratio, ..)| format!("{ratio:.1} times"));
    let said = best.map_or_else(String::new, |(_, size, children)| {
        format!("{} to {children} children: xdp against send", size_name(size))
    });
    verdict("At most", &figure, &said, &[])
}

/// The same for each size that has any of it.
fn of_sizes(
    result: &BenchRelayResult,
    id: &str,
    of: fn(&BenchRelayResult, usize, &str) -> String,
) -> String {
    let (mut all, mut number) = (String::new(), 0);
    for size in result.sizes() {
        // The first one is what the plots refer to.
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
    let said = each(sentences(result, size).into_iter().chain(without), |line| paragraph(&line));
    table(id, "Copies per second by the number of children", &titles, &rows) + &said
}

fn gains_of(result: &BenchRelayResult, size: usize, id: &str) -> String {
    let gains = gains(result, size);
    if gains.is_empty() {
        return String::new();
    }
    let (titles, rows) = gain_rows(&gains);
    let rows = each(rows, |(name, cells)| row(&name, cells));
    table(id, "How many times as many copies per second", &titles, &rows)
}

fn costs_of(result: &BenchRelayResult, size: usize, id: &str) -> String {
    let rows = each(costs(result, size), |(name, cells)| row(&name, cells));
    table(id, "What a copy costs", &COST_COLUMNS.map(|(title, _)| title), &rows)
}

/// A figure over the number of children, a line for each engine and a view for each size.
fn plot(
    result: &BenchRelayResult,
    (id, title): (&'static str, &'static str),
    hint: &'static str,
    y: Axis,
    figure: fn(&RelayCell) -> Option<f64>,
) -> Plot {
    let series = |size: usize, engine: RelayEngine| {
        let point = |children: usize| {
            let value = figure(result.cell(size, children, engine)?)?;
            // A logarithmic axis has no place for what is not positive.
            (value > 0.0 && children > 0).then_some((children as f64, value))
        };
        let points = result.children(size).into_iter().filter_map(point).collect();
        Series::new(engine.name().to_owned(), points)
    };
    let view = |size| View {
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
        shown: Choice {
            chooser: "size",
            view: 0,
            views: result.sizes().into_iter().map(view).collect(),
        },
    }
}

/// What is gained over the number of children, a view for each size that has something to compare.
fn of_gains(result: &BenchRelayResult) -> Plot {
    let series = |gain: Gain| {
        let positive = gain.ratios.into_iter().filter(|(of, ratio)| *of > 0 && *ratio > 0.0);
        Series::new(gain.name, positive.map(|(of, ratio)| (of as f64, ratio)).collect())
    };
    let view = |size| View {
        label: size_name(size).into(),
        series: gains(result, size).into_iter().map(series).collect(),
    };
    let views = result.sizes().into_iter().map(view);
    let views: Vec<_> = views.filter(|view| !view.series.is_empty()).collect();
    Plot {
        id: "gains",
        title: "Gain in copies per second",
        hint: "How many times as many come: by each engine over the first one, and by each over \
               the packets that come from the source without a relay.",
        described_by: "gains",
        x: CHILDREN,
        y: Axis {
            label: "times as many copies",
            short: "gain",
            unit: Unit::Times,
            scale: Scale::Log,
        },
        points: true,
        bars: false,
        marks: as_many(&views).into_iter().collect(),
        shown: Choice { chooser: "size", view: 0, views },
    }
}

/// Where nothing is gained. Beyond what is drawn it would be heard and not seen.
fn as_many(views: &[View]) -> Option<Mark> {
    let points = || views.iter().flat_map(|view| &view.series).flat_map(|line| &line.points);
    let is_within = points().any(|point| point.1 <= 1.0) && points().any(|point| point.1 >= 1.0);
    is_within.then(|| Mark { axis: "y", at: 1.0, label: "as many".to_owned() })
}

fn machine(result: &BenchRelayResult) -> String {
    let run = facts(&[
        ("Command", Some(command_line(&result.command))),
        ("Started", Some(result.started.clone())),
        ("Rounds", Some(result.rounds.to_string())),
        ("Receivers' hosts", Some(result.receivers.to_string())),
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
        let ratio = |children: usize| (children as f64, result.ratio(1_400, children).unwrap());
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
        assert!(main_of(&page).contains("Run and machine"));
    }
}
