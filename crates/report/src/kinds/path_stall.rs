//! Document of a result of `horolog path stall`: one row per write pattern and socket option,
//! tested claims, and observed connections.

use std::fmt::Write as _;

use horolog_record::{
    CONNECTIONS_MISSED_MAX, Distribution, LimitUnit, PathStallResult, StallEvidenceKind,
    StallKernelSettings, StallMeasurement, StallMechanism, StallSocketOption, TestedStallClaim,
    WatchedConnection, WatchedTraffic, WritePattern,
};

use super::path_tcp::{end, target};
use crate::document::{
    BlockContent, DescribeResult, DocumentBlock, HeadlineMetric, ResultDocument, RunFacts, run_of,
};
use crate::html::data::{row, table};
use crate::html::escape::each;
use crate::html::plot::{AxisScale, Plot, PlotAxis, PlotSeries, PlotUnit, PlotViews};
use crate::html::sections::paragraph;
use crate::metrics::{Metric, NamedItems, NamedValue, judged_by_fields, of_items, share};
use crate::table::TableStyle;
use crate::table::grid::{self, CellTone, GridCell, GridColumn, GridColumnGroup};
use crate::table::shapes::{TextBar, worst_first};
use crate::table::summary::wrapped;
use crate::units::{ABSENT, count_of, full_count, human_ns, percent, percent_of};

const NAME_WIDTH: usize = 34;
const OPTION_WIDTH: usize = 17;
const WIDTHS: [usize; 9] = [8, 8, 8, 9, 8, 8, 4, 19, 9];
/// Ranks of the columns: on a narrow terminal those of the highest rank are omitted first.
const RANKS: [u8; 9] = [2, 0, 1, 5, 0, 4, 3, 0, 6];

const METHOD: &str = "Stalled: exchanges longer by the threshold than one without \
                                     a wait. Band: those of 38 to 42 ms. Mechanism: cause for \
                                     which the sockets held back data (TCP_INFO of both ends).";

/// Titles of the columns of the patterns.
const COLUMNS: [&str; 9] =
    ["first", "p50", "max", "exchanges", "stalled", "band", "read", "mechanism", "service"];

impl DescribeResult for PathStallResult {
    fn document(&self) -> ResultDocument<'_> {
        let ends = vec![
            ("Kernel settings", Some(kernel(&self.kernel))),
            ("Near end", Some(end(Some(&self.near)))),
            ("Far end", self.target.as_ref().map(|_| end(self.far.as_ref()))),
        ];
        let heading = match (&self.target, &self.watched) {
            (Some(far), _) => format!("Stalls of TCP to {}", target(far)),
            (None, Some(watch)) => format!("Stalls at port {}", watch.port),
            (None, None) => "Stalls of TCP".to_owned(),
        };
        let mut blocks = Vec::new();
        if self.target.is_some() {
            let ends = [("near", Some(&self.near)), ("far", self.far.as_ref())];
            let ends = ends.map(|(name, one)| format!("{name}: {}", end(one)));
            blocks.push(BlockContent::Title(heading.clone()).under(""));
            blocks.push(BlockContent::Introduction(ends.to_vec()).under(""));
        }
        let conditions = vec![kernel(&self.kernel), evidence(self)];
        blocks.extend([
            BlockContent::Introduction(conditions).under(""),
            // The advice comes before its evidence, which may be many rows.
            BlockContent::Judgement.under(""),
            BlockContent::Introduction(self.claims.iter().map(claim_line).collect()).under(""),
        ]);
        if !self.cells.is_empty() {
            blocks.extend(patterns(self));
        }
        blocks.extend([
            BlockContent::Plot(batches(self), String::new()).under("Batches"),
            BlockContent::Markup(Box::new(|| claims(self))).under("Claims about stalls"),
        ]);
        if let Some(watch) = &self.watched {
            let lines = |style: &TableStyle| watched_lines(watch, style);
            let observed = BlockContent::Custom(Box::new(lines), watched_table(watch));
            blocks.push(observed.under("Observed connections"));
        }
        ResultDocument {
            kind: "path stall",
            heading,
            lead: format!("{}; started {}", evidence(self), self.started),
            headline: headline(self),
            blocks,
            method: METHOD,
            limits: &self.limits,
            findings: &self.findings,
            run: RunFacts { heading: "Kernel, ends and host", before: ends, ..run_of!(self) },
        }
    }

    fn metrics() -> Vec<Metric<Self>> {
        let cells = [
            Metric::ratio("stalled", |cell: &StallMeasurement| {
                Some([cell.stalled, cell.exchanges])
            }),
            Metric::times("exchange", |cell| cell.exchange_ns.as_ref()),
        ];
        let stall = Metric::times("stall", |one: &WatchedConnection| one.stall_ns.as_ref());
        let limited = [
            Metric::new("stalled", LimitUnit::Ratio, |result| vec![stalled_share(result)]),
            Metric::new("longest", LimitUnit::Ns, longest_times_ns),
        ];
        limited
            .into_iter()
            .chain(of_items(cells_by_name, cells))
            .chain(of_items(connections_by_server, [stall]))
            .collect()
    }
}

