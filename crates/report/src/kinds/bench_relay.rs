//! Relay of copies: for each packet size the copy rates by number of children and engine, the gain
//! of the engines, the cost and added delay of a copy, and the comparison with published values.

use std::fmt::Write;

use horolog_record::{
    BenchRelayResult, Distribution, FLAT_RATIO_MAX, NoRelayBaseline, RelayConfigurationResult,
    RelayEngineKind, RelayRepetition, RelayScaling,
};

use crate::document::{
    BlockContent, DescribeResult, HeadlineMetric, ResultDocument, RunFacts, run_of,
};
use crate::html::data::{row, table};
use crate::html::escape::{each, text};
use crate::html::plot::{
    AxisScale, Plot, PlotAxis, PlotMark, PlotSeries, PlotUnit, PlotView, PlotViews,
};
use crate::html::sections::paragraph;
use crate::metrics::{Metric, MetricValue, NamedItems, NamedMetricValues, of_items};
use crate::table::TableStyle;
use crate::table::grid::{CellTone, GridColumn, blocks};
use crate::table::shapes::{TextBar, bars};
use crate::table::summary::wrapped;
use crate::units::{ABSENT, amount, full_count, human_ns, human_rate, mean_ns, signed_ns, times};

/// Lowest and highest mean gain over all packet sizes, in percent, as published by Cao, Su and Lu,
/// "A Mechanism Improving the Forwarding Throughput of Application Layer Multicast", Journal of
/// National University of Defense Technology 30 (2008), 2, 51-55.
const PUBLISHED_GAIN: (f64, f64) = (40.49, 132.45);

/// Definitions of the metrics.
const METHOD: &str = "Totals: copies per second received by all children, at the \
     highest rate without loss. Added: difference between the percentiles of the first copy and \
     those of a packet sent at the same rate without a relay. Last: from sending at the source to \
     arrival of the last copy. Both at half that rate. CPU: CPU time of the host per copy without \
     that of the source, and of the relay alone (also without the receivers), at the same rate, \
     including interrupts.";

impl DescribeResult for BenchRelayResult {
    fn document(&self) -> ResultDocument<'_> {
        let totals = of_sizes(self, "totals", totals_of);
        let tables = [
            BlockContent::Custom(Box::new(|style| lines(self, style)), totals)
                .under("Copies without loss"),
            BlockContent::Markup(Box::new(|| of_sizes(self, "gains", gains_of))).under("Gain"),
            BlockContent::Markup(Box::new(|| of_sizes(self, "costs", costs_of)))
                .under("Cost of a copy at half that rate"),
        ];
        let plots = plots(self)
            .map(|plot| BlockContent::Plot(plot, String::new()).under("By number of children"));
        let facts = vec![
            ("Repetitions", Some(self.repetitions.to_string())),
            ("Receiver hosts", Some(self.receivers.to_string())),
        ];
        ResultDocument {
            kind: "bench relay",
            heading: "Copies by the number of children".to_owned(),
            lead: match self.sizes().len() {
                1 => format!("one size of packets, started {}", self.started),
                count => format!("{count} sizes of packets, started {}", self.started),
            },
            headline: headline(self),
            blocks: tables.into_iter().chain(plots).collect(),
            method: METHOD,
            limits: &[],
            findings: &self.findings,
            run: RunFacts { after: facts, ..run_of!(self) },
        }
    }

    fn metrics() -> Vec<Metric<Self>> {
        let times = [
            Metric::times("first-copy", |cell: &RelayConfigurationResult| {
                cell.first_copy_ns.as_ref()
            }),
            Metric::times("last-copy", |cell| cell.last_copy_ns.as_ref()),
            Metric::times("direct", |cell| cell.direct_ns.as_ref()),
            Metric::named("copies", copy_rates),
            Metric::named("cpu-per-copy", |cell| {
                let halves = cell.repetitions.iter().map(|one| one.half_rate.as_ref());
                let times = halves.map(|half| half.and_then(|half| half.cpu_ns_per_copy));
                times.map(|time| (String::new(), MetricValue::time(time))).collect()
            }),
        ];
        of_items(cells, times).collect()
    }
}

