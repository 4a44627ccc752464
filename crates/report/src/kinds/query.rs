//! Document of a result of `horolog query`: one line per server, statistics if there are enough
//! samples, differences between servers, offset and delay over time, and Allan deviations.

use std::convert::identity;
use std::net::{IpAddr, SocketAddr};

use horolog_record::{
    AllanDeviation, ExactSummary, ExchangeSample, LeapState, LimitUnit, QueriedServerState,
    QueryResult, QueryServerResult, ServerOffsetDifference, TimestampCounts,
};
use horolog_stats::Histogram;

use crate::document::{
    BlockContent, DescribeResult, HeadlineMetric, NamedFacts, ResultDocument, RunFacts, run_of,
};
use crate::html::data::{row, table};
use crate::html::escape::{each, text};
use crate::html::plot::{AxisScale, Plot, PlotAxis, PlotUnit, PlotViews};
use crate::html::stability::{allan_plot, allan_table, allan_text};
use crate::html::time_series::TimeSeriesDrawingLimits;
use crate::metrics::{Metric, MetricValue, NamedItems, judged_by_fields, of_items};
use crate::table::TableStyle;
use crate::table::grid::{self, CellTone, GridCell, GridColumn, GridColumnGroup};
use crate::table::shapes::{
    SparklineGroup, SparklineRow, SparklineScale, SparklineUnit, allan as allan_lines, put,
};
use crate::table::summary::wrapped;
use crate::units::{
    ABSENT, figure_texts, full_count, human_ns, mean_ns, signed_mean_ns, signed_ns,
};

/// Number of samples up to which no statistics are shown.
const FEW: usize = 8;
/// Maximum width of the name column, in characters.
const NAME_MAX: usize = 46;
/// Maximum number of samples of a server that the embedded JSON contains; if there are more, all
/// are omitted.
const SAMPLES_MAX: usize = 1_000;

const NOTE: &str = "Statistics are exact, over all samples. Offset is equation (6), ((T2 − T1) + \
                    (T3 − T4)) / 2, and delay equation (7), (T4 − T1) − (T3 − T2), of Liu, Wu and \
                    Wang 2020 (RFC 5905, section 8); all are relative to the clock of the \
                    measuring host.";

const STABILITY: &str = "Overlapping, of the fractional frequency. Slope −1 indicates \
                         measurement noise; a rise indicates wander.";