judged_by_fields!(PathStallResult);

fn cells_by_name(result: &PathStallResult) -> NamedItems<'_, StallMeasurement> {
    let name = |cell: &StallMeasurement| match cell.option {
        StallSocketOption::None => format!("{}, no option", pattern(cell)),
        set => format!("{}, {}", pattern(cell), option(set)),
    };
    result.cells.iter().map(|cell| (name(cell), cell)).collect()
}

/// Returns the watched connections by their servers, since the ports of clients vary.
fn connections_by_server(result: &PathStallResult) -> NamedItems<'_, WatchedConnection> {
    let connections = result.watched.iter().flat_map(|watched| &watched.connections);
    connections.map(|one| (one.server.clone(), one)).collect()
}

fn measurements_without_option(
    result: &PathStallResult,
) -> impl Iterator<Item = &StallMeasurement> {
    // Excludes the pattern whose cork is never cleared: it always stalls.
    result.cells.iter().filter(|cell| {
        cell.option == StallSocketOption::None && cell.pattern != WritePattern::CorkForgotten
    })
}

fn stalled_share(result: &PathStallResult) -> NamedValue {
    let Some(watch) = &result.watched else {
        let (stalled, all) = measurements_without_option(result)
            .fold((0, 0), |(part, all), cell| (part + cell.stalled, all + cell.exchanges));
        return ("all patterns without an option".to_owned(), share(stalled, all));
    };
    let stalls = |one: &WatchedConnection| one.client_stalls + one.server_stalls;
    let stalled: u64 = watch.connections.iter().map(stalls).sum();
    let share = match watch.connections.iter().map(|one| one.answers).sum::<Option<u64>>() {
        Some(answers) => share(stalled, answers).map(|share| share.min(1.0)),
        // Without a capture the number of responses is unknown: any stall then counts as a share of
        // 1.
        None if stalled > 0 => Some(1.0),
        None => (!watch.connections.is_empty()).then_some(0.0),
    };
    ("all connections".to_owned(), share)
}

fn longest_times_ns(result: &PathStallResult) -> Vec<NamedValue> {
    let max = |times: &Distribution| Some(times.max as f64);
    let Some(watch) = &result.watched else {
        let all = measurements_without_option(result).filter_map(|cell| {
            let times = cell.exchange_ns.as_ref()?;
            Some((format!("{}, no option", pattern(cell)), max(times)))
        });
        return all.collect();
    };
    let named_longest = |one: &WatchedConnection| {
        // The longest stall of a connection without stalls is 0.
        let longest = one.stall_ns.as_ref().map_or(Some(0.0), max);
        (format!("{} from {}", one.server, one.client), longest)
    };
    watch.connections.iter().map(named_longest).collect()
}

