//! Document of a result of `horolog path tcp`: properties of both ends, and one row per message
//! size.

use std::borrow::Cow;

use horolog_record::{
    Distribution, LimitUnit, PathEndFacts, PathTcpResult, TcpBandwidthRow, TcpDirection,
    TcpInfoSummary, TcpLatencyRow, TcpTarget,
};

use crate::document::{
    BlockContent, DescribeResult, HeadlineMetric, NameColumn, NamedRow, NamedRowTable,
    ResultDocument, RunFacts, run_of,
};
use crate::html::plot::{AxisScale, Plot, PlotAxis, PlotSeries, PlotUnit, PlotViews};
use crate::metrics::{Metric, MetricValue, NamedItems, STATISTICS, judged_by_fields, of_items};
use crate::table::TableStyle;
use crate::table::shapes::{TextBar, bars};
use crate::units::{ABSENT, full_count, human_ns, mean_ns, per_second};

/// Titles and widths of the columns; those that do not fit on a terminal continue below.
const LATENCY: [(&str, usize); 12] = [
    ("mean", 8),
    ("p50", 8),
    ("p90", 8),
    ("p99", 8),
    ("p99.9", 8),
    ("max", 8),
    ("round trips", 11),
    ("cwnd", 5),
    ("mss", 6),
    ("rtt", 8),
    ("retrans", 6),
    ("ato", 8),
];
const BANDWIDTH: [(&str, usize); 9] = [
    ("rate", 11),
    ("bits", 11),
    ("messages", 11),
    ("bytes", 16),
    ("cwnd", 5),
    ("mss", 6),
    ("rtt", 8),
    ("retrans", 6),
    ("copied", 7),
];
const SIZE_WIDTH: usize = 12;
const WAY_WIDTH: usize = 4;

const METHOD: &str = "Latency: half a round trip. Rate: bytes per second \
                                     received. cwnd (segments), mss (bytes), rtt and ato: \
                                     TCP_INFO at the end of the row; retrans: retransmitted \
                                     segments. Of several connections, the maximum and the sum.";

impl DescribeResult for PathTcpResult {
    fn document(&self) -> ResultDocument<'_> {
        const SHAPES: &str = "By message size";
        let ends = vec![
            ("Near end", Some(end(Some(&self.near)))),
            ("Far end", Some(end(self.far.as_ref()))),
        ];
        let introduction = vec![
            format!("near: {}", end(Some(&self.near))),
            format!("far: {}", end(self.far.as_ref())),
            settings(self),
        ];
        let heading = format!("TCP to {}", target(&self.target));
        let mut blocks = vec![
            BlockContent::Title(heading.clone()).under(""),
            BlockContent::Introduction(introduction).under(""),
        ];
        if !self.latency.is_empty() {
            blocks.push(BlockContent::Table(latency_table(self)).under("Latency"));
        }
        if !self.bandwidth.is_empty() {
            blocks.push(BlockContent::Table(bandwidth_table(self)).under("Bandwidth"));
        }
        blocks.extend([
            BlockContent::Plot(latency_plot(self), String::new()).under(SHAPES),
            BlockContent::Plot(bandwidth_plot(self), String::new()).under(SHAPES),
            BlockContent::Shape(Box::new(|style| shapes(self, style))).under(SHAPES),
        ]);
        ResultDocument {
            kind: "path tcp",
            heading,
            lead: format!("{}, started {}", settings(self), self.started),
            headline: headline(self),
            blocks,
            method: METHOD,
            limits: &self.limits,
            findings: &self.findings,
            run: RunFacts { heading: "Ends and host", before: ends, ..run_of!(self) },
        }
    }

    fn metrics() -> Vec<Metric<Self>> {
        // Half the round trip.
        let latencies = STATISTICS.map(|(name, statistic)| {
            Metric::new(name, LimitUnit::Ns, move |row: &TcpLatencyRow| {
                let half = row.rtt_ns.as_ref().map(|rtt| statistic(rtt) / 2.0);
                vec![(String::new(), half)]
            })
        });
        let rtt = Metric::times("rtt", |row: &TcpLatencyRow| row.rtt_ns.as_ref());
        let bandwidth = [
            Metric::value("bandwidth", |row: &TcpBandwidthRow| MetricValue::rate(row.rate))
                .limited(LimitUnit::BytesPerSecond),
            Metric::ratio("retransmitted", |row| {
                let tcp = row.tcp.as_ref().filter(|tcp| tcp.mss_bytes > 0)?;
                Some([tcp.retransmitted, row.received_bytes.div_ceil(tcp.mss_bytes)])
            }),
        ];
        of_items(latency_rows, latencies.into_iter().chain([rtt]))
            .chain(of_items(bandwidth_rows, bandwidth))
            .collect()
    }
}