fn cells(result: &BenchRelayResult) -> NamedItems<'_, RelayConfigurationResult> {
    let name = |cell: &RelayConfigurationResult| {
        let (size, engine) = (size_name(cell.size_bytes), cell.engine.name());
        format!("{engine}, {size}, {} children", cell.children)
    };
    result.cells.iter().map(|cell| (name(cell), cell)).collect()
}

/// Returns the rate of copies of each repetition. The bounds of its search are of packets, each of
/// which becomes one copy per child.
fn copy_rates(cell: &RelayConfigurationResult) -> NamedMetricValues<'_> {
    let rate = |one: &RelayRepetition| {
        let bounds = [one.lower, one.upper].map(|rate| Some(rate? * cell.children as f64));
        MetricValue::found_rate(one.copies_per_s, bounds[0], bounds[1])
    };
    cell.repetitions.iter().map(|one| (String::new(), rate(one))).collect()
}

/// Returns the largest ratio of the copy rates of the XDP engine and `send`.
fn headline(result: &BenchRelayResult) -> HeadlineMetric {
    let ratios = result.sizes().into_iter().flat_map(|size| {
        let of = move |children| Some((result.xdp_to_send_ratio(size, children)?, size, children));
        result.child_counts(size).into_iter().filter_map(of).collect::<Vec<_>>()
    });
    let best = ratios.max_by(|a, b| a.0.total_cmp(&b.0));
    HeadlineMetric {
        name: "Maximum gain".to_owned(),
        value: best.map(|(ratio, ..)| format!("{ratio:.1}×")),
        sentence: best.map_or_else(String::new, |(_, size, children)| {
            format!("{} to {children} children, xdp versus send", size_name(size))
        }),
    }
}

/// Returns for each size the totals, the conclusions and the cost of a copy, for a terminal.
fn lines(result: &BenchRelayResult, style: &TableStyle) -> Vec<String> {
    let mut lines = Vec::new();
    for size in result.sizes() {
        let title = |what: &str| {
            CellTone::Strong.paint(&format!("{}: {what}", size_name(size)), style.colour)
        };
        lines.push(title("copies per second without loss"));
        let columns = right(&total_columns(result));
        lines.extend(blocks(names("children", 8), &columns, &totals(result, size), style));
        lines.extend(copy_bars(result, size, style));
        let conclusions = conclusions(result, size).into_iter();
        lines.extend(conclusions.flat_map(|sentence| wrapped(&sentence, "", "  ", style)));
        lines.push(title("cost of a copy at half that rate"));
        let columns = right(&COST_COLUMNS);
        lines.extend(blocks(names("children, by", 12), &columns, &costs(result, size), style));
        lines.push(String::new());
    }
    lines
}

/// Returns bars of the total copy rate, one per number of children and engine.
fn copy_bars(result: &BenchRelayResult, size: usize, style: &TableStyle) -> Vec<String> {
    let cells = result.cells.iter().filter(|cell| cell.size_bytes == size);
    let bar = |cell: &RelayConfigurationResult| {
        let name = format!("{} {}", cell.children, cell.engine.name());
        let rate = cell.copies_per_s();
        TextBar::plain(name, rate, rate.map_or_else(|| ABSENT.to_owned(), human_rate))
    };
    bars("copies per second by children and engine", &cells.map(bar).collect::<Vec<_>>(), style)
}

/// Returns the column of names for a wide and for a narrow terminal, with the same width; a longer
/// name has a line of its own.
fn names(title: &'static str, width: usize) -> [GridColumn<'static>; 2] {
    [GridColumn::left(title, width), GridColumn::left(title, width)]
}