/// Returns the number of stalled exchanges or of observed connections, as headline.
fn headline(result: &PathStallResult) -> HeadlineMetric {
    if let Some(watched) = &result.watched {
        return HeadlineMetric {
            name: "Connections observed".to_owned(),
            value: Some(full_count(watched.connections.len() as u64)),
            sentence: "Passive: no packets were sent.".to_owned(),
        };
    }
    let sum = |count: fn(&StallMeasurement) -> u64| {
        result.cells.iter().map(count).fold(0, u64::saturating_add)
    };
    let (stalled, all) = (sum(|cell| cell.stalled), sum(|cell| cell.exchanges));
    HeadlineMetric {
        name: "Stalled exchanges".to_owned(),
        value: (all > 0).then(|| count_of(stalled, all)),
        sentence: format!(
            "Longer than {}, over all patterns and options.",
            human_ns(result.stall_min_ns)
        ),
    }
}

/// Returns the blocks on the write patterns.
fn patterns(result: &PathStallResult) -> [DocumentBlock<'_>; 4] {
    let is_grouped = grouped(&result.cells).len() < result.cells.len();
    let rows = |style: &TableStyle| cell_lines(&grouped(&result.cells), style);
    let shares = |style: &TableStyle| stalls(&grouped(&result.cells), style);
    [
        BlockContent::Custom(Box::new(rows), cell_table(result)),
        BlockContent::Shape(Box::new(shares)),
        BlockContent::Introduction(is_grouped.then(|| FOLDED.to_owned()).into_iter().collect()),
        BlockContent::Remarks(packets(result).into_iter().chain(window(result)).collect()),
    ]
    .map(|content| content.under("Patterns"))
}

fn claim_line(claim: &TestedStallClaim) -> String {
    format!("{}: {} ({})", held(claim.holds), claim.statement, claim.evidence)
}

