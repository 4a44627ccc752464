//! Terminal text of a query: one line per server, statistics if there are enough samples, and
//! differences between servers.

use std::net::{IpAddr, SocketAddr};

use horolog_record::{
    ExactSummary, ExchangeSample, LeapState, QueryResult, ServerDifference, ServerResult,
    ServerState, TimestampCounts,
};

use super::TableStyle;
use super::grid::{self, CellTone, GridCell, GridColumn, GridColumnGroup};
use super::shapes::{
    SparklineGroup, SparklineRow, SparklineScale, SparklineUnit, allan as deviations, put,
};
use super::summary::{finding_lines, limit_lines, wrapped};
use crate::units::{ABSENT, full_count, human_ns, mean_ns, signed_mean_ns, signed_ns};

/// Number of samples up to which no statistics are shown.
const FEW: usize = 8;
/// Maximum length of a name next to other columns.
const NAME_MAX: usize = 46;

/// Column of the table of servers.
struct ServerColumn {
    group: &'static str,
    column: GridColumn<'static>,
    /// Rank: columns of the highest rank are omitted first, those of rank 0 never.
    rank: u8,
    cell: fn(&ServerResult) -> String,
}

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn query(result: &QueryResult, style: &TableStyle) -> String {
    let mut lines = servers(result, style);
    for server in result.servers.iter().filter(|server| server.samples.len() > FEW) {
        lines.push(String::new());
        lines.extend(statistics(server, result, style));
    }
    if !result.differences.is_empty() {
        lines.push(String::new());
        let line = |difference: &ServerDifference| {
            let tone = if difference.contradiction { CellTone::Warning } else { CellTone::Plain };
            tone.paint(&difference_line(difference, result), style.colour)
        };
        lines.extend(result.differences.iter().map(line));
    }
    if !result.limits.is_empty() {
        lines.push(String::new());
        lines.extend(limit_lines(&result.limits, style));
    }
    if !result.findings.is_empty() {
        lines.push(String::new());
        lines.extend(finding_lines(&result.findings, style));
    }
    lines.join("\n")
}

fn fields(name_width: usize) -> Vec<ServerColumn> {
    let field = |group, title, width, rank, cell| ServerColumn {
        group,
        column: GridColumn::right(title, width),
        rank,
        cell,
    };
    let reported = "reported by server";
    let measured = "measured";
    vec![
        ServerColumn {
            column: GridColumn::left("server", name_width),
            ..field("", "", 0, 0, full_name)
        },
        field(reported, "stratum", 7, 6, |one| state_text(one, |says| says.stratum.to_string())),
        field(reported, "reference", 15, 5, |one| {
            state_text(one, |says| says.reference_id.clone())
        }),
        field(reported, "leap", 7, 7, |one| {
            state_text(one, |says| short_leap(says.leap).to_owned())
        }),
        field(reported, "delay", 7, 8, |one| state_text(one, |says| human_ns(says.root_delay_ns))),
        field(reported, "disp.", 7, 9, |one| {
            state_text(one, |says| human_ns(says.root_dispersion_ns))
        }),
        field(measured, "offset", 10, 0, |one| known(one.best, |best| signed_ns(best.offset_ns))),
        field(measured, "bound", 9, 0, |one| {
            known(one.best, |best| format!("± {}", human_ns(best.bound_ns)))
        }),
        field(measured, "delay", 8, 2, |one| {
            known(one.best, |best| signed_ns(best.delay_ns).trim_start_matches('+').to_owned())
        }),
        field(measured, "jitter", 7, 3, |one| known(one.jitter_ns, mean_ns)),
        field(measured, "replies", 13, 1, |one| {
            format!("{}/{}", full_count(one.counts.received), full_count(one.counts.sent))
        }),
    ]
}

fn state_text(server: &ServerResult, what: impl Fn(&ServerState) -> String) -> String {
    server.server_state.as_ref().map_or_else(|| ABSENT.to_owned(), what)
}

fn known<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| ABSENT.to_owned(), text)
}

/// Returns the name of a server with its address, unless the name is an address; or the name of the
/// NTP server that NTS-KE selected, with the name of the target.
pub(crate) fn full_name(server: &ServerResult) -> String {
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

/// Returns a leap indicator in words.
pub(crate) const fn leap_name(leap: LeapState) -> &'static str {
    match leap {
        LeapState::None => "none",
        LeapState::Insert => "insert",
        LeapState::Delete => "delete",
        LeapState::Unsynchronised => "unsynchronised",
    }
}

/// Returns a leap indicator for a narrow column.
const fn short_leap(leap: LeapState) -> &'static str {
    match leap {
        LeapState::Unsynchronised => "unsync.",
        other => leap_name(other),
    }
}

/// Returns the header and a line for each server.
fn servers(result: &QueryResult, style: &TableStyle) -> Vec<String> {
    let longest = result.servers.iter().map(|one| full_name(one).chars().count()).max();
    let name_width = longest.unwrap_or(0).clamp("server".len(), NAME_MAX);
    let width = |fields: &[ServerColumn]| grid::width(&groups(fields));
    let fields = grid::fitting(fields(name_width), width, |field| field.rank, style.width);
    let groups = groups(&fields);
    let mut lines: Vec<_> =
        grid::header(&groups, style.colour).lines().map(str::to_owned).collect();
    for server in &result.servers {
        let tone = if server.best.is_none() { CellTone::Bad } else { CellTone::Plain };
        let cell = |field: &ServerColumn| GridCell { text: (field.cell)(server), tone };
        let cells: Vec<_> = fields.iter().map(cell).collect();
        lines.push(grid::row(&groups, &cells, style.colour));
    }
    lines
}