impl DescribeResult for QueryResult {
    fn document(&self) -> ResultDocument<'_> {
        const OVER_TIME: &str = "Offset, delay and stability";
        let names: Vec<_> = self.servers.iter().map(|server| server.name.as_str()).collect();
        let custom = BlockContent::Custom;
        let plot = |plot| BlockContent::Plot(plot, String::new()).under(OVER_TIME);
        ResultDocument {
            kind: "query",
            heading: names.join(", "),
            lead: format!(
                "{} exchanges with each, one every {}, started {}",
                full_count(self.count),
                human_ns(self.interval_ns),
                self.started
            ),
            headline: headline(self),
            blocks: vec![
                custom(Box::new(|style| servers(self, style)), server_table(self)).under("Servers"),
                custom(Box::new(|style| differences(self, style)), difference_list(self))
                    .under("Between servers"),
                plot(over_time(self, &OFFSETS, |sample| sample.offset_ns)),
                plot(over_time(self, &DELAYS, |sample| sample.delay_ns)),
                plot(allan_plot(STABILITY, &stability(self))),
                BlockContent::Markup(Box::new(|| statistics_table(self))).under("Statistics"),
                BlockContent::Markup(Box::new(|| allan_table(&stability(self))))
                    .under("Allan deviation"),
                BlockContent::PageNote(NOTE).under(""),
            ],
            method: "",
            limits: &self.limits,
            findings: &self.findings,
            run: RunFacts {
                after: vec![
                    ("NTP version", Some(self.ntp_version.to_string())),
                    (
                        "Mode",
                        Some(if self.interleaved { "interleaved" } else { "basic" }.to_owned()),
                    ),
                    ("Reply timeout", Some(human_ns(self.reply_timeout_ns))),
                ],
                other_lists: self.servers.iter().map(server_facts).collect(),
                ..run_of!(self)
            },
        }
    }

    fn embedded(&self) -> Option<Self> {
        let mut result = self.clone();
        for server in &mut result.servers {
            if server.samples.len() > SAMPLES_MAX {
                server.samples.clear();
            }
        }
        Some(result)
    }

    fn metrics() -> Vec<Metric<Self>> {
        let metrics = [
            Metric::value("offset", |one: &QueryServerResult| {
                one.best.map_or(MetricValue::Failed, |best| {
                    MetricValue::Offset(best.offset_ns as f64, best.bound_ns as f64)
                })
            })
            .limited(LimitUnit::Ns),
            Metric::number("bound", LimitUnit::Ns, |one| Some(one.best?.bound_ns as f64)),
            Metric::number("delay", LimitUnit::Ns, |one| {
                Some(one.best?.delay_ns.unsigned_abs() as f64)
            }),
            Metric::number("jitter", LimitUnit::Ns, |one| one.jitter_ns),
            Metric::number("mean", LimitUnit::Ns, |one| Some(one.offset_ns?.mean.abs())),
            Metric::number("rms", LimitUnit::Ns, |one| Some(one.offset_ns?.rms)),
            Metric::number("max", LimitUnit::Ns, |one| {
                let offsets = one.offset_ns?;
                Some(offsets.min.unsigned_abs().max(offsets.max.unsigned_abs()) as f64)
            }),
            Metric::ratio("loss", |one: &QueryServerResult| {
                Some([one.counts.lost, one.counts.sent])
            })
            .limited(LimitUnit::Ratio),
            Metric::ratio("unsynchronised", |one: &QueryServerResult| {
                Some([one.counts.unsynchronised, one.counts.sent])
            })
            .limited(LimitUnit::Ratio),
            Metric::ratio("late", |one| Some([one.counts.late, one.counts.sent])),
            Metric::ratio("refused", |one| Some([one.counts.refused, one.counts.sent])),
            Metric::ratio("invalid", |one| {
                let invalid = one.counts.invalid.values();
                Some([invalid.fold(0, |sum, count| sum.saturating_add(*count)), one.counts.sent])
            }),
            Metric::value("delay", sample_delays),
        ];
        of_items(servers_by_name, metrics).collect()
    }
}

judged_by_fields!(QueryResult);

fn servers_by_name(result: &QueryResult) -> NamedItems<'_, QueryServerResult> {
    result.servers.iter().map(|server| (server.name.clone(), server)).collect()
}

/// Returns the delays of a server's samples; none if one is negative.
fn sample_delays(server: &QueryServerResult) -> MetricValue<'_> {
    let mut histogram = Histogram::new();
    for sample in &server.samples {
        let Ok(delay) = u64::try_from(sample.delay_ns) else { return MetricValue::NotMeasured };
        histogram.record(delay);
    }
    MetricValue::Histogram(Box::new(histogram))
}

/// Returns the offset of the server with the lowest error bound.
fn headline(result: &QueryResult) -> HeadlineMetric {
    let known = result.servers.iter().filter_map(|server| Some((server, server.best.as_ref()?)));
    let best = known.min_by_key(|(_, best)| best.bound_ns);
    HeadlineMetric {
        name: "Offset".to_owned(),
        value: best.map(|(_, best)| {
            format!("{} ± {}", signed_ns(best.offset_ns), human_ns(best.bound_ns))
        }),
        sentence: best.map_or_else(
            || "No server sent a valid reply.".to_owned(),
            |(server, _)| format!("{}, relative to this host's clock.", server.name),
        ),
    }
}