/// Returns bars of the share of stalled exchanges, for the patterns that stalled, highest first.
fn stalls(rows: &[WorstStallRow<'_>], style: &TableStyle) -> Vec<String> {
    let share =
        |row: &&WorstStallRow<'_>| row.cell.stalled as f64 / row.cell.exchanges.max(1) as f64;
    let mut stalled: Vec<_> = rows.iter().filter(|row| row.cell.stalled > 0).collect();
    stalled.sort_by(|a, b| share(b).total_cmp(&share(a)));
    let bars = stalled.iter().map(|row| {
        let name = option(row.cell.option);
        let p50 = row.cell.exchange_ns.as_ref();
        let p50 = p50.map_or_else(|| ABSENT.to_owned(), |times| human_ns(times.p50));
        let value_text = format!("{}, p50 {p50}, {name}", percent(share(row)));
        let value_text = value_text.trim_end_matches(", -").to_owned();
        TextBar::plain(row.pattern(), Some(share(row)), value_text)
    });
    let bars: Vec<_> = bars.collect();
    let mut lines = worst_first("share of exchanges that stalled", &bars, 1.0, style);
    let others = rows.len() - stalled.len();
    lines.extend(
        (!lines.is_empty() && others > 0).then(|| format!("  and {others} more without stalls")),
    );
    lines
}

fn cell_lines(rows: &[WorstStallRow<'_>], style: &TableStyle) -> Vec<String> {
    let all: Vec<usize> = (0..WIDTHS.len()).collect();
    let width = |columns: &[usize]| {
        NAME_WIDTH + 1 + OPTION_WIDTH + columns.iter().map(|at| WIDTHS[*at] + 1).sum::<usize>()
    };
    let shown = grid::fitting(all, width, |at| RANKS[*at], style.width);
    let mut columns =
        vec![GridColumn::left("pattern", NAME_WIDTH), GridColumn::left("option", OPTION_WIDTH)];
    columns.extend(shown.iter().map(|at| GridColumn::right(COLUMNS[*at], WIDTHS[*at])));
    let group = [GridColumnGroup { title: "", columns }];
    let header = grid::header(&group, style.colour);
    let mut lines: Vec<_> = header.lines().skip(1).map(str::to_owned).collect();
    for row in rows {
        let (cell, pattern) = (row.cell, row.pattern());
        let texts = self::cell(cell);
        let tone = if cell.stalled > 0 { CellTone::Warning } else { CellTone::Plain };
        let mut row =
            vec![GridCell::plain(pattern), GridCell::plain(option(cell.option).to_owned())];
        row.extend(shown.iter().map(|at| GridCell { text: texts[*at].clone(), tone }));
        lines.push(grid::row(&group, &row, style.colour));
    }
    lines
}

fn watched_lines(watch: &WatchedTraffic, style: &TableStyle) -> Vec<String> {
    const WIDTHS: [usize; 8] = [22, 9, 9, 9, 9, 9, 8, 19];
    let mut lines = wrapped(&watched(watch), "  ", "    ", style);
    if watch.connections.is_empty() {
        return lines;
    }
    let mut columns = vec![GridColumn::left("server", 22)];
    columns.extend(
        WATCHED_COLUMNS.iter().zip(WIDTHS).map(|(title, width)| GridColumn::right(title, width)),
    );
    let group = [GridColumnGroup { title: "", columns }];
    let header = grid::header(&group, style.colour);
    lines.extend(header.lines().skip(1).map(str::to_owned));
    for one in &watch.connections {
        let mut row = vec![GridCell::plain(one.server.clone())];
        row.extend(connection(one).map(GridCell::plain));
        lines.push(grid::row(&group, &row, style.colour));
    }
    lines
}

fn cell_table(result: &PathStallResult) -> String {
    let rows = each(&result.cells, |one| {
        row(&format!("{}; {}", pattern(one), option(one.option)), cell(one))
    });
    table("cells", "Patterns", &COLUMNS, &rows)
}

/// Returns the plot of the median duration of batches over their size, one line per socket option.
fn batches(result: &PathStallResult) -> Plot {
    let options = [
        StallSocketOption::None,
        StallSocketOption::NoDelay,
        StallSocketOption::QuickAckOnce,
        StallSocketOption::QuickAckEach,
        StallSocketOption::Cork,
    ];
    let series = |chosen: StallSocketOption| {
        let of =
            |cell: &&StallMeasurement| cell.pattern == WritePattern::Batch && cell.option == chosen;
        let points = result.cells.iter().filter(of).filter_map(|cell| {
            let p50 = cell.exchange_ns.as_ref()?.p50;
            (p50 > 0).then_some((f64::from(cell.writes), p50 as f64))
        });
        let label = if chosen == StallSocketOption::None { "no option" } else { option(chosen) };
        PlotSeries::new(label.to_owned(), points.collect())
    };
    Plot {
        id: "batches",
        title: "Batches",
        hint: "Median time of N small writes and N reads.",
        described_by: "cells",
        x: PlotAxis {
            label: "writes",
            short: "writes",
            unit: PlotUnit::Count,
            scale: AxisScale::Linear,
        },
        y: PlotAxis { label: "exchange", short: "time", unit: PlotUnit::Ns, scale: AxisScale::Log },
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews::one(options.map(series)),
    }
}

fn claims(result: &PathStallResult) -> String {
    if result.claims.is_empty() {
        return String::new();
    }
    let rows = each(&result.claims, |claim| {
        row(&claim.statement, [held(claim.holds).to_owned(), claim.evidence.clone()])
    });
    table("claims", "Claims about stalls", &["here", "value"], &rows)
}

fn watched_table(watch: &WatchedTraffic) -> String {
    let rows = each(&watch.connections, |one| row(&one.server, connection(one)));
    let line = paragraph(&watched(watch));
    table("watched", "Observed connections", &WATCHED_COLUMNS, &rows) + &line
}

/// Returns the name of a pattern with its number and size of writes.
#[must_use]
pub fn pattern(cell: &StallMeasurement) -> String {
    let bytes = cell.write_bytes;
    match cell.pattern {
        WritePattern::Single => format!("1 × {bytes} B, read"),
        WritePattern::WriteWriteRead => format!("2 × {bytes} B, read"),
        WritePattern::FullSegments => format!("2 × {bytes} B (whole segments), read"),
        WritePattern::LastWithEnd => format!("2 × {bytes} B, the last with FIN"),
        WritePattern::Batch => format!("{} × {bytes} B, as many reads", cell.writes),
        WritePattern::HeaderAndBody => format!("header, {bytes} B body by sendfile"),
        WritePattern::HeaderBodyClose => format!("header, {bytes} B body, close"),
        WritePattern::CorkForgotten => format!("header, {bytes} B body, cork left on"),
    }
}

/// Worst measurement of a group, shown in a row, and the number of measurements that the row stands
/// for, including itself.
pub(crate) struct WorstStallRow<'a> {
    pub(crate) cell: &'a StallMeasurement,
    pub(crate) of: usize,
}

impl WorstStallRow<'_> {
    pub(crate) fn pattern(&self) -> String {
        match self.of {
            1 => pattern(self.cell),
            of => {
                let StallMeasurement { writes, write_bytes, .. } = self.cell;
                format!("{writes} × {write_bytes} B, worst of {of} batches")
            }
        }
    }
}

