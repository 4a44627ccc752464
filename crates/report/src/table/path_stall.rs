//! Outcome of a search for stalls: a row for each pattern and option, published claims on stalls
//! compared with it, and recommended changes.

use horolog_record::PathStallResult;

use super::TableStyle;
use super::grid::{self, Cell, Column, ColumnGroup, Tone};
use super::path_tcp::{end, target};
use super::shapes::{Bar, put, worst_first};
use super::summary::{finding_lines, limit_lines, wrapped};
use crate::stall::{self, GroupedCell};
use crate::units::{ABSENT, human_ns, percent};

const NAME_WIDTH: usize = 34;
const OPTION_WIDTH: usize = 17;
const WIDTHS: [usize; 9] = [8, 8, 8, 9, 8, 8, 4, 19, 9];
/// Ranks by which columns are omitted on a narrow terminal: the highest first.
const RANKS: [u8; 9] = [2, 0, 1, 5, 0, 4, 3, 0, 6];

/// Returns the lines for the terminal, without a newline at the end.
#[must_use]
pub fn path_stall(result: &PathStallResult, style: &TableStyle) -> String {
    let mut lines = Vec::new();
    let push_wrapped = |text: &str, lines: &mut Vec<String>| {
        lines.extend(wrapped(text, "  ", "    ", style));
    };
    if let Some(far) = &result.target {
        lines.push(format!("Stalls of TCP to {}", target(far)));
        push_wrapped(&format!("near: {}", end(Some(&result.near))), &mut lines);
        push_wrapped(&format!("far: {}", end(result.far.as_ref())), &mut lines);
    }
    push_wrapped(&stall::kernel(&result.kernel), &mut lines);
    push_wrapped(&stall::evidence(result), &mut lines);
    // Advice comes first; the evidence for it may be many rows.
    lines.extend(limit_lines(&result.limits, style));
    lines.extend(finding_lines(&result.findings, style));
    for claim in &result.claims {
        let text =
            format!("{}: {} ({})", stall::held(claim.holds), claim.statement, claim.evidence);
        push_wrapped(&text, &mut lines);
    }
    if !result.cells.is_empty() {
        let rows = stall::grouped(&result.cells);
        lines.extend(cells(&rows, style));
        put(&mut lines, stalls(&rows, style));
        push_wrapped(stall::DEFINITION, &mut lines);
        if rows.len() < result.cells.len() {
            push_wrapped(stall::FOLDED, &mut lines);
        }
        for text in stall::packets(result) {
            push_wrapped(&text, &mut lines);
        }
        if let Some(text) = stall::window(result) {
            push_wrapped(&text, &mut lines);
        }
    }
    if let Some(watch) = &result.watched {
        push_wrapped(&stall::watched(watch), &mut lines);
        lines.extend(connections(watch, style));
    }
    lines.join("\n")
}

/// Returns the frequency of stalls of patterns that stalled at all, the worst first.
fn stalls(rows: &[GroupedCell<'_>], style: &TableStyle) -> Vec<String> {
    let share = |row: &&GroupedCell<'_>| row.cell.stalled as f64 / row.cell.exchanges.max(1) as f64;
    let mut stalled: Vec<_> = rows.iter().filter(|row| row.cell.stalled > 0).collect();
    stalled.sort_by(|a, b| share(b).total_cmp(&share(a)));
    let bars = stalled.iter().map(|row| {
        let option = stall::option(row.cell.option);
        let p50 = row.cell.exchange_ns.as_ref();
        let p50 = p50.map_or_else(|| ABSENT.to_owned(), |times| human_ns(times.p50));
        let value_text = format!("{}, p50 {p50}, {option}", percent(share(row)));
        let value_text = value_text.trim_end_matches(", -").to_owned();
        Bar::plain(row.pattern(), Some(share(row)), value_text)
    });
    let bars: Vec<_> = bars.collect();
    let mut lines = worst_first("share of exchanges that stalled", &bars, 1.0, style);
    let others = rows.len() - stalled.len();
    lines.extend(
        (!lines.is_empty() && others > 0).then(|| format!("  and {others} more without stalls")),
    );
    lines
}

fn cells(rows: &[GroupedCell<'_>], style: &TableStyle) -> Vec<String> {
    let all: Vec<usize> = (0..WIDTHS.len()).collect();
    let width = |columns: &[usize]| {
        NAME_WIDTH + 1 + OPTION_WIDTH + columns.iter().map(|at| WIDTHS[*at] + 1).sum::<usize>()
    };
    let shown = grid::fitting(all, width, |at| RANKS[*at], style.width);
    let mut columns =
        vec![Column::left("pattern", NAME_WIDTH), Column::left("option", OPTION_WIDTH)];
    columns.extend(shown.iter().map(|at| Column::right(stall::COLUMNS[*at], WIDTHS[*at])));
    let group = [ColumnGroup { title: "", columns }];
    let header = grid::header(&group, style.colour);
    let mut lines: Vec<_> = header.lines().skip(1).map(str::to_owned).collect();
    for row in rows {
        let (cell, pattern) = (row.cell, row.pattern());
        let texts = stall::cell(cell);
        let tone = if cell.stalled > 0 { Tone::Warning } else { Tone::Plain };
        let mut row =
            vec![Cell::plain(pattern), Cell::plain(stall::option(cell.option).to_owned())];
        row.extend(shown.iter().map(|at| Cell { text: texts[*at].clone(), tone }));
        lines.push(grid::row(&group, &row, style.colour));
    }
    lines
}

fn connections(watch: &horolog_record::StallWatch, style: &TableStyle) -> Vec<String> {
    const WIDTHS: [usize; 8] = [22, 9, 9, 9, 9, 9, 8, 19];
    if watch.connections.is_empty() {
        return Vec::new();
    }
    let mut columns = vec![Column::left("server", 22)];
    columns.extend(
        stall::WATCHED_COLUMNS.iter().zip(WIDTHS).map(|(title, width)| Column::right(title, width)),
    );
    let group = [ColumnGroup { title: "", columns }];
    let header = grid::header(&group, style.colour);
    let mut lines: Vec<_> = header.lines().skip(1).map(str::to_owned).collect();
    for one in &watch.connections {
        let mut row = vec![Cell::plain(one.server.clone())];
        row.extend(stall::connection(one).map(Cell::plain));
        lines.push(grid::row(&group, &row, style.colour));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let style = TableStyle { colour: false, width: 132 };
        let text = path_stall(&fixture::path_stall(), &style);
        assert_eq!(text, include_str!("path_stall.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn a_narrow_terminal_keeps_the_share_and_the_mechanism() {
        let style = TableStyle { colour: false, width: 80 };
        let text = path_stall(&fixture::path_stall(), &style);
        assert!(text.contains("mechanism") && !text.contains("answer in"), "{text}");
    }

    #[test]
    fn the_worst_is_on_top_and_one_alone_is_not_drawn() {
        let mut result = fixture::path_stall();
        let cells = &mut result.cells;
        (cells[1].stalled, cells[2].stalled, cells[2].exchange_ns) = (1, 10, None);
        let text = path_stall(&result, &TableStyle { colour: false, width: 80 });
        let bars: Vec<_> = text.lines().filter(|line| line.contains(" |")).collect();
        assert!(bars[0].ends_with("| 100.00%, p50 -, TCP_NODELAY"), "{text}");
        assert!(bars.len() == 3 && bars[2].ends_with("| 10.00%, p50 42.2 ms"), "{text}");
        result.cells.truncate(2);
        assert!(!path_stall(&result, &TableStyle::default()).contains("share of exchanges"));
    }
}