fn server_facts(server: &QueryServerResult) -> NamedFacts {
    let nts = server.nts.as_ref();
    let clock = server.hardware_clock.as_ref();
    let drift = server.drift.map(|drift| format!("{:+.4} ± {:.4} ppm", drift.ppm, drift.error_ppm));
    vec![
        ("Server", Some(full_name(server))),
        ("Port", Some(server.port.to_string())),
        ("Timestamps of requests", Some(timestamp_counts(server.transmit_timestamps))),
        ("Timestamps of replies", Some(timestamp_counts(server.receive_timestamps))),
        ("PHC", clock.map(|one| format!("{}, /dev/ptp{}", one.interface, one.clock))),
        (
            "PHC conversion",
            clock.map(|one| format!("± {}", human_ns(one.conversion_uncertainty_ns))),
        ),
        ("Authenticated by", nts.map(|nts| format!("NTS, {}", nts.algorithm))),
        ("NTS-KE server", nts.map(|nts| nts.ke_server.clone())),
        (
            "NTS-KE repetitions",
            nts.filter(|nts| nts.renewals > 0).map(|nts| nts.renewals.to_string()),
        ),
        ("Drift", drift),
    ]
}

/// Column of the table of servers.
struct ServerColumn {
    group: &'static str,
    title: &'static str,
    width: usize,
    /// Rank: columns of the highest rank are omitted first on a terminal, those of rank 0 never.
    rank: u8,
    page_title: &'static str,
    /// Function that returns the text on a page.
    cell: fn(&QueryServerResult) -> Option<String>,
    /// Function that returns the same text for a terminal.
    narrow: fn(String) -> String,
}

const REPORTED: &str = "reported by server";
const MEASURED: &str = "measured";

const COLUMNS: [ServerColumn; 10] = [
    column((REPORTED, "stratum"), 7, 6, "stratum", |one| Some(state(one)?.stratum.to_string())),
    column((REPORTED, "reference"), 15, 5, "reference", |one| {
        Some(state(one)?.reference_id.clone())
    }),
    column((REPORTED, "leap"), 7, 7, "leap", |one| Some(leap_name(state(one)?.leap).to_owned()))
        .narrowed(|text| text.replace("unsynchronised", "unsync.")),
    column((REPORTED, "delay"), 7, 8, "root delay", |one| {
        Some(human_ns(state(one)?.root_delay_ns))
    }),
    column((REPORTED, "disp."), 7, 9, "root dispersion", |one| {
        Some(human_ns(state(one)?.root_dispersion_ns))
    }),
    column((MEASURED, "offset"), 10, 0, "offset", |one| Some(signed_ns(one.best?.offset_ns))),
    column((MEASURED, "bound"), 9, 0, "± bound", |one| Some(human_ns(one.best?.bound_ns)))
        .narrowed(|text| format!("± {text}")),
    column((MEASURED, "delay"), 8, 2, "delay", |one| {
        Some(signed_ns(one.best?.delay_ns).trim_start_matches('+').to_owned())
    }),
    column((MEASURED, "jitter"), 7, 3, "jitter", |one| Some(mean_ns(one.jitter_ns?))),
    column((MEASURED, "replies"), 13, 1, "replies", |one| {
        Some(format!("{} of {}", full_count(one.counts.received), full_count(one.counts.sent)))
    })
    .narrowed(|text| text.replace(" of ", "/")),
];

const fn column(
    (group, title): (&'static str, &'static str),
    width: usize,
    rank: u8,
    page_title: &'static str,
    cell: fn(&QueryServerResult) -> Option<String>,
) -> ServerColumn {
    ServerColumn { group, title, width, rank, page_title, cell, narrow: identity }
}

impl ServerColumn {
    const fn narrowed(self, narrow: fn(String) -> String) -> Self {
        Self { narrow, ..self }
    }

    fn text(&self, server: &QueryServerResult, narrow: fn(String) -> String) -> String {
        (self.cell)(server).map_or_else(|| ABSENT.to_owned(), narrow)
    }
}

const fn state(server: &QueryServerResult) -> Option<&QueriedServerState> {
    server.server_state.as_ref()
}

/// Returns a leap indicator in words.
const fn leap_name(leap: LeapState) -> &'static str {
    match leap {
        LeapState::None => "none",
        LeapState::Insert => "insert",
        LeapState::Delete => "delete",
        LeapState::Unsynchronised => "unsynchronised",
    }
}