fn groups(fields: &[ServerColumn]) -> Vec<GridColumnGroup<'static>> {
    fields
        .chunk_by(|a, b| a.group == b.group)
        .map(|fields| GridColumnGroup {
            title: fields[0].group,
            columns: fields.iter().map(|field| field.column.clone()).collect(),
        })
        .collect()
}

/// Returns the statistics of one server.
fn statistics(server: &ServerResult, result: &QueryResult, style: &TableStyle) -> Vec<String> {
    let counts = &server.counts;
    let title = format!(
        "{}: {} samples of {} requests, one every {}",
        full_name(server),
        full_count(server.samples.len() as u64),
        full_count(counts.sent),
        human_ns(result.interval_ns),
    );
    let mut lines = vec![CellTone::Strong.paint(&title, style.colour)];
    lines.extend(figures_table(server, style));
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
    facts.extend(odd_replies(server));
    facts.extend(allan(server));
    for fact in facts {
        lines.extend(wrapped(&fact, "  ", "    ", style));
    }
    lines
}

/// Returns sparklines of offset and delay over time, and of the Allan deviation.
fn shapes(server: &ServerResult, result: &QueryResult, style: &TableStyle) -> Vec<String> {
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
    lines.extend(deviations(&[("offset", &server.allan)], style));
    lines
}

fn figures_table(server: &ServerResult, style: &TableStyle) -> Vec<String> {
    const TITLES: [&str; 10] =
        ["mean", "deviation", "RMS", "min", "p1", "p5", "p50", "p95", "p99", "max"];
    let columns = TITLES.map(|title| GridColumn::right(title, 9));
    let quantities = [
        ("offset", server.offset_ns),
        ("delay", server.delay_ns),
        ("dispersion", server.dispersion_ns),
    ];
    let rows = quantities.into_iter().filter_map(|(name, figures)| {
        Some((format!("  {name}"), figure_texts(&figures?, name == "offset").to_vec()))
    });
    let name = GridColumn::left("", 12);
    grid::blocks([name.clone(), name], &columns, &rows.collect::<Vec<_>>(), style)
}

/// Returns the texts of a quantity: mean, standard deviation, root mean square, extremes and
/// percentiles. A single sample has no deviation.
pub(crate) fn figure_texts(figures: &ExactSummary, signed: bool) -> [String; 10] {
    let with_sign = |ns: i64| {
        let text = signed_ns(ns);
        if signed { text } else { text.trim_start_matches('+').to_owned() }
    };
    let ExactSummary { mean, stddev, rms, min, p1, p5, p50, p95, p99, max, .. } = *figures;
    let size = |ns: f64| signed_mean_ns(ns).trim_start_matches('+').to_owned();
    let deviation = if figures.count < 2 { ABSENT.to_owned() } else { size(stddev) };
    let [min, p1, p5, p50, p95, p99, max] = [min, p1, p5, p50, p95, p99, max].map(with_sign);
    let mean = if signed { signed_mean_ns(mean) } else { size(mean) };
    [mean, deviation, size(rms), min, p1, p5, p50, p95, p99, max]
}

/// Returns the sources of timestamps, with their counts.
pub(crate) fn timestamp_counts(counts: TimestampCounts) -> String {
    let TimestampCounts { hardware, kernel, user } = counts;
    let all = [("hardware", hardware), ("kernel", kernel), ("user", user)];
    let some = all.into_iter().filter(|(_, count)| *count > 0);
    let texts: Vec<_> = some.map(|(who, count)| format!("{who} {}", full_count(count))).collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

/// Returns lost requests and replies that were no samples; `None` if there are none.
pub(crate) fn odd_replies(server: &ServerResult) -> Option<String> {
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
    (!phrases.is_empty()).then(|| format!("other: {}", phrases.join(", ")))
}

fn allan(server: &ServerResult) -> Option<String> {
    let point = |point: &horolog_record::AllanDeviation| {
        format!("{} at {}", scientific(point.deviation), seconds(point.tau_s))
    };
    let points: Vec<_> = server.allan.iter().map(point).collect();
    (!points.is_empty()).then(|| format!("Allan deviation: {}", points.join(", ")))
}

/// Formats a number in scientific notation without a unit, such as an Allan deviation.
pub(crate) fn scientific(value: f64) -> String {
    if value.is_finite() { format!("{value:.2e}") } else { ABSENT.to_owned() }
}

/// Formats an averaging time in seconds.
pub(crate) fn seconds(seconds: f64) -> String {
    if (0.0..1e9).contains(&seconds) {
        format!("{} s", (seconds * 1e6).round() / 1e6)
    } else {
        ABSENT.to_owned()
    }
}

/// Returns a sentence on the difference between two servers.
pub(crate) fn difference_line(difference: &ServerDifference, result: &QueryResult) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    const STYLE: TableStyle = TableStyle { colour: false, width: 120 };

    #[test]
    fn output_matches_the_expected_text() {
        let text = query(&fixture::query(5), &STYLE);
        assert_eq!(text, include_str!("query.txt").trim_end(), "\n{text}");
        let text = query(&fixture::query(1_000), &STYLE);
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
        let text = query(&fixture::query(0), &STYLE);
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
        let text = query(&result, &STYLE);
        assert!(text.contains("? is ahead of time.example"), "{text}");
        assert!(!text.contains("NaN"), "{text}");
    }

    #[test]
    fn colour_changes_no_character_of_the_text() {
        let result = fixture::query(20);
        let coloured = query(&result, &TableStyle { colour: true, width: 120 });
        let stripped: String = coloured
            .split('\x1b')
            .enumerate()
            .map(|(index, part)| if index == 0 { part } else { part.split_once('m').unwrap().1 })
            .collect();
        assert_eq!(stripped, query(&result, &STYLE));
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
}