judged_by_fields!(PathTcpResult);

fn latency_rows(result: &PathTcpResult) -> NamedItems<'_, TcpLatencyRow> {
    let rows = result.latency.iter();
    rows.map(|row| (format!("latency of {} bytes", row.size_bytes), row)).collect()
}

fn bandwidth_rows(result: &PathTcpResult) -> NamedItems<'_, TcpBandwidthRow> {
    let name = |row: &TcpBandwidthRow| {
        let direction = match row.direction {
            TcpDirection::Forward => "forward",
            TcpDirection::Backward => "backward",
        };
        format!("writes of {} bytes, {direction}", row.size_bytes)
    };
    result.bandwidth.iter().map(|row| (name(row), row)).collect()
}

/// Returns the median round trip of the first message size that has any; without one, the highest
/// byte rate.
fn headline(result: &PathTcpResult) -> HeadlineMetric {
    let least = result.latency.iter().find_map(|one| Some((one, one.rtt_ns.as_ref()?)));
    if let Some((one, rtt)) = least {
        let bytes = full_count(one.size_bytes);
        return HeadlineMetric {
            name: "Round trip, p50".to_owned(),
            value: Some(human_ns(rtt.p50)),
            sentence: format!("Messages of {bytes} bytes; p99 {}.", human_ns(rtt.p99)),
        };
    }
    let fastest = result.bandwidth.iter().max_by(|a, b| a.rate.total_cmp(&b.rate));
    HeadlineMetric {
        name: "Maximum byte rate".to_owned(),
        value: fastest.map(|one| per_second(one.rate, "B")),
        sentence: "Received by the far end.".to_owned(),
    }
}