/// Returns the header and a line for each server, followed by the statistics of servers with enough
/// samples.
fn servers(result: &QueryResult, style: &TableStyle) -> Vec<String> {
    let longest = result.servers.iter().map(|one| full_name(one).chars().count()).max();
    let name_width = longest.unwrap_or(0).clamp("server".len(), NAME_MAX);
    let width = |columns: &[&ServerColumn]| grid::width(&groups(name_width, columns));
    let columns = grid::fitting(COLUMNS.iter().collect(), width, |column| column.rank, style.width);
    let groups = groups(name_width, &columns);
    let mut lines: Vec<_> =
        grid::header(&groups, style.colour).lines().map(str::to_owned).collect();
    for server in &result.servers {
        let tone = if server.best.is_none() { CellTone::Bad } else { CellTone::Plain };
        let texts = columns.iter().map(|column| column.text(server, column.narrow));
        let texts = std::iter::once(full_name(server)).chain(texts);
        let cells: Vec<_> = texts.map(|text| GridCell { text, tone }).collect();
        lines.push(grid::row(&groups, &cells, style.colour));
    }
    for server in result.servers.iter().filter(|server| server.samples.len() > FEW) {
        lines.push(String::new());
        lines.extend(statistics(server, result, style));
    }
    lines
}

fn groups(name_width: usize, columns: &[&ServerColumn]) -> Vec<GridColumnGroup<'static>> {
    let group = |columns: &[&ServerColumn]| GridColumnGroup {
        title: columns[0].group,
        columns: columns.iter().map(|one| GridColumn::right(one.title, one.width)).collect(),
    };
    let names =
        GridColumnGroup { title: "", columns: vec![GridColumn::left("server", name_width)] };
    let others = columns.chunk_by(|a, b| a.group == b.group).map(group);
    std::iter::once(names).chain(others).collect()
}

fn server_table(result: &QueryResult) -> String {
    let rows = each(&result.servers, |server| {
        let ended = server.ended.as_ref().map(|end| end.message.clone());
        let others: Vec<_> = odd_replies(server).into_iter().chain(ended).collect();
        let cells = COLUMNS.iter().map(|column| column.text(server, identity));
        row(&full_name(server), cells.chain([others.join("; ")]))
    });
    let titles = COLUMNS.iter().map(|column| column.page_title).chain(["other"]);
    table("servers", "Servers", &titles.collect::<Vec<_>>(), &rows)
}

/// Quantity plotted over time.
struct PlottedQuantity {
    id: &'static str,
    title: &'static str,
    hint: &'static str,
    unit: PlotUnit,
}

const OFFSETS: PlottedQuantity = PlottedQuantity {
    id: "offset",
    title: "Offset over time",
    hint: "Lead of the server's clock over the local clock. Many samples are thinned to the \
           minimum and maximum of each group.",
    unit: PlotUnit::Signed,
};

const DELAYS: PlottedQuantity = PlottedQuantity {
    id: "delay",
    title: "Delay over time",
    hint: "Round-trip delay without the server's response time. Many samples are thinned to the \
           minimum and maximum of each group.",
    unit: PlotUnit::Ns,
};

/// Returns the name of a server with its address, unless the name is an address; or the name of the
/// NTP server that NTS-KE selected, with the name of the target.
fn full_name(server: &QueryServerResult) -> String {
    let name = &server.name;
    if let Some(named) = server.nts.as_ref().and_then(|nts| nts.server.as_ref()) {
        return format!("{named} (for {name})");
    }
    let plain = without_zone(name);
    let is_address = plain.parse::<IpAddr>().is_ok() || plain.parse::<SocketAddr>().is_ok();
    match server.address.filter(|_| !is_address) {
        Some(address) => format!("{name} ({address})"),
        None => name.clone(),
    }
}

/// Returns the text of an address without its zone (scope), which may be the name of an interface.
fn without_zone(name: &str) -> String {
    match name.split_once('%') {
        None => name.to_owned(),
        Some((address, zone)) => {
            format!("{address}{}", zone.find(']').map_or("", |end| &zone[end..]))
        }
    }
}

