//! Gain of a relay by in-kernel copies: for each size the totals over the number of children, and
//! the cost of a copy.

use horolog_record::{BenchRelayResult, RelayConfigurationResult};

use super::TableStyle;
use super::grid::{CellTone, GridColumn, blocks};
use super::shapes::{TextBar, bars};
use super::summary::{finding_lines, wrapped};
use crate::relay::{
    COST_COLUMNS, DEFINITION, costs, direct, sentences, size_name, total_columns, totals,
};
use crate::units::{ABSENT, human_rate};

/// Returns the tables, their conclusions and the findings, without a newline at the end.
#[must_use]
pub fn bench_relay(result: &BenchRelayResult, style: &TableStyle) -> String {
    let mut lines = Vec::new();
    for size in result.sizes() {
        let title = format!("{}: copies per second without loss", size_name(size));
        lines.push(CellTone::Strong.paint(&title, style.colour));
        let columns = right(&total_columns(result));
        lines.extend(blocks(names("children", 8), &columns, &totals(result, size), style));
        lines.extend(copies(result, size, style));
        for sentence in sentences(result, size) {
            lines.extend(wrapped(&sentence, "", "  ", style));
        }
        let without = result.direct.iter().filter(|direct| direct.size_bytes == size);
        for sentence in without.map(direct) {
            lines.extend(wrapped(&sentence, "", "  ", style));
        }
        let title = format!("{}: cost of a copy at half that rate", size_name(size));
        lines.push(CellTone::Strong.paint(&title, style.colour));
        let columns = right(&COST_COLUMNS);
        lines.extend(blocks(names("children, by", 12), &columns, &costs(result, size), style));
        lines.push(String::new());
    }
    lines.extend(wrapped(DEFINITION, "", "  ", style));
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

/// Returns sparklines of the total copy rate over the number of children, one per engine.
fn copies(result: &BenchRelayResult, size: usize, style: &TableStyle) -> Vec<String> {
    let cells = result.cells.iter().filter(|cell| cell.size_bytes == size);
    let bar = |cell: &RelayConfigurationResult| {
        let name = format!("{} {}", cell.children, cell.engine.name());
        let rate = cell.copies_per_s();
        TextBar::plain(name, rate, rate.map_or_else(|| ABSENT.to_owned(), human_rate))
    };
    bars("copies per second by children and engine", &cells.map(bar).collect::<Vec<_>>(), style)
}

/// Returns the columns of names; on a narrow terminal, they are as wide as the longest name.
fn names(title: &'static str, width: usize) -> [GridColumn<'static>; 2] {
    [GridColumn::left(title, width), GridColumn::left(title, width)]
}

fn right(columns: &[(&'static str, usize)]) -> Vec<GridColumn<'static>> {
    columns.iter().map(|(title, width)| GridColumn::right(title, *width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn output_matches_the_expected_text() {
        let text = bench_relay(&fixture::bench_relay(), &TableStyle { colour: false, width: 80 });
        assert_eq!(text, include_str!("bench_relay_table.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn an_experiment_that_was_ended_at_once_is_still_reported() {
        let mut result = fixture::bench_relay();
        (result.cells, result.direct) = (Vec::new(), Vec::new());
        let text = bench_relay(&result, &TableStyle::default());
        assert!(text.contains("shared the 2 cores"), "{text}");
    }

    #[test]
    fn a_cell_without_a_round_has_no_bar() {
        let mut result = fixture::bench_relay();
        result.cells[1].repetitions.clear();
        let lines = copies(&result, 64, &TableStyle { colour: false, width: 80 });
        assert!(lines[2].starts_with("  1 xdp   |   ") && lines[2].ends_with("| -"), "{lines:?}");
        assert!(copies(&result, 65, &TableStyle::default()).is_empty());
    }
}