fn right(columns: &[(&'static str, usize)]) -> Vec<GridColumn<'static>> {
    columns.iter().map(|(title, width)| GridColumn::right(title, *width)).collect()
}

/// Returns titles and widths of the columns of a packet size's totals, without the number of
/// children.
fn total_columns(result: &BenchRelayResult) -> Vec<(&'static str, usize)> {
    let engines = result.engines().into_iter().map(|engine| (engine.name(), 11));
    engines
        .chain(is_compared(result).then_some([("gain", 8), ("ratio", 6)]).into_iter().flatten())
        .collect()
}

/// Returns true if both sides of a gain were measured.
fn is_compared(result: &BenchRelayResult) -> bool {
    let engines = result.engines();
    [RelayEngineKind::Send, RelayEngineKind::Xdp].iter().all(|engine| engines.contains(engine))
}

/// Returns the totals of a size: a row for each number of children.
fn totals(result: &BenchRelayResult, size: usize) -> Vec<(String, Vec<String>)> {
    let row = |children: usize| {
        let cell = |engine| total(result.cell(size, children, engine));
        let ratio = result.xdp_to_send_ratio(size, children).and_then(amount);
        let gain = ratio.map_or_else(absent, |ratio| signed_percent((ratio - 1.0) * 100.0));
        let ratio = ratio.map_or_else(absent, |ratio| format!("{ratio:.2}"));
        let engines = result.engines().into_iter().map(cell);
        let compared = is_compared(result).then_some([gain, ratio]);
        (children.to_string(), engines.chain(compared.into_iter().flatten()).collect())
    };
    result.child_counts(size).into_iter().map(row).collect()
}

fn total(cell: Option<&RelayConfigurationResult>) -> String {
    cell.and_then(RelayConfigurationResult::copies_per_s).map_or_else(absent, human_rate)
}

fn absent() -> String {
    ABSENT.to_owned()
}

fn signed_percent(percent: f64) -> String {
    if percent.is_finite() { format!("{percent:+.1}%") } else { absent() }
}

/// Ratio of the copy rates of two senders, by number of children.
struct CopyRateRatios {
    /// Names of the engine, and of the sender with which it is compared.
    name: String,
    /// Pairs (children, ratio); numbers of children for which one side was not measured are
    /// omitted.
    ratios: Vec<(usize, f64)>,
}

/// Returns the gains of the engines for a packet size: over the first engine, and over a source
/// that sends the copies without a relay.
fn gains(result: &BenchRelayResult, size: usize) -> Vec<CopyRateRatios> {
    let engines = result.engines();
    let rate = |children, engine| result.cell(size, children, engine)?.copies_per_s();
    let gain = |engine: RelayEngineKind, name: &str, other: &dyn Fn(usize) -> Option<f64>| {
        let ratio = |children| {
            let other = other(children).filter(|other| *other > 0.0)?;
            Some((children, amount(rate(children, engine)? / other)?))
        };
        let ratios = result.child_counts(size).into_iter().filter_map(ratio).collect();
        CopyRateRatios { name: format!("{} over {name}", engine.name()), ratios }
    };
    let mut gains = Vec::new();
    if let [first, others @ ..] = &engines[..] {
        let over_first = |children| rate(children, *first);
        gains.extend(others.iter().map(|engine| gain(*engine, first.name(), &over_first)));
    }
    if let Some(direct) = result.direct.iter().find(|direct| direct.size_bytes == size) {
        let without = |_| Some(direct.rate);
        gains.extend(engines.iter().map(|engine| gain(*engine, "no relay", &without)));
    }
    gains.retain(|gain| !gain.ratios.is_empty());
    gains
}

/// Returns the titles of the gains of copies, and a row for each number of children.
fn gain_rows(gains: &[CopyRateRatios]) -> (Vec<&str>, Vec<(String, Vec<String>)>) {
    let mut children: Vec<usize> = Vec::new();
    for (of, _) in gains.iter().flat_map(|gain| &gain.ratios) {
        if !children.contains(of) {
            children.push(*of);
        }
    }
    let cell = |gain: &CopyRateRatios, of: usize| {
        let ratio = gain.ratios.iter().find(|(children, _)| *children == of);
        ratio.map_or_else(absent, |(_, ratio)| times(*ratio))
    };
    let row = |of: usize| (of.to_string(), gains.iter().map(|gain| cell(gain, of)).collect());
    let titles = gains.iter().map(|gain| gain.name.as_str()).collect();
    (titles, children.into_iter().map(row).collect())
}

/// Titles and widths of the columns with the cost of a copy, without children and engine.
const COST_COLUMNS: [(&str, usize); 6] =
    [("added p50", 9), ("p99", 8), ("last p50", 9), ("p99", 8), ("CPU/copy", 10), ("relay CPU", 8)];

/// Returns cost and added delay of a copy, one row per number of children and engine.
fn costs(result: &BenchRelayResult, size: usize) -> Vec<(String, Vec<String>)> {
    let cells = result.cells.iter().filter(|cell| cell.size_bytes == size);
    let row = |cell: &RelayConfigurationResult| {
        let last = |value: fn(&Distribution) -> u64| {
            cell.last_copy_ns.as_ref().map_or_else(absent, |times| human_ns(value(times)))
        };
        let last = [last(|times| times.p50), last(|times| times.p99)];
        let added = cell.added_ns().map_or_else(|| [absent(), absent()], |ns| ns.map(signed_ns));
        let costs = [cell.cpu_ns_per_copy(), cell.relay_ns_per_copy()];
        let costs = costs.map(|ns| ns.map_or_else(absent, mean_ns));
        let figures = added.into_iter().chain(last).chain(costs);
        (format!("{} {}", cell.children, cell.engine.name()), figures.collect())
    };
    cells.map(row).collect()
}

/// Returns the baseline without a relay in words.
fn direct(direct: &NoRelayBaseline) -> String {
    let threads = match direct.source_threads {
        1 => "1 thread".to_owned(),
        threads => format!("{threads} threads"),
    };
    let rate = human_rate(direct.rate);
    let receiving = |what: &str, ns: Option<f64>| {
        ns.and_then(amount).map(|ns| format!("receiving {what} costs {}", mean_ns(ns)))
    };
    let parts = [
        receiving("a frame", direct.receiving_frame_ns),
        receiving("a packet on a socket", direct.receiving_socket_ns),
    ];
    let first = format!("Without a relay: {rate} from {threads}");
    let parts: Vec<_> = [Some(first)].into_iter().chain(parts).flatten().collect();
    parts.join("; ") + "."
}

/// Returns the conclusions for a packet size, the comparison with published values, and the
/// baseline without a relay.
fn conclusions(result: &BenchRelayResult, size: usize) -> Vec<String> {
    let without = result.direct.iter().filter(|direct| direct.size_bytes == size).map(direct);
    sentences(result, size).into_iter().chain(without).collect()
}

fn sentences(result: &BenchRelayResult, size: usize) -> Vec<String> {
    let (least, most) = PUBLISHED_GAIN;
    let gain = result.mean_gain_percent(size).map(|gain| {
        format!(
            "Gain of xdp over send, mean: {}; published: +{least}% to +{most}%, by size.",
            signed_percent(gain)
        )
    });
    let of_engine = |engine: RelayEngineKind| {
        let shape = result.scaling(size, engine)?;
        Some(match engine {
            RelayEngineKind::Xdp => growth(&shape),
            other => flatness(other, &shape),
        })
    };
    gain.into_iter().chain(result.engines().into_iter().filter_map(of_engine)).collect()
}

fn flatness(engine: RelayEngineKind, shape: &RelayScaling) -> String {
    let (name, times) = (engine.name(), format!("highest {:.2} times lowest", shape.spread));
    if shape.is_flat() {
        format!("The total of {name} is flat over the number of children ({times}), as published.")
    } else {
        format!(
            "The total of {name} is not flat over the number of children ({times}, above \
             {FLAT_RATIO_MAX}), unlike published."
        )
    }
}

fn growth(shape: &RelayScaling) -> String {
    let (growth, highest, more) = (shape.growth, human_rate(shape.highest), shape.more_children);
    if shape.always_grows {
        format!(
            "The total of xdp grows with the number of children, as published: to {growth:.2} times \
             with {more:.0} times as many (published: linearly)."
        )
    } else if shape.is_flat() {
        format!(
            "The total of xdp is flat over the number of children (highest {highest}), unlike \
             published."
        )
    } else {
        format!(
            "The total of xdp grows up to {} children and not beyond (highest {highest}), unlike \
             published.",
            shape.grows_to
        )
    }
}

/// Formats a packet size.
fn size_name(size: usize) -> String {
    format!("{} B", full_count(size as u64))
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
    let paragraphs = each(conclusions(result, size), |line| paragraph(&line));
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

fn plots(result: &BenchRelayResult) -> [Plot; 4] {
    [
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
    ]
}

/// Returns the plot of a metric over the number of children, one line per engine and one view per
/// packet size.
fn plot(
    result: &BenchRelayResult,
    (id, title): (&'static str, &'static str),
    hint: &'static str,
    y: PlotAxis,
    metric: fn(&RelayConfigurationResult) -> Option<f64>,
) -> Plot {
    let series = |size: usize, engine: RelayEngineKind| {
        let point = |children: usize| {
            let value = metric(result.cell(size, children, engine)?)?;
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
    let series = |gain: CopyRateRatios| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;
    use crate::html::main_of;

    #[test]
    fn shapes_are_compared_with_the_published_ones() {
        let result: BenchRelayResult = fixture::sample("bench_relay");
        let text = sentences(&result, 64).join(" ");
        assert!(text.contains("+40.49% to +132.45%") && text.contains("as published"), "{text}");
        let mut other = result;
        other.cells.iter_mut().filter(|cell| cell.children == 16).for_each(|cell| {
            cell.repetitions.iter_mut().for_each(|round| round.copies_per_s /= 4.0);
        });
        let text = sentences(&other, 64).join(" ");
        assert!(text.contains("not flat") && text.contains("up to 4 children"), "{text}");
    }

    #[test]
    fn a_gain_is_one_of_two_engines() {
        let mut result: BenchRelayResult = fixture::sample("bench_relay");
        let titles = |result: &BenchRelayResult| {
            let titles = total_columns(result).into_iter().map(|(title, _)| title);
            let titles: Vec<_> = titles.collect();
            for (_, cells) in totals(result, 64) {
                assert_eq!(cells.len(), titles.len());
            }
            titles
        };
        assert!(titles(&result).ends_with(&["gain", "ratio"]));
        result.cells.retain(|cell| cell.engine != RelayEngineKind::Send);
        assert!(!titles(&result).contains(&"gain"));
    }

    #[test]
    fn engines_gain_over_the_first_and_over_no_relay() {
        let mut result: BenchRelayResult = fixture::sample("bench_relay");
        let names = |result: &BenchRelayResult| {
            gains(result, 64).into_iter().map(|gain| gain.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&result), ["xdp over send", "send over no relay", "xdp over no relay"]);
        let (_, most) = *gains(&result, 64)[0].ratios.last().unwrap();
        assert_eq!(Some(most), result.xdp_to_send_ratio(64, 16));
        result.direct.clear();
        result.cells.iter_mut().filter(|cell| cell.children == 4).for_each(|cell| {
            cell.repetitions.clear();
        });
        let left = gains(&result, 64);
        let children: Vec<_> = left[0].ratios.iter().map(|(children, _)| *children).collect();
        assert_eq!((left.len(), children), (1, vec![1, 16]));
        let (titles, rows) = gain_rows(&left);
        assert_eq!((titles, rows.len()), (vec!["xdp over send"], 2));
        result.cells.retain(|cell| cell.engine == RelayEngineKind::Xdp);
        assert!(names(&result).is_empty(), "nothing is left to compare it with");
    }

    #[test]
    fn what_was_not_measured_is_absent() {
        let mut result: BenchRelayResult = fixture::sample("bench_relay");
        result.cells.iter_mut().for_each(|cell| {
            cell.repetitions.clear();
            (cell.first_copy_ns, cell.last_copy_ns) = (None, None);
        });
        assert!(sentences(&result, 64).is_empty());
        let cells = totals(&result, 64).into_iter().chain(costs(&result, 64));
        assert!(cells.flat_map(|(_, cells)| cells).all(|cell| cell == ABSENT));
    }
    #[test]
    fn gains_are_a_plot_with_a_table_and_absent_where_nothing_is_compared() {
        let mut result: BenchRelayResult = fixture::sample("bench_relay");
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
        result.cells.retain(|cell| cell.size_bytes != 64 || cell.engine == RelayEngineKind::Xdp);
        let page = result.page();
        assert_eq!(main_of(&page).matches("id=\"gains").count(), 1);
        assert!(main_of(&page).contains("id=\"gains\"") && page.contains("plot-gains"));
        assert_eq!(of_gains(&result).shown.views.len(), 1);
        result.direct.clear();
        result.cells.retain(|cell| cell.engine == RelayEngineKind::Xdp);
        assert!(!result.page().contains("gains"), "nothing to gain over");
    }

    #[test]
    fn a_cell_without_a_round_has_no_bar() {
        let mut result: BenchRelayResult = fixture::sample("bench_relay");
        result.cells[1].repetitions.clear();
        let lines = copy_bars(&result, 64, &TableStyle { colour: false, width: 80 });
        assert!(lines[2].starts_with("  1 xdp   |   ") && lines[2].ends_with("| -"), "{lines:?}");
        assert!(copy_bars(&result, 65, &TableStyle::default()).is_empty());
    }
}