/// Returns the statistics of one server.
fn statistics(server: &QueryServerResult, result: &QueryResult, style: &TableStyle) -> Vec<String> {
    let counts = &server.counts;
    let title = format!(
        "{}: {} samples of {} requests, one every {}",
        full_name(server),
        full_count(server.samples.len() as u64),
        full_count(counts.sent),
        human_ns(result.interval_ns),
    );
    let mut lines = vec![CellTone::Strong.paint(&title, style.colour)];
    lines.extend(figures_lines(server, style));
    put(&mut lines, shapes(server, result, style));
    let mut facts = Vec::new();
    facts.extend(server.best.as_ref().map(|best| {
        let (offset, bound) = (signed_ns(best.offset_ns), human_ns(best.bound_ns));
        format!("best: {offset} ± {bound}, sample with the lowest delay")
    }));
    facts.extend(server.drift.as_ref().map(|drift| {
        let residual = mean_ns(drift.residual_ns);
        format!("drift: {:+.4} ± {:.4} ppm, residual {residual}", drift.ppm, drift.error_ppm)
    }));
    facts.push(format!(
        "timestamps: requests {}; replies {}",
        timestamp_counts(server.transmit_timestamps),
        timestamp_counts(server.receive_timestamps)
    ));
    facts.extend(odd_replies(server).map(|odd| format!("other: {odd}")));
    facts.extend(allan_text(&server.allan).map(|points| format!("Allan deviation: {points}")));
    for fact in facts {
        lines.extend(wrapped(&fact, "  ", "    ", style));
    }
    lines
}

/// Returns sparklines of offset and delay over time, and of the Allan deviation.
fn shapes(server: &QueryServerResult, result: &QueryResult, style: &TableStyle) -> Vec<String> {
    let row = |name: &str, scale, unit, of: fn(&ExchangeSample) -> i64| {
        let point = |sample: &ExchangeSample| (sample.sequence as f64, of(sample) as f64);
        let points = server.samples.iter().map(point).collect();
        SparklineRow { name: name.to_owned(), points, scale, unit }
    };
    let last = server.samples.iter().map(|sample| sample.sequence).max().unwrap_or(0);
    let planned = server.counts.sent.max(last.saturating_add(1));
    let rows = vec![
        row("offset", SparklineScale::Range, SparklineUnit::Offset, |sample| sample.offset_ns),
        row("delay", SparklineScale::Log, SparklineUnit::Time, |sample| sample.delay_ns.max(0)),
    ];
    let sparklines = SparklineGroup::over_intervals("over time", planned, result.interval_ns, rows);
    let mut lines = sparklines.lines(style);
    lines.extend(allan_lines(&[("offset", &server.allan)], style));
    lines
}

/// Titles of [`figure_texts`].
const FIGURES: [&str; 10] =
    ["mean", "deviation", "RMS", "min", "p1", "p5", "p50", "p95", "p99", "max"];

/// Returns the measured quantities of a server with their names, statistics and texts.
fn quantities(
    server: &QueryServerResult,
) -> impl Iterator<Item = (&'static str, ExactSummary, [String; 10])> {
    let all = [
        ("offset", server.offset_ns),
        ("delay", server.delay_ns),
        ("dispersion", server.dispersion_ns),
    ];
    let known = all.into_iter().filter_map(|(name, figures)| Some((name, figures?)));
    known.map(|(name, figures)| (name, figures, figure_texts(&figures, name == "offset")))
}

fn figures_lines(server: &QueryServerResult, style: &TableStyle) -> Vec<String> {
    let columns = FIGURES.map(|title| GridColumn::right(title, 9));
    let rows = quantities(server).map(|(name, _, texts)| (format!("  {name}"), texts.to_vec()));
    let name = GridColumn::left("", 12);
    grid::blocks([name.clone(), name], &columns, &rows.collect::<Vec<_>>(), style)
}

fn statistics_table(result: &QueryResult) -> String {
    let rows = each(&result.servers, |server| {
        each(quantities(server), |(name, figures, texts)| {
            let name = format!("{}: {name}", server.name);
            row(&name, [full_count(figures.count)].into_iter().chain(texts))
        })
    });
    let titles = [&["samples"], &FIGURES[..]].concat();
    table("figures", "Statistics of all samples", &titles, &rows)
}