/// Explanation of the rows that stand for several batches.
const FOLDED: &str = "Batches with the same option and mechanism are shown by the \
                                 worst one; --json and --html contain all.";

/// Returns the rows. Batches with the same option and mechanism are grouped into the one that
/// stalled most often (or longest), at the position of the first.
fn grouped(cells: &[StallMeasurement]) -> Vec<WorstStallRow<'_>> {
    let badness = |cell: &StallMeasurement| {
        let share = cell.stalled as f64 / cell.exchanges.max(1) as f64;
        (share, cell.exchange_ns.as_ref().map_or(0, |times| times.p50))
    };
    let mut all: Vec<WorstStallRow<'_>> = Vec::new();
    for cell in cells {
        let is_like = |other: &&mut WorstStallRow<'_>| {
            let is_batch = |cell: &StallMeasurement| cell.pattern == WritePattern::Batch;
            let other = other.cell;
            is_batch(cell)
                && is_batch(other)
                && (cell.option, cell.mechanism) == (other.option, other.mechanism)
        };
        match all.iter_mut().find(is_like) {
            Some(like) => {
                like.of += 1;
                if badness(cell) > badness(like.cell) {
                    like.cell = cell;
                }
            }
            None => all.push(WorstStallRow { cell, of: 1 }),
        }
    }
    all
}

/// Returns the name of an option.
const fn option(option: StallSocketOption) -> &'static str {
    match option {
        StallSocketOption::None => "-",
        StallSocketOption::NoDelay => "TCP_NODELAY",
        StallSocketOption::QuickAckOnce => "TCP_QUICKACK once",
        StallSocketOption::QuickAckEach => "TCP_QUICKACK each",
        StallSocketOption::Cork => "TCP_CORK",
    }
}

/// Returns the name of a mechanism.
#[must_use]
pub const fn mechanism(mechanism: Option<StallMechanism>) -> &'static str {
    match mechanism {
        None => ABSENT,
        Some(StallMechanism::NagleDelayedAck) => "Nagle + delayed ACK",
        Some(StallMechanism::WindowDelayedAck) => "cwnd + delayed ACK",
        Some(StallMechanism::Cork) => "cork",
        Some(StallMechanism::LateAnswer) => "late response",
        Some(StallMechanism::Loss) => "loss",
        Some(StallMechanism::Elsewhere) => "other",
    }
}

