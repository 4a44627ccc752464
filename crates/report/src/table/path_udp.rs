//! Outcome of a run over a path: a row for each length and load, then the results for both
//! directions, for host and wire, and the measurement's own cost.

use horolog_record::{Distribution, PathUdpResult};

use super::TableStyle;
use super::grid::{self, Cell, Column, ColumnGroup, Tone};
use super::shapes::{distributions, put};
use super::summary::{finding_lines, limit_lines, wrapped};
use crate::path_udp::{COLUMNS, NOTE, cost, details, title};

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn path_udp(result: &PathUdpResult, style: &TableStyle) -> String {
    let mut lines = wrapped(&title(result), "", "  ", style);
    for line in &mut lines {
        *line = Tone::Strong.paint(line, style.colour);
    }
    let width_of = |columns: &[crate::path_udp::PathRowColumn]| {
        columns.iter().map(|(_, width, ..)| width + 1).sum::<usize>().saturating_sub(1)
    };
    let shown = grid::fitting(COLUMNS.to_vec(), width_of, |(.., rank, _)| *rank, style.width);
    let columns = shown.iter().map(|(title, width, ..)| Column::right(title, *width)).collect();
    let group = [ColumnGroup { title: "", columns }];
    if result.rows.is_empty() {
        lines.push("  No measurements.".to_owned());
    } else {
        lines.extend(grid::header(&group, style.colour).lines().skip(1).map(str::to_owned));
    }
    for row in &result.rows {
        let tone = |title| match title {
            "M" if row.counts.lost > 0 => Tone::Bad,
            "S" if row.counts.reordered > 0 => Tone::Warning,
            "dup" if row.counts.duplicate > 0 => Tone::Warning,
            _ => Tone::Plain,
        };
        let cells =
            shown.iter().map(|(title, _, _, cell)| Cell { text: cell(row), tone: tone(title) });
        lines.push(grid::row(&group, &cells.collect::<Vec<_>>(), style.colour));
    }
    put(&mut lines, distributions("round trip", &round_trips(result), style));
    for (index, row) in result.rows.iter().enumerate() {
        for line in details(result, index, row) {
            lines.extend(wrapped(&line, "  ", "    ", style));
        }
    }
    lines.extend(wrapped(&cost(result), "  ", "    ", style));
    lines.extend(wrapped(NOTE, "  ", "    ", style));
    lines.extend(limit_lines(&result.limits, style));
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

/// Returns the round trips of all rows that have any; half of each is T.
fn round_trips(result: &PathUdpResult) -> Vec<(String, &Distribution)> {
    let numbered = result.rows.iter().enumerate();
    let named = numbered.filter_map(|(index, row)| {
        let ratio = row.load.planned_ratio;
        let load = if ratio > 0.0 { format!(", R {ratio}") } else { String::new() };
        let name = format!("{}. {} bytes{load}", index + 1, row.length);
        Some((name, row.rtt_ns.as_ref()?))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 120 };
        let text = path_udp(&fixture::path_udp(), &style);
        assert_eq!(text, include_str!("path_udp.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn a_narrow_terminal_keeps_length_loss_and_two_percentiles() {
        let text = path_udp(&fixture::path_udp(), &TableStyle { colour: false, width: 30 });
        let header = text.lines().find(|line| line.contains("p50")).unwrap();
        let titles: Vec<_> = header.split_whitespace().collect();
        assert_eq!(titles, ["L", "M", "p50", "p99"]);
    }

    #[test]
    fn a_row_without_replies_has_no_figures() {
        let mut result = fixture::path_udp();
        let row = &mut result.rows[0];
        (row.rtt_ns, row.delay_ns, row.counts.received) = (None, None, 0);
        row.achieved_rate = f64::MAX;
        assert!(!path_udp(&result, &TableStyle::default()).contains("NaN"));
        result.rows.clear();
        let text = path_udp(&result, &TableStyle::default());
        assert!(text.contains("No measurements.") && !text.contains("T mean"), "{text}");
    }

    #[test]
    fn one_row_has_bars_with_shares_and_none_has_no_shape() {
        let mut result = fixture::path_udp();
        result.rows.truncate(1);
        let text = path_udp(&result, &TableStyle { colour: false, width: 80 });
        assert!(text.contains("\nround trip, 20,000 values, from:\n   10.0 µs |####"), "{text}");
        result.rows[0].rtt_ns = None;
        let text = path_udp(&result, &TableStyle { colour: false, width: 80 });
        assert!(!text.contains("round trip, "), "{text}");
    }
}