/// Returns the sources of timestamps, with their counts.
fn timestamp_counts(counts: TimestampCounts) -> String {
    let TimestampCounts { hardware, kernel, user } = counts;
    let all = [("hardware", hardware), ("kernel", kernel), ("user", user)];
    let some = all.into_iter().filter(|(_, count)| *count > 0);
    let texts: Vec<_> = some.map(|(who, count)| format!("{who} {}", full_count(count))).collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

/// Returns lost requests and replies that were no samples; `None` if there are none.
fn odd_replies(server: &QueryServerResult) -> Option<String> {
    let counts = &server.counts;
    let invalid = counts.invalid.iter();
    let invalid = invalid.map(|(reason, count)| (format!("invalid: {reason}"), *count));
    let kisses = counts.kisses.iter().map(|(code, count)| (format!("KoD {code}"), *count));
    let plain = [
        ("lost", counts.lost),
        ("late", counts.late),
        ("duplicate", counts.duplicate),
        ("unreachable", counts.unreachable),
        ("not sent", counts.refused),
    ];
    let plain = plain.into_iter().map(|(name, count)| (name.to_owned(), count));
    let phrases: Vec<_> = plain
        .chain(invalid)
        .chain(kisses)
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name} {}", full_count(count)))
        .collect();
    (!phrases.is_empty()).then(|| phrases.join(", "))
}

/// Returns a line for each difference between servers, set off from the lines above and below.
fn differences(result: &QueryResult, style: &TableStyle) -> Vec<String> {
    let line = |difference: &ServerOffsetDifference| {
        let tone = if difference.contradiction { CellTone::Warning } else { CellTone::Plain };
        tone.paint(&difference_text(difference, result), style.colour)
    };
    let mut lines: Vec<_> = result.differences.iter().map(line).collect();
    if !lines.is_empty() {
        lines.insert(0, String::new());
    }
    if !(result.limits.is_empty() && result.findings.is_empty()) {
        lines.push(String::new());
    }
    lines
}

fn difference_list(result: &QueryResult) -> String {
    if result.differences.is_empty() {
        return String::new();
    }
    let lines = each(&result.differences, |difference| {
        format!("<li>{}</li>\n", text(&difference_text(difference, result)))
    });
    format!("<ul>\n{lines}</ul>\n")
}

/// Returns a sentence on the difference between two servers.
fn difference_text(difference: &ServerOffsetDifference, result: &QueryResult) -> String {
    let name = |index: usize| result.servers.get(index).map_or("?", |server| server.name.as_str());
    let verdict = if difference.contradiction { "; they are inconsistent" } else { "" };
    format!(
        "{} is ahead of {} by {} ± {} (mean of {} pairs {}){verdict}",
        name(difference.first),
        name(difference.second),
        signed_ns(difference.offset_ns),
        human_ns(difference.bound_ns),
        full_count(difference.pairs),
        signed_mean_ns(difference.mean_ns),
    )
}

/// Returns the plot of a quantity of all servers over the time since the first sample.
fn over_time(
    result: &QueryResult,
    quantity: &PlottedQuantity,
    of: fn(&ExchangeSample) -> i64,
) -> Plot {
    let &PlottedQuantity { id, title, hint, unit } = quantity;
    let first = result.servers.iter().filter_map(|server| server.samples.first());
    let start_ns = first.map(|sample| sample.t1_ns).min().unwrap_or(0);
    let series = |server: &QueryServerResult| {
        let point = |sample: &ExchangeSample| {
            (sample.t1_ns.saturating_sub(start_ns) as f64 / 1e9, of(sample) as f64)
        };
        let points = server.samples.iter().map(point).collect();
        TimeSeriesDrawingLimits::of(result.interval_ns as f64 / 1e9)
            .line(server.name.clone(), points)
    };
    let many = result.servers.iter().any(|server| server.samples.len() > 100);
    Plot {
        id,
        title,
        hint,
        described_by: "figures",
        x: PlotAxis::ELAPSED,
        y: PlotAxis { label: id, short: id, unit, scale: AxisScale::Linear },
        points: !many,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews::one(result.servers.iter().map(series)),
    }
}