/// Returns the cells of a measurement, in the order of [`COLUMNS`].
fn cell(cell: &StallMeasurement) -> [String; 9] {
    let time = |ns: Option<u64>| ns.map_or_else(|| ABSENT.to_owned(), human_ns);
    let times = cell.exchange_ns.as_ref();
    [
        time(cell.first_ns),
        time(times.map(|times| times.p50)),
        time(times.map(|times| times.max)),
        full_count(cell.exchanges),
        percent_of(cell.stalled, cell.exchanges),
        percent_of(cell.in_band, cell.exchanges),
        cell.stalled_read.map_or_else(|| ABSENT.to_owned(), |read| read.to_string()),
        mechanism(cell.mechanism).to_owned(),
        time(cell.service_max_ns),
    ]
}

/// Returns a line on the TCP settings of the kernel.
fn kernel(kernel: &StallKernelSettings) -> String {
    let mut facts = Vec::new();
    if let (Some(hz), Some(min)) = (kernel.hz, kernel.delayed_ack_min_ns) {
        facts.push(format!("HZ {hz}, delayed ACK at least HZ/25 = {}", human_ns(min)));
    }
    facts.push(match kernel.tcp_delack_min {
        Some(value) => format!("tcp_delack_min {value}"),
        None => "no tcp_delack_min".to_owned(),
    });
    if let Some(ns) = kernel.delayed_ack_max_ns {
        facts.push(format!("at most {}", human_ns(ns)));
    }
    let switch = |on: bool| if on { "on" } else { "off" };
    if let Some(on) = kernel.slow_start_after_idle {
        facts.push(format!("tcp_slow_start_after_idle {}", switch(on)));
    }
    if let Some(thresh) = kernel.pingpong_thresh {
        facts.push(format!("tcp_pingpong_thresh {thresh}"));
    }
    if let Some(on) = kernel.autocorking {
        facts.push(format!("tcp_autocorking {}", switch(on)));
    }
    if let Some(ns) = kernel.route_rto_min_ns {
        facts.push(format!("route: rto_min {}", human_ns(ns)));
    }
    if let Some(on) = kernel.route_quick_ack {
        facts.push(format!("route: quickack {}", switch(on)));
    }
    if let Some(segments) = kernel.route_initial_cwnd {
        facts.push(format!("route: initcwnd {segments}"));
    }
    facts.join("; ")
}

/// Returns a line on the kind of evidence for the mechanisms.
fn evidence(result: &PathStallResult) -> String {
    let by = match result.evidence {
        StallEvidenceKind::TcpInfo => "TCP_INFO and timing",
        StallEvidenceKind::Packets => "TCP_INFO, timing and packets",
    };
    format!("evidence: {by}; stall threshold {}", human_ns(result.stall_min_ns))
}

/// Returns one line per measurement with captured packets, on its acknowledgements.
fn packets(result: &PathStallResult) -> Vec<String> {
    let line = |one: &WorstStallRow<'_>| {
        let acks = one.cell.acks.as_ref()?;
        let delay = acks.delay_ns?;
        Some(format!(
            "{} ({}): {} of {} pure ACKs delayed by {}, {} of them released held data",
            one.pattern(),
            option(one.cell.option),
            acks.delayed,
            acks.pure,
            spread(human_ns(delay.min), &human_ns(delay.p50), &human_ns(delay.max)),
            acks.released
        ))
    };
    grouped(&result.cells).iter().filter_map(line).collect()
}

/// Formats minimum, median and maximum, or a single value if all have the same text.
fn spread(min: String, median: &str, max: &str) -> String {
    if min == max { min } else { format!("{min} to {max} (median {median})") }
}

/// Returns a line on the growth of the congestion window; `None` if not measured.
fn window(result: &PathStallResult) -> Option<String> {
    let step = |step: &horolog_record::CongestionWindowSample| {
        let pause = if step.after_pause { " after a pause" } else { "" };
        format!("{}{pause} ({})", step.cwnd, human_ns(step.exchange_ns))
    };
    let steps: Vec<_> = result.window.iter().map(step).collect();
    (!steps.is_empty()).then(|| {
        format!("Congestion window before each burst, and its duration: {}.", steps.join(", "))
    })
}

