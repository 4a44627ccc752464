//! Outcome of a measurement of TCP: both ends' facts, a row for each size, the findings.

use horolog_record::{
    PathEnd, PathTcpResult, TcpBandwidth, TcpDirection, TcpFigures, TcpLatency, TcpTarget,
};

use super::TableStyle;
use super::grid::{self, Column};
use super::shapes::{Bar, bars, put};
use super::summary::{finding_lines, limit_lines, wrapped};
use crate::units::{ABSENT, full_count, human_ns, mean_ns, per_second};

/// Columns, of which the last are omitted first on a narrow terminal.
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

/// Explanation of the figures.
pub(crate) const DEFINITION: &str = "Latency: half a round trip. Rate: bytes per second \
                                     received. cwnd (segments), mss (bytes), rtt and ato: \
                                     TCP_INFO at the end of the row; retrans: retransmitted \
                                     segments. Of several connections, the maximum and the sum.";

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn path_tcp(result: &PathTcpResult, style: &TableStyle) -> String {
    let mut lines = vec![format!("TCP to {}", target(&result.target))];
    lines.extend(wrapped(&format!("near: {}", end(Some(&result.near))), "  ", "    ", style));
    lines.extend(wrapped(&format!("far: {}", end(result.far.as_ref())), "  ", "    ", style));
    lines.extend(wrapped(&settings(result), "  ", "    ", style));
    if !result.latency.is_empty() {
        let name = Column::right("latency, B", SIZE_WIDTH);
        let rows = result.latency.iter().map(|row| (full_count(row.size_bytes), latency(row)));
        lines.extend(table(name, &LATENCY, rows, style));
    }
    if !result.bandwidth.is_empty() {
        if !result.latency.is_empty() {
            lines.push(String::new());
        }
        let name = Column::right("bandwidth, B  dir", SIZE_WIDTH + 1 + WAY_WIDTH);
        let named = |row: &TcpBandwidth| {
            format!("{} {:>WAY_WIDTH$}", full_count(row.size_bytes), way(row.direction))
        };
        let rows = result.bandwidth.iter().map(|row| (named(row), bandwidth(row).to_vec()));
        lines.extend(table(name, &BANDWIDTH, rows, style));
    }
    put(&mut lines, shapes(result, style));
    lines.extend(wrapped(DEFINITION, "  ", "    ", style));
    lines.extend(limit_lines(&result.limits, style));
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

/// Returns latency and bandwidth from one size to the next.
fn shapes(result: &PathTcpResult, style: &TableStyle) -> Vec<String> {
    let half = |ns: u64| ns as f64 / 2.0;
    let latency = result.latency.iter().map(|row| {
        let times = row.rtt_ns.as_ref().map(|times| (half(times.p50), half(times.p99)));
        let (size, tail) = (times.map(|(p50, _)| p50), times.map(|(_, p99)| p99));
        let percentiles_text = |(p50, p99)| format!("{}, p99 {}", mean_ns(p50), mean_ns(p99));
        let value_text = times.map_or_else(|| ABSENT.to_owned(), percentiles_text);
        Bar { name: format!("{} B", full_count(row.size_bytes)), size, tail, value_text }
    });
    let latency: Vec<_> = latency.collect();
    let bandwidth = result.bandwidth.iter().map(|row| {
        let name = format!("{} B, {}", full_count(row.size_bytes), way(row.direction));
        Bar::plain(name, Some(row.rate), per_second(row.rate, "B/s"))
    });
    let bandwidth: Vec<_> = bandwidth.collect();
    let mut lines = bars("latency by size, # to p50, - to p99", &latency, style);
    lines.extend(bars("bandwidth by size", &bandwidth, style));
    lines
}

fn table(
    name: Column<'static>,
    columns: &[(&'static str, usize)],
    rows: impl Iterator<Item = (String, Vec<String>)>,
    style: &TableStyle,
) -> Vec<String> {
    let columns: Vec<_> =
        columns.iter().map(|(title, width)| Column::right(title, *width)).collect();
    grid::blocks([name.clone(), name], &columns, &rows.collect::<Vec<_>>(), style)
}

/// Returns the figures of a row, in the order of [`LATENCY`].
pub(crate) fn latency(row: &TcpLatency) -> Vec<String> {
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

/// Returns the figures of a row, in the order of [`BANDWIDTH`].
pub(crate) fn bandwidth(row: &TcpBandwidth) -> [String; 9] {
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

fn tcp(figures: Option<&TcpFigures>) -> [String; 4] {
    let text = |of: fn(&TcpFigures) -> String| figures.map_or_else(|| ABSENT.to_owned(), of);
    [
        text(|tcp| full_count(tcp.cwnd)),
        text(|tcp| full_count(tcp.mss_bytes)),
        text(|tcp| human_ns(tcp.rtt_ns)),
        text(|tcp| full_count(tcp.retransmitted)),
    ]
}

/// Returns the direction, in a word.
pub(crate) const fn way(direction: TcpDirection) -> &'static str {
    match direction {
        TcpDirection::Forward => "forward",
        TcpDirection::Backward => "backward",
    }
}

/// Returns the target with its name, if it has one.
pub(crate) fn target(target: &TcpTarget) -> String {
    match &target.name {
        Some(name) => format!("{name} ({})", target.address),
        None => target.address.to_string(),
    }
}

/// Returns an end's facts in a line.
pub(crate) fn end(end: Option<&PathEnd>) -> String {
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

/// Returns the use of connections, in a line.
pub(crate) fn settings(result: &PathTcpResult) -> String {
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
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 100 };
        let text = path_tcp(&fixture::path_tcp(), &style);
        assert_eq!(text, include_str!("path_tcp.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn an_end_without_details_is_shown_as_an_unknown_one() {
        assert_eq!(end(None), end(Some(&PathEnd::default())));
    }

    #[test]
    fn one_size_alone_is_not_drawn() {
        let mut result = fixture::path_tcp();
        (result.latency[0].rtt_ns, result.bandwidth[1].rate) = (None, f64::NAN);
        result.bandwidth.truncate(2);
        let text = path_tcp(&result, &TableStyle::default());
        assert!(!text.contains("by size") && !text.contains("NaN"), "{text}");
    }
}