fn table_columns(columns: &[(&'static str, usize)]) -> Vec<(Cow<'static, str>, usize)> {
    columns.iter().map(|(title, width)| ((*title).into(), *width)).collect()
}

fn latency_table(result: &PathTcpResult) -> NamedRowTable {
    let row = |one: &TcpLatencyRow| NamedRow::new(full_count(one.size_bytes), latency(one));
    NamedRowTable {
        id: "latencies",
        label: "Latency",
        names: NameColumn::numbers("latency, B", SIZE_WIDTH, |size| format!("{size} B")),
        columns: table_columns(&LATENCY),
        rows: result.latency.iter().map(row).collect(),
    }
}

fn bandwidth_table(result: &PathTcpResult) -> NamedRowTable {
    let row = |one: &TcpBandwidthRow| {
        let size = full_count(one.size_bytes);
        NamedRow::new(format!("{size} {:>WAY_WIDTH$}", way(one.direction)), bandwidth(one))
    };
    let width = SIZE_WIDTH + 1 + WAY_WIDTH;
    NamedRowTable {
        id: "bandwidths",
        label: "Bandwidth",
        names: NameColumn::numbers("bandwidth, B  dir", width, |name| name.replacen(' ', " B ", 1)),
        columns: table_columns(&BANDWIDTH),
        rows: result.bandwidth.iter().map(row).collect(),
    }
}

/// Returns bars of latency and bandwidth, one per message size and, for bandwidth, direction.
fn shapes(result: &PathTcpResult, style: &TableStyle) -> Vec<String> {
    let half = |ns: u64| ns as f64 / 2.0;
    let latency = result.latency.iter().map(|row| {
        let times = row.rtt_ns.as_ref().map(|times| (half(times.p50), half(times.p99)));
        let (size, tail) = (times.map(|(p50, _)| p50), times.map(|(_, p99)| p99));
        let percentiles_text = |(p50, p99)| format!("{}, p99 {}", mean_ns(p50), mean_ns(p99));
        let value_text = times.map_or_else(|| ABSENT.to_owned(), percentiles_text);
        TextBar { name: format!("{} B", full_count(row.size_bytes)), size, tail, value_text }
    });
    let latency: Vec<_> = latency.collect();
    let bandwidth = result.bandwidth.iter().map(|row| {
        let name = format!("{} B, {}", full_count(row.size_bytes), way(row.direction));
        TextBar::plain(name, Some(row.rate), per_second(row.rate, "B/s"))
    });
    let bandwidth: Vec<_> = bandwidth.collect();
    let mut lines = bars("latency by size, # to p50, - to p99", &latency, style);
    lines.extend(bars("bandwidth by size", &bandwidth, style));
    lines
}

fn sizes() -> PlotAxis {
    PlotAxis {
        label: "message size, bytes",
        short: "size",
        unit: PlotUnit::Count,
        scale: AxisScale::Log,
    }
}

fn latency_plot(result: &PathTcpResult) -> Plot {
    let series = |label: &str, of: fn(&Distribution) -> u64| {
        let points = result.latency.iter().filter_map(|row| {
            let ns = of(row.rtt_ns.as_ref()?) as f64 / 2.0;
            // A logarithmic axis has no position for values that are not positive.
            (row.size_bytes > 0 && ns > 0.0).then_some((row.size_bytes as f64, ns))
        });
        PlotSeries::new(label.to_owned(), points.collect())
    };
    Plot {
        id: "latency",
        title: "Latency",
        hint: "Half a round trip.",
        described_by: "latencies",
        x: sizes(),
        y: PlotAxis {
            label: "latency",
            short: "latency",
            unit: PlotUnit::Ns,
            scale: AxisScale::Log,
        },
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews::one([
            series("p50", |times| times.p50),
            series("p99", |times| times.p99),
            series("p99.9", |times| times.p99_9),
        ]),
    }
}

fn bandwidth_plot(result: &PathTcpResult) -> Plot {
    let series = |direction: TcpDirection| {
        let rows = result.bandwidth.iter().filter(|row| row.direction == direction);
        let points = rows.filter(|row| row.size_bytes > 0 && row.rate > 0.0);
        let points = points.map(|row| (row.size_bytes as f64, row.rate)).collect();
        PlotSeries::new(way(direction).to_owned(), points)
    };
    Plot {
        id: "bandwidth",
        title: "Bandwidth",
        hint: "Bytes per second received.",
        described_by: "bandwidths",
        x: sizes(),
        y: PlotAxis {
            label: "bytes per second",
            short: "rate",
            unit: PlotUnit::Rate,
            scale: AxisScale::Log,
        },
        points: true,
        bars: false,
        marks: Vec::new(),
        shown: PlotViews::one([TcpDirection::Forward, TcpDirection::Backward].map(series)),
    }
}

/// Returns the cells of a latency row, in the order of [`LATENCY`].
fn latency(row: &TcpLatencyRow) -> Vec<String> {
    let times = row.rtt_ns.as_ref();
    let half = |ns: Option<f64>| ns.map_or_else(|| ABSENT.to_owned(), |ns| mean_ns(ns / 2.0));
    let mut cells = vec![
        half(times.map(|times| times.mean)),
        half(times.map(|times| times.p50 as f64)),
        half(times.map(|times| times.p90 as f64)),
        half(times.map(|times| times.p99 as f64)),
        half(times.map(|times| times.p99_9 as f64)),
        half(times.map(|times| times.max as f64)),
        full_count(row.round_trips),
    ];
    cells.extend(tcp(row.tcp.as_ref()));
    cells.push(row.tcp.map_or_else(|| ABSENT.to_owned(), |tcp| human_ns(tcp.ato_ns)));
    cells
}

/// Returns the cells of a bandwidth row, in the order of [`BANDWIDTH`].
fn bandwidth(row: &TcpBandwidthRow) -> [String; 9] {
    let [cwnd, mss, rtt, again] = tcp(row.tcp.as_ref());
    let copied = row.zero_copy.map_or_else(
        || ABSENT.to_owned(),
        |counts| crate::units::percent_of(counts.copied, counts.sends),
    );
    [
        per_second(row.rate, "B/s"),
        per_second(row.rate * 8.0, "b/s"),
        per_second(row.message_rate, "/s"),
        full_count(row.received_bytes),
        cwnd,
        mss,
        rtt,
        again,
        copied,
    ]
}

fn tcp(figures: Option<&TcpInfoSummary>) -> [String; 4] {
    let text = |of: fn(&TcpInfoSummary) -> String| figures.map_or_else(|| ABSENT.to_owned(), of);
    [
        text(|tcp| full_count(tcp.cwnd)),
        text(|tcp| full_count(tcp.mss_bytes)),
        text(|tcp| human_ns(tcp.rtt_ns)),
        text(|tcp| full_count(tcp.retransmitted)),
    ]
}

/// Returns the name of a direction.
const fn way(direction: TcpDirection) -> &'static str {
    match direction {
        TcpDirection::Forward => "forward",
        TcpDirection::Backward => "backward",
    }
}

/// Returns the target as name and address, or as address alone.
pub(crate) fn target(target: &TcpTarget) -> String {
    match &target.name {
        Some(name) => format!("{name} ({})", target.address),
        None => target.address.to_string(),
    }
}

/// Returns the properties of one end in one line.
pub(crate) fn end(end: Option<&PathEndFacts>) -> String {
    let Some(end) = end else { return "host unknown".to_owned() };
    let cpu = end.cpu.as_ref().map(|cpu| match end.cores {
        Some(cores) => format!("{cores} × {cpu}"),
        None => cpu.clone(),
    });
    let interface = end.interface.as_ref().map(|name| {
        let kind = end.nic.as_ref().map_or_else(String::new, |nic| format!(" ({nic})"));
        let mtu = end.mtu.map_or_else(String::new, |mtu| format!(", MTU {mtu}"));
        format!("{name}{kind}{mtu}")
    });
    let kernel = end.kernel.as_ref().map(|kernel| format!("Linux {kernel}"));
    let facts = [
        end.hostname.clone(),
        cpu,
        kernel,
        end.distribution.clone(),
        interface,
        end.congestion_control.clone(),
        end.program.clone(),
    ];
    let known: Vec<_> = facts.into_iter().flatten().collect();
    if known.is_empty() { "host unknown".to_owned() } else { known.join("; ") }
}

/// Returns the number of connections, the time per row and the socket options, in a line.
fn settings(result: &PathTcpResult) -> String {
    let settings = &result.settings;
    let switches = [
        (settings.no_delay, "TCP_NODELAY"),
        (settings.quick_ack, "TCP_QUICKACK before every receive"),
        (settings.cork, "TCP_CORK around every message"),
        (settings.zero_copy, "MSG_ZEROCOPY"),
    ];
    let on: Vec<_> = switches.into_iter().filter_map(|(on, name)| on.then_some(name)).collect();
    let on = if on.is_empty() { "no socket option".to_owned() } else { on.join(", ") };
    let connections = match settings.connections {
        1 => "1 connection".to_owned(),
        many => format!("{many} connections"),
    };
    format!("{connections}, {} per row, {on}", human_ns(settings.time_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::RenderableResult;
    use crate::fixture;

    #[test]
    fn an_end_without_details_is_shown_as_an_unknown_one() {
        assert_eq!(end(None), "host unknown");
        assert_eq!(end(None), end(Some(&PathEndFacts::default())));
    }

    #[test]
    fn one_size_alone_is_not_drawn() {
        let mut result: PathTcpResult = fixture::sample("path_tcp");
        (result.latency[0].rtt_ns, result.bandwidth[1].rate) = (None, f64::NAN);
        result.bandwidth.truncate(2);
        let text = result.text(&TableStyle::default());
        assert!(!text.contains("by size") && !text.contains("NaN"), "{text}");
    }
}