/// Returns the verdict on a claim in one word.
const fn held(held: Option<bool>) -> &'static str {
    match held {
        Some(true) => "holds",
        Some(false) => "does not hold",
        None => "not tested",
    }
}

/// Returns a line on the observed traffic.
fn watched(watch: &WatchedTraffic) -> String {
    let sum = |of: fn(&WatchedConnection) -> u64| {
        watch.connections.iter().map(of).fold(0, u64::saturating_add)
    };
    let mut text = format!(
        "Port {} observed for {}: {}, {} stalls at clients, {} at servers",
        watch.port,
        human_ns(watch.duration_ns),
        connections(watch.connections.len() as u64, ""),
        sum(|one| one.client_stalls),
        sum(|one| one.server_stalls)
    );
    if watch.connections_untracked > 0 {
        let _ = write!(text, "; {}", not_followed(watch.connections_untracked));
    }
    if watch.packets_dropped > 0 {
        let _ =
            write!(text, "; {} packets dropped by the capture", full_count(watch.packets_dropped));
    }
    text
}

/// Returns the number of connections that there was no room for, in words; `at least` if it reaches
/// the limit of the count.
#[must_use]
pub fn not_followed(missed: u64) -> String {
    let least = if missed < CONNECTIONS_MISSED_MAX { "" } else { "at least " };
    format!("{least}{} not tracked", connections(missed, " more"))
}

fn connections(count: u64, more: &str) -> String {
    format!("{} connection{}{more}", full_count(count), if count == 1 { "" } else { "s" })
}

/// Titles of the columns of observed connections.
const WATCHED_COLUMNS: [&str; 8] = [
    "client",
    "responses",
    "at client",
    "at server",
    "stall p50",
    "stall max",
    "band",
    "mechanism",
];

/// Returns the cells of an observed connection, in the order of [`WATCHED_COLUMNS`].
fn connection(one: &WatchedConnection) -> [String; 8] {
    let times = one.stall_ns.as_ref();
    let time = |ns: Option<u64>| ns.map_or_else(|| ABSENT.to_owned(), human_ns);
    let stalls = one.client_stalls.saturating_add(one.server_stalls);
    [
        one.client.clone(),
        one.answers.map_or_else(|| ABSENT.to_owned(), full_count),
        full_count(one.client_stalls),
        full_count(one.server_stalls),
        time(times.map(|times| times.p50)),
        time(times.map(|times| times.max)),
        percent_of(one.in_band, stalls),
        mechanism(one.mechanism).to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;

    #[test]
    fn a_narrow_terminal_keeps_the_share_and_the_mechanism() {
        let style = TableStyle { colour: false, width: 80 };
        let text = fixture::sample::<PathStallResult>("path_stall").text(&style);
        assert!(text.contains("mechanism") && !text.contains("answer in"), "{text}");
    }

    #[test]
    fn the_worst_is_on_top_and_one_alone_is_not_drawn() {
        let mut result: PathStallResult = fixture::sample("path_stall");
        let cells = &mut result.cells;
        (cells[1].stalled, cells[2].stalled, cells[2].exchange_ns) = (1, 10, None);
        result.kernel.tcp_delack_min = None;
        let text = result.text(&TableStyle { colour: false, width: 80 });
        let bars: Vec<_> = text.lines().filter(|line| line.contains(" |")).collect();
        assert!(bars[0].ends_with("| 100.00%, p50 -, TCP_NODELAY"), "{text}");
        assert!(text.contains("no tcp_delack_min"), "{text}");
        assert!(bars.len() == 3 && bars[2].ends_with("| 10.00%, p50 42.2 ms"), "{text}");
        result.cells.truncate(2);
        assert!(!result.text(&TableStyle::default()).contains("share of exchanges"));
    }
}
