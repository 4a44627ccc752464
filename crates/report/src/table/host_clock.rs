//! The clocks of a host: facts with what they mean, and a row of figures for each clock.

use horolog_record::HostClockResult;

use super::TableStyle;
use super::grid::{self, Cell, Column, Group, Tone};
use super::summary::{finding_lines, wrapped};
use crate::facts::FactGroup;
use crate::host_clock::{CLOCK_TITLES, CLOCKS_NOTE, figures, groups};

const NAME_WIDTH: usize = 18;
const WIDTHS: [usize; 6] = [10, 9, 9, 11, 12, 10];
/// Columns that are always shown.
const SHOWN_MIN: usize = 3;
/// Columns of a fact's name.
const FACT_WIDTH: usize = 22;

/// The lines for the terminal, without a newline at the end.
#[must_use]
pub fn host_clock(result: &HostClockResult, style: &TableStyle) -> String {
    let mut lines = fact_lines(&groups(result), style);
    lines.push(String::new());
    lines.extend(clocks(result, style));
    lines.extend(wrapped(CLOCKS_NOTE, "  ", "    ", style));
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

/// Facts below their headings, each with its meaning below it.
pub(super) fn fact_lines(groups: &[FactGroup], style: &TableStyle) -> Vec<String> {
    let mut lines = Vec::new();
    for group in groups {
        lines.push(Tone::Strong.paint(group.title, style.colour));
        for fact in &group.facts {
            let name = format!("  {:<FACT_WIDTH$} ", fact.name);
            let rest = " ".repeat(FACT_WIDTH + 3);
            lines.extend(wrapped(&fact.value, &name, &rest, style));
            if !fact.meaning.is_empty() {
                lines.extend(wrapped(&fact.meaning, "      ", "      ", style));
            }
        }
    }
    lines
}

fn clocks(result: &HostClockResult, style: &TableStyle) -> Vec<String> {
    let mut room = style.width.saturating_sub(NAME_WIDTH);
    let fits = |width: &&usize| {
        let is_room = room > **width;
        room = room.saturating_sub(**width + 1);
        is_room
    };
    let shown = WIDTHS.iter().take_while(fits).count().max(SHOWN_MIN);
    let mut columns = vec![Column::left("CLOCK_", NAME_WIDTH)];
    let titles = CLOCK_TITLES.iter().zip(WIDTHS).take(shown);
    columns.extend(titles.map(|(title, width)| Column::right(title, width)));
    let group = [Group { title: "", columns }];
    let header = grid::header(&group, style.colour);
    let mut lines: Vec<_> = header.lines().skip(1).map(str::to_owned).collect();
    for clock in &result.clocks {
        let name = Cell::plain(clock.name.clone());
        if let Some(error) = &clock.error {
            lines.extend(wrapped(error, &format!("{:<NAME_WIDTH$} ", clock.name), "    ", style));
            continue;
        }
        let cells: Vec<_> = [name]
            .into_iter()
            .chain(figures(clock).map(Cell::plain).into_iter().take(shown))
            .collect();
        lines.push(grid::row(&group, &cells, style.colour));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn looks_like_this() {
        let style = TableStyle { colour: false, width: 100 };
        let text = host_clock(&fixture::host_clock(), &style);
        assert_eq!(text, include_str!("host_clock.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn a_narrow_terminal_keeps_what_a_reading_costs() {
        let style = TableStyle { colour: false, width: 60 };
        let text = host_clock(&fixture::host_clock(), &style);
        assert!(text.contains("cost") && !text.contains("doubt\n"), "{text}");
        // A path is not broken.
        assert!(text.lines().all(|line| line.chars().count() <= 75), "{text}");
    }
}