/// Returns the servers with the Allan deviations of their offsets.
fn stability(result: &QueryResult) -> Vec<(&str, &[AllanDeviation])> {
    result.servers.iter().map(|one| (one.name.as_str(), one.allan.as_slice())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;
    use crate::html::main_of;

    const STYLE: TableStyle = TableStyle { colour: false, width: 120 };

    #[test]
    fn output_matches_the_expected_text() {
        let text = fixture::query(5).text(&STYLE);
        assert_eq!(text, include_str!("query_short.txt").trim_end(), "\n{text}");
        let text = fixture::query(1_000).text(&STYLE);
        assert_eq!(text, include_str!("query_long.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn a_narrow_terminal_keeps_the_offset() {
        for width in [0, 40, 80, 100, 120, usize::MAX] {
            let style = TableStyle { colour: false, width };
            let lines = servers(&fixture::query(5), &style);
            assert!(lines[1].contains("offset") && lines[1].contains("bound"), "{lines:?}");
            let fits = lines.iter().all(|line| line.chars().count() <= width.max(66));
            assert!(fits, "{width}: {lines:?}");
        }
    }

    #[test]
    fn an_address_with_a_zone_is_not_named_twice() {
        let mut server = fixture::query(5).servers.swap_remove(0);
        server.nts = None;
        server.address = Some("fe80::1".parse().unwrap());
        for name in ["fe80::1%rva", "[fe80::1%rva]:124", "192.0.2.1", "[2001:db8::1]:5"] {
            server.name = name.to_owned();
            assert_eq!(full_name(&server), name);
        }
        server.name = "time.example".to_owned();
        assert_eq!(full_name(&server), "time.example (fe80::1)");
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let text = fixture::query(0).text(&STYLE);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        let line = text.lines().find(|line| line.starts_with("nowhere.example")).unwrap();
        assert!(line.contains(" - "), "{line}");
    }

    #[test]
    fn a_file_may_claim_anything() {
        let mut result = fixture::query(20);
        let server = &mut result.servers[0];
        server.jitter_ns = Some(f64::NAN);
        server.drift.as_mut().unwrap().residual_ns = -1.0;
        server.allan[0].deviation = f64::INFINITY;
        server.allan[1].tau_s = -1.0;
        server.offset_ns.as_mut().unwrap().mean = f64::NAN;
        server.best.as_mut().unwrap().offset_ns = i64::MIN;
        result.differences[0].first = 99;
        let text = result.text(&STYLE);
        assert!(text.contains("? is ahead of time.example"), "{text}");
        assert!(!text.contains("NaN"), "{text}");
    }

    #[test]
    fn lost_samples_are_a_gap_at_their_position() {
        let result = fixture::query(60);
        let mut server = result.servers[0].clone();
        let is_lost = |at: u64| (10..30).contains(&at) || at >= 50;
        server.samples.retain(|sample| !is_lost(sample.sequence));
        server.samples[0].delay_ns = -5;
        let lines = shapes(&server, &result, &STYLE);
        assert_eq!(lines[0], "over time, 0 s to 5.90 s:");
        let offset = "  offset |_++_++_.+                  -**-**--*--##-#-##-         | +249 µs \
                      to +251 µs, range 1.51 µs";
        assert_eq!(lines[1], offset);
        assert!(lines[2].contains("| 0 ns to "), "{lines:?}");
    }

    #[test]
    fn every_server_has_its_figures() {
        let page = fixture::query(100).page();
        assert!(page.contains("192.0.2.1: offset") && page.contains("time.example: dispersion"));
        assert!(page.contains("they are inconsistent"));
        assert!(page.contains("cannot resolve &#39;nowhere.example&#39;"), "why it is silent");
    }

    #[test]
    fn the_page_of_a_long_run_is_small() {
        assert!(fixture::query(10_000).page().len() < 1_000_000);
    }

    #[test]
    fn a_query_without_replies_still_makes_a_page() {
        let page = fixture::query(0).page();
        let main = main_of(&page);
        assert!(
            !main.contains("NaN") && !main.contains(">inf") && !main.contains("plot-"),
            "{main}"
        );
    }
}
